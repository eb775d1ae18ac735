"""Fuzz the control socket: any bytes get one line back, an answer or a refusal.

The target runs the real operations, on stores that it replaces after some inputs.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from slumberd.daemon.control_socket import SOCKET, VERSION, listen
from slumberd.daemon.rules import PausedFile
from slumberd.operations.handlers import Handler, handlers_of
from slumberd.operations.pauses import Pausing
from slumberd.rules.rule_loader import RuleSet
from slumberd.storage.strict_json import MOST_REQUEST_BYTES
from tests.fuzz.targets import Finding
from tests.support.builders import at, rule, triple
from tests.support.state_directory import state_directory

EPISODES = [triple(f"e{n}", f"s{n % 2}", "is", n, timestamp=at(n)) for n in range(6)]
RULES = [rule("all"), rule("notes", then_emits=["notes"], when_filter="subject = 's1'")]

_KEYS = {"ok", "error", "exit_code"}
_KEYS_OF_ERRORS = _KEYS | {"kind", "fields"}
_CODES = {64, 65, 66, 73, 74, 75, 77, 78, 3, 1}
_INPUTS_PER_RESTART = 500
"""Inputs after which the target replaces the stores, which grow with each pin and undo."""

_REQUESTS: tuple[dict[str, Any], ...] = (
    {"operation": "fire", "rules": None},
    {"operation": "fire", "rules": ["all"], "dry_run": True},
    {"operation": "backfill", "rule": "all", "from": "2026-01-01", "to": None},
    {"operation": "retry", "rules": None, "episodes": None},
    {"operation": "drop", "rules": ["all"], "episodes": ["e1"]},
    {"operation": "undo", "firing": "all@1", "dry_run": True},
    {
        "operation": "pin", "user": "alice", "agent": "rag", "subject": "s", "predicate": "is",
        "object": {"x": [1]}, "reason": "why", "id": "p1", "confidence": 0.5, "channel": "facts",
    },
    {"operation": "unpin", "facts": ["e5", "p1"], "reason": "why"},
    {"operation": "forget", "user": "alice", "session": "s1", "agent": None, "dry_run": True},
    {"operation": "approve", "rule": "all"},
    {"operation": "pause", "rules": ["all"]},
    {"operation": "resume", "rules": ["all"]},
    {"operation": "nothing of the kind"},
)  # fmt: skip
_LINES = (
    b"", b"\n", b"{}\n", b"[]\n", b"null\n", b'"version"\n', b"\xff\n", b'{"version": 1}\n',
    b'{"version": 1, "operation": null}\n', b'{"version": 1, "operation": ["fire"]}\n',
    b"[" * 2_000, b'{"version": 1, "operation": "' + b"x" * MOST_REQUEST_BYTES,
    b"x" * MOST_REQUEST_BYTES + b"\n",
    b'{"version": 1, "operation": "fire"}\n{"version": 1, "operation": "fire"}\n',
    b'{"version":1,"operation":"pin","user":"a","agent":"b","subject":"s","predicate":"p",'
    b'"reason":"r","object":' + b"[" * 500 + b"]" * 500 + b"}\n",
)  # fmt: skip


class ControlTarget:
    """Sends each input over a real socket, and then a ping that the daemon must answer."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="slumberd-fuzz-")
        self._numbers = count()
        self._tries = 0
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._path = Path()
        self.operations: dict[str, Handler] = {}
        self._runner.run(self._begin())

    def close(self) -> None:
        self._runner.run(self._open.aclose())
        self._runner.close()
        self._folder.cleanup()

    def seeds(self) -> Iterator[bytes]:
        for request in _REQUESTS:
            yield orjson.dumps({"version": VERSION, **request}) + b"\n"
        yield from _LINES

    def words(self) -> Iterator[str]:
        keys = {key for request in _REQUESTS for key in request} | {"by", "reason"}
        yield from (f'\\"{key}\\":' for key in sorted(keys))
        yield from (f'\\"{request["operation"]}\\"' for request in _REQUESTS)
        yield from ("null", "true", "[]", "{}", "1e308", "-1", '\\"all\\"', '\\"e1\\"', "\\\\u0000")
        yield from ('\\"2026-01-01\\"', '\\"all@1\\"', '\\"@notes/e1\\"', "18446744073709551616")

    def run_once(self, given: bytes) -> None:
        self._tries += 1
        if self._tries % _INPUTS_PER_RESTART == 0:
            self._runner.run(self._restart())
        self.check(self.answer(given))
        if self.answer(b'{"version":1,"operation":"fuzz.ping"}\n') != b'{"ok":true,"pong":1}\n':
            raise Finding("the daemon no longer answers")

    def answer(self, given: bytes) -> bytes:
        """Return all that comes back for an input."""
        return self._runner.run(self._exchange(given))

    def check(self, answer: bytes) -> None:
        """Check that an answer is one line with a result or an error.

        Raises:
            Finding: The answer has another form.
        """
        if not answer.endswith(b"\n") or answer.count(b"\n") != 1:
            raise Finding(f"not one line: {answer[:200]!r}")
        document = orjson.loads(answer)
        if document.get("ok") is True:
            return
        if set(document) not in (_KEYS, _KEYS_OF_ERRORS) or document["exit_code"] not in _CODES:
            raise Finding(f"no refusal: {document}")
        if not document["error"]:
            raise Finding("a refusal without a message")

    async def _exchange(self, given: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(sock=self._connected())
        try:
            writer.write(given)
            writer.write_eof()
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._path / SOCKET))
        return connection

    async def _begin(self) -> None:
        self._path = Path(self._folder.name) / str(next(self._numbers))
        self._path.mkdir()
        home = await self._open.enter_async_context(state_directory(self._path, RULES))
        await home.stores.memory.put_many(EPISODES)
        await home.fire(RULES[0])
        pausing = Pausing(PausedFile(self._path), lambda: RuleSet(tuple(RULES), {}, {}))
        self.operations |= {**home.operations.handlers, **handlers_of(pausing), "fuzz.ping": _pong}
        await self._open.enter_async_context(listen(self._path, self.operations))

    async def _restart(self) -> None:
        await self._open.aclose()
        shutil.rmtree(self._path)
        await self._begin()


async def _pong(_: dict[str, Any], __: object) -> dict[str, Any]:
    return {"pong": 1}
