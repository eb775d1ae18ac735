"""Fuzz the HTTP interface: any bytes get an answer of HTTP, or the end of the connection.

The target runs the real server and operations in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from slumberd.clock import CommitSignal
from slumberd.daemon.interfaces import Served
from slumberd.daemon.stores import searcher_of
from slumberd.model.errors import NotRunningError
from slumberd.model.health import DaemonHealth
from slumberd.operations.corrections import Corrections
from slumberd.operations.episodes import EpisodeReads
from slumberd.operations.facts import FactReads
from slumberd.operations.handlers import Dispatcher, handlers_of
from slumberd.operations.ledger import LedgerReads
from slumberd.operations.outcomes import Outcomes
from slumberd.operations.puts import EpisodePuts
from slumberd.operations.search import Search
from slumberd.operations.writes.put_once import OncePutter
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import ServeSettings
from slumberd.web.http.limits import SERVER_LOGGER
from slumberd.web.http.routes import ROUTES
from slumberd.web.http.server import serve_http
from tests.fuzz.targets import Finding
from tests.support.builders import at, rule, triple
from tests.support.state_directory import StateDirectory, state_directory

EPISODES = [triple(f"e{n}", f"s{n % 2}", "is", n, timestamp=at(n)) for n in range(6)]
PING = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
PATIENCE_SECONDS = 20.0

_WORDS = (
    "HTTP/1.1", "Content-Length:", "Transfer-Encoding: chunked", "Content-Type: application/json",
    "Connection: close", "Expect: 100-continue", "Upgrade: websocket", "If-Match:",
    "Last-Event-ID:", "Authorization: Bearer ", "%2F", "%00", "..", "?limit=", "&kinds=",
)  # fmt: skip
_LINES = (
    b"", b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n",
    b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nffffffffffff\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n",
    b"GET /v1/facts/%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v1/facts?limit=%00 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3,
    b"GET /" + b"a" * 8_000 + b" HTTP/1.1\r\n\r\n",
)  # fmt: skip


class _Errors(logging.Handler):
    """Keeps what the server logs: a client must not be able to write into the log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{record.getMessage()} {record.exc_info}")


class HttpTarget:
    """Sends each input over a real socket, and then a ping that the server must answer."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="slumberd-fuzz-")
        self._path = Path(self._folder.name)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._errors = _Errors()
        SERVER_LOGGER.addHandler(self._errors)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        if not self._ready.wait(PATIENCE_SECONDS):
            raise Finding("the server does not start")

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        SERVER_LOGGER.removeHandler(self._errors)
        self._folder.cleanup()

    def seeds(self) -> Iterator[bytes]:
        for route in ROUTES:
            path = route.public_path.replace("{id}", "e1")
            request = {
                name: value
                for name, value in route.operation.example.request.items()
                if name not in route.hidden
            }
            body = b"" if route.method == "GET" else orjson.dumps(request)
            yield written(route.method, path, body)
        yield from _LINES

    def words(self) -> Iterator[str]:
        yield from _WORDS
        yield from sorted({route.public_path for route in ROUTES})

    def run_once(self, given: bytes) -> None:
        self.check(self.answer(given))
        if self._errors.seen:
            raise Finding(f"the server logs an error: {self._errors.seen[0]}")
        if not self.answer(PING).endswith(b'{"status":"ok"}'):
            raise Finding("the server no longer answers")

    def answer(self, given: bytes) -> bytes:
        """Return all that comes back for an input."""
        received = b""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(str(self._path / "http.sock"))
            try:
                connection.sendall(given)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65_536):
                    received += part
                    if b"text/event-stream" in received:
                        break
            except (BrokenPipeError, ConnectionResetError):
                pass
        return received

    def check(self, answer: bytes) -> None:
        """Check that an answer is HTTP, and reports no bug.

        Raises:
            Finding: It has another form.
        """
        if not answer:
            return
        if not answer.startswith(b"HTTP/1.1 "):
            raise Finding(f"not HTTP: {answer[:200]!r}")
        if answer.startswith(b"HTTP/1.1 500"):
            raise Finding(f"a bug: {answer[:500]!r}")

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._run())
        self._loop.close()

    async def _run(self) -> None:
        rules = [rule("all")]
        async with state_directory(self._path, rules) as home:
            await home.stores.memory.put_many(EPISODES)
            await home.fire(rules[0])
            async with serve_http(served_by(home, self._path)):
                self._ready.set()
                await self._stop.wait()


def written(method: str, path: str, body: bytes) -> bytes:
    """Return a request as HTTP/1.1 has it."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    form = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{head}{form}\r\n".encode() + body


def served_by(home: StateDirectory, folder: Path) -> Served:
    """Return what a daemon gives to HTTP, without a daemon."""
    serve = ServeSettings(enabled=True, timeout_seconds=1.0)
    settings = Settings(state_dir=folder, rules_dir=folder, serve=serve)
    commits = CommitSignal()
    rules, tolerance = lambda: home.operations._rules(), timedelta(seconds=300)
    outcomes = Outcomes(
        home.stores, rules=rules, clock=home.clock, tolerance=tolerance, commits=commits
    )
    puts = EpisodePuts(
        home.stores.memory,
        outcomes,
        rules=rules,
        clock=home.clock,
        tolerance=tolerance,
        capture=settings.capture_rules,
    )
    search = Search(searcher_of(settings, home.stores.memory, home.stores.facts, home.clock))
    corrections = Corrections(home.stores.facts, home.operations)
    facts = FactReads(home.stores.facts)
    listed = EpisodeReads(home.stores.memory)
    reads = LedgerReads(home.stores.facts, commits)
    handlers = {
        **home.operations.handlers,
        **handlers_of(puts, listed, outcomes, search, facts, corrections, reads),
    }
    return Served(
        Dispatcher(handlers),
        settings,
        OncePutter(home.stores.memory),
        commits,
        home.clock,
        _no_health,
    )


async def _no_health() -> DaemonHealth:
    raise NotRunningError("no daemon runs here")
