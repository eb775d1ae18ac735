"""`slumberd audit replay`: the facts again, from the ledger alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.client import auditing
from slumberd.cli.context import settings_of
from slumberd.cli.options import Channel, Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.cli.wording import plural
from slumberd.config.settings import Settings
from slumberd.model.rule import FACTS
from slumberd.observability.line_format import printable
from slumberd.storage.audit.replay import Replay

DIFFERS = 1


def replay(
    file: Annotated[Path, typer.Argument(help="A new file, for the facts that come out.")],
    channel: Channel = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Build the facts again in a new file, from the ledger alone; exit with 1 when they differ.

    Every firing is settled again. Its deltas are compared with those recorded, and the facts that
    come out, byte by byte, with those that stand. The file is a whole database of facts, and can
    take the place of the one it was made from. Of a ledger whose chain is broken none is made.
    """
    replayed = asyncio.run(_replayed(settings_of(config, state_dir), channel, file))
    if json:
        first = replayed.first._asdict() if replayed.first else None
        print_json({"ok": not replayed.differing, **replayed._asdict(), "first": first})
    else:
        print(_told(replayed))
    if replayed.differing:
        raise typer.Exit(DIFFERS)


async def _replayed(settings: Settings, channel: str | None, file: Path) -> Replay:
    async with auditing(settings, settings.store_of(channel or FACTS)) as store:
        return await store.replay(file)


def _told(replay: Replay) -> str:
    rows, firings = plural(replay.rows, "row"), plural(replay.firings, "firing")
    lines = [f"replayed: {rows} of {firings}, {plural(replay.facts, 'fact')}"]
    if replay.erased:
        lines.append(
            f"forgotten: {plural(replay.erased, 'row')};"
            f" {plural(replay.unclear, 'difference')} of deltas that this may explain"
        )
    if replay.first is None:
        lines.append("nothing differs")
    else:
        place = f"row {replay.first.seq}: " if replay.first.seq else ""
        problem = printable(replay.first.problem)
        differences = plural(replay.differing, "difference")
        lines.append(f"{differences}, the first: {place}{problem}")
    return "\n".join(lines)
