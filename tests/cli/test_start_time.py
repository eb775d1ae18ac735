"""How commands feel: quick help, examples, completion, no escape codes where none belong."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import pytest
from typer.core import TyperGroup

from slumberd.cli.registry import NAME, program
from slumberd.service.state_lock import StateLock
from tests.support.calling import called
from tests.support.commands import every_command, furnished, moved, words_of
from tests.support.installation import Installation, environment
from tests.support.terminals import shown_on_terminal

pytestmark = pytest.mark.integration

HEAVY = {"apscheduler", "orjson", "pydantic", "rich", "sqlite3", "structlog", "yaml"}
ALL = list(every_command())
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completes_the_names_of_commands(shell: str) -> None:
    asking = {
        "bash": {"COMP_WORDS": "slumberd do", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "slumberd do"},
        "fish": {"_TYPER_COMPLETE_ARGS": "slumberd do", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]

    output = process(
        sys.executable, "-m", "slumberd", _SLUMBERD_COMPLETE=f"complete_{shell}", **asking
    ).decode()

    assert "doctor" in output
    assert "quarantine" not in output


@pytest.fixture(scope="module")
def furnishings(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return furnished(tmp_path_factory.mktemp("site"))


@pytest.fixture
def site(furnishings: Installation, tmp_path: Path) -> Installation:
    """Return a site of one's own, whose log goes to standard error."""
    site = moved(furnishings, tmp_path / "site")
    site.config.write_text(site.config.read_text().replace("logging: {file: slumberd.log}\n", ""))
    return site


@contextmanager
def not_for_long(command: str, site: Installation) -> Iterator[None]:
    """Let a daemon find its directory taken, for no test would come to its end."""
    with StateLock(site.state) if command == "run" else nullcontext():
        yield


@pytest.mark.parametrize("command", ALL)
def test_terminal_that_wants_no_colours_gets_no_escape_codes(
    site: Installation, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")

    with not_for_long(command, site):
        shown = shown_on_terminal(words_of(command, site))
    help_text = shown_on_terminal([*command.split(), "--help"])

    assert shown
    assert help_text
    assert ESCAPE not in shown + help_text


@pytest.mark.parametrize("words", [["facts"], ["fire", "--all"]], ids=" ".join)
def test_terminal_that_says_nothing_of_colours_gets_some(
    site: Installation, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    site.call("import", str(site.config.with_name("more.jsonl")))

    assert ESCAPE in shown_on_terminal([*words, "--config", str(site.config)])


@pytest.mark.parametrize("command", ALL)
def test_output_without_a_terminal_has_no_escape_codes(
    site: Installation, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    with not_for_long(command, site):
        done = called(*words_of(command, site))
    help_text = called(*command.split(), "--help")

    assert done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr + help_text.stdout + help_text.stderr


def calls_in(line: str) -> Iterator[list[str]]:
    """Yield the words of each call of slumberd in a line for a shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    for between, group in groupby(words, key=lambda word: not word.strip("|&;<>")):
        program_name, *arguments = group
        if not between and program_name == NAME:
            yield arguments


def parse(words: list[str]) -> None:
    """Read words as the command line reads them, and call nothing.

    Raises:
        click.UsageError: They are wrong.
    """
    command: Any = program()
    context = command.make_context(NAME, list(words))
    while isinstance(command, TyperGroup):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        context = found.make_context(name, words, parent=context)
        command = context.command


@pytest.mark.parametrize("command", ALL)
def test_help_has_examples_that_the_command_line_takes(command: str) -> None:
    lines = called(*command.split(), "--help").stdout.split("Example")[1].splitlines()[1:]

    calls = [words for line in lines for words in calls_in(line)]

    assert [words for words in calls if words[: len(command.split())] == command.split()]
    for words in calls:
        parse(words)


@pytest.mark.timing
def test_help_of_everything_takes_a_third_of_a_second() -> None:
    before = getrusage(RUSAGE_CHILDREN)

    process(sys.executable, "-m", "slumberd", "--help")

    # Of the processor, not of the wall's clock: other tests are no fault of help.
    after = getrusage(RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3
