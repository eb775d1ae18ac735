"""`slumberd facts`: what stands, and what stood."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import typer

from slumberd.cli.configuration import settings_of
from slumberd.cli.instants import instant_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json_lines, print_table
from slumberd.cli.reading import reading_all_facts, reading_facts
from slumberd.core.act import channel_of
from slumberd.core.fact import Fact, FactPattern
from slumberd.lines import timestamp
from slumberd.settings import Settings
from slumberd.stores.facts import SQLiteFactStore

COLUMNS = ("user", "agent", "subject", "predicate", "object", "confidence", "id")

ValidAt = Annotated[
    datetime | None, typer.Option(parser=instant_of, metavar="T", help="What was true then.")
]
BelievedAt = Annotated[
    datetime | None,
    typer.Option(parser=instant_of, metavar="T", help="What was held to be true then."),
]


def facts(
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only what this agent learnt.")] = None,
    subject: Annotated[str | None, typer.Option(help="Only with this subject.")] = None,
    predicate: Annotated[str | None, typer.Option(help="Only with this predicate.")] = None,
    object: Annotated[str | None, typer.Option(help="Only with this object.")] = None,  # noqa: A002 # its name on the command line
    channel: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this channel.")
    ] = None,
    valid_at: ValidAt = None,
    believed_at: BelievedAt = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show facts: what stands now, or what stood.

    T is ISO 8601 with an offset, as 2026-03-01T12:00:00Z; a date alone, which is its first moment
    in UTC; or now. Valid at T: by what had happened until then, however late it was learnt.
    Believed at T: by what had been learnt until then. Both together work. A fact whose episode
    lies in the future stands, and is not valid now.

    With --json, each fact on a line of its own.
    """
    settings = settings_of(config, state_dir)
    pattern = FactPattern(
        user=user, agent=agent, subject=subject, predicate=predicate, object=object
    )
    ask = partial(_facts, pattern=pattern, valid_at=valid_at, believed_at=believed_at)
    found = asyncio.run(_of_all(settings, ask) if channel is None else _of(settings, ask, channel))
    if json:
        print_json_lines(document(fact) for fact in found)
    else:
        print_table(COLUMNS, (row(fact) for fact in found))


_Ask = Callable[[SQLiteFactStore], Awaitable[list[Fact]]]


async def _facts(
    store: SQLiteFactStore,
    *,
    pattern: FactPattern,
    valid_at: datetime | None,
    believed_at: datetime | None,
) -> list[Fact]:
    return await store.query(pattern, valid_at=valid_at, believed_at=believed_at)


async def _of_all(settings: Settings, ask: _Ask) -> list[Fact]:
    async with reading_all_facts(settings) as stores:
        found = [fact for store in stores.values() for fact in await ask(store)]
    return sorted(found, key=attrgetter("id")) if len(stores) > 1 else found


async def _of(settings: Settings, ask: _Ask, channel: str) -> list[Fact]:
    async with reading_facts(settings, channel) as store:
        return [fact for fact in await ask(store) if channel_of(fact.id) == channel]


def row(fact: Fact) -> tuple[object, ...]:
    """Return a fact as the table shows it; one without a triple, with its text as object."""
    payload = fact.payload
    return (
        fact.user,
        fact.agent,
        payload.get("subject"),
        payload.get("predicate"),
        payload.get("object", payload.get("content")),
        fact.confidence,
        fact.id,
    )


def document(fact: Fact) -> dict[str, Any]:
    """Return a fact as JSON takes it."""
    return {
        "id": fact.id,
        "user": fact.user,
        "agent": fact.agent,
        "payload": fact.payload,
        "lineage": fact.lineage,
        "confidence": fact.confidence,
        "pinned_at": timestamp(fact.pinned_at),
        "metadata": fact.metadata,
    }
