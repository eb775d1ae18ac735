"""`slumberd status`: what an operator asks in the middle of the night, on one screen.

`slumberd doctor`: what is not as it should be, each with its remedy.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from slumberd.cli.client import asked
from slumberd.cli.commands.rules import documents
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_rules
from slumberd.cli.environment import settings_variables
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import cell, print_json, print_table
from slumberd.cli.wording import number, plural
from slumberd.clock import SystemClock
from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings, config_file
from slumberd.diagnostics.doctor import Checkup, run_checks, urgent
from slumberd.diagnostics.host_checks import THIS_MACHINE, megabytes
from slumberd.diagnostics.status import RuleState, Survey, surveyed
from slumberd.diagnostics.store_checks import QUICK_SECONDS, DoctorContext
from slumberd.errors import ConfigurationError, Mistake, StoreError
from slumberd.model.finding import KINDS, Finding
from slumberd.model.firing import Counts
from slumberd.model.provenance import Lag
from slumberd.observability.line_format import printable
from slumberd.service.composition import rules_of
from slumberd.service.pause import paused_in


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Take as long as it takes to check every page.")
    ] = False,
    kinds: Annotated[bool, typer.Option("--list", help="List what is looked at, by id.")] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Look everything over, and say what is not as it should be, and what to do about it.

    It changes nothing, and works while the daemon runs and while it does not. The exit code is 1
    when anything was found. Passes over whole databases end after 10 s each unless --deep is given;
    what was not looked at to its end is named, and is no finding.
    """
    if kinds:
        _list(json=json)
        return
    checkup = examined(config, state_dir, seconds=None if deep else QUICK_SECONDS)
    if json:
        print_json(_doctor_document(checkup))
    else:
        _tell(checkup)
    if checkup.findings:
        raise typer.Exit(1)


def examined(config: Path | None, state_dir: Path | None, *, seconds: float | None) -> Checkup:
    """Look over what the options name, whatever state it is in."""
    try:
        settings = settings_of(config, state_dir)
    except ConfigurationError as error:
        return Checkup(invalid(error.mistakes), [])
    context, findings = context_of(settings, config, seconds=seconds)
    if context.daemon is not None:
        # A daemon that cannot read what there is now is told of as what is invalid.
        outdated, _ = asked(settings.state_dir, "outdated")
        context = replace(context, outdated=outdated or {})
    found = run_checks(context)
    return replace(found, findings=[*findings, *found.findings])


def context_of(
    settings: Settings, config: Path | None, *, seconds: float | None
) -> tuple[DoctorContext, list[Finding]]:
    """Return what is looked over, and what was found on the way to it."""
    rules, mistakes = _rules(settings)
    daemon, silent = asked(settings.state_dir)
    context = DoctorContext(
        settings,
        rules,
        config_file(config, settings_variables()),
        daemon,
        SystemClock().now(),
        THIS_MACHINE,
        seconds=seconds,
    )
    return context, [*invalid(mistakes), *silent]


def _rules(settings: Settings) -> tuple[RuleSet | None, Sequence[Mistake]]:
    try:
        return rules_of(settings), ()
    except ConfigurationError as error:
        return None, error.mistakes


def invalid(mistakes: Sequence[Mistake]) -> list[Finding]:
    """Return mistakes of configuration and rules as findings."""
    return [
        Finding(
            "config.invalid", mistake.file, _problem(mistake), "mend it; `slumberd check` tells"
        )
        for mistake in mistakes
    ]


def _problem(mistake: Mistake) -> str:
    return str(mistake).removeprefix(mistake.file).lstrip(":")


def _list(*, json: bool) -> None:
    if json:
        print_json([{"id": id, "severity": how, "well": well} for id, (how, well) in KINDS.items()])
    else:
        print_table(("id", "severity", "well when"), ((id, *kind) for id, kind in KINDS.items()))


def _doctor_document(checkup: Checkup) -> dict[str, object]:
    return {
        "ok": not checkup.findings,
        "findings": [finding.document() for finding in checkup.findings],
        "unfinished": list(checkup.unfinished),
    }


