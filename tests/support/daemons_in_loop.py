"""A daemon in the event loop of a test, for what runs beside it there, such as HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from slumberd import Memory
from slumberd.client.http_transport import as_json
from slumberd.client.transports import load_directory, run_daemon
from slumberd.daemon.interfaces import Served
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.web.http.access import hash_of
from tests.support.http_daemon import write_entries

PROGRAM_TOKEN = "program"  # noqa: S105 # of tests only
"""A token that names no user, and its name."""


class LoopTransport:
    """Calls operations of a daemon in this event loop."""

    def __init__(self, served: Served) -> None:
        self.served = served

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        return await self.served.dispatcher.call(
            operation, as_json(operation, request), Caller.here()
        )


@asynccontextmanager
async def memory_in_loop(
    directory: Path, user: str = "host", agent: str = "default"
) -> AsyncIterator[Memory]:
    """Run the daemon of a directory in this loop; yield a memory on it."""
    settings, rules = await asyncio.to_thread(load_directory, directory)
    async with run_daemon(directory, settings, rules) as served:
        yield Memory(LoopTransport(served), user=user, agent=agent, session="default")


def served_by(memory: Memory) -> Served:
    """Return the daemon of a memory in this event loop."""
    transport = memory._transport
    assert isinstance(transport, LoopTransport)
    return transport.served


@asynccontextmanager
async def served_over_http(memory: Memory, port: int = 0) -> AsyncIterator[str]:
    """Serve the daemon of a memory over HTTP in this loop; yield the address."""
    from slumberd.web.http.server import serve_http

    served = served_by(memory)
    tokens = served.settings.state_dir / "tokens.yaml"
    rights = ["read", "write", "erase"]
    entry = {"name": PROGRAM_TOKEN, "sha256": hash_of(PROGRAM_TOKEN), "rights": rights}
    write_entries(tokens, [entry])
    serve = {"enabled": True, "address": f"127.0.0.1:{port}", "tokens_file": tokens}
    settings = served.settings.model_copy(
        update={"serve": served.settings.serve.model_copy(update=serve)}
    )
    ports: list[int] = []

    def note_port(sockets: Sequence[socket.socket]) -> None:
        ports.extend(one.getsockname()[1] for one in sockets if one.family == socket.AF_INET)

    async with serve_http(replace(served, settings=settings), listening=note_port):
        yield f"http://127.0.0.1:{ports[0]}"
