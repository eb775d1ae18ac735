"""`slumberd rules`: what is there, and how far each has come."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Annotated, Any

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_rules
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json_lines, print_table
from slumberd.cli.wording import number
from slumberd.clock import SystemClock
from slumberd.diagnostics.status import RemovedRule, RuleState, surveyed
from slumberd.service.composition import rules_of
from slumberd.service.pause import paused_in

COLUMNS = (
    "rule", "cadence", "channels", "enabled", "watermark", "pending", "last firing",
    "quarantined", "held", "file", "filter",
)  # fmt: skip
REMOVED_COLUMNS = ("rule", "store", "watermark", "last firing", "quarantined", "held")


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
    survey = surveyed(settings, rules_of(settings), SystemClock().now())
    if removed:
        _tell_removed(survey.removed, json=json)
    else:
        _tell(survey.rules, paused_in(settings.state_dir), json=json, empty=no_rules(settings))


def _tell_removed(found: Sequence[RemovedRule], *, json: bool) -> None:
    if json:
        print_json_lines(rule.document() for rule in found)
    else:
        rows = (_removed_row(rule) for rule in found)
        print_table(REMOVED_COLUMNS, rows, empty="no rule was removed")


def _removed_row(rule: RemovedRule) -> tuple[object, ...]:
    return (
        rule.id, rule.store, rule.watermark, rule.fired_at, number(rule.quarantined),
        rule.held or None,
    )  # fmt: skip


def _tell(states: Sequence[RuleState], paused: Container[str], *, json: bool, empty: str) -> None:
    if json:
        print_json_lines(documents(states, paused))
    else:
        print_table(COLUMNS, (_row(state, paused) for state in states), empty=empty)


def documents(states: Sequence[RuleState], paused: Container[str]) -> list[dict[str, Any]]:
    """Return rules as JSON takes them."""
    return [state.document() | {"paused": state.rule.id in paused} for state in states]


def _row(state: RuleState, paused: Container[str]) -> tuple[object, ...]:
    rule = state.rule
    return (
        rule.id,
        state.cadence,
        ", ".join(rule.then_emits),
        "paused" if rule.id in paused else rule.enabled,
        state.watermark,
        None if state.pending is None else number(state.pending),
        state.fired_at,
        number(state.quarantined),
        state.held or None,
        state.file,
        (rule.when_filter or "(all)") if rule.reads_episodes else rule.filter_cypher,
    )
