"""Bound what clients of HTTP can hold: connections, time, bodies, and requests at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import h11
import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from slumberd.api.access import Access
from slumberd.api.problems import problem_of
from slumberd.clock import Clock
from slumberd.errors import (
    NotAuthenticatedError,
    RequestTooLargeError,
    SlumberdError,
    TooManyRequestsError,
)
from slumberd.service.control_socket import unix_peer

REPORT_SECONDS = 60.0
"""The least time between two log lines about refused clients."""

MOST_REASONS = 100
"""A log line about refused clients has at most so many reasons or places, and `OTHERS`."""

OTHERS = "others"

OPEN_PATHS = frozenset({"/healthz", "/openapi.json"})
"""What anybody may read who can connect."""

CONSOLE = "/console"
"""The path of the web console, which asks people to sign in."""

_OPTION = "serve.max_body_bytes"

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
    b"Connection: close\r\n\r\n"
)
_RECEIVED = frozenset({h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR})

_log = structlog.get_logger("slumberd")


class _ErrorLines(logging.Handler):
    """Logs the errors of the server, without the content that a traceback may show."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one error; a request that the end of the daemon cancels is none."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, asyncio.CancelledError):
            message = record.getMessage().strip()
            _log.error("http.server_failed", message=message, error=type(error).__name__)


# Not a logger of the process: whoever sends broken requests would write its warnings.
SERVER_LOGGER = logging.Logger("slumberd.http", logging.ERROR)  # noqa: LOG001
SERVER_LOGGER.addHandler(_ErrorLines())


def log_refusals(counts: dict[str, int]) -> None:
    """Log how many clients were refused or cut off, by reason."""
    _log.warning("http.refused", counts=counts)


def log_refused_sign_ins(counts: dict[str, int]) -> None:
    """Log how many attempts to sign in to the web console were refused, by where they came from."""
    _log.warning("sign_in.refused", counts=counts)


class RefusalCounter:
    """Counts refused clients by reason or place, and logs the counts at most once a minute.

    Args:
        clock: The time.
        log: Logs counts.
    """

    def __init__(self, clock: Clock, log: Callable[[dict[str, int]], None] = log_refusals) -> None:
        self._clock = clock
        self._log = log
        self._logged: float | None = None
        self.counts: Counter[str] = Counter()

    def count(self, reason: str) -> None:
        """Count one refusal; those for ever more reasons count as `OTHERS`."""
        known = reason in self.counts or len(self.counts) < MOST_REASONS
        self.counts[reason if known else OTHERS] += 1
        now = self._clock.monotonic()
        if self._logged is None or now - self._logged >= REPORT_SECONDS:
            self._logged = now
            self.log()

    def log(self) -> None:
        """Log the counts since the last line, if there are any."""
        if self.counts:
            self._log(dict(self.counts))
            self.counts.clear()


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection may take.

    Attributes:
        most: Connections at a time.
        request_seconds: The time for a whole request, from its first byte.
        write_seconds: The time in which a client must take what waits for it.
        refusals: Counts what is cut off.
    """

    most: int
    request_seconds: float
    write_seconds: float
    refusals: RefusalCounter


class LimitedProtocol(H11Protocol):
    """One connection: HTTP/1.1 by `h11`, with limits on time, and the peer of a unix socket.

    Args:
        limits: The limits.
        kept: What the server gives to each connection.
    """

    def __init__(self, limits: ConnectionLimits, **kept: Any) -> None:
        super().__init__(**kept)
        self.logger = SERVER_LOGGER
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection, or refuse it when there are too many."""
        super().connection_made(transport)  # type: ignore[arg-type] # as asyncio calls it
        peer = unix_peer(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, "peer": peer}
        if len(self.connections) > self._limits.most:
            self._limits.refusals.count("too many connections")
            self.transport.write(_FULL)
            self.transport.close()
            return
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection and its timers."""
        self._cancel_deadline()
        self._cancel_stalled()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        if self._deadline is None:
            self._await_request()
        super().data_received(data)
        if self.conn.their_state in _RECEIVED:
            self._cancel_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._limits.refusals.count("not HTTP")
        answered: bool = getattr(self.cycle, "response_complete", True)  # None before a request
        if answered:
            super().send_400_response(msg)
            return
        # The body is broken, and its request is under way: end both.
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self.transport.close()

    def on_response_complete(self) -> None:
        """Go on to the next request, whose first bytes may be here already."""
        if not self.flow.write_paused:
            self._await_reader()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self._deadline is None:
            self._await_request()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as slumberd writes."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._cancel_stalled()

    def _await_request(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(
            self._limits.request_seconds, self._cut, "slow request"
        )

    def _await_reader(self) -> None:
        self._cancel_stalled()
        self._stalled = self.loop.call_later(self._limits.write_seconds, self._cut_reader)

    def _cut_reader(self) -> None:
        if self.transport.get_write_buffer_size():
            self._cut("slow reader")

    def _cut(self, reason: str) -> None:
        self._limits.refusals.count(reason)
        self.transport.abort()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class RequestSlots:
    """Bounds how many requests are under way: of all callers, and of each.

    Args:
        most: Of all callers. One caller may have half of them.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.most_each = max(1, most // 2)
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: str) -> Iterator[None]:
        """Take a place while the block runs.

        Raises:
            TooManyRequestsError: There is none.
        """
        if self._by_caller.total() >= self.most:
            raise TooManyRequestsError(self.most, "the daemon")
        if self._by_caller[caller] >= self.most_each:
            raise TooManyRequestsError(self.most_each, caller)
        self._by_caller[caller] += 1
        try:
            yield
        finally:
            self._by_caller[caller] -= 1
            if not self._by_caller[caller]:
                del self._by_caller[caller]


