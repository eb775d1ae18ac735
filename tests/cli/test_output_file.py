"""Commands write a file whole or not at all, and replace one only when they may."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from slumberd.cli import report_file
from slumberd.cli.output_file import open_output
from slumberd.model.errors import OutputExistsError
from slumberd.web.console.report_file import ReportFile, render_report
from tests.support.daemons import Home

pytestmark = pytest.mark.unit


@pytest.fixture(params=["hard links", "no hard links"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of a file system with hard links, or of one without."""
    if request.param == "no hard links":

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    return tmp_path


def nothing() -> None:
    """Do nothing."""


def write_file(file: Path, *, replace: bool, meanwhile: Callable[[], object] = nothing) -> None:
    """Write a file, and do something before it is complete."""
    with open_output(str(file), replace=replace) as write:
        write([b"one\n"])
        meanwhile()
        write([b"two\n"])


@pytest.mark.parametrize("replace", [True, False])
def test_file_appears_whole_and_alone(folder: Path, replace: bool) -> None:
    file = folder / "new"

    seen: list[bool] = []

    write_file(file, replace=replace, meanwhile=lambda: seen.append(file.exists()))

    assert seen == [False]
    assert file.read_bytes() == b"one\ntwo\n"
    assert [*folder.iterdir()] == [file]


@pytest.mark.parametrize("replace", [True, False])
def test_file_has_the_usual_mode_within_the_umask(folder: Path, replace: bool) -> None:
    modes = []
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            write_file(folder / f"{mask}", replace=replace)
        finally:
            os.umask(before)
        modes.append((folder / f"{mask}").stat().st_mode & 0o777)

    assert modes == [0o640, 0o600]


def test_file_that_appears_meanwhile_is_kept(folder: Path) -> None:
    file = folder / "new"

    with pytest.raises(OutputExistsError, match="exists already: name a new file"):
        write_file(file, replace=False, meanwhile=lambda: file.write_text("theirs"))

    assert file.read_text() == "theirs"
    assert [*folder.iterdir()] == [file]


def test_link_that_leads_nowhere_is_kept(folder: Path) -> None:
    file = folder / "link"
    file.symlink_to(folder / "nothing")

    with pytest.raises(OutputExistsError):
        write_file(file, replace=False)

    assert file.is_symlink()
    assert [*folder.iterdir()] == [file]


def test_older_file_is_replaced_by_commands_that_may(folder: Path) -> None:
    file = folder / "old"
    file.write_text("old")

    write_file(file, replace=True)

    assert file.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("replace", [True, False])
def test_file_does_not_appear_after_an_error(folder: Path, replace: bool) -> None:
    def fail() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_file(folder / "new", replace=replace, meanwhile=fail)

    assert not [*folder.iterdir()]


def test_report_keeps_a_file_that_appears_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, file = Home(tmp_path), tmp_path / "report.html"

    def render_later(found: ReportFile) -> str:
        file.write_text("theirs")
        return render_report(found)

    monkeypatch.setattr(report_file, "render_report", render_later)
    ended = home.call("report", "--html", file, check=False)

    assert ended.returncode == OutputExistsError.exit_code
    assert ended.stderr == f"slumberd: {str(file)!r} exists already: name a new file\n"
    assert file.read_text() == "theirs"
