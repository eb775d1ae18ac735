"""How commands feel: quick help, examples, completion, no escape codes where none belong."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slumberd.cli.commands import ENTRIES
from tests.builders import at, triple
from tests.calling import called
from tests.site import Site, environment

HEAVY = {"aiosqlite", "apscheduler", "orjson", "pydantic", "rich", "sqlite3", "structlog", "yaml"}
GROUPS = [entry.name for entry in ENTRIES if not entry.examples]
ESCAPE = b"\x1b"


def process(*words: str, **environ: str) -> bytes:
    return subprocess.run(words, capture_output=True, check=True, env=environment(environ)).stdout


def test_help_imports_nothing_that_takes_long() -> None:
    code = (
        "import json, sys\nbefore = {*sys.modules}\nfrom slumberd.cli import call\n"
        "call(['--help'])\nprint()\nprint(json.dumps([*sys.modules.keys() - before]))"
    )

    modules = json.loads(process(sys.executable, "-c", code).splitlines()[-1])

    assert {name.split(".")[0] for name in modules} & HEAVY == set()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_help_of_every_command_has_an_example_of_it(entry: object) -> None:
    name = entry.name  # type: ignore[attr-defined] # an Entry

    shown = called(name, "--help").stdout
    commands = (
        re.findall(r"^  ([a-z-]+) ", shown.split("Commands:")[1], re.MULTILINE)
        if name in GROUPS
        else []
    )

    assert commands or f"slumberd {name}" in shown.split("Example")[1]
    for command in commands:
        told = called(name, command, "--help").stdout
        assert f"slumberd {name} {command}" in told.split("Example")[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_is_told_which_commands_there_are(shell: str) -> None:
    asking = {
        "bash": {"COMP_WORDS": "slumberd do", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "slumberd do"},
        "fish": {"_TYPER_COMPLETE_ARGS": "slumberd do", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]

    told = process(
        sys.executable, "-m", "slumberd", _SLUMBERD_COMPLETE=f"complete_{shell}", **asking
    ).decode()

    assert "doctor" in told
    assert "quarantine" not in told


def seen_on_terminal(command: list[str], **environ: str) -> bytes:
    """Return what a command shows on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(environ)
    ):
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    return shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    site.put(triple("e1", "alice", "likes", "tea", timestamp=at(1)))
    assert site.call("fire", "--all").returncode == 0
    return site


@pytest.mark.slow
def test_terminal_that_wants_no_colours_gets_no_escape_codes(site: Site) -> None:
    site.config.write_text(site.config.read_text().replace("logging: {file: slumberd.log}\n", ""))
    site.put(triple("e2", "alice", "likes", "rum", timestamp=at(2)))
    shows = (
        ["fire", "--all"],
        ["rules"],
        ["status"],
        ["facts"],
        ["doctor"],
        ["next"],
        ["audit", "ls"],
    )
    for words in shows:
        shown = seen_on_terminal(site.command(*words), NO_COLOR="1", TERM="xterm-256color")

        assert shown
        assert (words, ESCAPE in shown) == (words, False)


@pytest.mark.parametrize(
    "words",
    [["rules"], ["status"], ["status", "--check"], ["facts"], ["doctor"], ["next"], ["audit", "ls"],
     ["recent", "alice"], ["why", "e1"], ["why-not", "e1"], ["check", "--against-data"],
     ["quarantine", "ls"], ["audit", "verify"], ["fire", "--all", "--dry-run"]],
    ids=" ".join,
)  # fmt: skip
def test_whoever_is_no_terminal_gets_no_escape_codes(site: Site, words: list[str]) -> None:
    done = site.call(*words)

    assert ESCAPE not in (done.stdout + done.stderr).encode()
    assert done.stdout + done.stderr
