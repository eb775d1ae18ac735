"""Collect the health figures of the daemon and its rules, for the heartbeat."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path

from slumberd.clock import Clock
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS
from slumberd.model.errors import StoreError
from slumberd.model.health import (
    BatchTotals,
    DaemonHealth,
    LedgerCounters,
    ProvenanceHealth,
    RuleHealth,
    RuleStatus,
)
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import DatabaseStatus
from slumberd.operations.reads.rule_progress import (
    LedgerFigures,
    RuleProgressReader,
    limit_pending,
)
from slumberd.operations.stores import Stores
from slumberd.storage.inspections import StoreInspection
from slumberd.workers.scheduling.due import FailureStreak, is_ahead
from slumberd.workers.scheduling.rule_status import rule_statuses, start_of

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
