"""`slumberd move`: move a user to another shard of the database."""

from __future__ import annotations

from typing import Annotated

import typer

from slumberd.cli.client import perform_request
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, DryRun, Json, StateDir
from slumberd.cli.output import plural, print_json
from slumberd.observability.line_format import printable


def move(  # one for each option
    user: Annotated[str, typer.Option("--user", help="The user.", show_default=False)],
    to: Annotated[
        int, typer.Option("--to", metavar="SHARD", help="The shard that gets the user.", min=0)
    ],
    dry_run: DryRun = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Move a user to another shard, with all episodes, facts and rows of the ledger.

    The daemon that holds the shard of the user does it between two firings. Meanwhile the
    episodes of the user are refused; whoever puts them tries again. Firings from before the move
    are read-only in the new shard.
    """
    settings = settings_of(config, state_dir)
    answer = perform_request(settings, "move", user=user, to=to, dry_run=dry_run)
    if json:
        print_json(answer)
        return
    verb = "would move" if dry_run else "moved"
    print(f"{verb} {printable(user)} from shard {answer['source']} to shard {answer['target']}")
    episodes, facts = plural(answer["episodes"], "episode"), plural(answer["facts"], "fact")
    print(f"{episodes}, {facts}, {plural(answer['rows'], 'row')} of the ledger")
