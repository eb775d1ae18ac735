"""`slumberd upgrade`: upgrade the files of an older release, or carry those of 0.1.0 over."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.confirmation import require_confirmation
from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import plural, print_json
from slumberd.cli.setup import logs
from slumberd.clock import SystemClock
from slumberd.daemon.composition import older_schemas, open_under, tenure_of
from slumberd.model.errors import UsageError
from slumberd.operations.caller import Caller
from slumberd.rules.settings import Settings

_QUESTION = (
    "Older releases do not open the files afterwards; `slumberd backup DIR` makes a copy first. "
    "Upgrade now? [y/N]: "
)


def upgrade(
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="Carry the files of slumberd 0.1.0 over into this new directory.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Upgrade without asking.")] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Upgrade the files of an older release.

    Files of 0.2.0 and later are upgraded in place, memory.db first, each in one transaction. The
    daemon and the commands that write do the same at their first start. Make a copy with
    `slumberd backup` first: older releases do not open the files afterwards. If the files are the
    newest already, nothing changes.

    Files of 0.1.0 stay as they are. With --to, the command writes new files into a new directory:
    episodes, facts, manual edits, erased scopes, and the ledger with a row that names the old
    head. It needs the key of the ledger, if there is one. Stop the daemon and the programs that
    put first. Then let `state_dir` name the new directory.
    """
    settings = settings_of(config, state_dir)
    if settings.store is not None:
        raise UsageError("`slumberd postgres upgrade` upgrades the schema of a database")
    if to is None:
        _upgrade_in_place(settings, yes=yes, json=json)
    else:
        _carry_over(settings, to.absolute(), json=json)


def _upgrade_in_place(settings: Settings, *, yes: bool, json: bool) -> None:
    older = older_schemas(settings)
    if older and not yes:
        require_confirmation(_QUESTION, "upgraded")
    if older:
        asyncio.run(_open(settings))
    if json:
        print_json({store: {"former": old, "schema": new} for store, (old, new) in older.items()})
        return
    for store, (old, new) in older.items():
        print(f"{store}.db: schema {old} became schema {new}")
    if not older:
        say("the files have the newest schema")


async def _open(settings: Settings) -> None:
    clock = SystemClock()
    with logs(settings, clock):
        async with tenure_of(settings, clock) as tenure, open_under(tenure, settings, clock):
            pass


def _carry_over(settings: Settings, target: Path, *, json: bool) -> None:
    from slumberd.daemon.copies.carrying_over import carry_over

    done = carry_over(settings, target, at=_now(), by=Caller.here().name)
    if json:
        print_json({"state_dir": str(target), **done._asdict()})
        return
    print(
        f"carried over: {plural(done.facts, 'fact')}, {plural(done.manual_edits, 'manual edit')}, "
        f"{plural(done.erased_scopes, 'erased scope')}, {plural(done.rows, 'ledger row')}; "
        f"the ledger is verified, head {done.head}"
    )
    say(f"let state_dir name {str(target)!r}, then start the daemon; the old files are unchanged")


def _now() -> datetime:
    return SystemClock().now()
