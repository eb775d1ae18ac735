"""`slumberd test`: run the tests beside rule files, and print the differences."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.cells import cell_len

from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import plural, print_json_lines
from slumberd.consolidation.explanation import Decision
from slumberd.logs.lines import printable
from slumberd.model.episode import PERSON
from slumberd.model.scope import FACTS, episode_id_of
from slumberd.operations.reads.explanations import would_change
from slumberd.rules.yaml_scalars import plain, trap
from slumberd.tools.rule_testing.comparison import Entry, Line, Part
from slumberd.tools.rule_testing.loader import Trial, case_files, load_trials
from slumberd.tools.rule_testing.runner import (
    PatternTestResult,
    StepDifferences,
    TrialResult,
    is_pattern_test,
    run_pattern_files,
    run_trial,
)

FAILED = 1
"""The exit code when a test fails."""

_KEYS_UNEXPECTED: dict[Part, tuple[str, ...]] = {
    "deltas": ("episode", "rule", "channel", "kind", "reason", "replaces"),
    "filtered": ("episode",),
    "facts": ("id", "subject", "predicate", "object", "content"),
}
"""The keys that are printed of an entry that the test does not expect."""

_KEYS_ALWAYS: dict[Part, tuple[str, ...]] = {
    "deltas": ("episode", "kind", "reason"),
    "filtered": ("episode",),
    "facts": ("id",),
}
"""The keys that are printed of every entry, beside those that the test names."""

_MARKS = ",:?#{}[]&*!|>'\"%@`"
"""Characters with a meaning in YAML."""


def title(result: TrialResult) -> str:
    """Return the file, the line and the name of a test."""
    case = result.trial.case
    return f"{case.file}:{case.line}: {printable(case.name)}"


def print_findings(result: TrialResult) -> None:
    """Print what differs from the expectation, for people."""
    print(f"\n{title(result)}")
    for finding in result.findings:
        for part, lines in finding.comparisons.items():
            print(f"  {_heading(result, finding)}{part}")
            for line in lines:
                _print_line(part, line)
        for reason in _reasons(result, finding):
            print(f"  why: {reason}")
    if result.refused:
        print(f"  ended early: {printable(result.refused)}")


def _heading(result: TrialResult, finding: StepDifferences) -> str:
    return f"step {finding.step}, " if len(result.trial.case.steps) > 1 else ""


def _print_line(part: Part, line: Line) -> None:
    got = _entry_to_print(part, line)
    if line.same:
        print(f"      {_write_entry(part, got)}")
        return
    if line.expected is not None:
        print(f"    - {_write_entry(part, line.expected)}")
    if line.got is not None:
        print(f"    + {_write_entry(part, got)}")
    if line.differing:
        print(f"      {_carets(got, line.differing)}")


def _entry_to_print(part: Part, line: Line) -> Entry:
    """Return the keys of an actual entry that identify it or that the test names."""
    got = line.got or {}
    if line.expected is None:
        return _without_defaults({key: got.get(key) for key in _KEYS_UNEXPECTED[part]})
    expected = line.expected
    keys = (key for key in _KEYS_ALWAYS[part] if key in expected or got.get(key))
    return {key: got.get(key) for key in (*keys, *expected)}


def _without_defaults(entry: Entry) -> Entry:
    defaults: dict[str, object] = {"channel": FACTS}
    if entry.get("subject") is not None:
        defaults["content"] = entry.get("content")
    return {k: v for k, v in entry.items() if v not in (None, "", []) and v != defaults.get(k)}


def _write_entry(part: Part, entry: Entry) -> str:
    """Return an entry as a file of tests would hold it, on one line."""
    if part == "filtered":
        return flow(entry["episode"])
    return "{" + ", ".join(f"{key}: {flow(value)}" for key, value in entry.items()) + "}"


def _carets(entry: Entry, keys: tuple[str, ...]) -> str:
    """Return a line with carets below the values of some keys."""
    marks = (
        " " * len(f"{key}: ") + ("^" if key in keys else " ") * cell_len(flow(value))
        for key, value in entry.items()
    )
    return (" " + "  ".join(marks)).rstrip()


def flow(value: object) -> str:
    """Return a value in YAML's flow style."""
    match value:
        case str() if _is_plain(value):
            return value
        case list():
            return "[" + ", ".join(map(flow, value)) + "]"
        case _:
            return printable(orjson.dumps(value).decode())


def _is_plain(text: str) -> bool:
    """Return whether a text needs no quotes."""
    reads_as_itself = plain(text) == text and trap(text) is None
    has_marks = text[:1] in "- " or text[-1:] == " " or any(mark in text for mark in _MARKS)
    return bool(text) and reads_as_itself and text.isprintable() and not has_marks


