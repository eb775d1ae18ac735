"""Log the health figures of the daemon each minute, and write them for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from heapq import nlargest
from typing import Any

import structlog

from slumberd.clock import Clock, set_within
from slumberd.logs.lines import timestamp
from slumberd.logs.prometheus import ALIVE_SECONDS, render_metrics, render_standby_metrics
from slumberd.model.errors import SlumberdError
from slumberd.model.health import DaemonHealth, StandbyHealth
from slumberd.model.store_status import DatabaseStatus

EVERY_SECONDS = 60
"""The interval between two heartbeats."""

MOST_NAMED = 10
"""How many rules a line names: those with the most pending episodes."""

Collect = Callable[[float], Awaitable[DaemonHealth]]
"""Returns the health figures, given how many seconds late the event loop is."""

_SAMPLE_SECONDS = 1.0
_log = structlog.get_logger("slumberd")


class Heartbeat:
    """Logs ``daemon.heartbeat`` each minute, and measures how late the event loop is.

    Args:
        collect: Returns the figures of this instant; it gets how late the event loop is.
        textfile: Writes the figures as Prometheus text; None writes none.
        is_active: Returns whether there are figures at all; without them no line is logged.
    """

    def __init__(
        self,
        collect: Collect,
        clock: Clock,
        textfile: Callable[[bytes], None] | None = None,
        *,
        is_active: Callable[[], bool] = lambda: True,
    ) -> None:
        self._collect = collect
        self._is_active = is_active
        self._clock = clock
        self._textfile = textfile
        self._lag = 0.0
        self._unwritten = False
        self._alone = asyncio.Lock()

    async def run(self, stop: asyncio.Event, *, every_seconds: int = EVERY_SECONDS) -> None:
        """Log a heartbeat every so many seconds, until `stop` is set.

        The textfile is written at once, too, so that a wrong path is no secret for a minute.
        """
        if self._textfile is not None and self._is_active():
            with suppress(SlumberdError):  # the first beat reports it
                await self._write(self._textfile, render_metrics(await self.health()))
        while not stop.is_set():
            for _ in range(every_seconds):
                began = self._clock.monotonic()
                if await set_within(stop, _SAMPLE_SECONDS):
                    return
                self.record_lag(self._clock.monotonic() - began - _SAMPLE_SECONDS)
            if self._is_active():
                await self.beat()

    def record_lag(self, lag: float) -> None:
        """Record by how many seconds the event loop was late, for the next beat."""
        self._lag = max(self._lag, lag)

    async def beat(self) -> None:
        """Log one line and write the textfile; log a warning when a store cannot be read."""
        try:
            health = await self.health()
        except SlumberdError as error:
            _log.warning("heartbeat.failed", error=type(error).__name__, message=str(error))
            return
        self._lag = 0.0
        _log.info("daemon.heartbeat", **_fields(health))
        if self._textfile is not None:
            await self._write(self._textfile, render_metrics(health))

    async def health(self) -> DaemonHealth:
        """Return the figures as of now.

        Raises:
            SlumberdError: A store cannot be read.
        """
        async with self._alone:
            return await self._collect(self._lag)

    async def _write(self, textfile: Callable[[bytes], None], text: bytes) -> None:
        error = await asyncio.to_thread(_try_to_write, textfile, text)
        if error is not None and not self._unwritten:
            _warn_of_unwritten(error)
        self._unwritten = error is not None


class StandbyHeartbeat:
    """Logs ``daemon.standby`` each minute while a daemon waits for its database.

    Args:
        textfile: Writes the figures as Prometheus text; None writes none.
        every_seconds: The interval between two lines.
    """

    def __init__(
        self,
        clock: Clock,
        textfile: Callable[[bytes], None] | None = None,
        *,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._clock = clock
        self._textfile = textfile
        self._every_seconds = every_seconds
        self._began = clock.monotonic()
        self._next = self._began
        self._unwritten = False

    def beat_if_due(self, holder: str) -> None:
        """Log a line and write the textfile, unless the last ones are recent.

        Args:
            holder: Who holds the database now.
        """
        monotonic = self._clock.monotonic()
        if monotonic < self._next:
            return
        self._next = monotonic + self._every_seconds
        _log.info("daemon.standby", holder=holder)
        if self._textfile is not None:
            health = StandbyHealth(self._clock.now(), round(monotonic - self._began, 3))
            error = _try_to_write(self._textfile, render_standby_metrics(health))
            if error is not None and not self._unwritten:
                _warn_of_unwritten(error)
            self._unwritten = error is not None


def _try_to_write(textfile: Callable[[bytes], None], text: bytes) -> OSError | None:
    """Write the metrics; return the error if that fails."""
    try:
        textfile(text)
    except OSError as error:
        return error
    return None


def _warn_of_unwritten(error: OSError) -> None:
    _log.warning("metrics.failed", error=type(error).__name__, message=str(error))


def _fields(health: DaemonHealth) -> dict[str, Any]:
    """Return the keys of the log line."""
    since = health.at - health.succeeded_at if health.succeeded_at else None
    return {
        "uptime_seconds": health.uptime_seconds,
        "loop_lag_seconds": health.loop_lag_seconds,
        "wal_bytes": health.wal_bytes,
        "rss_bytes": health.rss_bytes,
        "dropped": health.dropped,
        "rules": health.loaded,
        **_pending_fields(health),
        "failing": health.failing,
        "degraded": health.degraded,
        "clock_behind_seconds": health.clock_behind_seconds,
        "next_at": timestamp(health.next_at) if health.next_at else None,
        "last_success_seconds": round(since.total_seconds(), 3) if since is not None else None,
        "held": health.held,
        "quarantined": health.quarantined,
        "provenance": asdict(health.provenance) if health.provenance else None,
        "database": _database_fields(health.database) if health.database else None,
    }


def _database_fields(status: DatabaseStatus) -> dict[str, Any]:
    """Return the keys of the log line about the database."""
    return {
        "daemons": len(status.hosts_seen_within(ALIVE_SECONDS)),
        "unheld": status.unheld_shards,
        "unnumbered": status.unnumbered,
        "unnumbered_seconds": round(status.unnumbered_seconds, 3),
        "requests": status.requests,
        "oldest_transaction_seconds": round(status.oldest_transaction_seconds, 3),
    }


def _pending_fields(health: DaemonHealth) -> dict[str, Any]:
    """Return the keys of the log line about pending episodes."""
    behind = [rule.status for rule in health.rules if rule.status.pending]
    named = nlargest(MOST_NAMED, behind, key=lambda rule: rule.pending or 0)
    return {
        "pending": sum(rule.pending or 0 for rule in behind),
        "oldest_pending_seconds": health.oldest_seconds,
        "late_seconds": health.late_seconds,
        "behind": [
            {
                "rule_id": rule.rule_id,
                "pending": rule.pending,
                "oldest_seconds": rule.oldest_seconds,
            }
            for rule in named
        ],
    }
