"""`slumberd backup` and `slumberd restore`: copy the databases as of one moment, and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import cell, print_json
from slumberd.cli.terminal import steps
from slumberd.clock import SystemClock
from slumberd.daemon.copies.backup import Restored, back_up, check_backup
from slumberd.daemon.copies.backup import restore as put_back
from slumberd.daemon.copies.file_copies import Manifest
from slumberd.logs.line_format import printable
from slumberd.rules.settings import Settings
from slumberd.tools.diagnostics.host_checks import megabytes


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
