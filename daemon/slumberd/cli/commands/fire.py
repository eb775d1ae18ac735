"""`slumberd fire`: fire rules now.

Commands that change facts by request: what came of them, told alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from slumberd.cli.client import perform_request
from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, Listed, StateDir, Verbose, instant_of
from slumberd.cli.output import print_json, print_table
from slumberd.cli.wording import listed, number, plural
from slumberd.errors import UsageError
from slumberd.model.episode import microseconds
from slumberd.model.firing import Counts
from slumberd.service.control_socket import Answer

CHANGING_COLUMNS = ("kind", "fact", "replaces", "reason")
SHOWN = 50
"""Deltas that a person is shown without --limit."""

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would come of it, and write nothing.")
]


def undo(
    what: Annotated[
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
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Undo firings: what they evaluated first is again what it was before for its rule.

    A run is what one command, or one due cadence, did: all of its batches. `slumberd fire` prints
    its id, and `slumberd audit ls` shows it. What other firings promoted stays, and is resolved
    again. The rule does not evaluate the same versions again by itself: `slumberd backfill RULE`
    brings them back, or an edit does.

    All of the firings are undone in one transaction. What is undone already is left as
    it is. An undo has a run id of its own, by which it is undone.
    """
    if (what is None) == (run is None) or (since is not None and what is None):
        raise UsageError("name a firing, or --run ID, or a rule with --since T; one of the three")
    settings = settings_of(config, state_dir)
    answer = perform_request(
        settings,
        "undo",
        verbose=verbose,
        firing=None if since else what,
        run=run,
        rule=what if since else None,
        since=microseconds(since) if since else None,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
    )
    if json:
        print_json({"dry_run": dry_run, **answer})
    else:
        _tell_undone(answer, dry_run=dry_run)


def _tell_undone(answer: Answer, *, dry_run: bool) -> None:
    """Print what undoing firings changed, or would."""
    tell_deltas(answer["deltas"], answer["deltas_total"])
    if not answer["undone"]:
        print("nothing to do: all of it is undone already")
        return
    would = "would undo" if dry_run else "undid"
    what = plural(len(answer["undone"]), "firing")
    print(f"{would} {what} ({listed(answer['undone'])}): {_counted(answer['counts'])}")
    if dry_run:
        print("a dry run: nothing was written")
    else:
        print(f"run {answer['run']}: `slumberd undo --run {answer['run']}` takes the undo back")


def _counted(counts: dict[str, int]) -> str:
    told = ", ".join(f"{number(count)} {kind}" for kind, count in counts.items())
    return told or "nothing to do"


def limit_of(limit: int | None, *, json: bool) -> int | None:
    """Return how many deltas a request asks for; None leaves it to the one who answers."""
    return SHOWN if limit is None and not json else limit


def tell(answer: Answer, *, dry_run: bool, json: bool) -> None:
    """Print what changed, or would."""
    if json:
        print_json({"dry_run": dry_run, **answer})
        return
    tell_deltas(answer["deltas"], answer["deltas_total"])
    done = answer["firing_id"] or ("a dry run" if dry_run else "nothing recorded")
    print(f"{done}: {_counted(answer['counts'])}")
    if dry_run:
        print("nothing was written")


def tell_deltas(deltas: Sequence[dict[str, Any]], total: int) -> None:
    """Print deltas as a table, and how many there are beside them."""
    if deltas:
        print_table(
            CHANGING_COLUMNS,
            (
                (delta["kind"], delta["fact_id"], ", ".join(delta["replaces"]), delta["reason"])
                for delta in deltas
            ),
        )
    if total > len(deltas):
        shown = f"{number(len(deltas))} of {plural(total, 'delta')} are listed"
        print(f"{shown}; --limit {total} lists all")


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
    answer = perform_request(
        settings,
        "fire",
        verbose=verbose,
        rules=chosen,
        dry_run=dry_run,
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