class Gate:
    """Lets a request in when its caller is known, its body is small, and there is a place.

    It stores the caller in ``scope["state"]["caller"]``. The web console finds out its callers
    itself; all of them share the places of one caller.

    Args:
        app: What answers.
        access: Finds out who calls.
        slots: Bounds the requests under way.
        refusals: Counts refused requests.
        most_bytes: The largest body.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        slots: RequestSlots,
        refusals: RefusalCounter,
        most_bytes: int,
    ) -> None:
        self._app = app
        self._access = access
        self._slots = slots
        self._refusals = refusals
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers, path = Headers(scope=scope), scope["path"]
        try:
            if path in OPEN_PATHS:
                name = "anybody"
            elif path == CONSOLE or path.startswith(f"{CONSOLE}/"):
                name = "the console"
            else:
                caller = self._access.caller_of(
                    scope["state"].pop("peer", None), headers.get("authorization")
                )
                scope["state"]["caller"], name = caller, str(caller)
            body = LimitedBody(receive, headers.get("content-length"), self._most_bytes)
            with self._slots.one(name):
                await self._app(scope, body.receive, send)
        except SlumberdError as error:
            if isinstance(error, NotAuthenticatedError):
                self._refusals.count("not authenticated")
            elif isinstance(error, TooManyRequestsError):
                self._refusals.count("too many requests")
            await problem_of(error)(scope, receive, send)


class LimitedBody:
    """Reads the body of a request up to a limit.

    Args:
        receive: Receives the next part.
        announced: The header ``Content-Length``; None without one.
        most_bytes: The limit.

    Raises:
        RequestTooLargeError: The header announces more.
    """

    def __init__(self, receive: Receive, announced: str | None, most_bytes: int) -> None:
        self._receive = receive
        self._most = self._left = most_bytes
        if announced is not None and int(announced) > most_bytes:
            raise RequestTooLargeError(most_bytes, int(announced), _OPTION)

    async def receive(self) -> Message:
        """Return the next part.

        Raises:
            RequestTooLargeError: The parts are larger than the limit.
        """
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise RequestTooLargeError(self._most, option=_OPTION)
        return message
