"""What keeps HTTP from being served ends the start, with a reason and without a traceback."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli.setup import interfaces_of
from slumberd.model.errors import ExtraMissingError
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import ServeSettings
from tests.support.daemons import Home
from tests.support.http_daemon import TENANTS, http_daemon, write_tokens

pytestmark = pytest.mark.acceptance


def failed_start(home: Home, code: int) -> str:
    """Start a daemon that cannot start; return what it says."""
    home.rule("all", cadence={"every": 1})
    ended = home.slumberd("run", check=False)
    assert ended.returncode == code, ended.stderr
    return ended.stderr


@pytest.mark.nightly
def test_address_in_use_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"

        said = failed_start(Home(tmp_path, {"serve": {"enabled": True, "address": address}}), 69)

    assert f"cannot listen on '{address}'" in said
    assert not (tmp_path / "state" / "http.sock").exists()


@pytest.mark.nightly
def test_unknown_host_is_reported(tmp_path: Path) -> None:
    address = "no.such.host.invalid:80"

    said = failed_start(Home(tmp_path, {"serve": {"enabled": True, "address": address}}), 69)

    assert f"cannot listen on '{address}'" in said


@pytest.mark.parametrize("address", ["8750", "localhost", "::1:80 ", ":80", "127.0.0.1:99999"])
def test_unclear_address_is_a_mistake_of_the_configuration(tmp_path: Path, address: str) -> None:
    assert "serve.address" in failed_start(Home(tmp_path, {"serve": {"address": address}}), 78)


@pytest.mark.nightly
def test_other_file_at_the_place_of_the_socket_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path, {"serve": {"enabled": True, "socket": "facts.db"}})

    said = failed_start(home, 69)

    assert "another file is there" in said
    assert (home.state / "facts.db").read_bytes().startswith(b"SQLite format 3")


@pytest.mark.nightly
def test_socket_of_another_daemon_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    with http_daemon(tmp_path / "first") as running:
        serve = {"enabled": True, "socket": str(running.socket)}

        said = failed_start(Home(tmp_path / "second", {"serve": serve}), 74)

        assert "another program listens" in said
        assert running.socket.exists()


@pytest.mark.parametrize("mode", [0o644, None], ids=["open to others", "missing"])
def test_bad_file_of_tokens_ends_the_start(tmp_path: Path, mode: int | None) -> None:
    file = tmp_path / "tokens.yaml"
    if mode is not None:
        write_tokens(file, TENANTS)
        file.chmod(mode)
    serve = {"enabled": True, "address": "127.0.0.1:0", "tokens_file": str(file)}

    assert "serve.tokens_file" in failed_start(Home(tmp_path, {"serve": serve}), 78)


@pytest.mark.nightly
def test_address_of_all_networks_is_logged(tmp_path: Path) -> None:
    with http_daemon(tmp_path, address="0.0.0.0:0") as running:
        exposed = [event for event in running.daemon.seen if event["event"] == "http.exposed"]

    assert [event["address"] for event in exposed] == ["0.0.0.0:0"]


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "slumberd.web.http.server", None)
    serve: Any = ServeSettings(enabled=True)

    with pytest.raises(ExtraMissingError, match=r"slumberd\[serve\]"):
        interfaces_of(Settings(state_dir=tmp_path, rules_dir=tmp_path, serve=serve))


def test_nothing_is_served_by_default(tmp_path: Path) -> None:
    assert list(interfaces_of(Settings(state_dir=tmp_path, rules_dir=tmp_path))) == []
