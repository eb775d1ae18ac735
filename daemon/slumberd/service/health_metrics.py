"""Collect the health figures of the daemon and its rules, for the heartbeat."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.errors import StoreError
from slumberd.model.cadence import Every
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
from slumberd.operations.stores import Stores
from slumberd.scheduling.due import FailureStreak
from slumberd.scheduling.due_finder import Mark
from slumberd.scheduling.rule_status import RuleProgress, is_full, rule_statuses, start_of
from slumberd.storage.closed_stores import StoreInspection

BATCHES_AT_ONCE = 2_000
"""Batches of the ledger that are read at a time, by default; the event loop runs in between."""

MOST_PENDING = 10_000
"""Pending rows of the log that are counted for a rule."""


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


class _Backlog(NamedTuple):
    """The log rows above one position.

    Attributes:
        pending: How many rows there are; counting may have ended early.
        oldest_at: When the first episode happened; None without one.
    """

    pending: int
    oldest_at: datetime | None


_NO_BACKLOG = _Backlog(0, None)

_Count = tuple[int, int]
"""A position of the log, and how many rows above it are counted at most."""


class _LedgerFigures(NamedTuple):
    """What the fact store reports of rules.

    Attributes:
        marks: The watermark of each rule, and the last cron instant that it has served.
        succeeded: When the last successful firing of each rule began.
        quarantined: How many episodes of each rule are in quarantine.
        held: The firing id of the batch that awaits approval, by rule.
    """

    marks: Mapping[str, Mark]
    succeeded: Mapping[str, datetime]
    quarantined: Counter[str]
    held: Mapping[str, str]


class HealthCollector:
    """Collects the health figures; it remembers since when rules are due."""

    def __init__(self, sources: HealthSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._began = clock.monotonic()
        self._full_since: dict[str, float] = {}
        self._tally_counter = TallyCounter(sources.batches_at_once)

    async def collect(self, loop_lag: float) -> DaemonHealth:
        """Return the health figures of this instant.

        Args:
            loop_lag: How many seconds late the event loop is.

        Raises:
            StoreError: A store cannot be read.
        """
        (rules, timezone), now = self._sources.rules(), self._clock.now()
        ledger = await self._ledger_figures()
        active = [rule for rule in rules if rule.enabled]
        progresses = self._note_full(await self._progresses(active, ledger))
        compute = partial(rule_statuses, progresses, timezone=timezone, now=now)
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
            succeeded_at=max(ledger.succeeded.values(), default=None),
            quarantined=ledger.quarantined.total(),
            held=len(ledger.held),
            provenance=await self._provenance(now),
            tallies=tallies,
            database=await asyncio.to_thread(self._sources.database),
        )

    async def _progresses(
        self, rules: Sequence[ConsolidationRule], ledger: _LedgerFigures
    ) -> list[tuple[ConsolidationRule, RuleProgress]]:
        """Return the progress of each rule; for how long it has been due is not known yet."""
        awake = {rule.id for rule in self._sources.awake(rules)}
        counts = {rule.id: _count_of(rule, ledger) for rule in rules if rule.reads_episodes}
        backlogs = await self._backlogs(set(counts.values()))
        found = []
        for rule in rules:
            position, served = ledger.marks.get(rule.id, (None, None))
            backlog = backlogs[counts[rule.id]] if rule.id in counts else None
            progress = RuleProgress(
                watermark=position.seq if position else None,
                served=served,
                pending=backlog.pending if backlog else None,
                oldest_at=backlog.oldest_at if backlog else None,
                paused=rule.id not in awake,
                held_firing_id=ledger.held.get(rule.id, ""),
                quarantined=ledger.quarantined[rule.id],
                succeeded_at=ledger.succeeded.get(rule.id),
            )
            found.append((rule, progress))
        return found

    def _note_full(
        self, progresses: Sequence[tuple[ConsolidationRule, RuleProgress]]
    ) -> list[tuple[ConsolidationRule, RuleProgress]]:
        """Remember which rules are due by their pending episodes, and set for how long."""
        monotonic = self._clock.monotonic()
        self._full_since = {
            rule.id: self._full_since.get(rule.id, monotonic)
            for rule, progress in progresses
            if is_full(rule, progress)
        }
        return [
            (rule, replace(progress, full_seconds=monotonic - self._full_since[rule.id]))
            if rule.id in self._full_since
            else (rule, progress)
            for rule, progress in progresses
        ]

    def _rule_health(self, status: RuleStatus, tallies: LedgerCounters | None) -> RuleHealth:
        trouble = self._sources.troubles().get(status.rule_id)
        return RuleHealth(
            _limit_pending(status),
            failures=trouble.failures if trouble else 0,
            failed=self._sources.failed().get(status.rule_id, 0),
            tally=tallies.by_rule.get(status.rule_id, BatchTotals()) if tallies else None,
        )

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

    async def _backlogs(self, counts: Iterable[_Count | None]) -> dict[_Count | None, _Backlog]:
        """Return the backlog above each position; most rules share a few positions."""
        backlogs: dict[_Count | None, _Backlog] = {None: _NO_BACKLOG}
        episodes = self._sources.episodes
        for count in counts:
            if count is not None:
                start, most = count
                pending = await episodes.pending(start, at_most=most)
                oldest_at = await episodes.oldest_at(start) if pending else None
                backlogs[count] = _Backlog(pending, oldest_at)
        return backlogs

    async def _ledger_figures(self) -> _LedgerFigures:
        facts = self._sources.stores.facts
        held = (await facts.ledger.held()).values()
        return _LedgerFigures(
            await facts.watermarks.positions(),
            await facts.watermarks.successes(),
            Counter(await facts.reads.count_quarantined()),
            {batch.rule_id: batch.firing_id for batch in held if not batch.approved},
        )


def _count_of(rule: ConsolidationRule, ledger: _LedgerFigures) -> _Count | None:
    """Return which rows are pending for a rule; None when it starts at the end of the log."""
    mark = ledger.marks.get(rule.id)
    start = start_of(rule, mark[0].seq if mark else None)
    if start is None:
        return None
    # A rule that fires seldom is counted until it is known whether it is due.
    due = rule.due
    return start, max(MOST_PENDING, due.count if isinstance(due, Every) else 0)


def _limit_pending(status: RuleStatus) -> RuleStatus:
    """Return a status that reports at most `MOST_PENDING`, however far it was counted."""
    if status.pending is None or status.pending <= MOST_PENDING:
        return status
    return replace(status, pending=MOST_PENDING)


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
