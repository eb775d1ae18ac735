"""`slumberd backup` and `slumberd restore`: the databases as of one moment, out and in again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import cell, print_json, steps
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.diagnostics.host_checks import megabytes
from slumberd.model.backup import Manifest
from slumberd.observability.line_format import printable
from slumberd.service.backup import Restored, back_up, checked
from slumberd.service.backup import restore as put_back


def backup(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory that is not there yet, or is empty.")
    ],
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Put the key of the ledger into the backup, too.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Copy episodes, facts and paused rules as of one moment, and verify the copies.

    The daemon and hosts go on meanwhile. Owners and modes are kept, owners as far as this user may
    give files away. Until it is complete, the name of the directory ends in .incomplete.

    Not in a backup: the key of the ledger (unless --with-key is given), the configuration, rules,
    the log, and what a sink of provenance was told.
    """
    settings = settings_of(config, state_dir)
    with steps() as tell:
        made = asyncio.run(back_up(settings, folder.absolute(), SystemClock(), tell, key=with_key))
    if json:
        print_json(_document(folder, made))
        return
    print(f"backed up: {_words(made)}, to {cell(str(folder))}")
    for one in _left_out(settings, with_key=with_key):
        print(f"not in it: {cell(one)}")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a backup.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only verify the backup; change nothing.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Put a backup in the place of the databases, once it is verified whole.

    Stop the daemon and hosts first: with a daemon, or a database that somebody has open, it ends
    with 75. All files are exchanged, or none. When it is killed in between, the next restore or the
    next start of the daemon finishes it. What was replaced is kept beside, with .replaced- and the
    instant in its name: delete it when it is no longer needed.
    """
    settings, clock = settings_of(config, state_dir), SystemClock()
    with steps() as tell:
        if check:
            manifest = asyncio.run(checked(settings, folder, clock, tell))
            done = Restored(manifest, (), (), 0)
        else:
            done = asyncio.run(put_back(settings, folder, clock, tell))
    if json:
        print_json(_document(folder, done.manifest) | _changes(done))
    else:
        print(f"{'whole' if check else 'restored'}: {_words(done.manifest)}")
        for path in done.kept:
            print(f"kept: {cell(str(path))}")
    _warn(done)


def _words(manifest: Manifest) -> str:
    size = megabytes(sum(one.bytes for one in manifest.files))
    rows = manifest.ledger.rows if manifest.ledger else 0
    return f"{len(manifest.files)} files, {size}, {rows:,} ledger rows, as of {cell(manifest.at)}"


def _left_out(settings: Settings, *, with_key: bool) -> list[str]:
    key = settings.facts.key_file
    found = [f"the key of the ledger, {str(key)!r}; --with-key puts it in"] if key else []
    told = settings.provenance_path if settings.provenance.sink == "file" else None
    return [
        *(found if not with_key else []),
        f"the configuration, and the rules in {str(settings.rules_dir)!r}",
        *([f"what the sink of provenance was told, {str(told)!r}"] if told else []),
    ]


def _document(folder: Path, manifest: Manifest) -> dict[str, object]:
    return {"directory": printable(str(folder)), **manifest.model_dump(mode="json")}


def _changes(done: Restored) -> dict[str, object]:
    return {
        "kept": [printable(str(path)) for path in done.kept],
        "owner_changed": [printable(str(path)) for path in done.owned],
        "erasures_undone": done.forgotten,
    }


def _warn(done: Restored) -> None:
    for path in done.owned:
        say(f"{str(path)!r} could not be given to its owner: restore as root for that")
    if done.forgotten:
        what = "1 erasure is" if done.forgotten == 1 else f"{done.forgotten} erasures are"
        say(f"{what} newer than the backup: run `slumberd forget` again for those scopes")