def _reasons(result: TrialResult, finding: StepDifferences) -> Iterator[str]:
    """Yield why the outcome differs from the expectation, in the words of `slumberd why-not`."""
    for rule_id, problem in finding.held.items():
        yield f"{rule_id} awaits approval: {problem}"
    for decision in finding.decisions:
        if not (decision.is_current and decision.outcome in ("add", "update")):
            yield _reason(result, decision)


def _reason(result: TrialResult, decision: Decision) -> str:
    why = ": ".join(filter(None, (decision.reason, decision.detail)))
    outcome = decision.outcome + (f" ({printable(why)})" if why else "")
    where = "" if decision.channel == FACTS else f" in {decision.channel}"
    claim_id = printable(episode_id_of(decision.fact_id))
    sentence = f"{claim_id} under {decision.rule_id}{where}: {outcome}"
    if decision.outcome == "quarantined":  # the remedy needs a real store
        return sentence
    return f"{sentence}; {_remedy(result, decision)}"


def _remedy(result: TrialResult, decision: Decision) -> str:
    rules = {rule.id: rule for rule in result.trial.rules}
    return would_change(decision, rules.get(decision.rule_id))


def document(result: TrialResult) -> dict[str, Any]:
    """Return the JSON form of a result."""
    case = result.trial.case
    return {
        "name": case.name,
        "file": case.file,
        "line": case.line,
        "rules": [rule.id for rule in result.trial.rules],
        "ok": result.ok,
        "refused": result.refused or None,
        "differences": [
            difference for finding in result.findings for difference in _differences(finding)
        ],
        "why": [
            {"step": finding.step, "reason": reason}
            for finding in result.findings
            for reason in _reasons(result, finding)
        ],
    }


def _differences(finding: StepDifferences) -> Iterator[dict[str, Any]]:
    for part, lines in finding.comparisons.items():
        for line in lines:
            if not line.same:
                yield {"step": finding.step, "part": part, **line._asdict()}


def test(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Test files, or directories of rules."),
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Run the tests of rules, and exit with 1 when one fails.

    X.test.yaml beside X.yaml says what its episodes become under the rules of X.yaml. Without a
    PATH, the command runs the tests in the directory of rules that the configuration names, and in
    its directory patterns. Each test has stores of its own; the daemon's are neither read nor
    written. Beside a pattern file, X.test.yaml says which triples are found in conversations.

    A line that begins with - was expected; a line that begins with + is the actual outcome.

    With --json, each test is printed on a line.
    """
    files, timezone, person = _find_files(paths, config, state_dir)
    patterns = [file for file in files if is_pattern_test(file)]
    trials = load_trials([file for file in files if file not in patterns], timezone=timezone)
    found = run_pattern_files(patterns, person)
    results = asyncio.run(_run_all(trials, person))
    if json:
        print_json_lines([*map(document, results), *map(_pattern_document, found)])
    else:
        _print_verdicts(results, found)
    if not all([*(result.ok for result in results), *(test.ok for test in found)]):
        raise typer.Exit(FAILED)


def _find_files(
    paths: Sequence[Path] | None, config: Path | None, state_dir: Path | None
) -> tuple[list[Path], str, Collection[str]]:
    """Return the test files, the time zone of cron rules that name none, and the person."""
    if paths:
        return case_files(paths), "UTC", PERSON
    settings = settings_of(config, state_dir)
    return case_files([settings.rules_dir]), settings.timezone, settings.memory.person


async def _run_all(trials: Sequence[Trial], person: Collection[str]) -> list[TrialResult]:
    return [await run_trial(trial, person=person) for trial in trials]


def _print_verdicts(results: Sequence[TrialResult], found: Sequence[PatternTestResult]) -> None:
    lines = [(result.ok, title(result)) for result in results]
    lines += [(test.ok, _pattern_title(test)) for test in found]
    for ok, line in lines:
        print(f"{'ok' if ok else 'FAILED':<8}{line}")
    for result in results:
        if not result.ok:
            print_findings(result)
    for test in found:
        if not test.ok:
            _print_failures(test)
    passed = sum(ok for ok, _ in lines)
    print(f"\n{plural(len(lines), 'test')}: {passed} passed, {len(lines) - passed} failed")


def _pattern_title(test: PatternTestResult) -> str:
    return f"{test.file}:{test.line}: {printable(test.name)}"


def _print_failures(test: PatternTestResult) -> None:
    print(f"\n{_pattern_title(test)}")
    for failure in test.failures:
        print(f"  {printable(failure)}")


def _pattern_document(test: PatternTestResult) -> dict[str, Any]:
    """Return the JSON form of the result of a test of patterns."""
    return {
        "name": test.name,
        "file": test.file,
        "line": test.line,
        "rules": [],
        "ok": test.ok,
        "refused": None,
        "differences": [],
        "why": [{"step": 1, "reason": failure} for failure in test.failures],
    }
