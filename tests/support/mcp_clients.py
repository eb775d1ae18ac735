"""Clients of the Model Context Protocol, by the official kit, on real daemons."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent, TextResourceContents
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from slumberd import Memory
from slumberd.api.mcp_server import open_mcp
from slumberd.client.transports import ServedTransport
from slumberd.operations.caller import Caller, Right
from slumberd.service.interfaces import Served

LOOPBACK = "127.0.0.1"
HOSTS = [LOOPBACK, f"{LOOPBACK}:*"]
ORIGINS = [f"http://{LOOPBACK}:*"]

SCOPED = frozenset({Right.READ, Right.WRITE, Right.ERASE})
"""The rights of an agent's token."""


@dataclass(frozen=True)
class Ways:
    """How a client reaches a daemon, in which era of the protocol."""

    transport: str
    mode: str

    def __str__(self) -> str:
        return f"{self.transport} {self.mode}"


WAYS = [
    Ways("http", "auto"),
    Ways("http", "legacy"),
    Ways("stdio", "auto"),
    Ways("stdio", "legacy"),
]

Open = Callable[..., AbstractAsyncContextManager[Client]]
"""Opens a client of a user, with options of the command or of the address."""


class _CallersByToken:
    """Stores in each request who uses its token."""

    def __init__(self, app: ASGIApp, callers: Mapping[str, Caller]) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            token = dict(scope["headers"]).get(b"authorization", b"").decode()
            scope["state"] = {"caller": self._callers[token.removeprefix("Bearer ")]}
        await self._app(scope, receive, send)


def served_by(memory: Memory) -> Served:
    """Return the daemon of a memory in this event loop."""
    transport = memory._transport
    assert isinstance(transport, ServedTransport)
    return transport._served


@asynccontextmanager
async def serving(served: Served, callers: Mapping[str, Caller]) -> AsyncIterator[str]:
    """Serve a daemon over TCP on loopback; yield the address of the protocol."""
    async with open_mcp(served, hosts=HOSTS, origins=ORIGINS) as route:
        app = _CallersByToken(Starlette(routes=[route]), callers)
        listener = socket.create_server((LOOPBACK, 0))
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
        # The socket queues connections until the server accepts them.
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            yield f"http://{LOOPBACK}:{port}/mcp"
        finally:
            server.should_exit = True
            await task


@asynccontextmanager
async def http_client(url: str, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    """Open a client over HTTP."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def stdio_client(state: Path, user: str, *options: str, mode: str = "auto") -> Client:
    """Return a client that starts ``slumberd mcp`` as an agent's host does."""
    words = ["-m", "slumberd", "mcp", "--user", user, "--agent", "desk", *options]
    config = state / "slumberd.yaml"
    parameters = StdioServerParameters(
        command=sys.executable, args=[*words, "--config", str(config)]
    )
    return Client(parameters, mode=mode)


@asynccontextmanager
async def opened(directory: Path, way: Ways) -> AsyncIterator[Open]:
    """Run a daemon in this loop, and yield what opens clients of it."""
    users = ("ann", "bob")
    callers = {
        user: Caller(name=f"token {user}", user=user, agent="desk", rights=SCOPED) for user in users
    }
    async with Memory.open(directory, user="host") as memory:
        if way.transport == "stdio":
            yield lambda user, *options: stdio_client(directory, user, *options, mode=way.mode)
            return
        async with serving(served_by(memory), callers) as url:
            yield lambda user, query="": http_client(url + query, user, way.mode)


def text_of(result: CallToolResult) -> str:
    """Return the text of a result."""
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured result of a tool that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    document: dict[str, Any] = result.structured_content
    return document


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """Return the message of a tool that fails."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


async def resource(client: Client, uri: str) -> str:
    """Return the text of a resource."""
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


def names(tools: Sequence[Any]) -> list[str]:
    """Return the names of tools."""
    return [tool.name for tool in tools]
