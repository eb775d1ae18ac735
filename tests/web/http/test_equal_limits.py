"""Every interface has the same limits, and says the same when one is exceeded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson
import pytest

from slumberd import Memory
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.model.errors import SlumberdError
from slumberd.rules.settings_schema import ServeSettings
from slumberd.storage.strict_json import MOST_REQUEST_BYTES
from tests.support import mcp_clients
from tests.support.mcp_clients import SCOPED, configure, http_client, serving_memory, text_of

pytestmark = pytest.mark.integration


class Refusal(NamedTuple):
    """The class of an error, and its message."""

    kind: str
    message: str


Call = Callable[[dict[str, Any]], Awaitable[Refusal]]
"""Remembers an episode that is refused."""

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"text": "x" * 100_001}, "too long: 100,001 characters, at most 100,000"),
    "triples": (
        {"text": "x", "triples": [{"subject": "a", "predicate": "b", "object": 1}] * 1_001},
        "too many: 1,001 entries, at most 1,000",
    ),
    "id": ({"text": "x", "id": "i" * 1_001}, "too long: 1,001 characters, at most 1,000"),
    "instant": ({"text": "x", "when": "2026-01-01"}, "an instant with an offset is needed"),
    "key": ({"text": "x", "extra": 1}, "'extra'"),
    "confidence": (
        {"text": "x", "triples": [{"subject": "a", "predicate": "b", "confidence": 2}]},
        "at most 1 is needed, not 2",
    ),
}


async def refused(call: Awaitable[Any]) -> Refusal:
    """Return the error of a call in Python."""
    with pytest.raises(SlumberdError) as caught:
        await call
    return Refusal(type(caught.value).__name__, str(caught.value))


@asynccontextmanager
async def every_way(directory: Path) -> AsyncIterator[dict[str, Call]]:
    """Run a daemon, and yield each way to call it, by name."""
    configure(directory, {"ann": ("ann", *SCOPED)})
    async with (
        serving_memory(directory) as (host, socket),
        Memory.open(f"unix:{directory}", user="ann", agent="desk") as by_socket,
        httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket)), base_url="http://localhost"
        ) as http,
        http_client(socket, "ann") as mcp,
    ):

        def by(memory: Memory) -> Call:
            return lambda fields: refused(memory._call("remember", user=None, **fields))

        async def by_http(fields: dict[str, Any]) -> Refusal:
            answer = await http.post("/v1/episodes", json={"user": "ann", **fields})
            document = answer.json()
            return Refusal(document["kind"], document["detail"])

        async def by_mcp(fields: dict[str, Any]) -> Refusal:
            result = await mcp.call_tool("remember", fields)
            assert result.is_error
            return Refusal((result.meta or {})["slumberd/error"], text_of(result))

        in_process = Memory(host._transport, user="ann", agent="desk", session="default")
        yield {
            "in process": by(in_process),
            "control socket": by(by_socket),
            "HTTP": by_http,
            "MCP": by_mcp,
        }


@pytest.mark.path
async def test_same_mistake_gets_the_same_answer_on_every_interface(tmp_path: Path) -> None:
    found: dict[str, dict[str, Refusal]] = {}

    async with every_way(tmp_path / "memory") as ways:
        for name, (fields, _) in WRONG.items():
            found[name] = {way: await call(fields) for way, call in ways.items()}

    for name, (_, says) in WRONG.items():
        by_mcp = found[name].pop("MCP")
        assert len({*found[name].values()}) == 1, found[name]
        [refusal] = {*found[name].values()}
        assert refusal.kind == by_mcp.kind == "UsageError"
        assert says in refusal.message
        assert says in by_mcp.message


@pytest.mark.path
async def test_request_that_is_too_large_is_refused_by_name_on_every_interface(
    tmp_path: Path,
) -> None:
    large = {"text": "x", "metadata": {"note": "x" * MOST_REQUEST_BYTES}}

    async with every_way(tmp_path / "memory") as ways:
        del ways["MCP"]  # its client hides the answer; the next test reads it
        found = {way: await call(large) for way, call in ways.items()}

    assert found["in process"] == found["control socket"]
    assert {refusal.kind for refusal in found.values()} == {"RequestTooLargeError"}
    for refusal in found.values():
        assert "the request is too large: 4,194," in refusal.message
        assert " bytes, at most 4,194,304; send less" in refusal.message


async def test_tool_call_that_is_too_large_is_refused_by_name(tmp_path: Path) -> None:
    arguments = {"text": "x", "metadata": {"note": "x" * MOST_REQUEST_BYTES}}
    body = orjson.dumps({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "remember", "arguments": arguments},
    })  # fmt: skip
    configure(tmp_path / "memory", {"ann": ("ann", *SCOPED)})

    async with (
        serving_memory(tmp_path / "memory") as (_, socket),
        httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(socket))) as http,
    ):
        answer = await http.post(
            "http://localhost/mcp",
            content=body,
            headers={"Authorization": "Bearer ann", "Content-Type": "application/json"},
        )

    assert (answer.status_code, answer.json()["kind"]) == (413, "RequestTooLargeError")
    assert "at most 4,194,304" in answer.json()["detail"]


@pytest.mark.slow
async def test_tool_call_over_standard_input_has_the_same_limit(tmp_path: Path) -> None:
    make_state_directory(tmp_path / "memory")

    async with mcp_clients.stdio_client(tmp_path / "memory", "ann") as client:
        message = await mcp_clients.refusal(
            client, "remember", text="x", metadata={"note": "x" * MOST_REQUEST_BYTES}
        )

    assert "the request is too large: 4,194," in message
    assert " bytes, at most 4,194,304; send less" in message


def test_default_of_http_is_the_limit_of_every_interface() -> None:
    assert ServeSettings().max_body_bytes == MOST_REQUEST_BYTES
