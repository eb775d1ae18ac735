"""What systemd itself says about the shipped unit, its user and its files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_SECONDS

SHIPPED = Path(__file__).parents[2]
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


def said(*command: str | Path) -> subprocess.CompletedProcess[str]:
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
    """Return a copy of the unit that calls a command which is there."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(COMMAND, "/bin/true"))
    return unit


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the root of a machine where slumberd is in /opt, and its user is made."""
    share = tmp_path / "opt/slumberd/share/slumberd"
    for name in ("config", "rules"):
        shutil.copytree(SHIPPED / name, share / name)
    (tmp_path / "etc").mkdir()
    assert said("systemd-sysusers", f"--root={tmp_path}", SYSUSERS).returncode == 0
    return tmp_path


def installed(host: Path) -> subprocess.CompletedProcess[str]:
    return said("systemd-tmpfiles", f"--root={host}", "--create", TMPFILES)


def test_systemd_finds_no_fault_with_the_unit(copy: Path) -> None:
    done = said("systemd-analyze", "verify", copy)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_finds_a_fault_with_a_misspelt_unit(copy: Path) -> None:
    copy.write_text(copy.read_text().replace("RestartPreventExitStatus=", "RestartPrevent="))

    assert "RestartPrevent" in said("systemd-analyze", "verify", copy).stderr


def test_the_unit_is_exposed_no_more_than_it_must_be() -> None:
    words = ("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", UNIT)

    done = said("systemd-analyze", *words)

    assert done.returncode == 0, done.stdout[-300:]


def test_the_unit_is_restarted_after_everything_that_a_person_need_not_mend() -> None:
    lines = UNIT.read_text().splitlines()

    assert "Restart=on-failure" in lines
    assert "RestartPreventExitStatus=64 77 78" in lines


def test_the_user_has_a_group_of_its_own_and_no_shell(host: Path) -> None:
    name, _, _, gid, _, home, shell = (host / "etc/passwd").read_text().strip().split(":")

    assert (name, home, shell) == ("slumberd", "/var/lib/slumberd", "/usr/sbin/nologin")
    assert f"slumberd:x:{gid}:" in (host / "etc/group").read_text()


@as_root
def test_configuration_and_rules_are_put_in_place(host: Path) -> None:
    done = installed(host)

    assert (done.returncode, done.stderr) == (0, "")
    for name in ("slumberd.yaml", "config.schema.json", "config/rules.schema.json"):
        source = SHIPPED / "config" / Path(name).name
        assert (host / "etc/slumberd" / name).read_bytes() == source.read_bytes()
    rules = {file.name for file in (host / "etc/slumberd/rules.d").iterdir()}
    assert rules == {file.name for file in (SHIPPED / "rules").iterdir()}
    assert (host / "usr/local/bin/slumberd").readlink() == Path("/opt/slumberd/bin/slumberd")


@as_root
def test_what_was_edited_is_left_alone_when_it_is_installed_again(host: Path) -> None:
    installed(host)
    edited = [host / "etc/slumberd/slumberd.yaml", host / "etc/slumberd/rules.d/mine.yaml"]
    for file in edited:
        file.write_text("# mine\n")

    done = installed(host)

    assert done.returncode == 0, done.stderr
    assert [file.read_text() for file in edited] == ["# mine\n"] * 2
