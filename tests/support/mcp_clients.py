"""Clients of the Model Context Protocol, by the official kit, on real daemons."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from slumberd import Memory
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.operations.caller import Right
from slumberd.web.http.access import hash_of
from tests.support.daemons_in_loop import memory_in_loop, served_by
from tests.support.forked_commands import words_of_program
from tests.support.late_imports import LateModule
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    import httpx2
    import mcp
    import mcp_types
    from mcp.client import streamable_http

    from slumberd.web.http import server, traces
    from slumberd.web.mcp import server as mcp_server
else:
    httpx2 = LateModule("httpx2")
    mcp = LateModule("mcp")
    mcp_types = LateModule("mcp_types")
    streamable_http = LateModule("mcp.client.streamable_http")
    mcp_server = LateModule("slumberd.web.mcp.server")
    server = LateModule("slumberd.web.http.server")
    traces = LateModule("slumberd.web.http.traces")


SCOPED = ("read", "write", "erase")
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
    # Each client over stdio starts a process. The two eras differ in how a client begins only.
    pytest.param(Ways("stdio", "auto"), marks=pytest.mark.slow),
    pytest.param(Ways("http", "legacy"), marks=pytest.mark.nightly),
    pytest.param(Ways("stdio", "legacy"), marks=pytest.mark.nightly),
]

Open = Callable[[str], "AbstractAsyncContextManager[mcp.Client]"]
"""Opens a client of a user."""


def configure(directory: Path, tokens: Mapping[str, Sequence[str]], **serve: Any) -> None:
    """Make a state directory that serves HTTP to some tokens.

    Args:
        directory: The state directory.
        tokens: By token: its rights, or a user first and then its rights.
        serve: Further settings.
    """
    make_state_directory(directory)
    entries = [_entry(token, words) for token, words in tokens.items()]
    file = directory / "tokens.yaml"
    file.write_bytes(orjson.dumps({"tokens": entries}))
    file.chmod(0o600)
    config = directory / "slumberd.yaml"
    settings = {"enabled": True, "tokens_file": str(file), **serve}
    config.write_text(f"{config.read_text()}\nserve: {orjson.dumps(settings).decode()}\n")


def _entry(token: str, words: Sequence[str]) -> dict[str, Any]:
    rights = [word for word in words if word in {*Right}]
    scope = {"user": user, "agent": "desk"} if (user := _user_in(words)) else {}
    return {"name": token, "sha256": hash_of(token), "rights": rights, **scope}


def _user_in(words: Sequence[str]) -> str | None:
    return next((word for word in words if word not in {*Right}), None)


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Path]:
    """Run the daemon of a configured directory in this loop; yield the socket of its HTTP."""
    async with serving_memory(directory) as (_, socket):
        yield socket


@asynccontextmanager
async def serving_memory(directory: Path) -> AsyncIterator[tuple[Memory, Path]]:
    """Run a daemon as `serving` does; yield its memory, too."""
    async with (
        memory_in_loop(directory) as memory,
        server.serve_http(served_by(memory), extensions=[mcp_server.open_mcp, traces.serve_traces]),
    ):
        yield memory, directory / "http.sock"


@asynccontextmanager
async def http_client(
    where: Path | str, token: str | None, query: str = "", mode: str = "auto"
) -> AsyncIterator[mcp.Client]:
    """Open a client over HTTP, by a unix socket or by an address."""
    transport = httpx2.AsyncHTTPTransport(uds=str(where)) if isinstance(where, Path) else None
    base = "http://localhost" if isinstance(where, Path) else where
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers, timeout=PATIENCE_SECONDS) as http,
        mcp.Client(
            streamable_http.streamable_http_client(f"{base}/mcp{query}", http_client=http),
            mode=mode,
        ) as client,
    ):
        yield client


def stdio_client(state: Path, user: str, *options: str, mode: str = "auto") -> mcp.Client:
    """Return a client that starts ``slumberd mcp`` as an agent's host does."""
    program, *words = words_of_program()
    words += ["mcp", "--user", user, "--agent", "desk", *options]
    config = state / "slumberd.yaml"
    parameters = mcp.StdioServerParameters(command=program, args=[*words, "--config", str(config)])
    return mcp.Client(parameters, mode=mode)


@asynccontextmanager
async def opened(directory: Path, way: Ways) -> AsyncIterator[Open]:
    """Run a daemon in this loop, and yield what opens clients of it."""
    if way.transport == "stdio":
        async with Memory.open(directory, user="host"):
            yield lambda user: stdio_client(directory, user, mode=way.mode)
        return
    configure(directory, {user: (user, *SCOPED) for user in ("ann", "bob")})
    async with serving(directory) as socket:
        yield lambda user: http_client(socket, user, mode=way.mode)


def text_of(result: mcp_types.CallToolResult) -> str:
    """Return the text of a result."""
    [content] = result.content
    assert isinstance(content, mcp_types.TextContent)
    return content.text


async def answer(client: mcp.Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured result of a tool that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    document: dict[str, Any] = result.structured_content
    return document


async def refusal(client: mcp.Client, tool: str, **arguments: Any) -> str:
    """Return the message of a tool that fails."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


async def resource(client: mcp.Client, uri: str) -> str:
    """Return the text of a resource."""
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, mcp_types.TextResourceContents)
    return content.text


def names(tools: Sequence[Any]) -> list[str]:
    """Return the names of tools."""
    return [tool.name for tool in tools]
