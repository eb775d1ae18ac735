"""The heartbeat: a line each minute that tells how the daemon is, while it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from pathlib import Path
from typing import Any

import structlog

from slumberd import cron
from slumberd.branches import Branches
from slumberd.core.cadence import Cron
from slumberd.core.episode import microseconds
from slumberd.core.firing import Position
from slumberd.core.rule import ConsolidationRule
from slumberd.errors import SlumberdError
from slumberd.lines import timestamp
from slumberd.ports import Clock, EpisodeLog
from slumberd.waiting import set_within

EVERY_SECONDS = 60
"""Between two heartbeats."""

MOST_PENDING = 10_000
"""Pending rows of the log that are counted for a rule."""

MOST_NAMED = 10
"""Rules that a line names: those with the most that is pending."""

_ANY = ConsolidationRule(
    id="heartbeat", cadence={"every": 1}, when_filter="", then_emits=["heartbeat"]
)
_SAMPLE_SECONDS = 1.0
_log = structlog.get_logger("slumberd")


@dataclass(frozen=True, slots=True)
class Body:
    """What has a heartbeat.

    Attributes:
        episodes: What rules read.
        branches: Where they write.
        rules: Returns those in force, and the time zone of those that name none.
        files: The databases.
        dropped: Returns how many log lines were dropped.
    """

    episodes: EpisodeLog
    branches: Branches
    rules: Callable[[], tuple[Sequence[ConsolidationRule], str]]
    files: Sequence[Path]
    dropped: Callable[[], int]


class Heartbeat:
    """Logs ``daemon.heartbeat``, and measures how late the event loop is in between."""

    def __init__(self, body: Body, clock: Clock) -> None:
        self._body = body
        self._clock = clock
        self._began = clock.monotonic()
        self._lag = 0.0

    async def keep(self, stop: asyncio.Event) -> None:
        """Beat until `stop` is set."""
        while not stop.is_set():
            for _ in range(EVERY_SECONDS):
                began = self._clock.monotonic()
                if await set_within(stop, _SAMPLE_SECONDS):
                    return
                self.measured(self._clock.monotonic() - began - _SAMPLE_SECONDS)
            await self.beat()

    def measured(self, lag: float) -> None:
        """Remember by how many seconds the loop was late, until the next beat."""
        self._lag = max(self._lag, lag)

    async def beat(self) -> None:
        """Log one line; without what a store that is in trouble cannot say."""
        try:
            told = await self._of_stores()
        except SlumberdError as error:
            _log.warning("heartbeat.failed", error=type(error).__name__, message=str(error))
            return
        lag, self._lag = self._lag, 0.0
        _log.info(
            "daemon.heartbeat",
            uptime_seconds=round(self._clock.monotonic() - self._began, 3),
            loop_lag_seconds=round(lag, 3),
            wal_bytes=sum(map(_wal_bytes, self._body.files)),
            rss_bytes=_rss_bytes(),
            dropped=self._body.dropped(),
            **told,
        )

    async def _of_stores(self) -> dict[str, Any]:
        (rules, timezone), now = self._body.rules(), self._clock.now()
        active = {rule.id: rule for rule in rules if rule.enabled}
        marks = {
            name: mark
            for name, (mark, _) in (await self._body.branches.watermarks()).items()
            if name in active
        }
        pending = await self._pending(marks)
        behind = nlargest(MOST_NAMED, filter(pending.get, pending), key=pending.__getitem__)
        return {
            "rules": len(rules),
            "pending": sum(pending.values()),
            "oldest_pending_seconds": await self._oldest(marks, now),
            "behind": [
                {
                    "rule_id": name,
                    "pending": pending[name],
                    "oldest_seconds": await self._age(marks[name], now),
                }
                for name in behind
            ],
            "next_at": await asyncio.to_thread(_next_at, active.values(), timezone, now),
            **await self._of_facts(now),
        }

    async def _pending(self, marks: Mapping[str, Position]) -> dict[str, int]:
        """Count what each rule has not read; most rules stand at the same few places."""
        places = {mark.seq for mark in marks.values()}
        counted = {
            seq: await self._body.episodes.pending(seq, at_most=MOST_PENDING) for seq in places
        }
        return {name: counted[mark.seq] for name, mark in marks.items()}

    async def _oldest(self, marks: Mapping[str, Position], now: datetime) -> float | None:
        return await self._age(min(marks.values()), now) if marks else None

    async def _age(self, mark: Position, now: datetime) -> float | None:
        """Return how old the first episode above a place is; None when there is none."""
        # No rule's own filter: one that fails is told elsewhere, and must not end the heartbeat.
        window = await self._body.episodes.select(_ANY, after=mark, limit=1)
        if not window.versions:
            return None
        return round((microseconds(now) - window.versions[0].at) / 1e6, 3)

    async def _of_facts(self, now: datetime) -> dict[str, Any]:
        stores = [branch.facts for branch in self._body.branches]
        went_well = [at for one in stores for at in (await one.successes()).values()]
        since = round((now - max(went_well)).total_seconds(), 3) if went_well else None
        return {
            "last_success_seconds": since,
            "held": len(await self._body.branches.held()),
            "quarantined": sum([sum((await one.quarantined()).values()) for one in stores]),
        }


def _next_at(rules: Iterable[ConsolidationRule], timezone: str, now: datetime) -> str | None:
    """Return the next instant of any rule; an expression that many have is asked once."""
    cadences = {rule.due for rule in rules if isinstance(rule.due, Cron)}
    instants = []
    for cadence in cadences:
        with suppress(ValueError):  # nothing comes any more
            zone = cadence.timezone or timezone
            instants.append(cron.next_instant(cadence.expression, zone, after=now))
    return timestamp(min(instants)) if instants else None


def _wal_bytes(database: Path) -> int:
    try:
        return database.with_name(database.name + "-wal").stat().st_size
    except OSError:
        return 0


def _rss_bytes() -> int | None:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
