"""The page on backups has commands that parse, and the exit codes of the errors."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from slumberd.cli.registry import program
from slumberd.daemon.copies.backup import KEY, MANIFEST
from slumberd.daemon.file_exchange import JOURNAL
from slumberd.model import errors
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

PAGE = ROOT / "docs/how-to/back-up-and-restore.md"


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`(slumberd [a-z]+ [^`\n]+)`", PAGE.read_text())
    lines = [line for block in blocks for line in block.splitlines()]
    return sorted({line for line in [*lines, *spans] if line.startswith("slumberd ")})


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_command_of_the_page_parses(command: str) -> None:
    context: Any = program().make_context("slumberd", shlex.split(command)[1:])
    while hasattr(context.command, "resolve_command"):
        left = [*context._protected_args, *context.args]
        name, found, words = context.command.resolve_command(context, left)
        context = found.make_context(name, words, parent=context)

    assert context.command.name


def test_page_names_the_current_files_and_exit_codes() -> None:
    text = PAGE.read_text()

    assert all(f"`{name}`" in text for name in (KEY, MANIFEST, JOURNAL))
    for error, code in (
        (errors.BackupError, 65),
        (errors.NoInputError, 66),
        (errors.OutputExistsError, 73),
        (errors.StoreError, 74),
        (errors.BackupBusyError, 75),
        (errors.StateDirectoryLockedError, 75),
    ):
        assert error.exit_code == code
        assert re.search(rf"^\| {code}[ ,]", text, re.MULTILINE)
