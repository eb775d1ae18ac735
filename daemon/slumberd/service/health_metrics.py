"""Collect the health figures of the daemon and its rules, for the heartbeat."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.cadence import Cron, Every
from slumberd.model.episode import microseconds
from slumberd.model.firing import Position
from slumberd.model.health import (
    BatchTotals,
    DaemonHealth,
    LedgerCounters,
    ProvenanceHealth,
    RuleHealth,
)
from slumberd.model.rule import ConsolidationRule
from slumberd.scheduling import cron
from slumberd.scheduling.due import Trouble
from slumberd.scheduling.due_finder import Mark
from slumberd.storage.facts.store import SQLiteFactStore

BATCHES_AT_ONCE = 2_000
"""Batches of the ledger that are read at a time, by default; the event loop runs in between."""

MOST_PENDING = 10_000
"""Pending rows of the log that are counted for a rule."""

_ANY = ConsolidationRule(
    id="heartbeat", cadence={"every": 1}, when_filter="", then_emits=["heartbeat"]
)

_CronQuery = tuple[str, str, datetime]
"""A cron expression, its time zone, and the instant after which it is evaluated."""


class TallyCounter:
    """Adds up what all batches of the ledger did; it reads each batch once.

    Args:
        at_once: Batches that are read at a time; the event loop runs in between.
    """

    def __init__(self, at_once: int = BATCHES_AT_ONCE) -> None:
        self._at_once = at_once
        self._upto = 0
        self._sums: dict[str, BatchTotals] = defaultdict(BatchTotals)

    async def tallies(self, facts: SQLiteFactStore, episodes: EpisodeLog) -> LedgerCounters:
        """Read the new batches, and return the sums over all batches.

        Raises:
            StoreError: A store cannot be read.
        """
        while found := await facts.counts(self._upto, limit=self._at_once):
            for number, rule, channels in found:
                self._sums[rule] = self._sums[rule].plus(BatchTotals.of(channels))
                self._upto = number
        rows = await facts.ledger_rows()
        return LedgerCounters(rows, (await episodes.newest()).seq, dict(self._sums))


@dataclass(frozen=True, slots=True)
class HealthSources:
    """Where the health figures come from.

    Attributes:
        episodes: The episodes that rules read.
        facts: The facts that rules write.
        rules: Returns the rules in force, and the time zone of rules without one.
        awake: Returns which of some rules are not paused.
        troubles: Returns which rules fail.
        files: The databases.
        dropped: Returns how many log lines were dropped.
        reader: The name of the provenance sink; None without a sink.
        failed: Returns how often each rule has failed.
        counted: Whether the figures include the tallies of all batches.
        batches_at_once: Batches that are read at a time for the tallies.
    """

    episodes: EpisodeLog
    facts: SQLiteFactStore
    rules: Callable[[], tuple[Sequence[ConsolidationRule], str]]
    awake: Callable[[Sequence[ConsolidationRule]], list[ConsolidationRule]]
    troubles: Callable[[], Mapping[str, Trouble]]
    files: Sequence[Path]
    dropped: Callable[[], int]
    reader: str | None = None
    failed: Callable[[], Mapping[str, int]] = dict
    counted: bool = False
    batches_at_once: int = BATCHES_AT_ONCE


class _Backlog(NamedTuple):
    """The log rows above a watermark.

    Attributes:
        pending: How many rows there are, at most `MOST_PENDING`.
        oldest_seconds: The age of the first row's episode; None without rows.
    """

    pending: int
    oldest_seconds: float | None


_NO_BACKLOG = _Backlog(0, None)


class _LedgerFigures(NamedTuple):
    """What the fact store reports of rules.

    Attributes:
        succeeded: When the last successful firing of each rule began.
        quarantined: How many episodes of each rule are in quarantine.
        held: The rules with a batch that awaits approval.
    """

    succeeded: Mapping[str, datetime]
    quarantined: Counter[str]
    held: frozenset[str]


class _RuleFigures(NamedTuple):
    """The figures of the enabled rules at one instant.

    Attributes:
        marks: The watermark of each rule that reads episodes.
        backlogs: The backlog above each of these watermarks.
        late: For how many seconds each rule has been due.
        ledger: What the fact store reports.
        tallies: What all batches did; None when they are not counted.
    """

    marks: Mapping[str, Mark]
    backlogs: Mapping[Position, _Backlog]
    late: Mapping[str, float]
    ledger: _LedgerFigures
    tallies: LedgerCounters | None

    @property
    def oldest_seconds(self) -> float | None:
        """The age of the oldest episode that a rule has not read; None without one."""
        return self.backlogs[min(self.backlogs)].oldest_seconds if self.backlogs else None

    def backlog_of(self, rule_id: str) -> _Backlog:
        """Return the backlog of a rule; an empty one when it has no watermark."""
        return self.backlogs[self.marks[rule_id][0]] if rule_id in self.marks else _NO_BACKLOG


class HealthCollector:
    """Collects the health figures; it remembers since when rules are due."""

    def __init__(self, sources: HealthSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._began = clock.monotonic()
        self._full_since: dict[str, float] = {}
        self._tally_counter = TallyCounter(sources.batches_at_once)

    async def vitals(self, loop_lag: float) -> DaemonHealth:
        """Return the health figures of this instant.

        Args:
            loop_lag: How many seconds late the event loop is.

        Raises:
            StoreError: A store cannot be read.
        """
        (rules, timezone), now = self._sources.rules(), self._clock.now()
        active = {rule.id: rule for rule in rules if rule.enabled}
        figures = await self._figures(active, timezone, now)
        return DaemonHealth(
            at=now,
            uptime_seconds=round(self._clock.monotonic() - self._began, 3),
            loop_lag_seconds=round(loop_lag, 3),
            wal_bytes=sum(map(_wal_bytes, self._sources.files)),
            rss_bytes=_rss_bytes(),
            dropped=self._sources.dropped(),
            loaded=len(rules),
            rules=[self._rule_vitals(name, figures) for name in active],
            oldest_seconds=figures.oldest_seconds,
            next_at=await asyncio.to_thread(_next_at, active.values(), timezone, now),
            succeeded_at=max(figures.ledger.succeeded.values(), default=None),
            quarantined=figures.ledger.quarantined.total(),
            held=len(figures.ledger.held),
            provenance=await self._provenance(now),
            tallies=figures.tallies,
        )

    async def _figures(
        self, active: Mapping[str, ConsolidationRule], timezone: str, now: datetime
    ) -> _RuleFigures:
        watermarks = await self._sources.facts.watermarks()
        marks = {name: mark for name, mark in watermarks.items() if name in active}
        read = {name: mark for name, mark in marks.items() if active[name].reads_episodes}
        backlogs = await self._backlogs({mark for mark, _ in read.values()}, now)
        ledger = await self._ledger_figures()
        unheld = {name: mark for name, mark in marks.items() if name not in ledger.held}
        late = await self._lateness(active, timezone, unheld, backlogs, now)
        return _RuleFigures(read, backlogs, late, ledger, await self._tallies())

    def _rule_vitals(self, rule_id: str, figures: _RuleFigures) -> RuleHealth:
        backlog, ledger, tallies = figures.backlog_of(rule_id), figures.ledger, figures.tallies
        trouble = self._sources.troubles().get(rule_id)
        return RuleHealth(
            rule_id,
            backlog.pending,
            backlog.oldest_seconds,
            late_seconds=figures.late.get(rule_id, 0.0),
            succeeded_at=ledger.succeeded.get(rule_id),
            failures=trouble.failures if trouble else 0,
            quarantined=ledger.quarantined[rule_id],
            held=int(rule_id in ledger.held),
            failed=self._sources.failed().get(rule_id, 0),
            tally=tallies.by_rule.get(rule_id, BatchTotals()) if tallies else None,
        )

    async def _tallies(self) -> LedgerCounters | None:
        if not self._sources.counted:
            return None
        return await self._tally_counter.tallies(self._sources.facts, self._sources.episodes)

    async def _provenance(self, now: datetime) -> ProvenanceHealth | None:
        """Return how far the provenance sink is behind; None without a sink."""
        reader = self._sources.reader
        if reader is None:
            return None
        lag = await self._sources.facts.lag(reader)
        _, refused = await self._sources.facts.published_position(reader)
        return ProvenanceHealth(lag.rows, lag.seconds(now), refused)

    async def _backlogs(self, marks: Iterable[Position], now: datetime) -> dict[Position, _Backlog]:
        """Return the backlog above each watermark; most rules share a few watermarks."""
        backlogs = {}
        for mark in marks:
            pending = await self._sources.episodes.pending(mark.seq, at_most=MOST_PENDING)
            oldest = await self._oldest_seconds(mark, now) if pending else None
            backlogs[mark] = _Backlog(pending, oldest)
        return backlogs

    async def _oldest_seconds(self, mark: Position, now: datetime) -> float | None:
        """Return the age of the first episode above a watermark; None without one."""
        # A filter of `_ANY` cannot fail: a broken rule must not end the heartbeat.
        window = await self._sources.episodes.select(_ANY, after=mark, limit=1)
        if not window.versions:
            return None
        return round((microseconds(now) - window.versions[0].at) / 1e6, 3)

    async def _lateness(
        self,
        active: Mapping[str, ConsolidationRule],
        timezone: str,
        marks: Mapping[str, Mark],
        backlogs: Mapping[Position, _Backlog],
        now: datetime,
    ) -> dict[str, float]:
        """Return for how many seconds each rule that is not paused has been due."""
        awake = self._sources.awake([active[name] for name in marks])
        full = {
            rule.id: backlogs[marks[rule.id][0]]
            for rule in awake
            if isinstance(rule.due, Every)
            and await self._is_full(rule.due, marks[rule.id][0], backlogs)
        }
        crons = {
            rule.id: (rule.due.expression, rule.due.timezone or timezone, marks[rule.id][1])
            for rule in awake
            if isinstance(rule.due, Cron)
        }
        due_at = await asyncio.to_thread(_next_of, set(crons.values()))
        unserved = {
            name: (now - due_at[cron]).total_seconds()
            for name, cron in crons.items()
            if cron in due_at
        }
        late = {**self._full_seconds(full), **unserved}
        return {name: max(0.0, round(seconds, 3)) for name, seconds in late.items()}

    async def _is_full(
        self, cadence: Every, mark: Position, backlogs: Mapping[Position, _Backlog]
    ) -> bool:
        if cadence.count <= MOST_PENDING or backlogs[mark].pending < MOST_PENDING:
            return backlogs[mark].pending >= cadence.count
        pending = await self._sources.episodes.pending(mark.seq, at_most=cadence.count)
        return pending >= cadence.count

    def _full_seconds(self, full: Mapping[str, _Backlog]) -> dict[str, float]:
        """Return for how many seconds rules with enough pending episodes have been due.

        The time is at most the time since this was first seen: an import brings old episodes, and
        the first episode may have waited for the last. It is at most the age of the first episode:
        while episodes arrive all the time, every look sees some.
        """
        monotonic = self._clock.monotonic()
        self._full_since = {name: self._full_since.get(name, monotonic) for name in full}
        return {
            name: min(monotonic - self._full_since[name], backlog.oldest_seconds or 0.0)
            for name, backlog in full.items()
        }

    async def _ledger_figures(self) -> _LedgerFigures:
        facts = self._sources.facts
        held = (await facts.held()).values()
        return _LedgerFigures(
            await facts.successes(),
            Counter(await facts.quarantined()),
            frozenset(batch.rule_id for batch in held if not batch.approved),
        )


def _next_at(rules: Iterable[ConsolidationRule], timezone: str, now: datetime) -> datetime | None:
    """Return the next instant of any rule; each expression is evaluated once."""
    dues = [rule.due for rule in rules if isinstance(rule.due, Cron)]
    queries = {(due.expression, due.timezone or timezone, now) for due in dues}
    return min(_next_of(queries).values(), default=None)


def _next_of(queries: Iterable[_CronQuery]) -> dict[_CronQuery, datetime]:
    """Return the next instant of each expression, without those that have none."""
    found = {}
    for expression, zone, after in queries:
        with suppress(ValueError):
            found[expression, zone, after] = cron.next_instant(expression, zone, after=after)
    return found


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
