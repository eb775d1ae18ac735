"""`slumberd test`: run the tests that stand beside the rules.

How verdicts on tests of rules are printed: differences for people, JSON for programs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.cells import cell_len

from slumberd.cli.commands.explain_output import would_change
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json_lines
from slumberd.cli.wording import plural
from slumberd.config.yaml_scalars import plain, trap
from slumberd.consolidation.explanation import Decision
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.rule import FACTS
from slumberd.observability.line_format import printable
from slumberd.rule_testing.comparison import Entry, Line, Part
from slumberd.rule_testing.loader import Trial, case_files, prepared
from slumberd.rule_testing.runner import Finding, Verdict, tried

_TOLD: dict[Part, tuple[str, ...]] = {
    "deltas": ("episode", "rule", "channel", "kind", "reason", "replaces"),
    "filtered": ("episode",),
    "facts": ("id", "subject", "predicate", "object", "content"),
}
"""What is told of an entry that nobody expected."""

_MEANT: dict[Part, tuple[str, ...]] = {
    "deltas": ("episode", "kind", "reason"),
    "filtered": ("episode",),
    "facts": ("id",),
}
"""What is told of every entry, beside what its author named."""

_MARKS = ",:?#{}[]&*!|>'\"%@`"
"""Characters that mean something in YAML."""


def title(verdict: Verdict) -> str:
    """Return where a test stands, and its name."""
    case = verdict.trial.case
    return f"{case.file}:{case.line}: {printable(case.name)}"


def print_findings(verdict: Verdict) -> None:
    """Print what is not as expected, for people."""
    print(f"\n{title(verdict)}")
    for finding in verdict.findings:
        for part, lines in finding.comparisons.items():
            print(f"  {_heading(verdict, finding)}{part}")
            for line in lines:
                _print_line(part, line)
        for reason in _reasons(verdict, finding):
            print(f"  why: {reason}")
    if verdict.refused:
        print(f"  cannot go on: {printable(verdict.refused)}")


def _heading(verdict: Verdict, finding: Finding) -> str:
    return f"step {finding.step}, " if len(verdict.trial.case.steps) > 1 else ""


def _print_line(part: Part, line: Line) -> None:
    told = _whole(part, line)
    if line.same:
        print(f"      {_entry(part, told)}")
        return
    if line.expected is not None:
        print(f"    - {_entry(part, line.expected)}")
    if line.got is not None:
        print(f"    + {_entry(part, told)}")
    if line.differing:
        print(f"      {_carets(told, line.differing)}")


def _whole(part: Part, line: Line) -> Entry:
    """Return what came about: what tells which one it is, and whatever its author named."""
    got = line.got or {}
    if line.expected is None:
        return _without_the_usual({key: got.get(key) for key in _TOLD[part]})
    wanted = line.expected
    meant = {key: got.get(key) for key in _MEANT[part] if key in wanted or got.get(key)}
    return meant | {key: got.get(key) for key in wanted}


def _without_the_usual(entry: Entry) -> Entry:
    usual: dict[str, object] = {"channel": FACTS}
    if entry.get("subject") is not None:
        usual["content"] = entry.get("content")
    return {k: v for k, v in entry.items() if v not in (None, "", []) and v != usual.get(k)}


def _entry(part: Part, entry: Entry) -> str:
    """Return an entry as it would stand in a file of tests, on one line."""
    if part == "filtered":
        return flow(entry["episode"])
    return "{" + ", ".join(f"{key}: {flow(value)}" for key, value in entry.items()) + "}"


def _carets(entry: Entry, keys: tuple[str, ...]) -> str:
    """Return a line that marks the values of some keys in the line above."""
    marks = (
        " " * len(f"{key}: ") + ("^" if key in keys else " ") * cell_len(flow(value))
        for key, value in entry.items()
    )
    return (" " + "  ".join(marks)).rstrip()


def flow(value: object) -> str:
    """Return a value as YAML has it within a line."""
    match value:
        case str() if _is_plain(value):
            return value
        case list():
            return "[" + ", ".join(map(flow, value)) + "]"
        case _:
            return printable(orjson.dumps(value).decode())


def _is_plain(text: str) -> bool:
    """Say whether a text needs no quotes."""
    means_itself = plain(text) == text and trap(text) is None
    odd = text[:1] in "- " or text[-1:] == " " or any(mark in text for mark in _MARKS)
    return bool(text) and means_itself and text.isprintable() and not odd


def _reasons(verdict: Verdict, finding: Finding) -> Iterator[str]:
    """Yield why what was expected did not come about, as `slumberd why-not` would say it."""
    for rule_id, problem in finding.held.items():
        yield f"{rule_id} is held: {problem}"
    for decision in finding.decisions:
        if not (decision.stands and decision.became in ("add", "update")):
            yield _reason(verdict, decision)


def _reason(verdict: Verdict, decision: Decision) -> str:
    why = ": ".join(filter(None, (decision.reason, decision.detail)))
    became = decision.became + (f" ({printable(why)})" if why else "")
    where = "" if decision.channel == FACTS else f" in {decision.channel}"
    episode_id = printable(episode_id_of(decision.fact_id))
    told = f"{episode_id} under {decision.rule_id}{where}: {became}"
    if decision.became == "quarantined":  # what a person would do then is no matter of a test
        return told
    return f"{told}; {_remedy(verdict, decision)}"


def _remedy(verdict: Verdict, decision: Decision) -> str:
    rules = {rule.id: rule for rule in verdict.trial.rules}
    return would_change(decision, rules.get(decision.rule_id))


def document(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON takes it."""
    case = verdict.trial.case
    return {
        "name": case.name,
        "file": case.file,
        "line": case.line,
        "rules": [rule.id for rule in verdict.trial.rules],
        "ok": verdict.ok,
        "refused": verdict.refused or None,
        "differences": [one for finding in verdict.findings for one in _differences(finding)],
        "why": [
            {"step": finding.step, "reason": reason}
            for finding in verdict.findings
            for reason in _reasons(verdict, finding)
        ],
    }


