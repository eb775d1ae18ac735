"""Bench: the reads of an open store: the latest episodes, and facts by their content."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Sized
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import NamedTuple

from slumberd.model.episode import Episode
from slumberd.model.fact import FactPattern
from slumberd.model.scope import Scope
from slumberd.sql_statements import statement
from slumberd.storage.episodes.rows import encode
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.bench.databases import USERS, Workshop
from tests.bench.measuring import Line, Table, at_most
from tests.support.builders import START

SECTION = "read"
LIMITS = (10, 100, 1_000)
CALLS = 40
"""Calls whose median is one value."""

MILLISECONDS, MICROSECONDS_A_ROW = 0.2, 8.0
"""The time limit of a call, and of each row that it returns."""

MANY_ROWS, OF_MANY = 100, 2.5
"""From so many rows on, the limit is so many times the time limit of a call."""

LEVEL = 1.5
"""The limit of the ratio of a read of a large store to a small one, in processor time."""

TALKER = "talker"
"""A user with very many episodes, nearly all of them with one agent."""

RARELY = 100
"""Every so many episodes of the talker, one is with another agent."""

Read = Callable[[int], Awaitable[Sized]]
"""Makes a read that depends on a number, so that calls differ."""


def measure(table: Table, shop: Workshop) -> None:
    """Read stores of three sizes in turns; then read the episodes of the talker."""
    asyncio.run(_measure(table, shop))


class Took(NamedTuple):
    """The medians of some calls.

    Attributes:
        share: The part of the time limit that they took.
        processor: Seconds of processor time.
        rows: The rows that they returned.
    """

    share: float
    processor: float
    rows: float


class History(NamedTuple):
    """Two stores that are open, and how many episodes they were filled from."""

    memory: SQLiteMemoryStore
    facts: SQLiteFactStore
    size: int


async def _measure(table: Table, shop: Workshop) -> None:
    sizes = (shop.small, shop.middle, shop.large)
    states = [shop.consolidated(size) for size in sizes]
    async with (
        _opened(shop, states[0], sizes[0]) as small,
        _opened(shop, states[1], sizes[1]) as middle,
        _opened(shop, states[2], sizes[2]) as large,
    ):
        reads = [_reads(world) for world in (small, middle, large)]
        for name in reads[0]:
            took = [[await _took(by_name[name]) for by_name in reads] for _ in shop.turns()]
            *fewer, many = zip(*took, strict=True)
            _line(table, f"{name}, of {shop.large:,}", many)
            _level(table, name, many, list(zip(sizes, fewer, strict=False)))
    async with _opened(shop, states[0], sizes[0], spoken=shop.middle) as world:
        for name, read in _reads_of_a_talker(world).items():
            _line(table, f"{name} of {shop.middle:,}", [await _took(read) for _ in shop.turns()])


def _line(table: Table, name: str, took: Sequence[Took]) -> None:
    shares, processor, rows = zip(*took, strict=True)
    bound = at_most(OF_MANY if median(rows) > MANY_ROWS else 1)
    table.add(Line(SECTION, name, "of it", shares, processor, bound))


def _level(
    table: Table, name: str, many: Sequence[Took], fewer: Sequence[tuple[int, Sequence[Took]]]
) -> None:
    """Compare a read of a large store with a smaller one that returns as many rows."""
    for size, few in fewer:
        if few[0].rows > 0.9 * many[0].rows:
            pairs = [took.processor for took in many], [took.processor for took in few]
            table.ratio(SECTION, f"{name}, to that of {size:,}", pairs, at_most(LEVEL))
            return


@asynccontextmanager
async def _opened(
    shop: Workshop, state: Path, size: int, *, spoken: int = 0
) -> AsyncIterator[History]:
    home = shop.home(state)
    async with (
        SQLiteMemoryStore(home.state / "memory.db") as memory,
        SQLiteFactStore(home.state / "facts.db") as facts,
    ):
        await memory.bootstrap()
        await facts.bootstrap()
        if spoken:
            _let_talk(home.state / "memory.db", spoken)
        yield History(memory, facts, size)
    shutil.rmtree(home.folder)


def _let_talk(path: Path, spoken: int) -> None:
    """Write the episodes of the talker with plain SQLite, which takes seconds."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(statement("episodes", "insert"), map(_row, range(spoken)))


