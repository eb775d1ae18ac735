"""Consolidate: the order in which a firing reads, decides, commits and tells. Once, here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Self

from slumberd.core.firing import START, Counts, Firing, Position, Trigger
from slumberd.core.ground import Incoming
from slumberd.core.meet import meet
from slumberd.core.record import Outcome, Record
from slumberd.core.rule import ConsolidationRule
from slumberd.ports import Clock, DeltaLog, EpisodeLog, Ledger

Met = dict[str, list[Incoming]]
"""What a rule met in a window, by channel."""

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
        rehearsed: Whether nothing was written.
        records: Of a rehearsal, the rows that it would add to the ledger.
    """

    rule_id: str
    firing_ids: list[str]
    channels: dict[str, Counts]
    rehearsed: bool = False
    records: list[Record] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one more batch."""
        if self.rehearsed:
            self.records.extend(outcome.records)
        else:
            self.firing_ids.append(outcome.firing_id)
        for channel, counts in outcome.channels.items():
            self.channels[channel] = self.channels[channel].plus(counts)


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
        by: str = "",
        stop: asyncio.Event | None = None,
    ) -> Report:
        """Consolidate everything that is pending for a rule, batch by batch.

        Args:
            rule: The rule.
            trigger: What made it due.
            at: The firing's instant.
            by: Who asked for it; nobody did when it was due.
            stop: When set, no further batch begins; what is committed stays.

        Raises:
            FilterError: The rule's filter failed; earlier batches stay committed.
            StaleWriterError: Another daemon has taken over.
        """
        after = await self.resume(rule, at)
        last = (await self._episodes.newest()).seq
        done = Report(rule.id, [], {channel: Counts() for channel in rule.then_emits})
        async with _ReadingAhead(partial(self._read, rule, trigger, at)) as windows:
            while after.seq < last and not (stop and stop.is_set()):
                firing, met = await windows.read(after)
                firing = replace(firing, by=by)
                if firing.upto == after:
                    break
                after = firing.upto
                more = after.seq < last
                done.add(await self._settle(firing, met, windows.follow(after) if more else None))
        if len(done.firing_ids) > 1:
            await self._ledger.rest()
        return done

    async def rehearse(self, rule: ConsolidationRule, at: datetime) -> Report:
        """Say what a firing would do now, at most `REHEARSED` log rows of it; write nothing."""
        mark = await self._ledger.watermark(rule.id)
        if mark is None:
            mark = START if rule.start == "beginning" else await self._episodes.newest()
        firing, met = await self._read(rule, "manual", at, mark, limit=REHEARSED)
        channels = {channel: Counts() for channel in rule.then_emits}
        done = Report(rule.id, [], channels, rehearsed=True)
        done.add(await self._ledger.rehearse(firing, met))
        return done

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

    async def _read(
        self,
        rule: ConsolidationRule,
        trigger: Trigger,
        at: datetime,
        after: Position,
        *,
        limit: int | None = None,
    ) -> tuple[Firing, Met]:
        window = await self._episodes.select(rule, after=after, limit=limit or self._batch)
        met = await asyncio.to_thread(meet, window.versions, rule)
        return Firing(rule.id, rule.content_hash, trigger, at, after, window.upto), met

    async def _settle(
        self, firing: Firing, met: Met, settled: Callable[[], None] | None = None
    ) -> Outcome:
        began = self._clock.monotonic()
        outcome = await self._ledger.commit(firing, met, settled=settled)
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


class _ReadingAhead:
    """Reads a rule's next window while the disk takes the last one.

    Deciding needs the interpreter, and so does reading; a commit does not.
    """

    def __init__(
        self, read: Callable[[Position], Coroutine[None, None, tuple[Firing, Met]]]
    ) -> None:
        self._read = read
        self._tasks: set[asyncio.Task[tuple[Firing, Met]]] = set()

    async def read(self, after: Position) -> tuple[Firing, Met]:
        """Return the window above a place, which may be there already."""
        return await (self._tasks.pop() if self._tasks else self._read(after))

    def follow(self, after: Position) -> Callable[[], None]:
        """Return what begins, from any thread, to read the window above a place."""
        loop = asyncio.get_running_loop()

        def begin() -> None:
            loop.call_soon_threadsafe(self._begin, after)

        return begin

    def _begin(self, after: Position) -> None:
        # Kept here and awaited at the end, so it is not lost; a group would wrap its errors.
        self._tasks.add(asyncio.create_task(self._read(after)))  # noqa: TID251

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
