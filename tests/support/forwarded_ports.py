"""A port of this machine that leads to a unix socket, as `ssh -L PORT:SOCKET HOST` makes one."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def forwarded_port(path: Path) -> Iterator[int]:
    """Forward a port of 127.0.0.1 to a unix socket while the block runs; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        loop = asyncio.new_event_loop()
        stop = asyncio.Event()
        work = _forward(server, path, stop)
        thread = threading.Thread(target=lambda: loop.run_until_complete(work))
        thread.start()
        try:
            yield port
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()


async def _forward(server: socket.socket, path: Path, stop: asyncio.Event) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_unix_connection(path)
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, there[1]))
            group.create_task(_copy(there[0], writer))

    listening = await asyncio.start_server(connect, sock=server)
    await stop.wait()
    listening.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
    writer.close()
