"""Commands that change facts by request: what came of them, told alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from slumberd.cli.client import performed
from slumberd.cli.context import settings_of
from slumberd.cli.options import Channel, Config, Json, Listed, StateDir, Verbose, instant_of
from slumberd.cli.output import print_json, print_table
from slumberd.cli.wording import listed, number, plural
from slumberd.errors import UsageError
from slumberd.model.episode import microseconds
from slumberd.service.control_socket import Answer

COLUMNS = ("kind", "fact", "replaces", "reason")
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
    channel: Channel = None,
    dry_run: DryRun = False,
    limit: Listed = None,
    verbose: Verbose = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Undo firings: what they evaluated first is again what it was before for its rule.

    A run is what one command, or one due cadence, did: all of its batches, in all stores. `slumberd
    fire` prints its id, and `slumberd audit ls` shows it. What other firings promoted stays, and is
    resolved again. The rule does not evaluate the same versions again by itself: `slumberd backfill
    RULE` brings them back, or an edit does.

    The firings of a store are undone all at once or not at all. What is undone already is left as
    it is. An undo has a run id of its own, by which it is undone.
    """
    if (what is None) == (run is None) or (since is not None and what is None):
        raise UsageError("name a firing, or --run ID, or a rule with --since T; one of the three")
    settings = settings_of(config, state_dir)
    answer = performed(
        settings,
        "undo",
        verbose=verbose,
        firing=None if since else what,
        run=run,
        rule=what if since else None,
        since=microseconds(since) if since else None,
        channel=channel,
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
            COLUMNS,
            (
                (delta["kind"], delta["fact_id"], ", ".join(delta["replaces"]), delta["reason"])
                for delta in deltas
            ),
        )
    if total > len(deltas):
        shown = f"{number(len(deltas))} of {plural(total, 'delta')} are listed"
        print(f"{shown}; --limit {total} lists all")
