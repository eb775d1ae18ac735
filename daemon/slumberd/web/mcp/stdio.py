"""Serve the Model Context Protocol on standard input and output, for one program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.stdio import stdio_server

from slumberd.client.http_transport import as_json
from slumberd.daemon.interfaces import Interface, Served
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.web.mcp.connection import Call, Connection
from slumberd.web.mcp.server import server_of


async def serve_stdio(connection: Connection) -> None:
    """Answer requests on standard input until it ends.

    Nothing else is written to standard output: while this runs, it leads to standard error.

    Args:
        connection: Who sends the requests.
    """
    server = server_of(lambda _: connection)
    async with stdio_server() as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())


def stdio_interface(connect: Callable[[Call], Connection], ended: asyncio.Event) -> Interface:
    """Return what serves standard input and output in the event loop of a daemon.

    Args:
        connect: Returns who sends the requests, for what calls the daemon's operations.
        ended: Is set when standard input has ended.
    """

    async def serve(connection: Connection) -> None:
        try:
            await serve_stdio(connection)
        finally:
            ended.set()

    @asynccontextmanager
    async def interface(served: Served) -> AsyncIterator[None]:
        async def call(operation: str, request: dict[str, Any]) -> Answer:
            limited = as_json(operation, request)
            return await served.dispatcher.call(operation, limited, Caller.here())

        connection = connect(call)
        async with asyncio.TaskGroup() as group:
            group.create_task(serve(connection), name="mcp")
            yield

    return interface
