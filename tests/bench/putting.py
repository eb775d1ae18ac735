"""Bench: puts against those of Stargraph, and large batches against plain SQLite.

Everything runs under the pragmas of memory.db: WAL and synchronous=NORMAL, as Stargraph has them.
Each put of Stargraph closes the file, which writes and syncs all of it, so a power cut loses no put
that has returned. Slumberd guarantees that with synchronous=FULL, which has lines of its own. The
plain ``executemany`` writes prepared rows into the same table, with the same triggers and indexes
and the same number of rows in a transaction. An import reads its rows from JSON lines, and its
start counts. `reference` says why Stargraph is measured on few episodes. With more episodes of
random ids SQLite writes more pages for each. The time to close a file counts on every side.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from slumberd.model.episode import Episode
from slumberd.sql_statements import statement
from slumberd.storage.sqlite.connection import connect
from slumberd.storage.sqlite.memory_store import LOG_PAGES, SQLiteMemoryStore
from slumberd.storage.sqlite.session import Pragmas, Synchronous, transaction
from tests.bench.databases import Workshop, episodes, write_episodes
from tests.bench.measuring import Cost, Table, at_least, rates, run, timed, total
from tests.bench.reference import few, reference
from tests.support.daemons import Home
from tests.support.stargraph import Stargraph

SECTION = "put"

TOGETHER = 64
"""Callers that put at the same time."""

BATCH = 1_000
"""Rows in a transaction of `put_many`: as many as an import takes."""

# A put alone has no limit to Stargraph's: most of it is a transaction, as bare SQLite has one.
_CALLERS = {1: ("one by one", None), TOGETHER: (f"{TOGETHER} at once", at_least(50))}
_ROWS = "SELECT id, scope_key, content, timestamp, metadata FROM episodes ORDER BY rowid"


def measure(table: Table, shop: Workshop) -> None:
    """Put by a caller, by many callers at the same time, in batches, and from a file."""
    with reference(SECTION) as host:
        for callers in _CALLERS:
            _measure_callers(table, shop, callers, host)
    _measure_to_bare(table, shop, 1, few(shop))
    _measure_to_bare(table, shop, TOGETHER, shop.middle)
    for count in (shop.small, shop.middle):
        _measure_many(table, shop, count)


def _measure_callers(table: Table, shop: Workshop, callers: int, host: Stargraph | None) -> None:
    how, bound = _CALLERS[callers]
    least = few(shop)
    ours: dict[tuple[int, Synchronous], list[Cost]]
    ours = {(least, "normal"): [], (least, "full"): [], (shop.middle, "normal"): []}
    theirs: list[Cost] = []
    for _ in shop.turns():
        for (count, synchronous), costs in ours.items():
            costs.append(_put(shop, count, callers, synchronous))
        if host is not None:
            theirs.append(_put_by(host, shop, least, callers))
    for (count, synchronous), costs in ours.items():
        table.rate(SECTION, f"{how}, {count:,}, {synchronous}", count, costs)
    if not theirs:
        return
    table.rate(SECTION, f"{how}, {least:,} by Stargraph", least, theirs)
    for (count, synchronous), costs in ours.items():
        pair = rates(count, costs), rates(least, theirs)
        name = f"{how}, {count:,}, {synchronous}, of Stargraph's at {least:,}"
        table.ratio(SECTION, name, pair, bound if synchronous == "normal" else None)


def _put(shop: Workshop, count: int, callers: int, synchronous: Synchronous) -> Cost:
    with _home(shop) as home:
        return _put_by_callers(home.state / "memory.db", count, callers, synchronous)


def _put_by_callers(
    path: Path, count: int, callers: int, synchronous: Synchronous = "normal"
) -> Cost:
    """Put by callers; each takes its next episode when the last is committed."""
    with asyncio.Runner() as runner:
        memory = _memory(runner, path, synchronous)
        works = (_put_all(memory, some, callers) for some in _portions(count, BATCH))
        costs = [timed(partial(runner.run, work))[1] for work in works]
        return total([*costs, timed(lambda: runner.run(memory.close()))[1]])


async def _put_all(memory: SQLiteMemoryStore, some: Sequence[Episode], callers: int) -> None:
    waiting = iter(some)

    async def caller() -> None:
        for episode in waiting:
            await memory.put(
                episode, user=episode.user, session=episode.session, agent=episode.agent
            )

    await asyncio.gather(*(caller() for _ in range(callers)))


def _put_by(host: Stargraph, shop: Workshop, count: int, callers: int) -> Cost:
    with _home(shop) as home:
        host.ask("bootstrap", home.state)
        given = list(episodes(count))
        return Cost(**host.ask("timed_put", home.state, episodes=given, callers=callers))


def _measure_to_bare(table: Table, shop: Workshop, callers: int, count: int) -> None:
    """Compare puts by callers with their rows in transactions of bare SQLite, as many in each."""
    pairs = [_beside_bare(shop, callers, count) for _ in shop.turns()]
    ours, bare = [first for first, _ in pairs], [second for _, second in pairs]
    table.rate(SECTION, f"bare, {callers} in a transaction, {count:,}", count, bare)
    name = f"{_CALLERS[callers][0]}, {count:,}, of the bare rate"
    bound = at_least(0.55) if callers == 1 else None
    table.ratio(SECTION, name, (rates(count, ours), rates(count, bare)), bound)
    # On a busy machine many callers wait for a processor, which bare SQLite need not.
    processor = [cost.processor for cost in bare], [cost.processor for cost in ours]
    table.ratio(SECTION, f"{name}, processor", processor)


def _beside_bare(shop: Workshop, callers: int, count: int) -> tuple[Cost, Cost]:
    with _home(shop) as home:
        path = home.state / "memory.db"
        ours = _put_by_callers(path, count, callers)
        return ours, _bare(path, home.state / "bare.db", each=callers)


def _measure_many(table: Table, shop: Workshop, count: int) -> None:
    ours: list[Cost] = []
    bare: list[Cost] = []
    imported: list[Cost] = []
    for _ in shop.turns():
        one, other = _many(shop, count)
        ours.append(one)
        bare.append(other)
        if count == shop.middle:  # of fewer, the start of the command would be most of it
            imported.append(_imported(shop, count))
    table.rate(SECTION, f"`put_many`, {count:,}", count, ours)
    table.rate(SECTION, f"bare executemany, {count:,}", count, bare)
    pair = rates(count, ours), rates(count, bare)
    table.ratio(SECTION, f"`put_many`, {count:,}, of the bare rate", pair, at_least(0.55))
    if imported:
        table.rate(SECTION, f"the command `import`, {count:,}", count, imported)
        pair = rates(count, imported), rates(count, ours)
        table.ratio(SECTION, f"`import`, {count:,}, of put_many's rate", pair, at_least(0.6))


def _many(shop: Workshop, count: int) -> tuple[Cost, Cost]:
    """Write the same episodes by `put_many` and by bare SQLite."""
    with _home(shop) as home:
        path = home.state / "memory.db"
        return _put_many(path, count), _bare(path, home.state / "bare.db", each=BATCH)


def put_by_library(shop: Workshop, count: int) -> Cost:
    """Put episodes into a new store by `put_many`; return what that took."""
    with _home(shop) as home:
        return _put_many(home.state / "memory.db", count)


def _put_many(path: Path, count: int) -> Cost:
    with asyncio.Runner() as runner:
        memory = _memory(runner, path)
        works = (memory.put_many(some) for some in _portions(count, BATCH))
        costs = [timed(partial(runner.run, work))[1] for work in works]
        return total([*costs, timed(lambda: runner.run(memory.close()))[1]])


def _bare(source: Path, target: Path, *, each: int) -> Cost:
    """Write the rows of a store with plain SQLite, so many in each transaction."""
    with asyncio.Runner() as runner:
        runner.run(_memory(runner, target).close())
    connection = connect(target, Pragmas(log_pages=LOG_PAGES), access="write")
    with closing(sqlite3.connect(source)) as ready:
        found = ready.execute(_ROWS)
        costs = [timed(partial(_write, connection, rows))[1] for rows in _fetched(found, each)]
    return total([*costs, timed(connection.close)[1]])


def _fetched(found: sqlite3.Cursor, each: int) -> Iterator[list[tuple[str | bytes, ...]]]:
    while rows := found.fetchmany(each):
        yield rows


def _write(connection: sqlite3.Connection, rows: Sequence[tuple[str | bytes, ...]]) -> None:
    with transaction(connection):
        connection.executemany(statement("episodes", "insert"), rows)


def _imported(shop: Workshop, count: int) -> Cost:
    with _home(shop) as home:
        source = home.folder / "episodes.jsonl"
        write_episodes(source, count)
        return run(home.command("import", source))


def _memory(
    runner: asyncio.Runner, path: Path, synchronous: Synchronous = "normal"
) -> SQLiteMemoryStore:
    memory = SQLiteMemoryStore(path, synchronous=synchronous)
    runner.run(memory.bootstrap())
    return memory


def _portions(count: int, size: int) -> Iterator[list[Episode]]:
    # A measurement holds few episodes, because the garbage collector looks through all of them.
    remaining = episodes(count)
    while some := [Episode(**fields) for fields in islice(remaining, size)]:
        yield some


@contextmanager
def _home(shop: Workshop) -> Iterator[Home]:
    home = shop.home()
    home.state.mkdir()
    try:
        yield home
    finally:
        shutil.rmtree(home.folder)
