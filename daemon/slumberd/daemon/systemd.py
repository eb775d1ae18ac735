"""Report the state of the service to systemd by the sd_notify protocol, without its library."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

import structlog

from slumberd.clock import Clock, set_within
from slumberd.model.errors import StoreError

_log = structlog.get_logger(__name__)
_LONGEST_WAIT_SECONDS = 1.0


class Notifier:
    """Sends messages to one NOTIFY_SOCKET; without one it does nothing.

    Attributes:
        watchdog_seconds: How long the service manager waits for a `watchdog`; None for ever.
    """

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        """Set the address.

        Args:
            address: The value of NOTIFY_SOCKET: a path, or an abstract name after ``@``.
            watchdog_seconds: How long the service manager waits for a `watchdog`; None for ever.
        """
        self.watchdog_seconds = watchdog_seconds
        known = address is not None and address.startswith(("/", "@"))
        self._address = address.replace("@", "\0", 1) if address is not None and known else None

    def ready(self) -> None:
        """Report that the service is up, or that a reload is done."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Show one line in ``systemctl status``."""
        self._send("STATUS=" + " ".join(text.split()))

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._send("STOPPING=1")

    def reloading(self, monotonic: float) -> None:
        """Report that a reload begins, at a time of the monotonic clock in seconds."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(monotonic * 1_000_000)}")

    def watchdog(self) -> None:
        """Report that the service is alive."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_LONGEST_WAIT_SECONDS)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            _log.warning("notify.failed", error=str(error))


class ShardNotifier(Notifier):
    """Notes that the daemon of one shard is alive, for the process that reports for all.

    Args:
        watchdog_seconds: How long the service manager waits for a `watchdog`; None for ever.
    """

    def __init__(self, clock: Clock, watchdog_seconds: float | None) -> None:
        super().__init__(None, watchdog_seconds)
        self._clock = clock
        self._alive_at = clock.monotonic()

    def watchdog(self) -> None:
        """Note that the daemon is alive."""
        self._alive_at = self._clock.monotonic()

    @property
    def silent_seconds(self) -> float:
        """How long ago the daemon was alive, as far as it said."""
        return self._clock.monotonic() - self._alive_at


class StartReports:
    """Reports that a daemon is alive, from the end of its standby until it serves.

    The service manager knows the standby as started. So it waits for reports during the start, too.

    Args:
        report: Reports that the daemon is alive.
    """

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report
        self._reporting: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Report every second from now on."""
        self._reporting = asyncio.get_running_loop().create_task(self._keep_reporting())

    def end(self) -> None:
        """Report no more."""
        if self._reporting is not None:
            self._reporting.cancel()

    async def _keep_reporting(self) -> None:
        while True:
            self._report()
            await asyncio.sleep(_LONGEST_WAIT_SECONDS)


BEATS = 3
"""Reports within the time that the service manager waits."""

Pulse = Callable[[], Awaitable[int]]
"""Returns a number that grows with each write, once the threads of a database have answered."""


class Watchdog:
    """Reports that the daemon is alive when the scheduler or a database has made progress.

    The scheduler waits while a rule fires, but then each batch writes. A database answers after
    the batch that its thread works on. A database whose thread is stuck never answers, and so
    withholds the report.

    Args:
        report: Reports that the daemon is alive.
        turned_at: Returns when the scheduler last began a turn.
        pulses: One for each database.
    """

    def __init__(
        self, report: Callable[[], None], turned_at: Callable[[], float], pulses: Sequence[Pulse]
    ) -> None:
        self._report = report
        self._turned_at = turned_at
        self._pulses = pulses
        self._seen: tuple[float, list[int]] | None = None

    async def run(self, stop: asyncio.Event, *, within_seconds: float | None) -> None:
        """Report until `stop` is set.

        Args:
            stop: Ends the loop.
            within_seconds: How long the service manager waits; None when it does not.
        """
        while within_seconds is not None and not stop.is_set():
            await self.beat()
            await set_within(stop, within_seconds / BEATS)

    async def beat(self) -> None:
        """Report once, or log a warning when nothing has made progress."""
        written = [await _pulse_count(pulse) for pulse in self._pulses]
        now = (self._turned_at(), written)
        if now == self._seen:
            _log.warning(
                "watchdog.withheld", reason="neither the scheduler nor a database makes progress"
            )
            return
        self._seen = now
        self._report()


async def pulse_beside_rewriting(
    pulse: Pulse, rewriting: Callable[[], int | None], *, every_seconds: float = 1.0
) -> int:
    """Pulse a store; while the stores are rewritten, which may take minutes, count that instead.

    Args:
        pulse: Waits for the thread of the store, which rewrites it.
        rewriting: Returns how long the stores have been rewritten, in whole seconds; None when
            they are not.
        every_seconds: How often to look whether they are.
    """
    while True:
        try:
            async with asyncio.timeout(every_seconds):
                return await pulse()
        except TimeoutError:
            if (seconds := rewriting()) is not None:
                return seconds


async def _pulse_count(pulse: Pulse) -> int:
    try:
        return await pulse()
    except StoreError:  # an answer too; the next use of the database reports the error
        return 0
