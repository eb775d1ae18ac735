"""The heartbeat: a line each minute that tells how the daemon is, while it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from heapq import nlargest
from typing import Any

import structlog

from slumberd.clock import Clock, set_within
from slumberd.errors import SlumberdError
from slumberd.model.health import Vitals
from slumberd.observability.line_format import timestamp
from slumberd.observability.prometheus import exposition
from slumberd.service.health_metrics import HealthCollector, HealthSources

EVERY_SECONDS = 60
"""Between two heartbeats."""

MOST_NAMED = 10
"""Rules that a line names: those with the most that is pending."""

_SAMPLE_SECONDS = 1.0
_log = structlog.get_logger("slumberd")


class Heartbeat:
    """Logs ``daemon.heartbeat``, and measures how late the event loop is in between.

    Args:
        body: What is examined.
        clock: The time.
        textfile: Takes the same figures as Prometheus reads them; None when nobody wants them.
    """

    def __init__(
        self, body: HealthSources, clock: Clock, textfile: Callable[[bytes], None] | None = None
    ) -> None:
        self._health_collector = HealthCollector(body, clock)
        self._clock = clock
        self._textfile = textfile
        self._lag = 0.0
        self._unwritten = False

    async def keep(self, stop: asyncio.Event, *, every_seconds: int = EVERY_SECONDS) -> None:
        """Log a heartbeat every so many seconds, until `stop` is set."""
        while not stop.is_set():
            for _ in range(every_seconds):
                began = self._clock.monotonic()
                if await set_within(stop, _SAMPLE_SECONDS):
                    return
                self.measured(self._clock.monotonic() - began - _SAMPLE_SECONDS)
            await self.beat()

    def measured(self, lag: float) -> None:
        """Remember by how many seconds the loop was late, until the next beat."""
        self._lag = max(self._lag, lag)

    async def beat(self) -> None:
        """Log one line, and write the textfile; neither while a store is in trouble."""
        try:
            vitals = await self._health_collector.vitals(self._lag)
        except SlumberdError as error:
            _log.warning("heartbeat.failed", error=type(error).__name__, message=str(error))
            return
        self._lag = 0.0
        _log.info("daemon.heartbeat", **_told(vitals))
        if self._textfile is not None:
            await self._write(self._textfile, exposition(vitals))

    async def _write(self, textfile: Callable[[bytes], None], text: bytes) -> None:
        try:
            await asyncio.to_thread(textfile, text)
        except OSError as error:
            if not self._unwritten:
                _log.warning("metrics.failed", error=type(error).__name__, message=str(error))
            self._unwritten = True
        else:
            self._unwritten = False


def _told(vitals: Vitals) -> dict[str, Any]:
    """Return the figures as the log has them."""
    since = vitals.at - vitals.succeeded_at if vitals.succeeded_at else None
    waiting = [rule for rule in vitals.rules if rule.pending]
    return {
        "uptime_seconds": vitals.uptime_seconds,
        "loop_lag_seconds": vitals.loop_lag_seconds,
        "wal_bytes": vitals.wal_bytes,
        "rss_bytes": vitals.rss_bytes,
        "dropped": vitals.dropped,
        "rules": vitals.loaded,
        "pending": sum(rule.pending for rule in waiting),
        "oldest_pending_seconds": vitals.oldest_seconds,
        "late_seconds": vitals.late_seconds,
        "behind": [
            {
                "rule_id": rule.rule_id,
                "pending": rule.pending,
                "oldest_seconds": rule.oldest_seconds,
            }
            for rule in nlargest(MOST_NAMED, waiting, key=lambda rule: rule.pending)
        ],
        "failing": vitals.failing,
        "degraded": vitals.degraded,
        "next_at": timestamp(vitals.next_at) if vitals.next_at else None,
        "last_success_seconds": round(since.total_seconds(), 3) if since is not None else None,
        "held": vitals.held,
        "quarantined": vitals.quarantined,
        "provenance": asdict(vitals.provenance) if vitals.provenance else None,
    }
