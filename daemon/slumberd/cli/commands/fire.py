"""Fire rules now, undo firings, and ask language models: `slumberd fire`, `undo`, `extract`.

Also prints the changes of these and of manual edits: deltas, counts, and batches that wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import orjson
import typer

from slumberd.cli.client import perform_request, reason_field
from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.instants import instant_of
from slumberd.cli.options import Config, DryRun, Json, Listed, ReasonOrNone, StateDir, Verbose
from slumberd.cli.output import join_names, number, plural, print_json, print_table
from slumberd.model.episode import microseconds
from slumberd.model.errors import UsageError
from slumberd.model.firing import Counts
from slumberd.model.stages import MARKS, STAGE_CHANNELS
from slumberd.operations.handlers import Answer


def fire(
    rules: Annotated[
        list[str] | None, typer.Argument(metavar="[RULE]...", help="Ids of rules.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Fire every enabled rule.")] = False,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Fire rules now, whatever their cadence, and show the outcome of what they read.

    The daemon fires them when it runs; else this process does, under the same lock. The log lines
    of the deltas go where those of the daemon go.

    A dry run reads at most 100,000 pending versions of episodes for each rule, and reports how many
    it did not read. It takes each rule as if that rule fired alone.

    A batch that exceeds a deletion limit awaits approval: nothing of it is applied, and the command
    ends with exit code 1.
    """
    if every == bool(rules):
        raise UsageError("name the rules to fire, or give --all; not both")
    answer = perform_request(
        settings_of(config, state_dir),
        "fire",
        verbose=verbose,
        rules=None if every else rules,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
        **reason_field(reason),
    )
    print_firings(answer, dry_run=dry_run, json=json, nothing="nothing was pending")


