"""Bound what clients of HTTP can hold: connections, time, bodies, and requests at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from slumberd.api.access import Access
from slumberd.api.page_checks import PageChecks, is_console, is_local
from slumberd.api.problems import problem_of
from slumberd.clock import Clock
from slumberd.config.serve_settings import ServeSettings
from slumberd.errors import (
    NotAllowedError,
    NotAuthenticatedError,
    RequestTooLargeError,
    SlumberdError,
    TooManyRequestsError,
    UnknownHostError,
)
from slumberd.operations.caller import Caller, Right
from slumberd.service.control_socket import unix_peer

REPORT_SECONDS = 60.0
"""The least time between two log lines about refused clients."""

MOST_REASONS = 100
"""A log line about refused clients has at most so many reasons or places, and `OTHERS`."""

OTHERS = "others"

HEALTH = "/healthz"
"""The path that says whether the daemon answers. Anybody may read it, and it needs no place."""

DESCRIPTION = "/openapi.json"
"""The path of the OpenAPI document. Anybody may read it."""

STREAM = "/v1/events"
"""The path whose answer does not end."""

PersonOf = Callable[[Scope], "Caller | None"]
"""Returns who is signed in to the web console; None for nobody."""

MOST_HEADER_BYTES = 16_384
"""The longest headers of a request."""

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
    b"Connection: close\r\n\r\n"
)
_MOST_UNSIGNED_BYTES = 65_536
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
_REFUSED: Mapping[type[SlumberdError], str] = {
    NotAllowedError: "another site",
    NotAuthenticatedError: "not authenticated",
    TooManyRequestsError: "too many requests",
    UnknownHostError: "unknown host",
}
"""The reasons in the log, by the error with which the gate refuses a request."""

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
        most: Connections at a time, of the network and of the unix socket each.
        request_seconds: The time for a whole request, from its first byte.
        write_seconds: The time in which a client must take what waits for it.
        refusals: Counts what is cut off.
        open: How many connections there are, of the unix socket (True) and of the network (False).
    """

    most: int
    request_seconds: float
    write_seconds: float
    refusals: RefusalCounter
    open: Counter[bool] = field(default_factory=Counter)


