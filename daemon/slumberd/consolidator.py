"""Consolidate: the order in which a firing reads, decides, commits and tells. Once, here."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from slumberd.core.firing import START, Counts, Firing, Position, Trigger, Window
from slumberd.core.meet import meet
from slumberd.core.record import Outcome, Record
from slumberd.core.rule import ConsolidationRule
from slumberd.ports import Clock, DeltaLog, EpisodeLog, Ledger

LARGE_BACKLOG = 50_000
"""From here on batches may be twice as large: commits are what a backlog waits for."""

REHEARSED = 100_000
"""Log rows that a rehearsal settles at most; it holds them in memory and the write lock."""

_REPEATED = 1_000
"""Ledger rows whose lines are written again at a time, after a crash."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one firing did, over all of its batches.

    Attributes:
        rule_id: The rule.
        firing_ids: One for each batch, in order; empty when nothing was pending.
        channels: The accounting, by channel.
    """

    rule_id: str
    firing_ids: list[str]
    channels: dict[str, Counts]


class Consolidator:
    """Runs rules over an episode log, into a ledger, with a line for each delta.

    Args:
        episodes: Where episodes come from.
        ledger: Where facts go.
        log: Where every delta leaves a line, after its commit.
        clock: For durations.
        batch: At most this many log rows are settled in one transaction.
    """

    def __init__(
        self,
        episodes: EpisodeLog,
        ledger: Ledger,
        log: DeltaLog,
        clock: Clock,
        *,
        batch: int,
    ) -> None:
        self._episodes = episodes
        self._ledger = ledger
        self._log = log
        self._clock = clock
        self._batch = batch
        self._behind = False

    async def fire(
        self,
        rule: ConsolidationRule,
        trigger: Trigger,
        at: datetime,
        *,
        stop: asyncio.Event | None = None,
    ) -> Report:
        """Consolidate everything that is pending for a rule, batch by batch.

        Args:
            rule: The rule.
            trigger: What made it due.
            at: The firing's instant.
            stop: When set, no further batch begins; what is committed stays.

        Raises:
            FilterError: The rule's filter failed; earlier batches stay committed.
            StaleWriterError: Another daemon has taken over.
        """
        after = await self.resume(rule, at)
        last = (await self._episodes.newest()).seq
        outcomes: list[Outcome] = []
        while after.seq < last and not (stop and stop.is_set()):
            window = await self._read(rule, after, backlog=last - after.seq)
            if window.upto == window.after:
                break
            outcomes.append(await self._settle(rule, trigger, at, window))
            after = window.upto
        if len(outcomes) > 1:
            await self._ledger.rest()
        return _report(rule, outcomes)

    async def rehearse(self, rule: ConsolidationRule, at: datetime) -> Report:
        """Say what a firing would do now, at most `REHEARSED` log rows of it; write nothing."""
        mark = await self._ledger.watermark(rule.id)
        if mark is None:
            mark = START if rule.start == "beginning" else await self._episodes.newest()
        window = await self._episodes.select(rule, after=mark, limit=REHEARSED)
        firing = Firing(rule.id, rule.content_hash, "manual", at, window.after, window.upto)
        met = await asyncio.to_thread(meet, window.versions, rule)
        return _report(rule, [await self._ledger.rehearse(firing, met)])

    async def resume(self, rule: ConsolidationRule, at: datetime) -> Position:
        """Return where a rule goes on; steps back when memory.db lost what it had read.

        The log's row at the watermark must still be the episode it was. If it is not, the
        database was restored from a backup, and the rule resumes where both last agreed.
        """
        mark = await self._ledger.watermark(rule.id)
        if mark is None:
            return await self._begin(rule, at)
        if await self._agrees(mark):
            return mark
        return await self._walk_back(rule.id, mark)

    async def _begin(self, rule: ConsolidationRule, at: datetime) -> Position:
        mark = START if rule.start == "beginning" else await self._episodes.newest()
        await self._ledger.begin(rule.id, mark, served=at)
        return mark

    async def _walk_back(self, rule_id: str, mark: Position) -> Position:
        for earlier in await self._ledger.marks(rule_id):
            if earlier.seq < mark.seq and await self._agrees(earlier):
                await self._ledger.rewind(rule_id, earlier)
                return earlier
        await self._ledger.rewind(rule_id, START)
        return START

    async def _agrees(self, mark: Position) -> bool:
        return mark == START or await self._episodes.episode_at(mark.seq) == mark.eid

    async def _read(self, rule: ConsolidationRule, after: Position, *, backlog: int) -> Window:
        limit = self._batch * 2 if backlog > LARGE_BACKLOG else self._batch
        return await self._episodes.select(rule, after=after, limit=limit)

    async def _settle(
        self, rule: ConsolidationRule, trigger: Trigger, at: datetime, window: Window
    ) -> Outcome:
        began = self._clock.monotonic()
        firing = Firing(rule.id, rule.content_hash, trigger, at, window.after, window.upto)
        with _garbage_kept():
            met = await asyncio.to_thread(meet, window.versions, rule)
            outcome = await self._ledger.commit(firing, met)
        outcome = replace(outcome, seconds=self._clock.monotonic() - began)
        await self._tell(outcome)
        return outcome

    async def _tell(self, outcome: Outcome) -> None:
        if self._behind:
            await self.tell_again()
        else:
            await self._tell_records(outcome.records)
        self._log.completed(outcome)

    async def _tell_records(self, records: Sequence[Record]) -> None:
        # Until they are written, the next attempt must begin with these.
        self._behind = True
        await asyncio.to_thread(self._log.applied, records)
        await self._ledger.mark_logged(records[-1].seq)
        self._behind = False

    async def tell_again(self) -> int:
        """Write the log lines that a crash or a full disk kept back; return how many."""
        told = 0
        while records := await self._ledger.unlogged(limit=_REPEATED):
            await self._tell_records(records)
            told += len(records)
        return told


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Keep the collector from walking a batch's many live objects again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _report(rule: ConsolidationRule, outcomes: Sequence[Outcome]) -> Report:
    channels = {channel: Counts() for channel in rule.then_emits}
    for outcome in outcomes:
        for channel, counts in outcome.channels.items():
            channels[channel] = channels[channel].plus(counts)
    return Report(rule.id, [outcome.firing_id for outcome in outcomes], channels)