def undo(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[FIRING|RULE]",
            help="The id of a firing, as preferences@120; with --since the id of a rule.",
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="ID", help="Undo all firings of this run.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            parser=instant_of, metavar="T", help="Undo all firings of the rule from T on."
        ),
    ] = None,
    dry_run: DryRun = False,
    reason: ReasonOrNone = None,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Undo firings: withdraw the versions of episodes that each evaluated first for its rule.

    Each episode is again what it was for that rule before. What other firings promoted stays, and
    its keys are resolved again. The rule does not evaluate the same versions again by itself:
    `slumberd backfill RULE` does, and so does an edit.

    A run is all firings of one command, or of one due cadence. `slumberd fire` prints its id, and
    `slumberd audit ls` shows it.

    All firings are undone in one transaction. A firing that is undone already stays undone. An undo
    has a run id of its own, so another undo reverses it.
    """
    if (target is None) == (run is None) or (since is not None and target is None):
        raise UsageError("name a firing, or --run ID, or a rule with --since T; one of the three")
    answer = perform_request(
        settings_of(config, state_dir),
        "undo",
        verbose=verbose,
        firing=None if since else target,
        run=run,
        rule=target if since else None,
        since=microseconds(since) if since else None,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
        **reason_field(reason),
    )
    print_undo(answer, dry_run=dry_run, json=json)


DELTA_COLUMNS = ("kind", "fact", "replaces", "reason")
COUNT_COLUMNS = ("rule", "channel", *Counts._fields)

SHOWN = 50
"""Deltas that a table lists without --limit."""

AWAITS_APPROVAL = 1
"""The exit code when something awaits approval, or was rejected before."""

Reports = list[dict[str, Any]]
"""What the firings of a request did, rule by rule, as the control socket answers."""


def limit_of(limit: int | None, *, json: bool) -> int | None:
    """Return how many deltas to ask for; None leaves the limit to the operation."""
    return SHOWN if limit is None and not json else limit


def print_answer(answer: Answer, *, dry_run: bool) -> None:
    """Print an answer as JSON, with whether it is that of a dry run."""
    print_json({"dry_run": dry_run, **answer})


def print_edit(answer: Answer, *, dry_run: bool, json: bool) -> None:
    """Print what a manual edit changed, or would change."""
    if json:
        print_answer(answer, dry_run=dry_run)
        return
    print_deltas(answer["deltas"], answer["deltas_total"])
    name = answer["firing_id"] or ("a dry run" if dry_run else "nothing recorded")
    print(f"{name}: {_counts_in_words(answer['counts'])}")
    if dry_run:
        print("nothing was written")


def print_undo(answer: Answer, *, dry_run: bool, json: bool) -> None:
    """Print what undoing firings changed, or would change."""
    if json:
        print_answer(answer, dry_run=dry_run)
        return
    print_deltas(answer["deltas"], answer["deltas_total"])
    if not answer["undone"]:
        print("nothing to do: all of these firings are undone already")
        return
    verb = "would undo" if dry_run else "undid"
    firings = f"{plural(len(answer['undone']), 'firing')} ({join_names(answer['undone'])})"
    print(f"{verb} {firings}: {_counts_in_words(answer['counts'])}")
    if dry_run:
        print("a dry run: nothing was written")
    else:
        print(f"run {answer['run']}: `slumberd undo --run {answer['run']}` reverses this undo")


def print_deltas(deltas: Sequence[dict[str, Any]], total: int) -> None:
    """Print deltas as a table, and how many more there are.

    Args:
        deltas: The deltas to list.
        total: How many the request made.
    """
    if deltas:
        print_table(DELTA_COLUMNS, map(_delta_row, deltas))
    if total > len(deltas):
        shown = f"{number(len(deltas))} of {plural(total, 'delta')} are listed"
        print(f"{shown}; --limit {total} lists all")


def _delta_row(delta: dict[str, Any]) -> tuple[object, ...]:
    return delta["kind"], delta["fact_id"], ", ".join(delta["replaces"]), delta["reason"]


def _counts_in_words(counts: dict[str, int]) -> str:
    words = ", ".join(f"{number(count)} {kind}" for kind, count in counts.items())
    return words or "nothing to do"


def print_firings(answer: Answer, *, dry_run: bool, json: bool, nothing: str) -> None:
    """Print what firings did, or would do.

    Args:
        answer: What the operation answered.
        dry_run: Whether nothing was written.
        json: Whether to print JSON.
        nothing: The message for firings that had nothing to evaluate.

    Raises:
        typer.Exit: Something awaits approval, or was rejected before; with exit code 1.
    """
    if json:
        print_answer(answer, dry_run=dry_run)
    else:
        _print_reports(answer, dry_run=dry_run, nothing=nothing)
    for report in answer["reports"]:
        if report.get("unrecorded"):
            say(
                f"rule {report['rule_id']}: episodes wait for the answer of its language model;"
                f" `slumberd extract {report['rule_id']}` asks for all of them"
            )
    if held := [report["held_batch"] for report in answer["reports"] if "held_batch" in report]:
        for batch in held:
            _report_held(batch)
    rejected = [report for report in answer["reports"] if "rejected" in report]
    for report in rejected:
        versions = plural(report["rejected"], "version")
        say(
            f"rule {report['rule_id']}: {versions} of episodes left out, because a person rejected"
            " them for this rule; change the rule to evaluate them"
        )
    if held or rejected:
        raise typer.Exit(AWAITS_APPROVAL)


def _report_held(batch: dict[str, Any]) -> None:
    """Report on standard error that a batch awaits approval, and the commands that decide."""
    firing_id = batch["firing_id"]
    if not firing_id:
        say(f"without --dry-run it would wait for approval: {batch['problem']}")
        return
    say(
        f"batch {firing_id} waits for approval: {batch['problem']};"
        f" `slumberd approve {firing_id} --dry-run` shows it,"
        f" `slumberd approve {firing_id}` applies it, `slumberd reject {firing_id}` skips it"
    )


def _print_reports(answer: Answer, *, dry_run: bool, nothing: str) -> None:
    """Print the counts of each rule; after a dry run, also the deltas that it would make."""
    reports: Reports = answer["reports"]
    if dry_run:
        deltas = [delta for report in reports for delta in report["deltas"]]
        print_deltas(deltas, sum(report["deltas_total"] for report in reports))
    empty = "no rule is enabled; `slumberd rules` shows all"
    print_table(COUNT_COLUMNS, _count_rows(reports), empty=empty)
    if dry_run:
        _print_unread(reports)
        print("a dry run: nothing was written")
    elif answer["run"]:
        _print_run(answer["run"], reports)
    elif not any("held_batch" in report for report in reports):
        print(nothing)


def _count_rows(reports: Reports) -> Iterator[tuple[object, ...]]:
    """Yield the counts of each channel; those of a stage that changed nothing only if alone."""
    for report in reports:
        channels = report["channels"]
        changed = [
            name for name in channels if name not in STAGE_CHANNELS or channels[name]["read"]
        ]
        for channel in changed or channels.keys() & {MARKS}:
            yield report["rule_id"], channel, *map(number, channels[channel].values())


def _print_run(run: str, reports: Reports) -> None:
    """Print the firings of a run, and the command that undoes it."""
    firing_ids = [firing_id for report in reports for firing_id in report["firing_ids"]]
    firings = f"{plural(len(firing_ids), 'firing')}, {join_names(firing_ids)}"
    print(f"run {run}: {firings}; `slumberd undo --run {run}` undoes it")


def _print_unread(reports: Reports) -> None:
    """Print how many versions of episodes a dry run did not read."""
    for report in reports:
        if report["unread"]:
            versions = plural(report["unread"], "more version")
            print(f"{report['rule_id']}: {versions} of episodes not read, and not counted above")


def extract(
    rule: Annotated[str, typer.Argument(help="The id of a rule that asks a language model.")],
    again: Annotated[
        bool,
        typer.Option("--again", help="Ask again about episodes without an answer in quarantine."),
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Ask the language model of a rule about all its episodes that have no recorded answer.

    The daemon asks about new episodes by itself. This command also asks about those that the rule
    has passed, for example after you changed its prompt. Then `slumberd backfill RULE` promotes
    what the answers state. With `--again`, `slumberd quarantine retry` does.

    The budget of the day applies. A command that it ends has recorded what it asked before.
    """
    answer = perform_request(settings_of(config, state_dir), "extract", rule=rule, again=again)
    if json:
        print(orjson.dumps(answer).decode())
    else:
        print(_describe(answer))


def _describe(answer: dict[str, Any]) -> str:
    if not answer["calls"]:
        return f"{answer['rule_id']}: every episode has its answer"
    statuses = ", ".join(f"{number(answer[name])} {name}" for name in ("ok", "refused", "invalid"))
    return (
        f"{answer['rule_id']}: {number(answer['calls'])} calls; answers: {statuses}; "
        f"{number(answer['triples'])} triples, {number(answer['dropped'])} dropped"
    )
