"""Help, examples, completion and escape codes of every command, and how fast help starts."""

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
from slumberd.daemon.tenure import StateLock
from tests.support.cli_runner import called
from tests.support.command_arguments import every_command, installation_with_data, moved, words_of
from tests.support.installation import Installation, environment
from tests.support.lists import of_each
from tests.support.terminals import output_on_terminal

pytestmark = pytest.mark.integration

HEAVY = {"aiosqlite", "apscheduler", "orjson", "pydantic", "rich", "sqlite3", "structlog", "yaml"}
OF_THE_LOG = {"rich.console", "structlog"}
OF_FIRING = {"apscheduler", "slumberd.consolidation.consolidator", "slumberd.daemon.composition"}
OF_RULES = OF_FIRING | {"slumberd.rules.rule_loader", "slumberd.daemon.control_socket"}
OF_OTHER_COMMANDS = {
    "slumberd.consolidation.extraction.conversation",
    "slumberd.daemon.shard_counts",
}
OF_READING_BOTH_STORES = {
    "slumberd.consolidation.marks",
    "slumberd.daemon.damage",
    "slumberd.storage.inspections",
}
OF_THE_LEDGER = {"slumberd.storage.audit.verify", "slumberd.storage.sqlite.replay"}
OF_READING = OF_READING_BOTH_STORES | OF_THE_LEDGER | {"slumberd.model.health"}
OF_RULES_AND_SEARCH = {"slumberd.model.rule", "slumberd.search.languages"}
OF_STORES = {"asyncio", "slumberd.rules.settings", "slumberd.daemon.stores", "yaml"}
ALL = list(every_command())
ESCAPE = b"\x1b"


def run_process(*words: str, **environ: str) -> bytes:
    return subprocess.run(words, capture_output=True, check=True, env=environment(environ)).stdout


def modules_imported_by(*words: str) -> set[str]:
    """Return the modules that a process has imported when it has run one command."""
    code = (
        "import json, sys\nbefore = {*sys.modules}\nfrom slumberd.cli import call\n"
        "call(sys.argv[1:])\nprint()\nprint(json.dumps([*sys.modules.keys() - before]))"
    )
    return {*json.loads(run_process(sys.executable, "-c", code, *words).splitlines()[-1])}


@pytest.mark.slow
def test_help_does_not_import_slow_modules() -> None:
    modules = modules_imported_by("--help")

    assert {name.split(".")[0] for name in modules} & HEAVY == set()


@pytest.mark.parametrize(
    ("words", "used", "unused"),
    [
        pytest.param(
            ["facts"],
            "slumberd.model.fact",
            OF_RULES | OF_THE_LOG | OF_READING | OF_RULES_AND_SEARCH,
            id="facts",
        ),
        pytest.param(
            ["recent", "alice"],
            "slumberd.model.episode",
            OF_RULES | OF_THE_LOG | OF_READING,
            id="recent",
        ),
        pytest.param(
            ["why", "e1"],
            "slumberd.model.fact",
            OF_RULES | OF_THE_LOG | OF_READING,
            id="why",
        ),
        pytest.param(
            ["status"],
            "slumberd.rules.rule_loader",
            OF_FIRING | OF_OTHER_COMMANDS | OF_THE_LOG | OF_THE_LEDGER,
            id="status",
        ),
        pytest.param(["version"], "typer", OF_RULES | OF_THE_LOG | OF_STORES, id="version"),
    ],
)
def test_command_imports_nothing_that_it_does_not_use(
    site: Installation, words: list[str], used: str, unused: set[str]
) -> None:
    options = [] if words == ["version"] else ["--config", str(site.config)]

    modules = modules_imported_by(*words, *options)

    assert used in modules
    assert modules & unused == set()


def test_command_builds_no_validator_that_it_does_not_use(site: Installation) -> None:
    code = """
import sys
from pydantic import BaseModel
from slumberd.cli import call
call(sys.argv[1:])
models = BaseModel.__subclasses__()
for model in models:
    models += model.__subclasses__()
print(*(model.__name__ for model in models if vars(model)["__pydantic_complete__"]))
"""

    output = run_process(sys.executable, "-c", code, "facts", "--config", str(site.config))

    assert output.splitlines()[-1].split() == [b"FactPattern", b"Settings"]


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completes_the_names_of_commands(shell: str) -> None:
    asking = {
        "bash": {"COMP_WORDS": "slumberd do", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "slumberd do"},
        "fish": {"_TYPER_COMPLETE_ARGS": "slumberd do", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]

    output = run_process(
        sys.executable, "-m", "slumberd", _SLUMBERD_COMPLETE=f"complete_{shell}", **asking
    ).decode()

    assert "doctor" in output
    assert "quarantine" not in output


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return installation_with_data(tmp_path_factory.mktemp("site"))


@pytest.fixture
def site(shared_site: Installation, tmp_path: Path) -> Installation:
    """Return a new site whose log goes to standard error."""
    site = moved(shared_site, tmp_path / "site")
    site.config.write_text(site.config.read_text().replace("logging: {file: slumberd.log}\n", ""))
    return site


@contextmanager
def run_refused(command: str, site: Installation) -> Iterator[None]:
    """Lock the state directory for a command that runs a daemon, so that it ends at once."""
    with StateLock(site.state) if command in {"run", "mcp"} else nullcontext():
        yield


@pytest.mark.cases(15)
@pytest.mark.slow
@pytest.mark.parametrize("command", ALL)
def test_terminal_with_no_color_gets_no_escape_codes(
    site: Installation, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")

    with run_refused(command, site):
        shown = output_on_terminal(words_of(command, site))
    help_text = output_on_terminal([*command.split(), "--help"])

    assert shown
    assert help_text
    assert ESCAPE not in shown + help_text


@pytest.mark.parametrize("words", [["facts"], ["fire", "--all"]], ids=" ".join)
def test_terminal_without_no_color_gets_colours(
    site: Installation, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    site.call("import", str(site.config.with_name("more.jsonl")))

    assert ESCAPE in output_on_terminal([*words, "--config", str(site.config)])


@pytest.mark.cases(15)
@pytest.mark.slow
@pytest.mark.parametrize("command", ALL)
def test_output_without_a_terminal_has_no_escape_codes(
    site: Installation, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    with run_refused(command, site):
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
    """Parse words as the command line does, and call no command.

    Raises:
        click.UsageError: The words are no valid command.
    """
    command: Any = program()
    context = command.make_context(NAME, list(words))
    while isinstance(command, TyperGroup):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        context = found.make_context(name, words, parent=context)
        command = context.command
        if not words or words[0].startswith("-"):  # a group that is a command itself
            return


@pytest.mark.slow
@of_each(lambda: ALL)
def test_examples_in_help_are_valid_commands(command: str) -> None:
    lines = called(*command.split(), "--help").stdout.split("Example")[1].splitlines()[1:]

    calls = [words for line in lines for words in calls_in(line)]

    assert [words for words in calls if words[: len(command.split())] == command.split()]
    for words in calls:
        parse(words)


@pytest.mark.timing
def test_help_takes_less_than_a_third_of_a_second() -> None:
    before = getrusage(RUSAGE_CHILDREN)

    run_process(sys.executable, "-m", "slumberd", "--help")

    # Measure processor time: other tests that run meanwhile do not count.
    after = getrusage(RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3
