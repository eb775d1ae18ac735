"""`slumberd fire`: fire rules now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from slumberd.cli.changing import limit_of, tell_deltas
from slumberd.cli.client import performed
from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, Listed, StateDir, Verbose
from slumberd.cli.output import print_json, print_table
from slumberd.cli.wording import listed, number, plural
from slumberd.errors import UsageError
from slumberd.model.firing import Counts
from slumberd.service.control_socket import Answer

COLUMNS = ("rule", "channel", *Counts._fields)

Reports = list[dict[str, Any]]


def fire(
    rules: Annotated[
        list[str] | None, typer.Argument(metavar="[RULE]...", help="Ids of rules.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Fire every enabled rule.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would come of it, and write nothing.")
    ] = False,
    plan: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="Do what a dry run said with this hash, or nothing."),
    ] = None,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Fire rules now, whatever their cadence, and show what became of what they read.

    Through the daemon when one runs, else in this process, under the same lock; the log lines of
    the deltas go where the daemon's go. A dry run looks at no more than 100,000 pending versions
    of episodes for each rule, says how many it did not look at, and looks at each rule as if it
    fired alone.

    A batch that would take out more than the limits allow waits for approval: nothing of it is
    done, and the command ends with exit code 1.
    """
    chosen = _chosen(rules or [], every=every)
    settings = settings_of(config, state_dir)
    answer = performed(
        settings,
        "fire",
        verbose=verbose,
        rules=chosen,
        dry_run=dry_run,
        plan=plan,
        limit=limit_of(limit, json=json),
    )
    tell_fired(answer, dry_run=dry_run, json=json, nothing="nothing was pending")


def tell_fired(answer: Answer, *, dry_run: bool, json: bool, nothing: str) -> None:
    """Print what firings did, or would.

    Raises:
        typer.Exit: A batch waits for approval; with exit code 1.
    """
    if json:
        print_json({"dry_run": dry_run, **answer})
    else:
        tell_reports(answer, dry_run=dry_run, nothing=nothing)
        if dry_run and "plan" in answer:
            print(f"plan {answer['plan']}: `slumberd fire --plan` with it does this, or nothing")
    if held := [report["held"] for report in answer["reports"] if "held" in report]:
        for one in held:
            _tell_held(one)
        raise typer.Exit(1)


def _tell_held(held: dict[str, Any]) -> None:
    """Say on standard error that a batch waits, and what a person can do."""
    firing_id = held["firing_id"]
    say(
        f"batch {firing_id} waits for approval: {held['problem']};"
        f" `slumberd approve {firing_id} --dry-run` shows it, `slumberd approve {firing_id}`"
        f" lets it go on, `slumberd reject {firing_id}` passes over it"
    )


def tell_reports(answer: Answer, *, dry_run: bool, nothing: str) -> None:
    """Print the accounting of what rules met; after a dry run, the deltas that it would make."""
    reports: Reports = answer["reports"]
    if dry_run:
        deltas = [delta for report in reports for delta in report["deltas"]]
        tell_deltas(deltas, sum(report["deltas_total"] for report in reports))
    print_table(COLUMNS, _rows(reports), empty="no rule is enabled; `slumberd rules` shows all")
    if dry_run:
        _tell_unread(reports)
        print("a dry run: nothing was written")
    elif answer["run"]:
        _tell_run(answer["run"], reports)
    elif not any("held" in report for report in reports):
        print(nothing)


def _tell_run(run: str, reports: Reports) -> None:
    """Print the ids of the firings that a run made, and how it is undone."""
    firing_ids = [firing_id for report in reports for firing_id in report["firing_ids"]]
    firings = plural(len(firing_ids), "firing")
    print(f"run {run}: {firings}, {listed(firing_ids)}; `slumberd undo --run {run}` takes it back")


def _tell_unread(reports: Reports) -> None:
    """Say what a dry run did not look at."""
    for report in reports:
        if report["unread"]:
            rows = plural(report["unread"], "more version")
            print(f"{report['rule_id']}: {rows} of episodes not looked at and not counted above")


def _chosen(rules: list[str], *, every: bool) -> list[str] | None:
    if every == bool(rules):
        raise UsageError("name the rules to fire, or give --all; not both")
    return None if every else rules


def _rows(reports: Reports) -> Iterator[tuple[object, ...]]:
    for report in reports:
        for channel, counts in report["channels"].items():
            yield report["rule_id"], channel, *map(number, counts.values())