def _differences(finding: Finding) -> Iterator[dict[str, Any]]:
    for part, lines in finding.comparisons.items():
        for line in lines:
            if not line.same:
                yield {"step": finding.step, "part": part, **line._asdict()}


FAILED = 1


def test(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Files of tests, or directories of rules."),
    ] = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Run the tests of rules, and exit with 1 when one fails.

    X.test.yaml beside X.yaml says what its episodes become under the rules of X.yaml. Without a
    PATH, those in the directory of rules that the configuration names. Each test has stores of
    its own; the daemon's are neither read nor written.

    A line that begins with - was expected, one with + is what came about instead.

    With --json, each test on a line of its own.
    """
    verdicts = asyncio.run(_tried(_trials(paths, config, state_dir)))
    if json:
        print_json_lines(map(document, verdicts))
    else:
        _print(verdicts)
    if not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(FAILED)


def _trials(
    paths: Sequence[Path] | None, config: Path | None, state_dir: Path | None
) -> list[Trial]:
    if paths:
        return prepared(case_files(paths), timezone="UTC")
    settings = settings_of(config, state_dir)
    return prepared(case_files([settings.rules_dir]), timezone=settings.timezone)


async def _tried(trials: Sequence[Trial]) -> list[Verdict]:
    return [await tried(trial) for trial in trials]


def _print(verdicts: Sequence[Verdict]) -> None:
    failed = [verdict for verdict in verdicts if not verdict.ok]
    for verdict in verdicts:
        print(f"{'ok' if verdict.ok else 'FAILED':<8}{title(verdict)}")
    for verdict in failed:
        print_findings(verdict)
    passed = len(verdicts) - len(failed)
    print(f"\n{plural(len(verdicts), 'test')}: {passed} passed, {len(failed)} failed")
