"""Bench: several hosts that consolidate one PostgreSQL database, each with a part of the shards.

Each host is a process ``slumberd run``. The hosts hold all shards before the backlog is complete.
Each shard gets equally many episodes, and the rule fires at the last one of a shard: so the time is
that of consolidation alone. The server, the hosts and the bench share the processors of this
machine.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import psycopg

from slumberd.model.episode import Episode
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shard_additions import add_shard
from slumberd.storage.postgres.shard_map import Shard, ShardMap, position_of
from tests.bench.databases import Workshop, episodes
from tests.bench.measuring import Line, Table
from tests.bench.postgres import SETTINGS, STARTUP_SECONDS, TOGETHER
from tests.bench.server_costs import SharedCost, seconds_of
from tests.support.daemons import processor_seconds
from tests.support.postgres_server import MISSING, OwnServer, programs, running_server_on_disk
from tests.support.waiting import wait_until

SECTION = "hosts"

_BACKLOG = 4
"""The backlog has so many times the episodes of `Workshop.small`."""

RESTING_SHARDS = (1, 16, 64)
"""Shards of one host that has little to do."""

PUTS_A_MINUTE = 100
"""Episodes that are put singly, each of another user; each lets a shard fire."""

_WATCHED_SECONDS = 30.0
"""How long such a host is measured, at rest and with puts."""

_FULL = 100_000
_MINUTE_SECONDS = 60.0

_LOOK_SECONDS = 0.02
"""The time between two looks whether all is consolidated."""

_MICRO = 1e6
_HOLDER = "SELECT holder FROM slumberd_{shard}.lease WHERE holder IS NOT NULL"
_CONSOLIDATED = "SELECT seq FROM slumberd_{shard}.slumberd_watermark WHERE rule = 'all'"

Connection = psycopg.Connection[tuple[Any, ...]]


class Division(NamedTuple):
    """How a database is divided.

    Attributes:
        hosts: The active hosts.
        shards: The shards of all databases.
        servers: The servers among which the shards are divided.
    """

    hosts: int
    shards: int
    servers: int = 1

    @property
    def name(self) -> str:
        hosts = "host" if self.hosts == 1 else "hosts"
        shards = "shard" if self.shards == 1 else "shards"
        servers = "" if self.servers == 1 else f" on {self.servers} servers"
        return f"{self.hosts} {hosts}, {self.shards} {shards}{servers}"


BASE = Division(1, 16)
DIVISIONS = (
    Division(1, 1), Division(1, 4), Division(1, 4, servers=2), BASE, Division(2, 16),
    Division(4, 16),
)  # fmt: skip


@dataclass
class _Side:
    """A division, and what each of its backlogs has cost."""

    division: Division
    costs: list[SharedCost] = field(default_factory=list)


def measure(table: Table, shop: Workshop) -> None:
    """Consolidate a backlog with each number of hosts, in turns."""
    if programs() is None:
        print(f"{SECTION}: {MISSING}", file=sys.stderr)
        return
    count = _BACKLOG * shop.small
    sides = [_Side(division) for division in DIVISIONS]
    with running_server_on_disk(**SETTINGS) as server, running_server_on_disk(**SETTINGS) as other:
        for _ in shop.turns():
            for side in sides:
                servers = (server, other)[: side.division.servers]
                side.costs.append(_consolidate(shop, servers, side.division, count))
        for shards in RESTING_SHARDS:
            _measure_few_puts(table, shop, server, shards)
    base = next(side for side in sides if side.division == BASE)
    for side in sides:
        _add_costs(table, side, count)
    for side in sides:
        if side is not base:
            name = f"{side.division.name}: episodes/s, to {base.division.name}"
            table.ratio(SECTION, name, (_rates(side.costs, 1), _rates(base.costs, 1)))


def _add_costs(table: Table, side: _Side, count: int) -> None:
    name, costs = side.division.name, side.costs
    table.add(Line(SECTION, f"{name}: episodes", "/s", _rates(costs, count)))
    clients = [_MICRO * cost.client / count for cost in costs]
    table.add(Line(SECTION, f"{name}: hosts, an episode", "us", clients))
    servers = [_MICRO * cost.server / count for cost in costs]
    table.add(Line(SECTION, f"{name}: server, an episode", "us", servers))
    busy = [(cost.client + cost.server) / cost.wall for cost in costs]
    table.add(Line(SECTION, f"{name}: busy processors", "x", busy))


def _rates(costs: Sequence[SharedCost], count: int) -> list[float]:
    return [count / cost.wall for cost in costs]


def _consolidate(
    shop: Workshop, servers: Sequence[OwnServer], division: Division, count: int
) -> SharedCost:
    """Let hosts consolidate a backlog; return the cost from its last put to its last fact."""
    with ExitStack() as stack:
        shards = _divide(stack, servers, division)
        hosts, each = range(division.hosts), count // division.shards
        pids = [stack.enter_context(_running(shop, shards[0].address, each)) for _ in hosts]
        cluster = _Cluster(stack, shards)
        share = division.shards // division.hosts
        wait_until(lambda: cluster.holders() == [share] * division.hosts)
        backlog = _backlog_of(each, shards)
        asyncio.run(_put(shards, [part[:-1] for part in backlog]))
        before = _read_clocks(servers, pids)
        asyncio.run(_put(shards, [part[-1:] for part in backlog]))
        while cluster.consolidated() < each * division.shards:
            time.sleep(_LOOK_SECONDS)
        after = _read_clocks(servers, pids)
    return SharedCost(*(end - start for start, end in zip(before, after, strict=True)))


def _divide(stack: ExitStack, servers: Sequence[OwnServer], division: Division) -> list[Shard]:
    """Return equally many new shards on each server; the first one has the map."""
    own = division.shards // division.servers
    address = servers[0].address_of(stack.enter_context(servers[0].database(shards=own)))
    for server in servers[1:]:
        other = server.address_of(stack.enter_context(server.empty_database()))
        for _ in range(own):
            add_shard(address, other)
    return stack.enter_context(closing(ShardMap(address))).shards()


class _Cluster:
    """What hosts hold, and have consolidated, on all servers."""

    def __init__(self, stack: ExitStack, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._connections: dict[str, Connection] = {
            address: stack.enter_context(psycopg.connect(address, autocommit=True))
            for address in {shard.address for shard in shards}
        }

    def holders(self) -> list[int]:
        """Return how many shards each host holds."""
        return [*Counter(self._rows(_HOLDER)).values()]

    def consolidated(self) -> int:
        """Return how many rows of the log the rule has consolidated, in all shards."""
        return sum(self._rows(_CONSOLIDATED))

    def _rows(self, statement: str) -> list[Any]:
        """Return the only column of a statement in each shard."""
        found: list[Any] = []
        for address, connection in self._connections.items():
            own = [shard.number for shard in self._shards if shard.address == address]
            each = " UNION ALL ".join(statement.format(shard=number) for number in own)
            found += [value for (value,) in connection.execute(each.encode())]
        return found


def _measure_few_puts(table: Table, shop: Workshop, server: OwnServer, shards: int) -> None:
    """Measure a host of some shards at rest, and while single episodes are put."""
    seconds = _WATCHED_SECONDS * min(1.0, shop.large / _FULL)  # to try it out takes seconds
    with ExitStack() as stack:
        own = _divide(stack, [server], Division(1, shards))
        pid = stack.enter_context(_running(shop, own[0].address, 1))
        cluster = _Cluster(stack, own)
        wait_until(lambda: cluster.holders() == [shards])
        time.sleep(STARTUP_SECONDS)
        put = partial(_put_singly, own, episodes(_FULL), seconds)
        for what, work in (
            ("at rest", partial(time.sleep, seconds)),
            (f"with {PUTS_A_MINUTE} puts a minute", put),
        ):
            shares = [_shares_of_a_core(server, pid, work) for _ in shop.turns()]
            for place, who in enumerate(("host", "server")):
                label = f"{Division(1, shards).name}, {what}: {who}, of a core"
                table.add(Line(SECTION, label, "%", [share[place] for share in shares]))


def _shares_of_a_core(
    server: OwnServer, pid: int, work: Callable[[], object]
) -> tuple[float, float]:
    """Return the shares of a core, in hundredths, that a host and the server take meanwhile."""
    began = _read_clocks([server], [pid])
    work()
    wall, host, served = (
        end - start for start, end in zip(began, _read_clocks([server], [pid]), strict=True)
    )
    return 100 * host / wall, 100 * served / wall


def _put_singly(shards: Sequence[Shard], some: Iterator[dict[str, Any]], seconds: float) -> None:
    """Put episodes one by one, `PUTS_A_MINUTE`, for some seconds."""
    homes = _homes_of(shards)

    async def put() -> None:
        async with _stores(shards) as stores:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                episode = Episode(**next(some))
                await stores[homes[position_of(episode.user)]].put_many([episode])
                await asyncio.sleep(_MINUTE_SECONDS / PUTS_A_MINUTE)

    asyncio.run(put())


def _homes_of(shards: Sequence[Shard]) -> dict[int, int]:
    """Return the shard of each position of users."""
    with psycopg.connect(shards[0].address) as connection:
        return dict(connection.execute(b"SELECT position, shard FROM slumberd.positions"))


@contextmanager
def _running(shop: Workshop, address: str, count: int) -> Iterator[int]:
    """Run a host whose rule fires at so many episodes of a shard; yield its process."""
    # Its lines go to a file: the bench would take processor time to read them.
    logging = {"format": "json", "file": "deltas.log"}
    home = shop.home(settings={"store": address, "logging": logging}, cadence={"every": count})
    process = subprocess.Popen(home.command("run"))
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _backlog_of(each: int, shards: Sequence[Shard]) -> list[list[Episode]]:
    """Return equally many episodes for each shard."""
    homes = _homes_of(shards)
    found: list[list[Episode]] = [[] for _ in shards]
    some = episodes(4 * each * len(shards))  # more than are needed, since hashes divide the users
    while any(len(part) < each for part in found):
        episode = Episode(**next(some))
        part = found[homes[position_of(episode.user)]]
        if len(part) < each:
            part.append(episode)
    return found


@asynccontextmanager
async def _stores(shards: Sequence[Shard]) -> AsyncIterator[list[PostgresMemoryStore]]:
    """Yield the stores of all shards."""
    async with AsyncExitStack() as stack:
        stores = [PostgresMemoryStore(one.address, shard=one.number) for one in shards]
        yield [await stack.enter_async_context(store) for store in stores]


async def _put(shards: Sequence[Shard], backlog: Sequence[Sequence[Episode]]) -> None:
    """Put the episodes of each shard into it."""
    async with _stores(shards) as stores:
        for store, part in zip(stores, backlog, strict=True):
            for first in range(0, len(part), TOGETHER):
                await store.put_many(part[first : first + TOGETHER])


def _read_clocks(servers: Sequence[OwnServer], pids: Sequence[int]) -> tuple[float, float, float]:
    """Return the time, and the processor seconds of the hosts and of the servers."""
    hosts = sum(map(processor_seconds, pids))
    return time.perf_counter(), hosts, sum(seconds_of(server.pid) for server in servers)
