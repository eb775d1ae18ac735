"""Bench: the stores in a PostgreSQL database beside those in files, in turns.

The server is one of its own, on the same processors and the same disk, with durable commits. Its
processor time is that of its processes. The path is that of a program: puts in batches, then
windows that are consolidated and applied, without a daemon and without log lines.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from slumberd.model.episode import Episode
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.bench.databases import Workshop, episodes
from tests.bench.measuring import Line, Table
from tests.support.builders import rule
from tests.support.postgres_server import OwnServer, programs, running_server

SECTION = "postgres"
BATCH = 5_000
RULE = rule("all")


class Cost(NamedTuple):
    """What some work on some episodes took.

    Attributes:
        wall: Seconds.
        client: Seconds of processor time of this process.
        server: Seconds of processor time of the server; 0 for files.
    """

    wall: float
    client: float
    server: float


def measure(table: Table, shop: Workshop) -> None:
    """Put and consolidate the same episodes in files and in a database, in turns."""
    if programs() is None:
        print("skipped: the section postgres; PostgreSQL is not installed")
        return
    count = shop.small
    found: dict[str, list[Cost]] = {}
    wal: list[float] = []
    with running_server(fsync="on") as server:
        for turn in range(shop.times):
            some = [Episode.model_validate(each) for each in episodes(count)]
            asyncio.run(_measure_files(shop.folder / f"postgres-{turn}", some, found))
            wal.append(asyncio.run(_measure_database(server, some, found)) / count)
    for work in ("put_many", "consolidate"):
        files, database = found[f"{work}, files"], found[f"{work}, database"]
        for place, costs in (("in files", files), ("in a database", database)):
            name = f"{work} of {count:,} {place}, processor time"
            table.add(_per_episode(name, [cost.client for cost in costs], count))
        name = f"{work} of {count:,} in a database, of the server"
        table.add(_per_episode(name, [cost.server for cost in database], count))
        walls = [cost.wall for cost in database], [cost.wall for cost in files]
        table.ratio(SECTION, f"{work} in a database, to files", walls)
    table.add(Line(SECTION, "write-ahead log of an episode", "bytes", wal))


def _per_episode(name: str, seconds: Sequence[float], count: int) -> Line:
    return Line(SECTION, name, "µs", [1e6 * each / count for each in seconds])


async def _measure_files(folder: Path, some: list[Episode], found: dict[str, list[Cost]]) -> None:
    folder.mkdir(parents=True)
    async with (
        SQLiteMemoryStore(folder / "memory.db") as memory,
        SQLiteFactStore(folder / "facts.db") as facts,
    ):
        await _measure(memory, facts, some, found, "files", lambda: 0.0)


async def _measure_database(
    server: OwnServer, some: list[Episode], found: dict[str, list[Cost]]
) -> float:
    """Measure; return the bytes of the write-ahead log."""
    with server.database() as name:
        address = server.address_of(name)
        lsn = "SELECT (pg_current_wal_lsn() - '0/0')::bigint"
        [(before,)] = server.rows(lsn, name)
        async with (
            PostgresMemoryStore(address) as memory,
            PostgresFactStore(address) as facts,
        ):
            await _measure(
                memory, facts, some, found, "database", lambda: server_seconds(server.pid)
            )
        [(after,)] = server.rows(lsn, name)
    return float(after - before)


async def _measure(  # the stores, the work, and where its costs go
    memory: EngineMemoryStore,
    facts: EngineFactStore,
    some: list[Episode],
    found: dict[str, list[Cost]],
    where: str,
    server: Callable[[], float],
) -> None:
    await memory.bootstrap()
    await facts.bootstrap()

    async def put() -> None:
        for first in range(0, len(some), 1_000):
            await memory.put_many(some[first : first + 1_000])

    async def consolidate() -> None:
        while True:
            window = await facts.next_window(RULE.id, limit=BATCH)
            batch = await memory.consolidate(RULE, window=window)
            if batch.is_empty:
                return
            await facts.apply_deltas(batch)

    for name, work in (("put_many", put), ("consolidate", consolidate)):
        found.setdefault(f"{name}, {where}", []).append(await _cost_of(work, server))


async def _cost_of(work: Callable[[], Awaitable[None]], server: Callable[[], float]) -> Cost:
    wall, client, theirs = time.perf_counter(), time.process_time(), server()
    await work()
    return Cost(time.perf_counter() - wall, time.process_time() - client, server() - theirs)


def server_seconds(postmaster: int) -> float:
    """Return the processor time of a server's processes, those that have ended included."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # the process has just ended
            continue
        if int(entry.name) == postmaster:
            total += sum(map(int, fields[11:15]))  # its own, and that of ended children
        elif int(fields[1]) == postmaster:
            total += sum(map(int, fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")
