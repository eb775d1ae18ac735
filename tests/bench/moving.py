"""Bench: the move of a user between two shards, on one PostgreSQL server and between two."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import ExitStack

from slumberd.model.episode import Episode
from slumberd.storage.postgres.installation import install
from slumberd.storage.postgres.shard_additions import add_shard
from tests.bench.databases import Workshop, episodes
from tests.bench.measuring import Cost, Line, Table
from tests.bench.postgres import SETTINGS
from tests.support.postgres_server import MISSING, OwnServer, programs, running_server_on_disk
from tests.support.two_shards import two_shards

SECTION = "moving"

USER = "ada"
_BATCH = 1_000


def measure(table: Table, shop: Workshop) -> None:
    """Measure moves there and back of one user with `Workshop.small` episodes and their facts."""
    if programs() is None:
        print(MISSING)
        return
    for servers in (1, 2):
        costs = asyncio.run(_on_servers(servers, shop))
        name = f"a user with {shop.small:,} episodes moves, {servers} server(s)"
        table.seconds(SECTION, name, costs)
        rates = [shop.small / cost.wall for cost in costs]
        table.add(Line(SECTION, f"... episodes a second, {servers} server(s)", "/s", rates))


async def _on_servers(count: int, shop: Workshop) -> list[Cost]:
    with ExitStack() as stack:
        running = [stack.enter_context(running_server_on_disk(**SETTINGS)) for _ in range(count)]
        address, other = [_database_of(server) for server in (running[0], running[-1])]
        await asyncio.to_thread(install, address, shards=3 - count)
        if count > 1:
            await asyncio.to_thread(add_shard, address, other)
        return await _moves(address, shop)


def _database_of(server: OwnServer) -> str:
    if not server.rows("SELECT 1 FROM pg_database WHERE datname = 'bench'", "postgres"):
        server.run("CREATE DATABASE bench ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0")
    return server.address_of("bench")


async def _moves(address: str, shop: Workshop) -> list[Cost]:
    costs = []
    async with two_shards(address) as world:
        memory = world.of(USER).memory
        batch = [Episode(**{**each, "user": USER}) for each in episodes(shop.small)]
        for first in range(0, len(batch), _BATCH):
            await memory.put_many(batch[first : first + _BATCH])
        await world.fire(batch=_BATCH)
        for _ in shop.turns():
            began, used = time.monotonic(), _processor_seconds()
            moved = await world.move(USER)
            costs.append(Cost(time.monotonic() - began, _processor_seconds() - used))
            if moved.episodes != shop.small:
                raise AssertionError(f"{moved.episodes} episodes moved, not {shop.small}")
    return costs


def _processor_seconds() -> float:
    """Return the processor time of this process; that of the servers is not in it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
