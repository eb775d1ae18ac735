"""`slumberd rules` and `slumberd status`: what is there, and how far it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from typing import Annotated, Any

import typer

from slumberd.assembly import rules_of
from slumberd.cli.configuration import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import cell, print_json, print_json_lines, print_table
from slumberd.cli.survey import RemovedRule, RuleState, Survey, surveyed
from slumberd.control import ask
from slumberd.errors import NotRunningError
from slumberd.lines import printable
from slumberd.pauses import paused_in
from slumberd.settings import Settings

COLUMNS = (
    "rule", "cadence", "channels", "enabled", "watermark", "pending", "last firing",
    "quarantined", "held", "file", "filter",
)  # fmt: skip
REMOVED_COLUMNS = ("rule", "store", "watermark", "last firing", "quarantined", "held")
STATUS_COLUMNS = ("rule", "cadence", "pending", "last firing", "quarantined", "held")


def rules(
    removed: Annotated[
        bool, typer.Option("--removed", help="Show the rules that are no longer there.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the rules, and how far each has read.

    The watermark is the number of the last version of an episode that the rule has read; pending,
    how many versions there are above it. With --json, each rule on a line of its own.

    A rule that was removed keeps its watermark, and the facts that it promoted stand: put it back,
    and it goes on from there. `slumberd undo` takes back what one of its firings did.
    """
    settings = settings_of(config, state_dir)
    survey = asyncio.run(surveyed(settings, rules_of(settings)))
    if removed:
        _tell_removed(survey.removed, json=json)
    else:
        _tell(survey.rules, paused_in(settings.state_dir), json=json)


def _tell_removed(found: Sequence[RemovedRule], *, json: bool) -> None:
    if json:
        print_json_lines(rule.document() for rule in found)
    else:
        print_table(REMOVED_COLUMNS, (_removed_row(rule) for rule in found))


def _removed_row(rule: RemovedRule) -> tuple[object, ...]:
    return (
        rule.id, rule.store, rule.watermark, rule.fired_at, rule.quarantined, rule.held or None,
    )  # fmt: skip


def _tell(states: Sequence[RuleState], paused: Container[str], *, json: bool) -> None:
    if json:
        print_json_lines(_documents(states, paused))
    else:
        print_table(COLUMNS, (_row(state, paused) for state in states))


def _documents(states: Sequence[RuleState], paused: Container[str]) -> list[dict[str, Any]]:
    return [state.document() | {"paused": state.rule.id in paused} for state in states]


def _row(state: RuleState, paused: Container[str]) -> tuple[object, ...]:
    rule = state.rule
    return (
        rule.id,
        state.cadence,
        ", ".join(rule.then_emits),
        "paused" if rule.id in paused else rule.enabled,
        state.watermark,
        state.pending,
        state.fired_at,
        state.quarantined,
        state.held or None,
        state.file,
        rule.when_filter or "(all)",
    )


def status(json: Json = False, config: Config = None, state_dir: StateDir = None) -> None:
    """Show whether the daemon runs, what there is, and what waits."""
    settings = settings_of(config, state_dir)
    loaded = rules_of(settings)
    daemon = _daemon(settings)
    survey = asyncio.run(surveyed(settings, loaded))
    stale = daemon is not None and daemon["rules_hash"] != loaded.content_hash
    if json:
        print_json(_document(settings, daemon, survey) | {"reload_needed": stale})
        return
    _print_screen(settings, daemon, survey)
    if stale:
        print("\nthe daemon goes by other rules than the files say; `slumberd reload` takes them")


def _daemon(settings: Settings) -> dict[str, Any] | None:
    try:
        return ask(settings.state_dir, "status")
    except NotRunningError:
        return None


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
        "stores": [
            {"store": printable(name), "facts": one.facts, "ledger_rows": one.ledger_rows}
            for name, one in survey.stores.items()
        ],
        "rules": _documents(survey.rules, paused_in(settings.state_dir)),
    }


def _print_screen(settings: Settings, daemon: dict[str, Any] | None, survey: Survey) -> None:
    print(f"daemon     {_running(daemon) if daemon else 'does not run'}")
    print(f"state      {cell(str(settings.state_dir))}")
    print(f"episodes   {cell(survey.episodes)}")
    print(f"facts      {cell(survey.facts)}")
    print(f"ledger     {survey.ledger_rows} rows")
    if len(survey.stores) > 1:
        for name, one in survey.stores.items():
            facts = f"{one.facts} facts, {one.ledger_rows} rows"
            print(f"  {cell(name)}: {'not there yet' if one.facts is None else facts}")
    if paused := paused_in(settings.state_dir):
        print(f"paused     {cell(', '.join(sorted(paused)))}")
    for one in daemon["failing"] if daemon else ():
        print(f"failing    {_failing(one)}")
    print()
    print_table(STATUS_COLUMNS, (_short_row(state) for state in survey.rules))


def _running(daemon: dict[str, Any]) -> str:
    process = f"pid {daemon['pid']}, up {daemon['uptime_seconds']:.0f} s"
    return f"runs ({process}), rules of generation {daemon['generation']}"


def _failing(one: dict[str, Any]) -> str:
    times = f"{one['failures']} times in a row" if one["failures"] > 1 else "once"
    return f"rule {one['rule_id']}, {times} since {one['since'][:19]}Z: {one['error']}"


def _short_row(state: RuleState) -> tuple[object, ...]:
    enabled = state.cadence if state.rule.enabled else "disabled"
    return (
        state.rule.id, enabled, state.pending, state.fired_at, state.quarantined,
        state.held or None,
    )  # fmt: skip
