"""`slumberd facts`: what stands, and what stood."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer

from slumberd.cli.client import reading_all_facts, reading_facts
from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_facts
from slumberd.cli.options import Config, Json, StateDir, instant_of
from slumberd.cli.output import print_json_lines, print_table
from slumberd.cli.patterns import (
    After,
    Agents,
    By,
    Descending,
    Globs,
    Ids,
    Least,
    Limit,
    Most,
    Objects,
    ObjectsJson,
    Predicates,
    Prefixes,
    Regexes,
    Subjects,
    Users,
    pattern_of,
)
from slumberd.config.settings import Settings
from slumberd.model.fact import Fact, FactPattern, position
from slumberd.observability.line_format import timestamp
from slumberd.storage.facts.store import SQLiteFactStore

COLUMNS = ("id", "user", "agent", "subject", "predicate", "object", "confidence", "said at")

ValidAt = Annotated[
    datetime | None, typer.Option(parser=instant_of, metavar="T", help="What was true then.")
]
BelievedAt = Annotated[
    datetime | None,
    typer.Option(parser=instant_of, metavar="T", help="What was held to be true then."),
]


def facts(
    user: Users = None,
    agent: Agents = None,
    subject: Subjects = None,
    predicate: Predicates = None,
    object: Objects = None,  # noqa: A002 # its name on the command line
    object_json: ObjectsJson = None,
    id: Ids = None,
    prefix: Prefixes = None,
    glob: Globs = None,
    regex: Regexes = None,
    channel: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this channel.")
    ] = None,
    min_confidence: Least = None,
    max_confidence: Most = None,
    since: Annotated[
        datetime | None,
        typer.Option(parser=instant_of, metavar="T", help="Only said at T or later."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(parser=instant_of, metavar="T", help="Only said before T."),
    ] = None,
    valid_at: ValidAt = None,
    believed_at: BelievedAt = None,
    order: By = "id",
    descending: Descending = False,
    limit: Limit = None,
    after: After = None,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show facts: what stands now, or what stood.

    The same option again means any of both, another option both at once. A SLOT is subject,
    predicate, object, user, agent or id. Case counts.

    T is ISO 8601 with an offset, as 2026-03-01T12:00:00Z; a date alone, which is its first moment
    in UTC; or now. A fact is said when its episode happened, and pinned when its rule fired. Valid
    at T: by what had happened until then, however late it was learnt.
    Believed at T: by what had been learnt until then. Both together work. A fact whose episode
    lies in the future stands, and is not valid now.

    With --json, each fact on a line of its own. With --limit, the error stream tells how the next
    page is asked for, when there is one; with --json as {"after": CURSOR}.
    """
    pattern = pattern_of(
        {
            "user": user, "agent": agent, "subject": subject, "predicate": predicate,
            "object": object, "id": id,
        },
        object_json,
        {"prefix": prefix, "glob": glob, "regex": regex},
        channel=channel, min_confidence=min_confidence, max_confidence=max_confidence,
        said_since=since, said_until=until, order=order, descending=descending, limit=limit,
        after=after,
    )  # fmt: skip
    settings = settings_of(config, state_dir)
    found, following = _page(settings, pattern, valid_at, believed_at)
    if json:
        print_json_lines(document(fact) for fact in found)
    else:
        empty = "" if found else no_facts(settings, user or [])
        print_table(COLUMNS, (row(fact) for fact in found), empty=empty)
    if following is not None:
        _tell_following(following, json=json)


_Ask = Callable[[SQLiteFactStore], Awaitable[list[Fact]]]


def _page(
    settings: Settings,
    pattern: FactPattern,
    valid_at: datetime | None,
    believed_at: datetime | None,
) -> tuple[list[Fact], str | None]:
    """Return a page of the facts of all stores, and the cursor of the next page if there is one."""
    limit = pattern.limit
    # One more than is wanted tells whether there are more.
    asked = pattern if limit is None else pattern.model_copy(update={"limit": limit + 1})
    ask = partial(_facts, pattern=asked, valid_at=valid_at, believed_at=believed_at)
    channel = pattern.channel
    found = asyncio.run(_of_all(settings, ask) if channel is None else _of(settings, ask, channel))
    place = partial(position, pattern.order)
    found.sort(key=place, reverse=pattern.descending)
    if limit is None or len(found) <= limit:
        return found, None
    # An id may stand in two stores; no page ends between the two.
    page = [fact for fact in found[limit:] if place(fact) == place(found[limit - 1])]
    page[:0] = found[:limit]
    return page, pattern.following(page[-1]).after if len(page) < len(found) else None


def _tell_following(after: str, *, json: bool) -> None:
    told = f'{{"after":"{after}"}}' if json else f"there are more: the same with --after {after}"
    print(told, file=sys.stderr)


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
        return [fact for store in stores.values() for fact in await ask(store)]


async def _of(settings: Settings, ask: _Ask, channel: str) -> list[Fact]:
    async with reading_facts(settings, channel) as store:
        return await ask(store)


def row(fact: Fact) -> tuple[object, ...]:
    """Return a fact as the table shows it; one without a triple, with its text as object."""
    payload = fact.payload
    return (
        fact.id,
        fact.user,
        fact.agent,
        payload.get("subject"),
        payload.get("predicate"),
        payload.get("object", payload.get("content")),
        fact.confidence,
        fact.said_at,
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
        "said_at": timestamp(fact.said_at),
        "pinned_at": timestamp(fact.pinned_at),
        "metadata": fact.metadata,
    }