def _row(number: int) -> tuple[object, ...]:
    agent = "seldom" if number % RARELY == 0 else "agent"
    scope = Scope(TALKER, f"talk-{number // 1_000}", agent)
    episode = Episode(
        id=f"talk-{number}",
        content=f"Something was said about thing {number}, and it was worth a sentence.",
        timestamp=START + timedelta(seconds=number),
        source_node="chat",
        agent=agent,
        user=TALKER,
        session=scope.session,
        metadata={"subject": f"talk {number}", "predicate": "is", "object": f"t {number}"},
    )
    return tuple(encode(episode, scope, operation="put"))


def _reads(world: History) -> dict[str, Read]:
    return {**_recents(world), **_queries(world)}


def _recents(world: History) -> dict[str, Read]:
    recent = world.memory.recent
    found: dict[str, Read] = {}
    for limit in LIMITS:

        def of_scope(n: int, limit: int = limit) -> Awaitable[Sized]:
            # The episode with number `thing`: its session and user are those of `worlds.episodes`.
            thing = n * 97 % world.size
            session = f"session-{thing // 100}"
            return recent(f"user-{thing % USERS}", session, "agent", limit=limit)

        def of_user(n: int, limit: int = limit) -> Awaitable[Sized]:
            return recent(f"user-{n * 7 % USERS}", limit=limit)

        def of_agent(n: int, limit: int = limit) -> Awaitable[Sized]:
            return recent(f"user-{n * 7 % USERS}", agent="agent", limit=limit)

        reads = {"a scope": of_scope, "a user": of_user, "a user and agent": of_agent}
        found |= {f"the last {limit:,} of {name}": read for name, read in reads.items()}
    return found


def _queries(world: History) -> dict[str, Read]:
    query = world.facts.query
    return {
        "facts of a user": lambda n: query(FactPattern(user=f"user-{n * 7 % USERS}")),
        "facts of a subject": lambda n: query(FactPattern(subject=_thing(n, world))),
        "facts of a subject and predicate": lambda n: query(
            FactPattern(subject=_thing(n, world), predicate="is")
        ),
        "facts of an object": lambda n: query(FactPattern(object=f"v {n * 97 % world.size}")),
    }


def _thing(n: int, world: History) -> str:
    return f"thing {n * 97 % world.size}"


def _reads_of_a_talker(world: History) -> dict[str, Read]:
    found: dict[str, Read] = {}
    for limit in LIMITS:
        scopes = {
            "a talker": (TALKER, None, None),
            "a talker and agent": (TALKER, None, "agent"),
            "a talker and rare agent": (TALKER, None, "seldom"),
            "a talker's session": (TALKER, "talk-0", None),
            "a talker's scope": (TALKER, "talk-0", "agent"),
        }
        for name, (user, session, agent) in scopes.items():

            def read(
                _: int,
                limit: int = limit,
                user: str = user,
                session: str | None = session,
                agent: str | None = agent,
            ) -> Awaitable[Sized]:
                return world.memory.recent(user, session, agent, limit=limit)

            found[f"the last {limit:,} of {name}"] = read
    return found


async def _took(read: Read) -> Took:
    """Return the median of some calls."""
    return Took(*map(median, zip(*[await _call(read, n) for n in range(CALLS)], strict=True)))


async def _call(read: Read, n: int) -> Took:
    wall, processor = time.perf_counter(), time.process_time()
    rows = len(await read(n))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    may_take = (MILLISECONDS + rows * MICROSECONDS_A_ROW / 1_000) / 1_000
    return Took(wall / may_take, processor, rows)