class _Reader(h11.Connection):
    """Reads requests, but none in which a proxy may see another end (RFC 9112, 6.1 and 6.3)."""

    def next_event(self) -> Any:  # noqa: ANN401 # as h11 has it
        """Return what comes next.

        Raises:
            RemoteProtocolError: It is not HTTP, or has no certain end.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            old = event.http_version < b"1.1"
            if b"transfer-encoding" in names and (old or b"content-length" in names):
                raise h11.RemoteProtocolError("the request has no certain end")
        return event


class LimitedProtocol(H11Protocol):
    """One connection: HTTP/1.1 by `h11`, with limits on time, and the peer of a unix socket.

    Args:
        limits: The limits.
        kept: What the server gives to each connection.
    """

    def __init__(self, limits: ConnectionLimits, **kept: Any) -> None:
        super().__init__(**kept)
        self.logger = SERVER_LOGGER
        self.conn = _Reader(h11.SERVER, MOST_HEADER_BYTES)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._by_socket = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection, or refuse it when there are too many."""
        super().connection_made(transport)  # type: ignore[arg-type] # as asyncio calls it
        peer = unix_peer(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, "peer": peer}
        self._by_socket = peer is not None
        self._limits.open[self._by_socket] += 1
        if self._limits.open[self._by_socket] > self._limits.most:
            self._limits.refusals.count("too many connections")
            self.transport.write(_FULL)
            self.transport.close()
            return
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection and its timers."""
        self._limits.open[self._by_socket] -= 1
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

    One caller may have half of the places that others leave. So a few callers never have all.

    Args:
        most: Of all callers.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.most_of_others = most - most // 4
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: str, *, operates: bool = False) -> Iterator[None]:
        """Take a place while the block runs.

        Args:
            caller: Who takes it.
            operates: Whether it may be one of the places that are kept for operators.

        Raises:
            TooManyRequestsError: There is none.
        """
        most = self.most if operates else self.most_of_others
        own = self._by_caller[caller]
        left = most - (self._by_caller.total() - own)
        if left <= 0:
            raise TooManyRequestsError(most, "the daemon")
        if own >= (each := (left + 1) // 2):
            raise TooManyRequestsError(each, caller)
        self._by_caller[caller] += 1
        try:
            yield
        finally:
            self._by_caller[caller] -= 1
            if not self._by_caller[caller]:
                del self._by_caller[caller]


class Gate:
    """Lets a request in when its caller is known, its body is small, and there is a place.

    It reads the body, so nothing behind it meets a client that goes away before the end of one. It
    stores the caller in ``scope["state"]["caller"]``, and leaves the peer of a unix socket in
    ``scope["state"]["peer"]`` only to requests that name this machine.

    Args:
        app: What answers.
        access: Finds out who calls.
        person_of: Returns who is signed in to the web console; None for nobody.
        serve: The configuration.
        refusals: Counts refused requests.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        person_of: PersonOf,
        serve: ServeSettings,
        refusals: RefusalCounter,
    ) -> None:
        self._app = app
        self._access = access
        self._person_of = person_of
        self._refusals = refusals
        self._most_bytes = serve.max_body_bytes
        self._checks = PageChecks(serve)
        self._requests = RequestSlots(serve.max_requests)
        self._streams = RequestSlots(serve.max_requests)
        self._strangers = asyncio.Semaphore(max(1, serve.max_requests // 2))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] == HEALTH:  # a full daemon lives, too
            await self._app(scope, receive, send)
        else:
            await self._answer(scope, Headers(scope=scope), receive, send)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with a problem."""
        try:
            if scope["path"] == DESCRIPTION:
                caller = None
            else:
                self._checks.check(scope, headers)
                caller = self._caller_of(scope, headers)
            if caller is None:
                await self._answer_stranger(scope, headers, receive, send)
            else:
                await self._answer_caller(caller, scope, headers, receive, send)
        except SlumberdError as error:
            if reason := _REFUSED.get(type(error)):
                self._refusals.count(reason)
            await problem_of(error)(scope, receive, send)

    def _caller_of(self, scope: Scope, headers: Headers) -> Caller | None:
        """Return who calls; None for somebody who is not signed in to the web console.

        Raises:
            NotAuthenticatedError: A program sends no token, or an unknown one.
        """
        state = scope["state"]
        if not is_local(headers):
            state["peer"] = None
        if is_console(scope["path"]):
            return self._person_of(scope)
        state["caller"] = self._access.caller_of(
            state.pop("peer", None), headers.get("authorization")
        )
        caller: Caller = state["caller"]
        return caller

    async def _answer_caller(
        self, caller: Caller, scope: Scope, headers: Headers, receive: Receive, send: Send
    ) -> None:
        slots = self._streams if scope["path"] == STREAM else self._requests
        with slots.one(str(caller), operates=Right.OPERATE in caller.rights):
            body = await _read_body(scope, headers, receive, self._most_bytes)
            if body is not None:
                await self._app(scope, _with_body(body, receive), send)

    async def _answer_stranger(
        self, scope: Scope, headers: Headers, receive: Receive, send: Send
    ) -> None:
        """Answer somebody unknown, who has a place only while the daemon works.

        Each answer is short work, and each connection waits for one only. So nobody is refused.
        """
        most = min(self._most_bytes, _MOST_UNSIGNED_BYTES)
        body = await _read_body(scope, headers, receive, most)
        if body is None:
            return
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        async with self._strangers:
            await self._app(scope, _with_body(body, receive), keep)
        for message in answer:
            await send(message)


async def _read_body(
    scope: Scope, headers: Headers, receive: Receive, most_bytes: int
) -> bytes | None:
    """Return the body of a request; None when the client goes away before its end.

    Raises:
        RequestTooLargeError: It is too large, or announces to be.
    """
    if int(headers.get("content-length", "0")) > most_bytes:
        raise RequestTooLargeError(most_bytes)
    if scope["method"] in _WITHOUT_BODY:
        return b""
    parts, left = [], most_bytes
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        left -= len(parts[-1])
        if left < 0:
            raise RequestTooLargeError(most_bytes)
        if not message.get("more_body", False):
            return b"".join(parts)


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return what receives a whole body, and after it what the client does."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_next
