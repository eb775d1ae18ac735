"""`slumberd copy`: move episodes, facts and ledger between files and a PostgreSQL database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slumberd.cli.context import read_settings
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, chosen_shard
from slumberd.cli.output import cell, join_names, plural, print_json
from slumberd.cli.terminal import bar
from slumberd.clock import SystemClock
from slumberd.daemon.stores import require_postgres
from slumberd.model.errors import UsageError
from slumberd.rules.settings import Settings

if TYPE_CHECKING:
    from slumberd.daemon.copies.store_transfer import Verified

DIFFERS = 1
"""The exit code when both hold different rows, or the ledger is broken."""

Source = Annotated[
    str, typer.Option("--from", metavar="PLACE", help="A state directory, or postgresql://...")
]
Target = Annotated[
    str, typer.Option("--to", metavar="PLACE", help="The other one; it must hold no stores.")
]


def copy(
    source: Source,
    target: Target,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only compare both, row by row, and copy nothing.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Copy a state directory into a PostgreSQL database, or a database into a directory.

    Stop the daemon and the programs that put first: if a daemon runs, or episodes are put
    meanwhile, the exit code is 75, and nothing is kept. The copy has the same ledger, with the same
    commitments and the same head. A copy that is killed leaves nothing: run it again.

    The configuration names the files in the directory. Of a database with several shards,
    `slumberd --shard N copy` chooses one; a copy fills an empty shard. The key of the ledger is
    needed only to verify its chain.

    With --verify, the exit code is 1 when the two differ, or when the ledger is broken.
    """
    require_postgres()
    folder, address, is_into_database = _ends(source, target)
    settings = read_settings(config, folder)
    if (shard := chosen_shard.get()) is not None:
        settings = settings.of_shard(shard)
    if verify:
        _verify(folder, address, settings, json=json)
    else:
        _copy(folder, address, settings, is_into_database=is_into_database, json=json)


def _copy(
    folder: Path, address: str, settings: Settings, *, is_into_database: bool, json: bool
) -> None:
    from slumberd.daemon.copies import store_transfer as transfer

    clock = SystemClock()
    with bar(None) as shown:

        def show(table: str, done: int, total: int) -> None:
            """Show how many rows are copied."""
            shown.at(done, table, total=total)

        copying = (
            transfer.copy_into_database(folder, address, settings, clock, show)
            if is_into_database
            else transfer.copy_into_files(address, folder, settings, clock, show)
        )
        done = asyncio.run(copying)
    if json:
        print_json(done._asdict())
        return
    print(f"copied: {_count(done.rows)}")
    if done.converted:
        say(
            f"{plural(done.converted, 'episode')} of other programs got the spelling of slumberd: "
            "the owner in the scope key, the timestamp in UTC"
        )
    if done.left_out:
        say(f"not copied: the columns {join_names(done.left_out)}, which a program added")


def _verify(folder: Path, address: str, settings: Settings, *, json: bool) -> None:
    from slumberd.daemon.copies import store_transfer as transfer

    with bar(None) as shown:

        def show(table: str, done: int, total: int) -> None:
            """Show how many rows are compared."""
            shown.at(done, table, total=total)

        found = asyncio.run(transfer.compare(folder, address, settings, SystemClock(), show))
    if json:
        print_json(_document(found))
    else:
        _print_verified(found)
    if found.differences or found.broken:
        raise typer.Exit(DIFFERS)


def _document(found: Verified) -> dict[str, Any]:
    differences = [difference._asdict() for difference in found.differences]
    return {**found._asdict(), "differences": differences}


def _print_verified(found: Verified) -> None:
    for table, rows, first in found.differences:
        print(f"different: {table}, {plural(rows, 'row')}; {cell(first)}")
    if found.broken:
        print(f"broken: the ledger, {cell(found.broken)}")
    if found.head is None:
        say("the chain was not verified: the configuration does not name the key of the ledger")
    if not found.differences:
        head = f", head {found.head}" if found.head and not found.broken else ""
        print(f"equal: {_count(found.rows)}{head}")


def _count(rows: dict[str, int]) -> str:
    return (
        f"{plural(rows['episodes'], 'episode')}, {plural(rows['facts'], 'fact')}, "
        f"{plural(rows['ledger'], 'ledger row')}"
    )


def _ends(source: str, target: str) -> tuple[Path, str, bool]:
    """Return the directory, the address, and whether the database is the target."""
    schemes = ("postgresql://", "postgres://")
    is_database = [place.startswith(schemes) for place in (source, target)]
    if sum(is_database) != 1:
        raise UsageError("name one state directory and one database, as postgresql://...")
    folder, address = (target, source) if is_database[0] else (source, target)
    return Path(folder).absolute(), address, is_database[1]
