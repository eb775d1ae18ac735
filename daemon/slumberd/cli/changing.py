"""Commands that change facts by request: what came of them, told alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from slumberd.cli.configuration import settings_of
from slumberd.cli.options import Channel, Config, Json, Listed, StateDir
from slumberd.cli.output import print_json, print_table
from slumberd.cli.performing import performed
from slumberd.cli.words import number, plural
from slumberd.control import Answer

COLUMNS = ("kind", "fact", "replaces", "reason")
SHOWN = 50
"""Deltas that a person is shown without --limit."""

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would come of it, and write nothing.")
]


def undo(
    firing: Annotated[str, typer.Argument(help="The id of a firing, as preferences@120.")],
    channel: Channel = None,
    dry_run: DryRun = False,
    limit: Listed = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Undo one firing: every episode that it met first is again what it was before for its rule.

    What other firings said stays, and what they said is settled again. The rule does not meet the
    same versions again by itself: `slumberd backfill RULE` brings them back, or an edit does.
    """
    settings = settings_of(config, state_dir)
    answer = performed(
        settings,
        "undo",
        firing=firing,
        channel=channel,
        dry_run=dry_run,
        limit=limit_of(limit, json=json),
    )
    tell(answer, dry_run=dry_run, json=json)


def limit_of(limit: int | None, *, json: bool) -> int | None:
    """Return how many deltas a request asks for; None leaves it to the one who answers."""
    return SHOWN if limit is None and not json else limit


def tell(answer: Answer, *, dry_run: bool, json: bool) -> None:
    """Print what changed, or would."""
    if json:
        print_json({"dry_run": dry_run, **answer})
        return
    tell_deltas(answer["deltas"], answer["deltas_total"])
    counted = ", ".join(f"{number(count)} {kind}" for kind, count in answer["counts"].items())
    done = answer["firing_id"] or ("a dry run" if dry_run else "nothing recorded")
    print(f"{done}: {counted or 'nothing to do'}")
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
        listed = f"{number(len(deltas))} of {plural(total, 'delta')} are listed"
        print(f"{listed}; --limit {total} lists all")
