"""Bench: PostgreSQL beside SQLite, in processor time of the client and of the server.

Both engines put and consolidate the same episodes in turns, with the same consolidator in this
process, so their figures differ by the engine alone. The server writes to the disk as it does in
production (``fsync = on``). Its processor time is that of all its processes.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import orjson

from slumberd.clock import SystemClock
from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.facts.store import EngineFactStore
from tests.bench.databases import Workshop, episodes
from tests.bench.measuring import Line, Table, percentile
from tests.bench.server_costs import Meter, SharedCost, seconds_of
from tests.bench.serving import busy_share
from tests.support.builders import rule, triple
from tests.support.daemons import Daemon, Home, resident_mebibytes
from tests.support.fakes import FakeDeltaLog
from tests.support.postgres_server import MISSING, OwnServer, programs, running_server_on_disk
from tests.support.providers import PostgresProvider, Provider, SQLiteProvider

SECTION = "postgres"
BATCHES = (5_000, 8_000)
"""Episodes that one transaction consolidates; the second is the default."""

TOGETHER = 1_000
"""Episodes that one call of `put_many` puts."""

FIRINGS = 100
"""Firings with one new episode each: as many as a daemon runs in a minute."""

PUTS_EACH = 60
"""Puts of another process, for each time that everything is measured."""

REST_SECONDS, STARTUP_SECONDS = 8.0, 5.0
"""How long a daemon at rest is measured, and its time to start up."""

SETTINGS = {"fsync": "on", "shared_buffers": "512MB", "max_wal_size": "8GB"}
"""Settings of the server. A checkpoint within a measurement would make it depend on chance."""

_CLOCK = SystemClock()
_RULE = rule("all", cadence={"every": 1})
_MICRO = 1e6
_MINUTE_SECONDS = 60.0
_FULL = 100_000


@dataclass
class Side:
    """An engine, and what its work has cost.

    Attributes:
        name: Its name in the table.
        puts: The cost of all puts, one for each time.
        firings: The cost of all firings, one for each time.
    """

    name: str
    puts: list[SharedCost] = field(default_factory=list)
    firings: list[SharedCost] = field(default_factory=list)


def measure(table: Table, shop: Workshop) -> None:
    """Compare both engines, then measure what only a server has."""
    if programs() is None:
        print(f"{SECTION}: {MISSING}", file=sys.stderr)
        return
    with running_server_on_disk(**SETTINGS) as server:
        for batch in BATCHES:
            asyncio.run(_compare(table, shop, server, batch))
        asyncio.run(_measure_short_firings(table, shop, server))
        asyncio.run(_measure_sizes(table, shop, server))
        _measure_daemons(table, shop, server)


async def _compare(table: Table, shop: Workshop, server: OwnServer, batch: int) -> None:
    count = shop.middle
    ours, theirs = Side("SQLite"), Side("PostgreSQL")
    for _ in shop.turns():
        for side in (ours, theirs):
            with _new_stores(side.name, shop, server) as (provider, meter):
                await _put_and_fire(side, provider, meter, count=count, batch=batch)
    for side in (ours, theirs):
        if batch == BATCHES[0]:
            _add_costs(table, f"`put_many`, {side.name}", side.puts, count)
        _add_costs(table, f"`fire`, batches of {batch:,}, {side.name}", side.firings, count)
    if batch == BATCHES[0]:
        _add_ratio(table, "`put_many`", theirs.puts, ours.puts)
    _add_ratio(table, f"`fire`, batches of {batch:,}", theirs.firings, ours.firings)


async def _put_and_fire(
    side: Side, provider: Provider, meter: Meter, *, count: int, batch: int
) -> None:
    async with provider.memory() as memory, provider.facts() as facts:
        await memory.bootstrap()
        await facts.bootstrap()
        portions = [*_portions(count)]
        with _without_collector():
            side.puts.append(await meter.measure(partial(_put_all, memory, portions)))
            side.firings.append(await meter.measure(partial(consolidate, memory, facts, batch)))


async def _put_all(memory: EngineMemoryStore, portions: Sequence[Sequence[Episode]]) -> None:
    for some in portions:
        await memory.put_many(some)


def _add_costs(table: Table, name: str, costs: Sequence[SharedCost], count: int) -> None:
    """Add the rate of some work, and its cost for each episode."""
    add = partial(_add, table)
    add(f"{name}: episodes", "/s", [count / cost.wall for cost in costs])
    add(f"{name}: client", "us", [_MICRO * cost.client / count for cost in costs])
    if any(cost.server for cost in costs):
        add(f"{name}: server", "us", [_MICRO * cost.server / count for cost in costs])
        add(f"{name}: WAL", "bytes", [cost.log_bytes / count for cost in costs])


def _add_ratio(
    table: Table, name: str, theirs: Sequence[SharedCost], ours: Sequence[SharedCost]
) -> None:
    clients = [cost.client for cost in theirs], [cost.client for cost in ours]
    table.ratio(SECTION, f"{name}: client, to SQLite's", clients)
    both = [cost.client + cost.server for cost in theirs], clients[1]
    table.ratio(SECTION, f"{name}: client and server, to SQLite's", both)
    walls = [cost.wall for cost in theirs], [cost.wall for cost in ours]
    table.ratio(SECTION, f"{name}: wall, to SQLite's", walls)


def _add(table: Table, name: str, unit: str, values: Sequence[float]) -> None:
    table.add(Line(SECTION, name, unit, values))


async def _measure_short_firings(table: Table, shop: Workshop, server: OwnServer) -> None:
    """Measure a minute of a daemon with 100 firings, each of one new episode."""
    ours, theirs = Side("SQLite"), Side("PostgreSQL")
    for number in shop.turns():
        for side in (ours, theirs):
            with _new_stores(side.name, shop, server) as (provider, meter):
                async with provider.memory() as memory, provider.facts() as facts:
                    await memory.bootstrap()
                    await facts.bootstrap()
                    for episode in _single_episodes(number, FIRINGS):
                        await memory.put_many([episode])
                        fire = partial(consolidate, memory, facts, BATCHES[-1])
                        side.firings.append(await meter.measure(fire))
    for side in (ours, theirs):
        name = f"{FIRINGS} firings a minute, {side.name}"
        share = 100 * FIRINGS / _MINUTE_SECONDS / FIRINGS
        clients = [share * sum(c.client for c in part) for part in _parts(side.firings, FIRINGS)]
        _add(table, f"{name}: client", "%", clients)
        servers = [share * sum(c.server for c in part) for part in _parts(side.firings, FIRINGS)]
        if side is theirs:
            _add(table, f"{name}: server", "%", servers)
            written = [c.log_bytes / 1e3 for c in side.firings]
            _add(table, "WAL of a firing of one episode", "kB", written)
        walls = [1e3 * c.wall for c in side.firings]
        _add(table, f"a firing of one episode, {side.name}", "ms", walls)


def _measure_daemons(table: Table, shop: Workshop, server: OwnServer) -> None:
    """Measure an active daemon and a standby at rest, then puts of another process."""
    share = min(1.0, shop.large / _FULL)  # to try it out takes seconds
    count = max(2, int(PUTS_EACH * share)) * shop.times
    with server.database() as name:
        address = server.address_of(name)
        settings = {"store": address, "logging": {"format": "json"}}
        active, standby = (shop.home(settings=settings) for _ in range(2))
        with active.started() as first, _standby(standby) as second:
            time.sleep(STARTUP_SECONDS * share)
            pids = {"active daemon": first.process.pid, "standby": second.process.pid}
            for name_, pid in pids.items():
                rest = [busy_share(pid, REST_SECONDS * share) for _ in shop.turns()]
                _add(table, f"at rest, {name_}, of a core", "%", rest)
            rest = [_server_share(server, REST_SECONDS * share) for _ in shop.turns()]
            _add(table, "at rest, server for both, of a core", "%", rest)
            printed = subprocess.run(
                [sys.executable, "-m", "tests.bench.postgres_puts", address, str(count)],
                check=True,
                stdout=subprocess.PIPE,
            ).stdout
            resident = [resident_mebibytes(first.process.pid)]
            _add(table, "active daemon, peak memory", "MiB", resident)
    delays = [1e3 * seconds for seconds in orjson.loads(printed)]
    _add(table, "put of another process, to its fact", "ms", delays)
    _add(table, "put of another process, 99 in 100", "ms", [percentile(delays, 0.99)])


@contextmanager
def _standby(home: Home) -> Iterator[Daemon]:
    """Run a daemon that waits for the lease of another one; end it with the block."""
    daemon = Daemon(subprocess.Popen(home.command("run"), stderr=subprocess.PIPE))
    try:
        daemon.wait_for("daemon.standby")
        yield daemon
    finally:
        daemon.kill()
        daemon.close()


def _server_share(server: OwnServer, seconds: float) -> float:
    """Return the share of a core, in hundredths, that the server takes for a while."""
    began, before = time.monotonic(), seconds_of(server.pid)
    time.sleep(seconds)
    return 100 * (seconds_of(server.pid) - before) / (time.monotonic() - began)


async def _measure_sizes(table: Table, shop: Workshop, server: OwnServer) -> None:
    """Measure what episodes take on the disk, and the write-ahead log after a checkpoint.

    The server writes a whole page into the log when a page changes for the first time after a
    checkpoint. In a large database each episode changes pages that no other one has changed.
    """
    with _new_stores("PostgreSQL", shop, server) as (provider, meter):
        async with provider.memory() as memory, provider.facts() as facts:
            await memory.bootstrap()
            await facts.bootstrap()
            with _without_collector():
                await _put_all(memory, [*_portions(shop.middle)])
                await consolidate(memory, facts, BATCHES[-1])
                for name, size in meter.sizes().items():
                    _add(table, f"disk: {name}", "bytes", [size / shop.middle])
                meter.checkpoint()
                others = [*_portions(shop.small, seed=2)]
                for what, work in (
                    ("`put_many`", partial(_put_all, memory, others)),
                    ("`fire`", partial(consolidate, memory, facts, BATCHES[-1])),
                ):
                    cost = await meter.measure(work)
                    name = f"{what} of {shop.small:,} after a checkpoint: WAL"
                    _add(table, name, "bytes", [cost.log_bytes / shop.small])


async def consolidate(
    memory: EngineMemoryStore, facts: EngineFactStore, batch: int = BATCHES[-1]
) -> None:
    """Consolidate all that waits, in this process."""
    consolidator = Consolidator(memory, facts, FakeDeltaLog(), _CLOCK, batch=batch)
    await consolidator.fire(FireRequest(_RULE, "every", _CLOCK.now()))


@contextmanager
def _new_stores(name: str, shop: Workshop, server: OwnServer) -> Iterator[tuple[Provider, Meter]]:
    if name == "SQLite":
        home = shop.home()
        home.state.mkdir()
        yield SQLiteProvider(home.state, synchronous="full"), Meter()
        shutil.rmtree(home.folder)
        return
    with server.database() as database, closing(Meter(server, database)) as meter:
        yield PostgresProvider(server.address_of(database)), meter


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the garbage collector, as a daemon does during a firing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _portions(count: int, *, seed: int = 1) -> Iterator[list[Episode]]:
    remaining = episodes(count, seed=seed)
    while some := [Episode(**fields) for fields in islice(remaining, TOGETHER)]:
        yield some


def _single_episodes(seed: int, count: int) -> list[Episode]:
    return [triple(f"{seed}-{n}", f"{seed}-{n}", "is", "new") for n in range(count)]


def _parts(costs: Sequence[SharedCost], size: int) -> Iterator[Sequence[SharedCost]]:
    for start in range(0, len(costs), size):
        yield costs[start : start + size]
