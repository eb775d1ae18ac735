"""systemd checks the shipped unit, and creates its user and its files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.waiting import PATIENCE_SECONDS

SHIPPED = ROOT
UNIT = SHIPPED / "systemd" / "slumberd.service"
SYSUSERS = SHIPPED / "systemd" / "slumberd.sysusers"
TMPFILES = SHIPPED / "systemd" / "slumberd.tmpfiles"
COMMAND = "/usr/local/bin/slumberd"
MOST_EXPOSED = 6  # in tenths

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(
        shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here"
    ),
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def run_tool(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LC_ALL": "C", "SYSTEMD_EMOJI": "0"}
    return subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=environment,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the unit that calls an existing command."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(COMMAND, "/bin/true"))
    return unit


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the root of a machine with slumberd in /opt, and with its user."""
    share = tmp_path / "opt/slumberd/share/slumberd"
    for name in ("config", "rules"):
        shutil.copytree(SHIPPED / name, share / name)
    (tmp_path / "etc").mkdir()
    assert run_tool("systemd-sysusers", f"--root={tmp_path}", SYSUSERS).returncode == 0
    return tmp_path


def create_files(host: Path) -> subprocess.CompletedProcess[str]:
    return run_tool("systemd-tmpfiles", f"--root={host}", "--create", TMPFILES)


def test_systemd_accepts_the_unit(copy: Path) -> None:
    done = run_tool("systemd-analyze", "verify", copy)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_systemd_reports_a_misspelt_key_of_the_unit(copy: Path) -> None:
    copy.write_text(copy.read_text().replace("RestartPreventExitStatus=", "RestartPrevent="))

    assert "RestartPrevent" in run_tool("systemd-analyze", "verify", copy).stderr


def test_unit_stays_below_the_exposure_limit() -> None:
    words = ("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", UNIT)

    done = run_tool("systemd-analyze", *words)

    assert done.returncode == 0, done.stdout[-300:]


def test_unit_restarts_unless_a_person_must_correct_the_cause() -> None:
    lines = UNIT.read_text().splitlines()

    assert "Restart=on-failure" in lines
    assert "RestartPreventExitStatus=64 77 78" in lines


def test_user_has_its_own_group_and_no_shell(host: Path) -> None:
    name, _, _, gid, _, home, shell = (host / "etc/passwd").read_text().strip().split(":")

    assert (name, home, shell) == ("slumberd", "/var/lib/slumberd", "/usr/sbin/nologin")
    assert f"slumberd:x:{gid}:" in (host / "etc/group").read_text()


@as_root
def test_installation_creates_configuration_and_rules(host: Path) -> None:
    done = create_files(host)

    assert (done.returncode, done.stderr) == (0, "")
    for name in ("slumberd.yaml", "config.schema.json", "config/rules.schema.json"):
        source = SHIPPED / "config" / Path(name).name
        assert (host / "etc/slumberd" / name).read_bytes() == source.read_bytes()
    rules = {file.name for file in (host / "etc/slumberd/rules.d").iterdir()}
    assert rules == {file.name for file in (SHIPPED / "rules").iterdir()}
    assert (host / "usr/local/bin/slumberd").readlink() == Path("/opt/slumberd/bin/slumberd")


@as_root
def test_repeated_installation_keeps_edited_files(host: Path) -> None:
    create_files(host)
    edited = [host / "etc/slumberd/slumberd.yaml", host / "etc/slumberd/rules.d/mine.yaml"]
    for file in edited:
        file.write_text("# mine\n")

    done = create_files(host)

    assert done.returncode == 0, done.stderr
    assert [file.read_text() for file in edited] == ["# mine\n"] * 2
