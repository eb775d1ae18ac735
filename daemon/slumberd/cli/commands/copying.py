"""`slumberd copy`: move episodes, facts and ledger between files and a PostgreSQL database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json
from slumberd.cli.output import bar, number, plural, print_json
from slumberd.clock import SystemClock
from slumberd.errors import UsageError
from slumberd.service.composition import require_postgres

DIFFERS = 1
"""The exit code when both hold different rows."""

Place = Annotated[
    str, typer.Option("--from", metavar="PLACE", help="A state directory, or postgresql://...")
]
Target = Annotated[
    str, typer.Option("--to", metavar="PLACE", help="The other one; it must be empty.")
]


def copy(
    source: Place,
    target: Target,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only compare both, row by row, and copy nothing.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Copy a state directory into a PostgreSQL database, or a database into a new directory.

    Stop the daemon first: if one runs, the exit code is 75. The copy has the same ledger, with the
    same commitments and the same head. A copy that is killed leaves nothing: run it again.

    With --verify, the exit code is 1 when the two differ.
    """
    require_postgres()
    from slumberd.service import store_transfer as transfer

    folder, address, into_database = _ends(source, target)
    settings, clock = settings_of(config, None), SystemClock()
    if verify:
        difference = asyncio.run(transfer.find_difference(folder, address, settings))
        if difference:
            say(f"they differ: {difference}")
            raise typer.Exit(DIFFERS)
        say("both hold the same rows")
        return
    with bar(None) as shown:

        def show(table: str, rows: int) -> None:
            """Show how many rows of a table are copied."""
            shown.at(0, f"{table}: {number(rows)}")

        copying = (
            transfer.copy_into_database(folder, address, settings, clock, show)
            if into_database
            else transfer.copy_into_files(address, folder, settings, clock, show)
        )
        done = asyncio.run(copying)
    if json:
        print_json(done._asdict())
        return
    counted = f"{plural(done.episodes, 'episode')}, {plural(done.facts, 'fact')}"
    print(f"copied: {counted}, {plural(done.rows, 'ledger row')}, head {done.head}")


def _ends(source: str, target: str) -> tuple[Path, str, bool]:
    """Return the directory, the address, and whether the database is the target."""
    schemes = ("postgresql://", "postgres://")
    is_database = [place.startswith(schemes) for place in (source, target)]
    if sum(is_database) != 1:
        raise UsageError("name one state directory and one database, as postgresql://...")
    folder, address = (target, source) if is_database[0] else (source, target)
    return Path(folder).absolute(), address, is_database[1]
