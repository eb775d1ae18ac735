"""`slumberd fire`: fire rules now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from slumberd.cli.changing import tell_deltas
from slumberd.cli.configuration import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json, print_table
from slumberd.cli.performing import performed
from slumberd.control import Answer
from slumberd.core.firing import Counts
from slumberd.errors import UsageError

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
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Fire rules now, whatever their cadence, and show what became of what they read.

    Through the daemon when one runs, else in this process, under the same lock; the log lines of
    the deltas go where the daemon's go. A dry run looks at no more than 100,000 pending versions
    of episodes for each rule, and at each rule as if it fired alone.
    """
    chosen = _chosen(rules or [], every=every)
    settings = settings_of(config, state_dir)
    answer = performed(settings, "fire", rules=chosen, dry_run=dry_run, plan=plan)
    if json:
        print_json({"dry_run": dry_run, **answer})
        return
    tell_reports(answer, dry_run=dry_run, nothing="nothing was pending")
    if dry_run:
        print(f"plan {answer['plan']}: `slumberd fire --plan` with it does this, or nothing")


def tell_reports(answer: Answer, *, dry_run: bool, nothing: str) -> None:
    """Print the accounting of what rules met; after a dry run, the deltas that it would make."""
    reports: Reports = answer["reports"]
    deltas = [delta for report in reports for delta in report.get("deltas", ())]
    if dry_run:
        tell_deltas(deltas, len(deltas))
    print_table(COLUMNS, _rows(reports))
    held = [report["held"] for report in reports if "held" in report]
    for one in held:
        firing = one["firing_id"]
        print(f"held: {one['problem']}; `slumberd approve {firing}` or `slumberd reject {firing}`")
    if dry_run:
        print("a dry run: nothing was written")
    elif not held and not any(report["firing_ids"] for report in reports):
        print(nothing)


def _chosen(rules: list[str], *, every: bool) -> list[str] | None:
    if every == bool(rules):
        raise UsageError("name the rules to fire, or give --all; not both")
    return None if every else rules


def _rows(reports: Reports) -> Iterator[tuple[object, ...]]:
    for report in reports:
        for channel, counts in report["channels"].items():
            yield report["rule_id"], channel, *counts.values()