def _tell(checkup: Checkup) -> None:
    for finding in checkup.findings:
        print(f"{finding.severity:8} {finding.id}  {cell(finding.subject)}")
        print(f"         {cell(finding.problem)}")
        print(f"         remedy: {cell(finding.remedy)}")
    for what in checkup.unfinished:
        print(f"slumberd: took too long: {cell(what)}; `slumberd doctor --deep`", file=sys.stderr)
    count = len(checkup.findings)
    print(plural(count, "finding") if count else "nothing found")


STATUS_COLUMNS = (
    "rule", "cadence", "pending", "oldest", "last firing", "facts", "next", "quarantined", "held",
)  # fmt: skip
SHOWN = 30
"""Rules that a screen holds."""


def status(
    check: Annotated[
        bool, typer.Option("--check", help="Only say what somebody must look at; exit with 1 then.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show whether the daemon runs, what there is, and what waits.

    Of each rule: how many versions of episodes wait, and the timestamp of the first of them; when
    it fired last, and how many facts that added, replaced and took out; its next instant. Of more
    than 30 rules those that are held, have episodes in quarantine, or have most to read.

    With --check, for monitoring, a line for each thing that a person must look at, and nothing when
    all is well: the daemon does not run or does not answer, a mistake in configuration or rules,
    rules that a reload has not taken, a database that is missing or broken, a disk that is nearly
    full, and rules that are late, held or with episodes in quarantine. It works without a daemon.
    """
    if check:
        _check(config, state_dir, json=json)
        return
    settings = settings_of(config, state_dir)
    loaded = rules_of(settings)
    daemon, silent = asked(settings.state_dir)
    if silent:
        raise StoreError(silent[0].problem)
    survey = surveyed(settings, loaded, SystemClock().now())
    stale = daemon is not None and daemon["rules_hash"] != loaded.content_hash
    if json:
        print_json(_document(settings, daemon, survey) | {"reload_needed": stale})
        return
    _print_screen(settings, daemon, survey)
    if stale:
        print("\nthe daemon goes by other rules than the files say; `slumberd reload` takes them")


def _check(config: Path | None, state_dir: Path | None, *, json: bool) -> None:
    found = _urgent(config, state_dir)
    if json:
        print_json({"ok": not found, "findings": [finding.document() for finding in found]})
    else:
        for finding in found:
            told = f"{finding.id}: {cell(finding.subject)}: {cell(finding.problem)}"
            print(f"{told}; {cell(finding.remedy)}")
    if found:
        raise typer.Exit(1)


def _urgent(config: Path | None, state_dir: Path | None) -> list[Finding]:
    try:
        settings = settings_of(config, state_dir)
    except ConfigurationError as error:
        return invalid(error.mistakes)
    context, findings = context_of(settings, config, seconds=0)
    silent = any(finding.id == "daemon.silent" for finding in findings)
    return [
        *findings,
        *(one for one in urgent(context) if not (silent and one.id == "daemon.down")),
    ]


def _document(settings: Settings, daemon: dict[str, Any] | None, survey: Survey) -> dict[str, Any]:
    return {
        "running": daemon is not None,
        "pid": daemon["pid"] if daemon else None,
        "uptime_seconds": daemon["uptime_seconds"] if daemon else None,
        "generation": daemon["generation"] if daemon else None,
        "rules_hash": daemon["rules_hash"] if daemon else None,
        "failing": daemon["failing"] if daemon else [],
        "state_dir": printable(str(settings.state_dir)),
        "episodes": survey.episodes,
        "facts": survey.facts,
        "ledger_rows": survey.ledger_rows,
        "databases": [
            {"path": printable(str(path)), "bytes": size, "log_bytes": log}
            for path, size, log in _sizes(settings)
        ],
        "disk_free_bytes": _free(settings),
        "provenance": _provenance(settings, survey),
        "rules": documents(survey.rules, paused_in(settings.state_dir)),
    }


def _provenance(settings: Settings, survey: Survey) -> dict[str, Any] | None:
    """Return how far the sink of provenance is behind; None without a sink."""
    sink = settings.provenance.sink
    if sink is None:
        return None
    published = survey.seen.told.get(sink) if survey.seen else None
    lag = published.lag if published else Lag(survey.ledger_rows, None)
    return {
        "sink": sink,
        "rows": lag.rows,
        "seconds": lag.seconds(SystemClock().now()),
        "refused": published.refused if published else 0,
    }


def _sizes(settings: Settings) -> list[tuple[Path, int, int]]:
    """Return each database that is there with its bytes, and those of its write-ahead log."""
    paths = (settings.memory_path, settings.facts_path)
    return [
        (path, path.stat().st_size, _size(path.with_name(path.name + "-wal")))
        for path in paths
        if path.exists()
    ]


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _free(settings: Settings) -> int | None:
    with suppress(OSError):
        return shutil.disk_usage(settings.state_dir).free
    return None


def _print_screen(settings: Settings, daemon: dict[str, Any] | None, survey: Survey) -> None:
    free = _free(settings)
    room = f", {megabytes(free)} free" if free is not None else ""
    print(f"daemon     {_running(daemon) if daemon else 'does not run'}")
    print(f"state      {cell(str(settings.state_dir))}{room}")
    for path, size, log in _sizes(settings):
        print(f"  {cell(path.name)}: {megabytes(size)}, write-ahead log {megabytes(log)}")
    print(f"episodes   {_number(survey.episodes)}")
    print(f"facts      {_number(survey.facts)}")
    print(f"ledger     {plural(survey.ledger_rows, 'row')}")
    if provenance := _provenance(settings, survey):
        print(f"provenance {provenance['sink']}: {_lag_in_words(provenance)}")
    if paused := paused_in(settings.state_dir):
        print(f"paused     {cell(', '.join(sorted(paused)))}")
    for one in daemon["failing"] if daemon else ():
        print(f"failing    {_failing(one)}")
    print()
    _print_rules(survey.rules, empty=no_rules(settings))


def _lag_in_words(one: dict[str, Any]) -> str:
    behind = (
        f"{plural(one['rows'], 'row')} behind, since {one['seconds']:.0f} s"
        if one["rows"]
        else "all told"
    )
    refused = f", {number(one['refused'])} refused" if one["refused"] else ""
    return f"{behind}{refused}"


def _print_rules(states: Sequence[RuleState], *, empty: str) -> None:
    """Show rules; of more than a screen those that somebody would look for."""
    first = sorted(states, key=_urgency)[:SHOWN]
    rows = (_short_row(state) for state in states if state in first)
    print_table(STATUS_COLUMNS, rows, empty=empty)
    if len(states) > SHOWN:
        print(f"and {plural(len(states) - SHOWN, 'more rule')}; `slumberd rules` shows all")


def _urgency(state: RuleState) -> tuple[bool, bool, int]:
    return not state.held, not state.quarantined, -(state.pending or 0)


def _running(daemon: dict[str, Any]) -> str:
    since = SystemClock().now() - timedelta(seconds=daemon["uptime_seconds"])
    process = f"pid {daemon['pid']}, since {cell(since)}"
    return f"runs ({process}), rules of generation {daemon['generation']}"


def _failing(one: dict[str, Any]) -> str:
    times = f"{number(one['failures'])} times in a row" if one["failures"] > 1 else "once"
    return f"rule {one['rule_id']}, {times} since {_time(one['since'])}: {one['error']}"


def _short_row(state: RuleState) -> tuple[object, ...]:
    enabled = state.cadence if state.rule.enabled else "disabled"
    return (
        state.rule.id, enabled, _number(state.pending), _time(state.oldest), state.fired_at,
        _came_to(state.outcome), state.next_at, _number(state.quarantined or None),
        state.held or None,
    )  # fmt: skip


def _number(count: int | None) -> str:
    return cell(None) if count is None else number(count)


def _time(timestamp: str | None) -> str:
    """Return a timestamp as tables show instants; one without a zone as it is written."""
    try:
        at = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return cell(timestamp)
    return cell(at) if at.tzinfo else cell(timestamp)


def _came_to(counts: Counts | None) -> str | None:
    if counts is None:
        return None
    came = number(counts.added + counts.restored)
    return f"+{came} ~{number(counts.updated)} -{number(counts.deleted)}"
