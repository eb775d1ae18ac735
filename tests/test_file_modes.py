"""A command that may not read a file names the group whose members may."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest

from slumberd import file_modes
from slumberd.cli.exit_codes import _explain_os_error
from slumberd.file_modes import group_to_join

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another group"),
]

OTHER = max(entry.gr_gid for entry in grp.getgrall() if entry.gr_gid < 60_000)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file in a directory of a group of which this process is no member."""
    directory = tmp_path / "state"
    directory.mkdir()
    os.chown(directory, -1, OTHER)
    directory.chmod(0o2770)
    monkeypatch.setattr(os, "getgroups", list)
    monkeypatch.setattr(os, "getegid", lambda: 1)
    return directory / "facts.db"


def test_group_with_more_rights_than_others_is_named(shared: Path) -> None:
    name = grp.getgrgid(OTHER).gr_name

    assert group_to_join(str(shared)) == name
    error = PermissionError(13, "Permission denied", str(shared))
    assert _explain_os_error(error) == (
        77,
        f"{str(shared)!r}: Permission denied; be a member of the group {name!r}, and sign in again",
    )


def test_member_gets_no_advice(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgroups", lambda: [OTHER])

    assert group_to_join(str(shared)) is None


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o707])
def test_group_without_more_rights_than_others_is_not_named(shared: Path, mode: int) -> None:
    shared.parent.chmod(mode)

    assert group_to_join(str(shared)) is None


@pytest.mark.parametrize("path", [None, b"x", 3])
def test_what_is_no_path_has_no_group(path: bytes | int | None) -> None:
    assert file_modes.group_to_join(path) is None
