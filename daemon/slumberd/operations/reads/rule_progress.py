"""Read how far rules are, from the stores of a running daemon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS, latest_at
from slumberd.model.health import RuleStatus
from slumberd.model.rule import ConsolidationRule, Every
from slumberd.storage.facts.store import EngineFactStore
from slumberd.workers.scheduling.due import Mark
from slumberd.workers.scheduling.rule_status import RuleProgress, is_full, start_of

MOST_PENDING = 10_000
"""Pending rows of the log that are counted for a rule."""


class _Backlog(NamedTuple):
    """The log rows above one position.

    Attributes:
        pending: How many rows there are; counting may have ended early.
        oldest_at: When the first episode happened; None without one.
    """

    pending: int
    oldest_at: datetime | None


_NO_BACKLOG = _Backlog(0, None)

_Count = tuple[int, int, str]
"""A position of the log, how many rows above it are counted at most, and for which rule."""


class LedgerFigures(NamedTuple):
    """What the fact store reports of rules.

    Attributes:
        marks: The watermark of each rule, and the last cron instant that it has served.
        succeeded: When the last successful firing of each rule began.
        quarantined: How many episodes of each rule are in quarantine.
        held: The firing id of what awaits approval: of a batch by its rule, of a backfill or a
            retry by its own firing id.
        future: The instants of quarantined episodes of the future, by rule; microseconds.
    """

    marks: Mapping[str, Mark]
    succeeded: Mapping[str, datetime]
    quarantined: Counter[str]
    held: Mapping[str, str]
    future: Mapping[str, Sequence[int]]


class RuleProgressReader:
    """Reads how far rules are; it remembers since when they are due.

    Args:
        episodes: The episodes that rules read.
        facts: The facts that rules write.
        awake: Returns which of some rules are not paused.
        tolerance_seconds: How far ahead of the clock an instant is not of the future.
    """

    def __init__(
        self,
        episodes: EpisodeLog,
        facts: EngineFactStore,
        awake: Callable[[Sequence[ConsolidationRule]], list[ConsolidationRule]],
        clock: Clock,
        tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
    ) -> None:
        self._episodes = episodes
        self._facts = facts
        self._awake = awake
        self._clock = clock
        self._tolerance_seconds = tolerance_seconds
        self._full_since: dict[str, float] = {}

    async def figures(self) -> LedgerFigures:
        """Return what the fact store reports of all rules.

        Raises:
            StoreError: The store cannot be read.
        """
        facts = self._facts
        held = await facts.watermarks.held()
        return LedgerFigures(
            await facts.watermarks.positions(),
            await facts.watermarks.successes(),
            Counter(await facts.reads.count_quarantined()),
            {name: batch.firing_id for name, batch in held.items() if not batch.approved},
            await facts.ledger.future_instants(),
        )

    async def progresses(
        self, rules: Sequence[ConsolidationRule], ledger: LedgerFigures
    ) -> list[tuple[ConsolidationRule, RuleProgress]]:
        """Return each rule with its progress.

        Args:
            rules: The rules; every rule that may be due is among them.
            ledger: What the fact store reports.

        Raises:
            StoreError: The store of episodes cannot be read.
        """
        awake = {rule.id for rule in self._awake(rules)}
        counts = {rule.id: _count_of(rule, ledger) for rule in rules if rule.reads_episodes}
        backlogs = await self._backlogs(set(counts.values()))
        found = []
        latest = latest_at(self._clock.now(), self._tolerance_seconds)
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
                arrived=sum(at <= latest for at in ledger.future.get(rule.id, ())),
            )
            found.append((rule, progress))
        return self._note_full(found)

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

    async def _backlogs(self, counts: Iterable[_Count | None]) -> dict[_Count | None, _Backlog]:
        """Return the backlog above each position, for each rule."""
        backlogs: dict[_Count | None, _Backlog] = {None: _NO_BACKLOG}
        episodes = self._episodes
        for count in counts:
            if count is not None:
                start, most, rule_id = count
                pending = await episodes.pending(start, at_most=most, rule_id=rule_id)
                oldest_at = await episodes.oldest_at(start, rule_id=rule_id) if pending else None
                backlogs[count] = _Backlog(pending, oldest_at)
        return backlogs


def _count_of(rule: ConsolidationRule, ledger: LedgerFigures) -> _Count | None:
    """Return which rows are pending for a rule; None when it starts at the end of the log."""
    mark = ledger.marks.get(rule.id)
    start = start_of(rule, mark[0].seq if mark else None)
    if start is None:
        return None
    # A rule that fires seldom is counted until it is known whether it is due.
    due = rule.due
    return start, max(MOST_PENDING, due.count if isinstance(due, Every) else 0), rule.id


def limit_pending(status: RuleStatus) -> RuleStatus:
    """Return a status that reports at most `MOST_PENDING`, however far it was counted."""
    if status.pending is None or status.pending <= MOST_PENDING:
        return status
    return replace(status, pending=MOST_PENDING)
