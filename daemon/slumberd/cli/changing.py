"""Commands that change facts by request: what came of them, told alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from slumberd.cli.configuration import settings_of
from slumberd.cli.options import Channel, Config, Json, StateDir
from slumberd.cli.output import print_json, print_table
from slumberd.cli.performing import performed
from slumberd.control import Answer

COLUMNS = ("kind", "fact", "replaces", "reason")
SHOWN = 50
"""Deltas that a person is shown; --json prints all of them."""

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would come of it, and write nothing.")
]


def undo(
    firing: Annotated[str, typer.Argument(help="The id of a firing, as preferences@120.")],
    channel: Channel = None,
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Undo one firing: every episode that it met first is again what it was before for its rule.

    What other firings said stays, and what they said is settled again. The rule does not meet the
    same versions again by itself: `slumberd backfill RULE` brings them back, or an edit does.
    """
    settings = settings_of(config, state_dir)
    answer = performed(settings, "undo", firing=firing, channel=channel, dry_run=dry_run)
    tell(answer, dry_run=dry_run, json=json)


def tell(answer: Answer, *, dry_run: bool, json: bool) -> None:
    """Print what changed, or would."""
    if json:
        print_json({"dry_run": dry_run, **answer})
        return
    tell_deltas(answer["deltas"], sum(answer["counts"].values()))
    counted = ", ".join(f"{count} {kind}" for kind, count in answer["counts"].items())
    done = answer["firing_id"] or ("a dry run" if dry_run else "nothing recorded")
    print(f"{done}: {counted or 'nothing to do'}")
    if dry_run:
        print("nothing was written")


def tell_deltas(deltas: Sequence[dict[str, Any]], total: int) -> None:
    """Print the first deltas as a table, and how many more there are."""
    if deltas:
        print_table(
            COLUMNS,
            (
                (delta["kind"], delta["fact_id"], ", ".join(delta["replaces"]), delta["reason"])
                for delta in deltas[:SHOWN]
            ),
        )
    if total > SHOWN:
        print(f"and {total - SHOWN} more; --json lists them")
