"""The Model Context Protocol of a daemon that runs as a service, over TCP."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.web.http.access import hash_of
from tests.support.daemons import Daemon, Home
from tests.support.mcp_clients import answer, http_client, names
from tests.support.waiting import PATIENCE_SECONDS
from tests.web.mcp.test_mcp import MOVE, TOOLS

pytestmark = pytest.mark.acceptance

INSPECTOR = "mcp-inspector"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    tokens = tmp_path / "tokens.yaml"
    entries = [
        {
            "name": user,
            "sha256": hash_of(user),
            "user": user,
            "agent": "desk",
            "rights": ["read", "write"],
        }
        for user in ("ann", "bob")
    ]
    tokens.write_bytes(orjson.dumps({"tokens": entries}))
    tokens.chmod(0o600)
    serve = {"enabled": True, "address": "127.0.0.1:0", "tokens_file": str(tokens)}
    home = Home(tmp_path, {"serve": serve})
    home.rule("all", cadence={"every": 1})
    return home


@pytest.fixture
def daemon(home: Home) -> Iterator[tuple[Daemon, str]]:
    """Run a daemon; yield it with the address of its HTTP."""
    process = subprocess.Popen(home.command("run"), stderr=subprocess.PIPE)
    daemon = Daemon(process)
    try:
        where = daemon.wait_for("http.listening", lambda event: ":" in event["where"])["where"]
        daemon.wait_for("daemon.ready")
        yield daemon, f"http://{where}"
        assert daemon.stop() == 0, daemon.seen[-5:]
    finally:
        process.kill()
        process.wait()
        daemon.close()


@pytest.mark.cases(1)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_agents_with_tokens_remember_and_recall_over_tcp(
    daemon: tuple[Daemon, str], mode: str
) -> None:
    process, url = daemon
    async with http_client(url, "ann", mode=mode) as ann, http_client(url, "bob", mode=mode) as bob:
        version = ann.protocol_version
        await answer(ann, "remember", text="I moved to Lisbon", id="e1", triples=[MOVE])
        event = await asyncio.to_thread(process.wait_for, "delta.applied")
        found = await answer(ann, "recall", query="Lisbon")
        other = await answer(bob, "recall", query="Lisbon")
        offered = names((await ann.list_tools()).tools)

    assert version == {"auto": "2026-07-28", "legacy": "2025-11-25"}[mode]
    assert (event["user"], event["agent"]) == ("ann", "desk")
    assert {hit["kind"] for hit in found["hits"]} == {"episode", "fact"}
    assert other == {"hits": []}
    assert offered == [name for name in TOOLS if name != "forget"]


def inspect(*words: str, target: Sequence[str], strict: bool = False) -> dict[str, Any]:
    """Return what the inspector prints about a server."""
    found = shutil.which(INSPECTOR)
    if found is None:
        pytest.skip(f"{INSPECTOR} is not on the path: npm install @modelcontextprotocol/inspector")
    helped = subprocess.run([found, "--cli", "--help"], capture_output=True, text=True)
    if "--header" not in helped.stdout:
        pytest.skip(f"this {INSPECTOR} sends no headers: version 2 does, on Node.js 22")
    more = ["--connect-timeout", str(1_000 * round(PATIENCE_SECONDS))]  # by default 15,000 ms
    more += ["--strict"] if strict else []
    ended = subprocess.run(
        [found, "--cli", *words, *more, *target],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


LIST = ("--method", "tools/list")
CALL = ("--tool-arg", "text=tea", "--method", "tools/call", "--tool-name", "remember")


@pytest.mark.slow
def test_inspector_lists_and_calls_tools_on_stdio(home: Home) -> None:
    target = ["--", *home.command("mcp", "--user", "ann", "--agent", "desk")]

    listed = inspect(*LIST, target=target, strict=True)
    called = inspect(*CALL, target=target)
    templates = inspect("--method", "resources/templates/list", target=target)

    assert [tool["name"] for tool in listed["tools"]] == TOOLS
    assert called["structuredContent"]["state"] == "new"
    assert len(templates["resourceTemplates"]) == 2


@pytest.mark.slow
def test_inspector_lists_and_calls_tools_over_http(daemon: tuple[Daemon, str]) -> None:
    _, url = daemon
    target = [f"{url}/mcp", "--transport", "http", "--header", "Authorization: Bearer ann"]

    listed = inspect(*LIST, target=target)
    called = inspect(*CALL, target=target)
    prompts = inspect("--method", "prompts/list", target=target)

    assert [tool["name"] for tool in listed["tools"]] == [
        name for name in TOOLS if name != "forget"
    ]
    assert called["structuredContent"]["state"] == "new"
    assert [prompt["name"] for prompt in prompts["prompts"]] == [
        "start_of_session",
        "end_of_session",
    ]
