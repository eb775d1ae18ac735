"""Log the health figures of the daemon each minute, and write them for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from heapq import nlargest
from typing import Any

import structlog

from slumberd.clock import Clock, set_within
from slumberd.errors import SlumberdError
from slumberd.model.health import DaemonHealth
from slumberd.observability.line_format import timestamp
from slumberd.observability.prometheus import render_metrics
from slumberd.service.health_metrics import HealthCollector, HealthSources

EVERY_SECONDS = 60
"""The interval between two heartbeats."""

MOST_NAMED = 10
"""How many rules a line names: those with the most pending episodes."""

_SAMPLE_SECONDS = 1.0
_log = structlog.get_logger("slumberd")


class Heartbeat:
    """Logs ``daemon.heartbeat`` each minute, and measures how late the event loop is.

    Args:
        sources: Where the figures come from.
        clock: The time.
        textfile: Writes the figures as Prometheus text; None writes none.
    """

    def __init__(
        self, sources: HealthSources, clock: Clock, textfile: Callable[[bytes], None] | None = None
    ) -> None:
        self._health_collector = HealthCollector(sources, clock)
        self._clock = clock
        self._textfile = textfile
        self._lag = 0.0
        self._unwritten = False
        self._alone = asyncio.Lock()

    async def run(self, stop: asyncio.Event, *, every_seconds: int = EVERY_SECONDS) -> None:
        """Log a heartbeat every so many seconds, until `stop` is set."""
        while not stop.is_set():
            for _ in range(every_seconds):
                began = self._clock.monotonic()
                if await set_within(stop, _SAMPLE_SECONDS):
                    return
                self.record_lag(self._clock.monotonic() - began - _SAMPLE_SECONDS)
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
            return await self._health_collector.collect(self._lag)

    async def _write(self, textfile: Callable[[bytes], None], text: bytes) -> None:
        try:
            await asyncio.to_thread(textfile, text)
        except OSError as error:
            if not self._unwritten:
                _log.warning("metrics.failed", error=type(error).__name__, message=str(error))
            self._unwritten = True
        else:
            self._unwritten = False


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
        "next_at": timestamp(health.next_at) if health.next_at else None,
        "last_success_seconds": round(since.total_seconds(), 3) if since is not None else None,
        "held": health.held,
        "quarantined": health.quarantined,
        "provenance": asdict(health.provenance) if health.provenance else None,
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
