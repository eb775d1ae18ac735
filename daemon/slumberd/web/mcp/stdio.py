"""Serve the Model Context Protocol on standard input and output, for one program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.abc import ObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

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
    messages, received = anyio.create_memory_object_stream[SessionMessage | Exception]()
    async with stdio_server() as (lines, answers), asyncio.TaskGroup() as group:
        group.create_task(_pass_messages(lines, messages, answers), name="mcp.lines")
        await server.run(received, answers, server.create_initialization_options())


async def _pass_messages(
    lines: ReadStream[SessionMessage | Exception],
    messages: ObjectSendStream[SessionMessage | Exception],
    answers: WriteStream[SessionMessage],
) -> None:
    """Pass messages to the server. Answer each other line, since the server does not answer it."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the server has ended
        async with messages:
            async for line in lines:
                if isinstance(line, Exception):
                    await answers.send(SessionMessage(_refusal_of(line)))
                else:
                    await messages.send(line)


def _refusal_of(mistake: Exception) -> JSONRPCError:
    """Return the answer to a line that is no message. It has no id, since the line has none."""
    is_json = isinstance(mistake, ValidationError) and all(
        one["type"] != "json_invalid" for one in mistake.errors()
    )
    error = ErrorData(code=PARSE_ERROR, message="the line is no JSON")
    if is_json:
        error = ErrorData(code=INVALID_REQUEST, message="the line is no message of JSON-RPC 2.0")
    return JSONRPCError(jsonrpc="2.0", id=None, error=error)


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
