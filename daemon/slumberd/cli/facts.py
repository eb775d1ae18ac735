"""`slumberd facts`: what stands, and what stood."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

import typer

from slumberd.cli.configuration import settings_of
from slumberd.cli.instants import instant_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json_lines, print_table
from slumberd.cli.reading import reading_facts
from slumberd.core.fact import Fact, FactPattern
from slumberd.lines import timestamp
from slumberd.settings import Settings

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
    found = asyncio.run(_facts(settings, pattern, valid_at, believed_at))
    if json:
        print_json_lines(document(fact) for fact in found)
    else:
        print_table(COLUMNS, (row(fact) for fact in found))


async def _facts(
    settings: Settings,
    pattern: FactPattern,
    valid_at: datetime | None,
    believed_at: datetime | None,
) -> list[Fact]:
    async with reading_facts(settings) as store:
        return await store.query(pattern, valid_at=valid_at, believed_at=believed_at)


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
