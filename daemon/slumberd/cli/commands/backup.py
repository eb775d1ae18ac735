"""`slumberd backup`, `restore` and `copy`: into files of one moment, into a database, and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slumberd.cli.context import read_settings, settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, StateDir, chosen_shard
from slumberd.cli.output import cell, join_names, plural, print_json
from slumberd.cli.terminal import bar, steps
from slumberd.clock import SystemClock
from slumberd.daemon.copies.backup import Restored, back_up, check_backup
from slumberd.daemon.copies.backup import restore as put_back
from slumberd.daemon.copies.file_copies import Manifest
from slumberd.logs.lines import printable
from slumberd.model.errors import UsageError
from slumberd.rules.settings import Settings
from slumberd.tools.diagnostics.host_checks import megabytes

if TYPE_CHECKING:
    from slumberd.daemon.copies.store_transfer import Verified


def backup(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory that does not exist, or is empty.")
    ],
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Copy the key of the ledger, too.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Copy episodes, facts and paused rules as of one moment, and verify the copies.

    The daemon and hosts may run meanwhile. The copies keep owners and modes, as far as this user
    may set owners. Until the backup is complete, the name of its directory ends in .incomplete.

    A backup does not hold the key of the ledger (unless --with-key is given), the configuration,
    the rules, the log, and the output of a provenance sink.
    """
    settings = settings_of(config, state_dir)
    with steps() as show_step:
        copying = back_up(settings, folder.absolute(), SystemClock(), show_step, key=with_key)
        manifest = asyncio.run(copying)
    if json:
        print_json(_document(folder, manifest))
        return
    print(f"backed up: {_words(manifest)}, to {cell(str(folder))}")
    for missing in _left_out(settings, with_key=with_key):
        print(f"not in it: {cell(missing)}")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a backup.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only verify the backup, and change nothing.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Verify a backup, and replace the databases with it.

    Stop the daemon and hosts first: if a daemon runs, or a process has a database open, the exit
    code is 75. The command replaces all files or none. If it is killed in between, the next restore
    or the next start of the daemon finishes it. The replaced files stay in the directory, with
    .replaced- and the instant in their names: delete them when you no longer need them.
    """
    settings, clock = settings_of(config, state_dir), SystemClock()
    with steps() as show_step:
        if check:
            manifest = asyncio.run(check_backup(settings, folder, clock, show_step))
            result = Restored(manifest, (), (), 0)
        else:
            result = asyncio.run(put_back(settings, folder, clock, show_step))
    if json:
        print_json(_document(folder, result.manifest) | _changes(result))
    else:
        print(f"{'whole' if check else 'restored'}: {_words(result.manifest)}")
        for path in result.kept:
            print(f"kept: {cell(str(path))}")
    _warn(result)


def _words(manifest: Manifest) -> str:
    size = megabytes(sum(file.bytes for file in manifest.files))
    rows = manifest.ledger.rows if manifest.ledger else 0
    return f"{len(manifest.files)} files, {size}, {rows:,} ledger rows, as of {cell(manifest.at)}"


def _left_out(settings: Settings, *, with_key: bool) -> list[str]:
    """Return descriptions of what the backup leaves out."""
    key = None if with_key else settings.facts.key_file
    output = settings.provenance_path if settings.provenance.sink == "file" else None
    return [
        *([f"the key of the ledger, {str(key)!r}; --with-key copies it"] if key else []),
        f"the configuration, and the rules in {str(settings.rules_dir)!r}",
        *([f"the output of the provenance sink, {str(output)!r}"] if output else []),
    ]


def _document(folder: Path, manifest: Manifest) -> dict[str, object]:
    return {"directory": printable(str(folder)), **manifest.model_dump(mode="json")}


def _changes(result: Restored) -> dict[str, object]:
    return {
        "kept": [printable(str(path)) for path in result.kept],
        "owner_changed": [printable(str(path)) for path in result.owned],
        "erasures_undone": result.newer_erasures,
    }


def _warn(result: Restored) -> None:
    """Report on standard error what a person must do after a restore."""
    for path in result.owned:
        say(f"{str(path)!r} could not be given to its owner: restore as root for that")
    if count := result.newer_erasures:
        erasures = "1 erasure is" if count == 1 else f"{count} erasures are"
        say(f"{erasures} newer than the backup: run `slumberd forget` again for those scopes")


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
        print_json(_copy_document(found))
    else:
        _print_verified(found)
    if found.differences or found.broken:
        raise typer.Exit(DIFFERS)


def _copy_document(found: Verified) -> dict[str, Any]:
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
