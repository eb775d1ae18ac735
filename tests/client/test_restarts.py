"""Puts with keys over HTTP are done once each, though their daemon is killed meanwhile."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from slumberd import Memory
from slumberd.client.http_transport import HttpTransport
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance

ONE_BY_ONE, AT_ONCE, ROUNDS = 20, 5, 3


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


async def put_all(address: str, token: str, first: asyncio.Event) -> list[str]:
    """Put episodes by several tasks, in lists and alone; return the ids."""
    transport = HttpTransport(address, token, patience_seconds=PATIENCE_SECONDS)
    memory = Memory(transport, user=None, agent="desk", session="s1")

    async def put(task: int) -> list[str]:
        ids = []
        for number in range(ONE_BY_ONE):
            name = f"{task}.{number}"
            ids.append((await memory.remember(f"alone {name}", key=f"a{name}")).id)
            first.set()
            many = [{"text": f"many {name}.{n}", "key": f"m{name}.{n}"} for n in range(3)]
            ids += [one.id for one in await memory.put_many(many)]
        return ids

    found = await asyncio.gather(*map(put, range(AT_ONCE)))
    return [id for ids in found for id in ids]


async def kill_and_start_again(served: HttpDaemon, first: asyncio.Event) -> None:
    await first.wait()
    served.daemon.kill()
    for _ in range(ROUNDS):
        with served.home.daemon() as daemon:
            first.clear()
            await first.wait()
            daemon.kill()


async def test_puts_with_keys_are_done_once_while_their_daemon_is_killed(tmp_path: Path) -> None:
    with http_daemon(tmp_path / "home", address=f"127.0.0.1:{free_port()}") as served:
        first = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            put = group.create_task(put_all(served.url, served.tokens["ana"], first))
            await group.create_task(kill_and_start_again(served, first))
            with served.home.daemon():
                ids = await put
                async with Memory.open(
                    served.url, agent="desk", token=served.tokens["ana"]
                ) as memory:
                    stored = await memory.episodes(limit=1_000)

    assert len(ids) == 4 * AT_ONCE * ONE_BY_ONE
    assert sorted(one.id for one in stored) == sorted(ids)
