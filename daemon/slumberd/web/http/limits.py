"""Bound what one connection of HTTP may take: time, headers, and a place among all."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from slumberd.clock import Clock
from slumberd.daemon.control_socket import unix_peer

REPORT_SECONDS = 60.0
"""The least time between two log lines about refused clients."""

MOST_REASONS = 100
"""A log line about refused clients has at most so many reasons or places, and `OTHERS`."""

OTHERS = "others"

MOST_HEADER_BYTES = 16_384
"""The longest headers of a request."""

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
    """Counts refused clients by reason or place, and logs the counts at most once a minute."""

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
        waiting: Those that may be ended for others, the first one for the longest time: their
            client sends no whole request, reads no answer, or is nobody that the gate knows.
    """

    most: int
    request_seconds: float
    write_seconds: float
    refusals: RefusalCounter
    open: Counter[bool] = field(default_factory=Counter)
    waiting: tuple[dict[LimitedProtocol, None], ...] = field(default_factory=lambda: ({}, {}))


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
        self._kept = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection, or refuse it when there are too many."""
        super().connection_made(transport)  # type: ignore[arg-type] # as asyncio calls it
        peer = unix_peer(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, "peer": peer, "keep_connection": self.keep}
        self._by_socket = peer is not None
        self._limits.open[self._by_socket] += 1
        if self._limits.open[self._by_socket] > self._limits.most:
            self._limits.refusals.count("too many connections")
            # A client that keeps its connection busy without a token would else stop all others.
            longest = next(iter(self._limits.waiting[self._by_socket]), self)
            longest.make_room()
            if longest is self:
                return
        self._await_request()

    def keep(self) -> None:
        """Keep the connection until the answer is complete: the gate knows who asks."""
        self._kept = True
        if not self.flow.write_paused:
            self._stop_waiting()

    def make_room(self) -> None:
        """End this connection, because there are too many."""
        self._stop_waiting()
        if self._is_unread():  # what is left could wait for the client for ever
            self.transport.abort()
            return
        started: bool = getattr(self.cycle, "response_started", False)  # None before a request
        if not started:
            self.transport.write(_FULL)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection and its timers."""
        self._limits.open[self._by_socket] -= 1
        self._stop_waiting()
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
        self._kept = False
        self._begin_waiting()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self._deadline is None:
            self._await_request()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as slumberd writes."""
        super().pause_writing()
        self._begin_waiting()
        self._await_reader()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        if self._kept:
            self._stop_waiting()
        self._cancel_stalled()

    def _begin_waiting(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self._limits.waiting[self._by_socket][self] = None

    def _stop_waiting(self) -> None:
        self._limits.waiting[self._by_socket].pop(self, None)

    def _await_request(self) -> None:
        if not self._kept:
            self._begin_waiting()
        self._cancel_deadline()
        self._deadline = self.loop.call_later(
            self._limits.request_seconds, self._cut, "slow request"
        )

    def _await_reader(self) -> None:
        self._cancel_stalled()
        self._stalled = self.loop.call_later(self._limits.write_seconds, self._cut_reader)

    def _cut_reader(self) -> None:
        if self._is_unread():
            self._cut("slow reader")

    def _is_unread(self) -> bool:
        return self.transport.get_write_buffer_size() > 0

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
