"""`slumberd rules`: what is there, and how far each has come.

`slumberd pause` and `slumberd resume`: rules that rest for a while.

`slumberd reload`: let the running daemon go by the rules that there are now.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Annotated, Any

import typer

from slumberd.cli.client import perform_request
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_rules
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json, print_json_lines, print_table
from slumberd.cli.wording import number, plural
from slumberd.clock import SystemClock
from slumberd.diagnostics.status import RemovedRule, RuleState, surveyed
from slumberd.observability.line_format import printable
from slumberd.service.composition import rules_of
from slumberd.service.control_socket import Answer, ask
from slumberd.service.pause import paused_in

COLUMNS = (
    "rule", "cadence", "channels", "enabled", "watermark", "pending", "last firing",
    "quarantined", "held", "file", "filter",
)  # fmt: skip
REMOVED_COLUMNS = ("rule", "watermark", "last firing", "quarantined", "held")


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
        rule.id, rule.watermark, rule.fired_at, number(rule.quarantined),
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


Ids = Annotated[list[str], typer.Argument(metavar="RULE...", help="Ids of rules.")]


def pause(
    rules: Ids, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Let rules be due no more, until `slumberd resume`: over a restart and a reload, too.

    A firing under way goes on to its end. `slumberd fire` fires a paused rule all the same.
    """
    _pausing_tell(
        perform_request(settings_of(config, state_dir), "pause", rules=rules), "paused", json=json
    )


def resume(
    rules: Ids, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Let paused rules be due again; what came in the meantime they take up at once."""
    _pausing_tell(
        perform_request(settings_of(config, state_dir), "resume", rules=rules), "resumed", json=json
    )


def _pausing_tell(answer: Answer, done: str, *, json: bool) -> None:
    if json:
        print_json(answer)
        return
    print(f"{done}: {printable(', '.join(answer['changed'])) or 'nothing new'}")
    print(f"paused now: {printable(', '.join(answer['paused'])) or 'no rule'}")


def reload(json: Json = False, config: Config = None, state_dir: StateDir = None) -> None:
    """Let the running daemon go by the rules that there are now: all of them, or none.

    The daemon reads its own configuration and rules again, and goes by them from the next batch on.
    When anything is wrong with them, every mistake is told, the daemon keeps the rules that it had,
    and the exit code is 1. Of the configuration a reload takes rules_dir, timezone and limits; what
    else has changed counts from the next start, and is told. A changed rule goes by its new form
    from now on; `slumberd backfill` takes it over what the rule has passed. With no daemon there is
    nothing to reload, and the exit code is 69.
    """
    answer = ask(settings_of(config, state_dir).state_dir, "reload")
    if json:
        print_json(answer)
    else:
        _reload_tell(answer)


def _reload_tell(answer: Answer) -> None:
    for what in ("added", "removed", "changed"):
        for rule_id in answer[what]:
            print(f"{what:<8} {printable(rule_id)}")
    for key in answer["restart_needed"]:
        print(f"{printable(key)} has changed, which counts from the next start of the daemon")
    counted = f"{plural(answer['rules'], 'rule')}, generation {answer['generation']}"
    print(f"reloaded: {counted}, hash {answer['rules_hash']}")
