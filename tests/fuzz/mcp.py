"""Fuzz the Model Context Protocol: any body gets one answer, and nothing of another user.

The target calls the real route of a real daemon, which it replaces after some inputs.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from starlette.routing import BaseRoute
from starlette.types import Message, Scope

from slumberd.operations.caller import Caller, Right
from slumberd.web.mcp.connection import PATH
from slumberd.web.mcp.server import BUG, open_mcp
from tests.fuzz.targets import Finding
from tests.support.daemons_in_loop import memory_in_loop, served_by

SECRET = "the safe of bob opens with 7391"  # noqa: S105 # what the tests look for
CALLER = Caller(
    name="token ann",
    user="ann",
    agent="desk",
    rights=frozenset({Right.READ, Right.WRITE, Right.ERASE}),
)

_INPUTS_PER_RESTART = 2_000
"""Inputs after which the target replaces the stores, which grow."""
_STATUSES = {200, 202, 400, 403, 404, 405, 406, 413, 415}
_META = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": LATEST_MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("remember", {"text": "tea", "id": "e1", "triples": [{"subject": "ann", "predicate": "is"}]}),
    ("remember", {"text": "x", "user": "bob", "id": "b1", "when": "2026-03-01T12:00:00Z"}),
    ("recall", {"query": "safe", "kinds": ["fact"], "limit": 3, "as_of": None, "min_score": 0}),
    ("recall", {"query": "safe of bob", "agent": "other"}),
    ("context", {"question": "safe", "budget": 10, "session": "default"}),
    ("correct", {"fact": "b1", "object": {"a": [1]}, "reason": "why", "if_version": "x"}),
    ("correct", {"subject": "ann", "predicate": "is", "retract": True, "reason": "why"}),
    ("forget", {}),
    ("forget", {"plan": "0" * 32, "session": "s1"}),
    ("explain", {"id": "b1"}),
    ("fire", {"rules": None}),
    ("nothing", {}),
)
_OTHERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ping", {}),
    ("server/discover", {}),
    ("tools/list", {"cursor": "x"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "start_of_session", "arguments": {"question": "safe"}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "slumberd://facts/b1"}),
    ("resources/read", {"uri": "slumberd://episodes/b1"}),
    ("resources/read", {"uri": "slumberd://profile"}),
    ("resources/read", {"uri": "slumberd://report/latest"}),
    ("initialize", {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}}),
    ("logging/setLevel", {"level": "debug"}),
)
_BODIES = (
    b"", b"{}", b"[]", b"null", b"\xff", b'"x"', b"[" * 2_000, b'{"jsonrpc": "2.0"}', b"9" * 5_000,
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}',
    b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"correct","arguments":'
    b'{"subject":"a","predicate":"b","reason":"c","object":' + b"[" * 400 + b"]" * 400 + b"}}}",
)  # fmt: skip


class McpTarget:
    """Sends each input as a body in both eras, and then a ping that must be answered."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="slumberd-fuzz-")
        self._numbers = count()
        self._tries = 0
        self._runner = asyncio.Runner()
        self._runner.run(self._begin())

    def close(self) -> None:
        self._runner.run(self._end())
        self._runner.close()
        self._folder.cleanup()

    def seeds(self) -> Iterator[bytes]:
        calls = (("tools/call", {"name": name, "arguments": some}) for name, some in _CALLS)
        for method, params in (*calls, *_OTHERS):
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | _META}
            yield orjson.dumps(message)
        yield from _BODIES

    def words(self) -> Iterator[str]:
        yield from (f'\\"{method}\\"' for method, _ in _OTHERS)
        names = {name for tool, some in _CALLS for name in (tool, *some)}
        yield from (f'\\"{name}\\"' for name in sorted(names))
        yield from (
            "null",
            "true",
            "1e308",
            "-1",
            '\\"b1\\"',
            '\\"bob\\"',
            "\\\\u0000",
            "\\\\ud800",
        )

    def run_once(self, given: bytes) -> None:
        self._tries += 1
        if self._tries % _INPUTS_PER_RESTART == 0:
            self._runner.run(self._restart())
        for version in (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION):
            self.check(*self.answer(given, version))
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        if self.answer(ping, LATEST_HANDSHAKE_VERSION)[0] != 200:
            raise Finding("the daemon no longer answers")

    def answer(self, body: bytes, version: str) -> tuple[int, bytes]:
        """Return the status and the body of the answer to a body."""
        return self._runner.run(asyncio.wait_for(self._exchange(body, version), 20))

    def check(self, status: int, body: bytes) -> None:
        """Check that an answer is one of the protocol, and says nothing of another user.

        Raises:
            Finding: It is not.
        """
        if status not in _STATUSES:
            raise Finding(f"status {status}: {body[:200]!r}")
        if SECRET.encode() in body:
            raise Finding("the memory of another user")
        if b"Traceback" in body or BUG.encode() in body:
            raise Finding(f"a bug: {body[:500]!r}")
        if body.startswith(b"{") and not {"result", "error"} & orjson.loads(body).keys():
            raise Finding(f"neither a result nor an error: {body[:200]!r}")

    async def _exchange(self, body: bytes, version: str) -> tuple[int, bytes]:
        sent: list[Message] = []
        received = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Message:
            return next(received, {"type": "http.disconnect"})

        async def send(message: Message) -> None:
            sent.append(message)

        await self._route.handle(_scope(body, version), receive, send)
        bodies = (message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], b"".join(bodies)

    async def _begin(self) -> None:
        self._ready: asyncio.Future[BaseRoute] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        # One task enters and leaves the groups of tasks; the calls of the runner are others.
        self._serving = asyncio.ensure_future(self._serve())
        self._route = await self._ready

    async def _serve(self) -> None:
        self._path = Path(self._folder.name) / str(next(self._numbers))
        async with memory_in_loop(self._path, user="bob", agent="desk") as memory:
            said = await memory.remember(SECRET, id="b1", triples=[("bob", "says", SECRET)])
            await memory.wait_for(said.id)
            async with open_mcp(served_by(memory)) as route:
                self._ready.set_result(route)
                await self._stop.wait()

    async def _end(self) -> None:
        self._stop.set()
        await self._serving

    async def _restart(self) -> None:
        await self._end()
        shutil.rmtree(self._path)
        await self._begin()


def _scope(body: bytes, version: str) -> Scope:
    """Return the scope of a request with the headers that a client of the body would send."""
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        message = None
    headers = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": _text_in(message, "method"),
        "mcp-name": _text_in(message, "params", "name") or _text_in(message, "params", "uri"),
    }
    return {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "root_path": "",
        "query_string": b"",
        "headers": [
            (name.encode(), text.encode(errors="replace")) for name, text in headers.items() if text
        ],
        "state": {"caller": CALLER},
    }


def _text_in(value: Any, *names: str) -> str:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
