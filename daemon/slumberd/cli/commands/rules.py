"""Commands on the set of rules: `slumberd rules`, `slumberd pause`, `resume` and `reload`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from slumberd.cli.asking import ask_holder
from slumberd.cli.client import perform_request
from slumberd.cli.commands.rule_sets import (
    PUBLISH_EXAMPLES,
    PUBLISHED_EXAMPLES,
    publish,
    published,
)
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_rules
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import (
    describe_channels,
    number,
    plural,
    print_json,
    print_json_lines,
    print_table,
)
from slumberd.cli.registry import examples
from slumberd.clock import SystemClock
from slumberd.diagnostics.status import RemovedRule, read_status
from slumberd.observability.line_format import printable
from slumberd.operations.handlers import Answer
from slumberd.operations.reads.rule_states import RuleState
from slumberd.service.rules import paused_rules_of, rules_of

app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command("publish", epilog=examples(*PUBLISH_EXAMPLES))(publish)
app.command("published", epilog=examples(*PUBLISHED_EXAMPLES))(published)

COLUMNS = (
    "rule", "cadence", "channels", "enabled", "watermark", "pending", "last firing",
    "quarantined", "held", "file", "filter",
)  # fmt: skip
REMOVED_COLUMNS = ("rule", "watermark", "last firing", "quarantined", "held")

Ids = Annotated[list[str], typer.Argument(metavar="RULE...", help="Ids of rules.")]


@app.callback(
    invoke_without_command=True, epilog=examples("slumberd rules", "slumberd rules --removed")
)
def rules(
    context: typer.Context,
    removed: Annotated[
        bool, typer.Option("--removed", help="Show the rules that were removed.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the rules, and how far each has read.

    The watermark is the number of the last version of an episode that the rule has read. Pending is
    how many versions lie above it. With --json, each rule is printed on a line.

    A removed rule keeps its watermark, and the facts that it promoted stay current. If you put it
    back, it continues from its watermark. `slumberd undo` undoes its firings.

    The commands publish rules in a PostgreSQL database, for all hosts that use it.
    """
    if context.invoked_subcommand is not None:
        return
    settings = settings_of(config, state_dir)
    paused = () if removed else paused_rules_of(settings).read()
    report = read_status(settings, rules_of(settings), SystemClock().now(), paused)
    if removed:
        _print_removed(report.removed, json=json)
    else:
        _print_rules(report.rules, json=json, empty=no_rules(settings))


def _print_removed(rules: Sequence[RemovedRule], *, json: bool) -> None:
    if json:
        print_json_lines(rule.document() for rule in rules)
    else:
        rows = (_removed_row(rule) for rule in rules)
        print_table(REMOVED_COLUMNS, rows, empty="no rule was removed")


def _removed_row(rule: RemovedRule) -> tuple[object, ...]:
    return (
        rule.id, rule.watermark, rule.fired_at, number(rule.quarantined),
        rule.held_firing_id or None,
    )  # fmt: skip


def _print_rules(states: Sequence[RuleState], *, json: bool, empty: str) -> None:
    if json:
        print_json_lines(state.document() for state in states)
    else:
        print_table(COLUMNS, map(_row, states), empty=empty)


def _row(state: RuleState) -> tuple[object, ...]:
    rule, status = state.rule, state.status
    return (
        rule.id,
        state.cadence,
        ", ".join(rule.then_emits),
        "paused" if status.paused else rule.enabled,
        status.watermark,
        None if status.pending is None else number(status.pending),
        state.fired_at,
        number(status.quarantined),
        status.held_firing_id or None,
        state.file,
        (rule.when_filter or "(all)") if rule.reads_episodes else rule.filter_cypher,
    )


def pause(
    rules: Ids, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Pause rules: they are not due until `slumberd resume`, also after a restart or a reload.

    A firing that has begun runs to its end. `slumberd fire` fires paused rules, too.
    """
    answer = perform_request(settings_of(config, state_dir), "pause", rules=rules)
    _print_paused(answer, "paused", json=json)


def resume(
    rules: Ids, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Resume paused rules: they are due again, at once for what is pending."""
    answer = perform_request(settings_of(config, state_dir), "resume", rules=rules)
    _print_paused(answer, "resumed", json=json)


def _print_paused(answer: Answer, verb: str, *, json: bool) -> None:
    if json:
        print_json(answer)
        return
    print(f"{verb}: {printable(', '.join(answer['changed'])) or 'no other rule'}")
    print(f"paused now: {printable(', '.join(answer['paused'])) or 'no rule'}")


def reload(json: Json = False, config: Config = None, state_dir: StateDir = None) -> None:
    """Make the running daemon use the rules that the files hold now: all of them, or none.

    With ``postgres.rules: published``, it uses the newest published rules instead.

    The daemon reads its own configuration and rules again, and uses them from the next batch on. If
    they have mistakes, the command prints every mistake, the daemon keeps its rules, and the exit
    code is 1.

    Of the configuration, a reload takes rules_dir, postgres.rules, timezone and limits. The command
    lists the other keys that have changed: they take effect when the daemon starts again.

    A changed rule applies from now on; `slumberd backfill` applies it to the episodes that it has
    passed. If no daemon runs, the exit code is 69.
    """
    answer = ask_holder(settings_of(config, state_dir), "reload", {})
    if json:
        print_json(answer)
    else:
        _print_reload(answer)


def _print_reload(answer: Answer) -> None:
    for change in ("added", "removed", "changed"):
        for rule_id in answer[change]:
            print(f"{change:<8} {printable(rule_id)}")
    for key in answer["restart_needed"]:
        print(f"{printable(key)} has changed; restart the daemon for it to take effect")
    if answer["facts_appear"] or answer["facts_go"]:
        print(describe_channels(answer["facts_appear"], answer["facts_go"]))
    if held := answer["held_firing_id"]:
        print(f"the old channels stay in force until `slumberd approve {held}`")
    if rejected := answer["rejected_firing_id"]:
        print(f"the old channels stay in force: a person rejected the change ({rejected})")
    rules = f"{plural(answer['rules'], 'rule')}, generation {answer['generation']}"
    print(f"reloaded: {rules}, hash {answer['rules_hash']}")
