"""The Model Context Protocol over HTTP: who may call what, from where."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from slumberd.model.errors import SlumberdError
from slumberd.operations.handlers import Dispatcher
from tests.support.late_imports import LateModule
from tests.support.mcp_clients import (
    SCOPED,
    answer,
    configure,
    http_client,
    names,
    refusal,
    serving,
)
from tests.support.waiting import PATIENCE_SECONDS
from tests.web.mcp.test_mcp import TOOLS

if TYPE_CHECKING:
    import mcp
else:
    mcp = LateModule("mcp")


pytestmark = [pytest.mark.integration, pytest.mark.slow]

ADMIN = ["status", "held", "fire", "approve", "reject", "undo"]

TOKENS = {
    "ann": ("ann", *SCOPED),
    "reader": ("ann", "read"),
    "operator": (*SCOPED, "operate"),
}


SETTINGS = {"allowed_origins": ["http://localhost:*"], "max_body_bytes": 65_536}


@asynccontextmanager
async def daemon(directory: Path) -> AsyncIterator[Path]:
    configure(directory / "memory", TOKENS, **SETTINGS)
    async with serving(directory / "memory") as socket:
        yield socket


async def test_token_that_may_only_read_gets_only_tools_that_read(tmp_path: Path) -> None:
    async with daemon(tmp_path) as socket, http_client(socket, "reader") as client:
        tools = (await client.list_tools()).tools
        with pytest.raises(mcp.MCPError, match="no tool 'remember'"):
            await client.call_tool("remember", {"text": "x"})

    assert names(tools) == ["recall", "context", "explain"]


async def test_administrative_tools_need_the_right_and_the_address(tmp_path: Path) -> None:
    async with daemon(tmp_path) as socket:
        offered = {}
        for token, query in (
            ("operator", "?user=ann"),
            ("operator", "?user=ann&admin=true"),
            ("ann", "?admin=true"),
        ):
            async with http_client(socket, token, query) as client:
                offered[token, query] = names((await client.list_tools()).tools)

    assert list(offered.values()) == [TOOLS, TOOLS + ADMIN, TOOLS]


async def test_administrator_fires_reads_the_status_and_undoes(tmp_path: Path) -> None:
    async with daemon(tmp_path) as socket, http_client(socket, "operator", "?admin=true") as client:
        status = await answer(client, "status")
        held = await answer(client, "held")
        async with http_client(socket, "ann") as ann:
            done = await answer(
                ann, "correct", subject="ann", predicate="is", object="well", reason="so"
            )
        undone = await answer(client, "undo", firing=done["firing_id"])
        fired = await answer(client, "fire", dry_run=True)
        refused = [await refusal(client, tool, firing="x@1") for tool in ("approve", "reject")]
        nobody = await refusal(client, "recall", query="x")

    assert status["failing"] == []
    assert held == {"held": []}
    assert undone["undone"] == [done["firing_id"]]
    assert [report["rule_id"] for report in fired["reports"]] == ["repeats", "said", "stated"]
    assert all("no batch 'x@1' is held" in one for one in refused)
    assert "names no user; write ?user=NAME" in nobody


async def test_address_may_let_reads_see_what_all_agents_of_the_user_know(tmp_path: Path) -> None:
    desk, all_agents = "?user=eve&agent=desk", "?user=eve&agent=home&all_agents=true"
    async with daemon(tmp_path) as socket:
        async with http_client(socket, "operator", desk) as client:
            await answer(client, "remember", text="Green tea", id="e1")
        async with http_client(socket, "operator", all_agents) as client:
            await answer(client, "remember", text="Black tea", id="e2")
            hits = (await answer(client, "recall", query="tea"))["hits"]
            tools = (await client.list_tools()).tools
        async with http_client(socket, "ann", "?all_agents=true") as client:
            with pytest.raises(mcp.MCPError, match="may not read other agents than its own"):
                await client.call_tool("recall", {"query": "tea"})

    assert {(hit["id"], hit["agent"]) for hit in hits} == {("e1", "desk"), ("e2", "home")}
    assert all("all_agents" not in tool.input_schema["properties"] for tool in tools)


async def test_operator_names_a_scope_in_the_address(tmp_path: Path) -> None:
    query = "?user=eve&agent=web&session=s7"
    async with daemon(tmp_path) as socket, http_client(socket, "operator", query) as client:
        await answer(client, "remember", text="Tea", id="e1")
        [hit] = (await answer(client, "recall", query="tea"))["hits"]

    assert (hit["user"], hit["agent"], hit["session"]) == ("eve", "web", "s7")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param("?user=bob", "may not name another user than its own", id="user"),
        pytest.param("?agent=spy", "may not name another agent than its own", id="agent"),
        pytest.param("?usr=bob", "the address has 'usr'", id="misspelled"),
        pytest.param("?admin=yes", "write admin=true", id="admin"),
        pytest.param("?session=%00", "control character", id="session"),
    ],
)
async def test_address_beyond_the_scope_of_the_token_is_refused(
    tmp_path: Path, query: str, message: str
) -> None:
    async with daemon(tmp_path) as socket, http_client(socket, "ann", query) as client:
        with pytest.raises(mcp.MCPError, match=message):
            await client.list_tools()


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPTED = {
    "Accept": "application/json, text/event-stream",
    "Authorization": "Bearer ann",
    "MCP-Protocol-Version": "2025-11-25",
}


async def post(socket: Path, headers: dict[str, str], **sent: Any) -> httpx2.Response:
    transport = httpx2.AsyncHTTPTransport(uds=str(socket))
    async with httpx2.AsyncClient(transport=transport, timeout=PATIENCE_SECONDS) as http:
        return await http.post(
            "http://localhost/mcp", headers=ACCEPTED | headers, **(sent or {"json": PING})
        )


@pytest.mark.cases(5)
@pytest.mark.slow
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 200, id="none"),
        pytest.param({"Origin": "http://localhost:3000"}, 200, id="known origin"),
        pytest.param({"Origin": "http://evil.example"}, 403, id="other origin"),
        pytest.param({"Origin": "http://localhost.evil.example:80"}, 403, id="similar origin"),
        pytest.param({"Origin": "null"}, 403, id="page without an origin"),
        pytest.param({"Host": "evil.example"}, 421, id="other host"),
        pytest.param({"Host": "localhost.evil.example:80"}, 421, id="similar host"),
    ],
)
async def test_pages_of_other_origins_and_hosts_are_refused(
    tmp_path: Path, version: str, headers: dict[str, str], status: int
) -> None:
    async with daemon(tmp_path) as socket:
        response = await post(socket, {"MCP-Protocol-Version": version, **headers})

    # A ping without the envelope of the later era is a bad request, but an answered one.
    assert response.status_code == (400 if (status, version) == (200, "2026-07-28") else status)


async def test_message_that_is_too_long_is_refused(tmp_path: Path) -> None:
    content = b'{"jsonrpc": "2.0", "x": "' + b"x" * 65_536
    async with daemon(tmp_path) as socket:
        response = await post(socket, {"Content-Type": "application/json"}, content=content)

    assert response.status_code == 413


async def test_request_leaves_no_session_behind(tmp_path: Path) -> None:
    async with daemon(tmp_path) as socket:
        response = await post(socket, {})

    assert response.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert "mcp-session-id" not in response.headers


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD"])
async def test_no_request_holds_a_stream_open(tmp_path: Path, method: str) -> None:
    async with daemon(tmp_path) as socket:
        transport = httpx2.AsyncHTTPTransport(uds=str(socket))
        async with httpx2.AsyncClient(transport=transport, timeout=PATIENCE_SECONDS) as http:
            response = await http.request(method, "http://localhost/mcp", headers=ACCEPTED)

    assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_caller_without_a_known_token_gets_nothing(tmp_path: Path) -> None:
    async with daemon(tmp_path) as socket:
        response = await post(socket, {"Authorization": "Bearer nobody"})

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"


async def test_bug_is_a_result_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon(tmp_path) as socket, http_client(socket, "ann") as client:

        async def stumble(*_: object) -> dict[str, Any]:
            raise ZeroDivisionError("what was remembered")

        monkeypatch.setattr(Dispatcher, "call", stumble)
        message = await refusal(client, "recall", query="x")
        with pytest.raises(mcp.MCPError) as caught:
            await client.read_resource("slumberd://profile")

    assert message == caught.value.message == "slumberd failed, which is a bug; see its log"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SlumberdError("no")])
async def test_failure_of_the_store_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with daemon(tmp_path) as socket, http_client(socket, "ann") as client:

        async def fail(*_: object) -> dict[str, Any]:
            raise error

        monkeypatch.setattr(Dispatcher, "call", fail)
        message = await refusal(client, "remember", text="x")
        with pytest.raises(mcp.MCPError) as caught:
            await client.read_resource("slumberd://profile")

    assert message == caught.value.message
    assert str(error) in message
