"""Collect the health figures of the daemon, log them each minute, and write them for Prometheus."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any

import structlog

from slumberd.clock import Clock, set_within
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.logs.lines import timestamp
from slumberd.logs.prometheus import ALIVE_SECONDS, render_metrics, render_standby_metrics
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS
from slumberd.model.errors import SlumberdError, StoreError
from slumberd.model.health import (
    BatchTotals,
    DaemonHealth,
    LedgerCounters,
    ProvenanceHealth,
    RuleHealth,
    RuleStatus,
    StandbyHealth,
)
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import DatabaseStatus
from slumberd.operations.reads.rule_states import LedgerFigures, RuleProgressReader, limit_pending
from slumberd.operations.stores import Stores
from slumberd.storage.inspections import StoreInspection
from slumberd.workers.scheduling.due import FailureStreak, is_ahead
from slumberd.workers.scheduling.rule_status import rule_statuses, start_of

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


BATCHES_AT_ONCE = 2_000
"""Batches of the ledger that are read at a time, by default; the event loop runs in between."""


class TallyCounter:
    """Adds up what all batches of the ledger did; it reads each batch once.

    Args:
        at_once: Batches that are read at a time; the event loop runs in between.
    """

    def __init__(self, at_once: int = BATCHES_AT_ONCE) -> None:
        self._at_once = at_once
        self._upto = 0
        self._sums: dict[str, BatchTotals] = defaultdict(BatchTotals)

    async def tallies(self, stores: Stores, episodes: EpisodeLog) -> LedgerCounters:
        """Read the new batches, and return the sums over all batches.

        Raises:
            StoreError: A store cannot be read.
        """
        facts = stores.facts
        while found := await facts.reads.counts(self._upto, limit=self._at_once):
            for number, rule, channels in found:
                self._sums[rule] = self._sums[rule].plus(BatchTotals.of(channels))
                self._upto = number
        rows = await facts.reads.ledger_rows()
        return LedgerCounters(rows, (await episodes.newest()).seq, dict(self._sums))


@dataclass(frozen=True, slots=True)
class HealthSources:
    """Where the health figures come from.

    Attributes:
        episodes: The episodes that rules read.
        stores: The stores with the facts that rules write.
        rules: Returns the rules in force, and the time zone of rules without one.
        awake: Returns which of some rules are not paused.
        troubles: Returns which rules fail.
        inspections: Look at the stores, for the sizes of their logs.
        dropped: Returns how many log lines were dropped.
        reader: The name of the provenance sink; None without a sink.
        failed: Returns how often each rule has failed.
        counted: Whether the figures include the tallies of all batches.
        batches_at_once: Batches that are read at a time for the tallies.
        database: Returns the state of the database; None when files hold the stores.
        tolerance_seconds: A recorded instant that lies further ahead of the clock comes from a
            wrong clock.
        index_bytes: Returns how much memory the indexes of searches take.
    """

    episodes: EpisodeLog
    stores: Stores
    rules: Callable[[], tuple[Sequence[ConsolidationRule], str]]
    awake: Callable[[Sequence[ConsolidationRule]], list[ConsolidationRule]]
    troubles: Callable[[], Mapping[str, FailureStreak]]
    inspections: Sequence[StoreInspection]
    dropped: Callable[[], int]
    reader: str | None = None
    failed: Callable[[], Mapping[str, int]] = dict
    counted: bool = False
    batches_at_once: int = BATCHES_AT_ONCE
    database: Callable[[], DatabaseStatus | None] = lambda: None
    tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS
    index_bytes: Callable[[], int] = int


class HealthCollector:
    """Collects the health figures.

    Args:
        sources: Where they come from.
        progress: Reads how far rules are, for another part, too; None for a reader of its own.
    """

    def __init__(
        self, sources: HealthSources, clock: Clock, progress: RuleProgressReader | None = None
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._began = clock.monotonic()
        self._progress = progress or RuleProgressReader(
            sources.episodes, sources.stores.facts, sources.awake, clock
        )
        self._tally_counter = TallyCounter(sources.batches_at_once)

    async def collect(self, loop_lag: float) -> DaemonHealth:
        """Return the health figures of this instant.

        Args:
            loop_lag: How many seconds late the event loop is.

        Raises:
            StoreError: A store cannot be read.
        """
        (rules, timezone), now = self._sources.rules(), self._clock.now()
        ledger = await self._progress.figures()
        active = [rule for rule in rules if rule.enabled]
        progresses = await self._progress.progresses(active, ledger)
        tolerance = self._sources.tolerance_seconds
        compute = partial(
            rule_statuses, progresses, timezone=timezone, now=now, tolerance_seconds=tolerance
        )
        statuses = await asyncio.to_thread(compute)
        tallies = await self._tallies()
        return DaemonHealth(
            at=now,
            uptime_seconds=round(self._clock.monotonic() - self._began, 3),
            loop_lag_seconds=round(loop_lag, 3),
            wal_bytes=sum(
                _log_bytes(store) for store in self._sources.inspections if store.on_disk
            ),
            rss_bytes=_rss_bytes(),
            dropped=self._sources.dropped(),
            loaded=len(rules),
            rules=[self._rule_health(status, tallies) for status in statuses],
            oldest_seconds=_oldest_seconds(active, statuses),
            next_at=min((status.next_at for status in statuses if status.next_at), default=None),
            succeeded_at=max(
                (
                    at
                    for at in ledger.succeeded.values()
                    if not is_ahead(at, now=now, tolerance_seconds=tolerance)
                ),
                default=None,
            ),
            quarantined=ledger.quarantined.total(),
            held=len(ledger.held),
            provenance=await self._provenance(now),
            tallies=tallies,
            database=await asyncio.to_thread(self._sources.database),
            clock_behind_seconds=await self._clock_behind(ledger, now),
            index_bytes=self._sources.index_bytes(),
        )

    def _rule_health(self, status: RuleStatus, tallies: LedgerCounters | None) -> RuleHealth:
        trouble = self._sources.troubles().get(status.rule_id)
        return RuleHealth(
            limit_pending(status),
            failures=trouble.failures if trouble else 0,
            failed=self._sources.failed().get(status.rule_id, 0),
            tally=tallies.by_rule.get(status.rule_id, BatchTotals()) if tallies else None,
        )

    async def _clock_behind(self, ledger: LedgerFigures, now: datetime) -> float:
        """Return by how many seconds the newest recorded instant lies ahead of the clock."""
        recorded = [served for _, served in ledger.marks.values()]
        if fired_at := await self._sources.stores.facts.watermarks.last_recorded_at():
            recorded.append(fired_at)
        ahead = max(((at - now).total_seconds() for at in recorded), default=0.0)
        return round(max(ahead, 0.0), 3)

    async def _tallies(self) -> LedgerCounters | None:
        if not self._sources.counted:
            return None
        return await self._tally_counter.tallies(self._sources.stores, self._sources.episodes)

    async def _provenance(self, now: datetime) -> ProvenanceHealth | None:
        """Return how far the provenance sink is behind; None without a sink."""
        reader = self._sources.reader
        if reader is None:
            return None
        lag = await self._sources.stores.facts.promotion_feed.lag(reader)
        _, refused = await self._sources.stores.facts.promotion_feed.published_position(reader)
        return ProvenanceHealth(lag.rows, lag.seconds(now), refused)


def _oldest_seconds(
    rules: Sequence[ConsolidationRule], statuses: Sequence[RuleStatus]
) -> float | None:
    """Return the age of the first episode that a rule has not read; None without one."""
    starts = [
        (start, status.oldest_seconds)
        for rule, status in zip(rules, statuses, strict=True)
        if rule.reads_episodes and (start := start_of(rule, status.watermark)) is not None
    ]
    return min(starts, key=itemgetter(0))[1] if starts else None


def _log_bytes(store: StoreInspection) -> int:
    try:
        return store.sizes().log
    except StoreError:
        return 0


def _rss_bytes() -> int | None:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
