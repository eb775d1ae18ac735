"""Messages and exit codes of failing commands."""

from __future__ import annotations

import json
from operator import attrgetter

import pytest

import slumberd
from slumberd.cli import call, registry
from slumberd.cli.exit_codes import report_failure
from slumberd.model.errors import (
    ConfigurationError,
    InputError,
    Mistake,
    NotRunningError,
    StateDirectoryLockedError,
    StoreError,
    UsageError,
)
from tests.support.lists import of_each

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUMBERD_DEBUG", raising=False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(UsageError("no rule 'x'"), 64, id="usage"),
        pytest.param(InputError("bad"), 65, id="input"),
        pytest.param(NotRunningError("none runs"), 69, id="not running"),
        pytest.param(StoreError("broken"), 74, id="store"),
        pytest.param(StateDirectoryLockedError("/s", "pid 1"), 75, id="locked"),
        pytest.param(PermissionError(13, "Permission denied", "/s"), 77, id="permission"),
        pytest.param(OSError(28, "No space left on device"), 74, id="full disk"),
        pytest.param(ConfigurationError([Mistake("f", 1, 2, "a", "b")]), 78, id="configuration"),
        pytest.param(UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no"), 64, id="no unicode"),
        pytest.param(ZeroDivisionError("oops"), 70, id="bug"),
    ],
)
def test_failure_is_reported_with_the_name_of_the_program_and_an_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_failure(error) == code

    out, err = capsys.readouterr()
    assert out == ""
    assert all(line.startswith("slumberd: ") for line in err.splitlines())
    assert "Traceback" not in err


def test_every_mistake_is_printed_on_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    mistakes = [Mistake("f.yaml", 1, 2, "a", "one"), Mistake("f.yaml", 3, 4, "b", "two")]

    report_failure(ConfigurationError(mistakes))

    assert capsys.readouterr().err.splitlines() == [
        "slumberd: f.yaml:1:2: a: one",
        "slumberd: f.yaml:3:4: b: two",
    ]


def test_message_of_a_bug_says_so_and_names_the_debug_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report_failure(ZeroDivisionError("oops"))

    expected = "slumberd: ZeroDivisionError: oops (this is a bug; SLUMBERD_DEBUG=1 shows where)\n"
    assert capsys.readouterr().err == expected


def test_debugging_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUMBERD_DEBUG", "1")

    report_failure(ZeroDivisionError("oops"))

    assert "ZeroDivisionError: oops" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(KeyboardInterrupt(), 130, id="interrupted"),
        pytest.param(BrokenPipeError(32, "Broken pipe"), 141, id="closed pipe"),
    ],
)
def test_interrupt_and_closed_pipe_print_nothing(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_failure(error) == code
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["--bogus"], "--bogus", id="option"),
        pytest.param(["factz"], "Did you mean 'facts'", id="command"),
        pytest.param(["recent"], "Missing argument", id="missing argument"),
        pytest.param(["recent", "alice", "--limit", "0"], "--limit", id="out of bounds"),
        pytest.param(["recent", "alice", "--limit", "many"], "--limit", id="no number"),
        pytest.param(["facts", "--valid-at", "2026-01-01T00:00"], "offset", id="naive instant"),
        pytest.param(["fire"], "name the rules to fire, or give --all", id="nothing to fire"),
        pytest.param(["fire", "a", "--all"], "not both", id="rules and all"),
        pytest.param(["audit", "ls", "--kind", "wish"], "--kind", id="no such kind"),
        pytest.param(["audit", "ls", "--after", f"{10**20}"], "--after", id="too large"),
    ],
)
def test_wrong_use_exits_with_64_and_names_the_problem(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(arguments) == 64

    out, err = capsys.readouterr()
    assert out == ""
    assert problem in err
    assert "Traceback" not in err


def test_missing_command_shows_the_help_and_exits_with_64(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call([]) == 64
    assert "Commands:" in capsys.readouterr().err


def test_unexpected_failure_prints_one_line_and_exits_with_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("slumberd.cli.commands.version.version", broken)

    assert call(["version"]) == 70
    assert len(capsys.readouterr().err.splitlines()) == 1


GROUPS = {
    "audit": [["ls"], ["verify"]],
    "hooks": [["install"], ["uninstall"]],
    "postgres": [["init"], ["upgrade"], ["add-shard"], ["balance"], ["check"]],
    "quarantine": [["ls"], ["retry"], ["drop"], ["future"]],
    "clock": [["accept"]],
    "token": [["new"]],
}


@pytest.mark.slow
@of_each(lambda: registry.ENTRIES, attrgetter("name"))
def test_every_command_has_help_with_an_example(
    entry: registry.Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in [[entry.name, *names] for names in GROUPS.get(entry.name, [[]])]:
        assert call([*path, "--help"]) == 0

        out = capsys.readouterr().out
        assert f"slumberd {' '.join(path)}" in out.split("Example", 1)[1]


def test_help_lists_every_command_with_its_whole_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call(["--help"])

    out = capsys.readouterr().out
    assert all(entry.summary in out for entry in registry.ENTRIES)


def test_version_is_printed_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"slumberd {slumberd.__version__} (Python 3.")

    assert call(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == slumberd.__version__
