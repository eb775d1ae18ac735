"""Consolidate: the order in which a firing reads, decides, commits and tells. Once, here."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Self

from slumberd.clock import Clock
from slumberd.consolidation.checkpoints import Checkpoints
from slumberd.consolidation.fire_request import FireRequest
from slumberd.consolidation.incoming import Candidate, meet, withdraw
from slumberd.consolidation.protocols import DeltaLog, EpisodeLog, Ledger
from slumberd.consolidation.salience_gate import Asked, Embedding, SalienceGate, never, no_embedder
from slumberd.errors import FiringTimeoutError, StoppedError
from slumberd.model.episode import EpisodeVersion
from slumberd.model.firing import (
    NO_LIMITS,
    START,
    Counts,
    Firing,
    Held,
    Limits,
    Position,
)
from slumberd.model.record import Outcome, Record
from slumberd.model.rule import ConsolidationRule
from slumberd.model.spelling import misspellings_in

Met = dict[str, list[Candidate]]
"""What a rule met in a window, by channel."""

REHEARSED = 100_000
"""Log rows that a rehearsal settles at most; it holds them in memory and the write lock."""

_MET = 500
"""Versions that are met between two questions whether it is late."""

_JUDGED_SECONDS = 5.0
"""How long gates may measure relevance for one batch; what is not measured comes with the next."""

_REPEATED = 1_000
"""Ledger rows whose lines are written again at a time, after a crash."""


@dataclass(slots=True)
class Report:
    """What one firing did, over all of its batches.

    Attributes:
        rule_id: The rule.
        channels: The accounting, by channel.
        run: The id that all of its firings share.
        firing_ids: One for each batch, in order; empty when nothing was pending.
        rehearsed: Whether nothing was written.
        records: Of a rehearsal, the rows that it would add to the ledger.
        unread: Of a rehearsal, how many log rows it did not read.
        held: The batch that waits for a person; nothing after it was read.
        cut_short: Whether it was told to stop while something was pending still.
    """

    rule_id: str
    channels: dict[str, Counts]
    run: str = ""
    firing_ids: list[str] = field(default_factory=list)
    rehearsed: bool = False
    records: list[Record] = field(default_factory=list)
    unread: int = 0
    held: Held | None = None
    cut_short: bool = False

    def add(self, outcome: Outcome) -> None:
        """Count one more batch."""
        self.held = outcome.held
        if self.rehearsed:
            self.records.extend(outcome.records)
        elif outcome.held is None:
            self.firing_ids.append(outcome.firing_id)
        for channel, counts in outcome.channels.items():
            self.channels[channel] = self.channels.get(channel, Counts()).plus(counts)


@dataclass(frozen=True, slots=True)
class Call:
    """One firing under way: its request, and the bounds that it keeps.

    Attributes:
        request: Which rule fires, why, when, and who asked for it.
        limits: What one batch may take out at most.
        ends_at: When it must be over, on the monotonic clock.
    """

    request: FireRequest
    limits: Limits = NO_LIMITS
    ends_at: float = math.inf

    def over(self, after: Position, upto: Position) -> Firing:
        """Return the firing of one batch."""
        request, rule = self.request, self.request.rule
        return Firing(
            rule.id,
            rule.content_hash,
            request.trigger,
            request.at,
            after,
            upto,
            request.by,
            self.limits,
            request.timing,
            alike=None if rule.similarity is None else rule.similarity.min,
            run=request.run,
        )


class Consolidator:
    """Runs rules over an episode log, into a ledger, with a line for each delta.

    Attributes:
        limits: What one batch may take out at most, where its rule does not say.
        behind: Whether rows of the ledger wait for their lines.

    Args:
        episodes: Where episodes come from.
        ledger: Where facts go.
        log: Where every delta leaves a line, after its commit.
        clock: For durations.
        batch: At most this many log rows are settled in one transaction.
        limits: What one batch may take out at most, where its rule does not say.
        embedding: Makes what gates measure relevance with, when one first does.
    """

    def __init__(  # noqa: PLR0913 # one for each thing that it joins
        self,
        episodes: EpisodeLog,
        ledger: Ledger,
        log: DeltaLog,
        clock: Clock,
        *,
        batch: int,
        limits: Limits = NO_LIMITS,
        embedding: Embedding = no_embedder,
    ) -> None:
        self._episodes = episodes
        self._ledger = ledger
        self._log = log
        self._clock = clock
        self._batch = batch
        self._gatekeeper = SalienceGate(episodes, embedding)
        self.limits = limits
        self.behind = False
        self._left: dict[str, tuple[str, frozenset[str]]] = {}
        self._spelled_upto = 0
        self._checkpoints = Checkpoints(ledger, log, clock)

    async def fire(self, request: FireRequest) -> Report:
        """Consolidate everything that is pending for a rule, batch by batch.

        Raises:
            FilterError: The rule's filter failed; earlier batches stay committed.
            FiringTimeoutError: It took too long; earlier batches stay committed.
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        rule = request.rule
        timeout = math.inf if rule.timeout is None else rule.timeout
        ends_at = self._clock.monotonic() + timeout
        call = Call(request, rule.limits.over(self.limits), ends_at)
        done = self._report(rule, run=request.run)
        try:
            await self._fire(call, done)
        except (StoppedError, TimeoutError) as error:
            if call.request.stopped:
                done.cut_short = True
            elif self._is_late(call):
                raise FiringTimeoutError(rule.id, timeout) from error
            else:
                raise
        if done.cut_short:
            self._ledger.leave()
        return done

    def _late(self, call: Call) -> Callable[[], bool] | None:
        """Return what says, in any thread, that a call must end; None when nothing ends it."""
        if call.ends_at == math.inf:
            return None if call.request.stop is None else call.request.stop.is_set
        return lambda: call.request.stopped or self._is_late(call)

    def _is_late(self, call: Call) -> bool:
        return self._clock.monotonic() >= call.ends_at

    def _in_time(self, call: Call) -> asyncio.Timeout:
        left = call.ends_at - self._clock.monotonic()
        return asyncio.timeout(None if left == math.inf else left)

    async def _fire(self, call: Call, done: Report) -> None:
        async with self._in_time(call):
            after = await self.resume(call.request.rule, call.request.at)
            held = (await self._ledger.held()).get(call.request.rule.id)
            last = (await self._episodes.newest()).seq
        if held is not None and not held.approved:
            done.held = held
            return
        if held is not None:
            after = await self._go_on(call, after, Position(*held.upto), done)
        await self._catch_up(call, (after, last), done)
        if done.firing_ids and not done.cut_short:
            await self._ledger.rest()

    async def _go_on(self, call: Call, after: Position, upto: Position, done: Report) -> Position:
        """Settle the batch that was held and approved, without limits."""
        freely = replace(call, limits=NO_LIMITS)
        async with self._in_time(call):
            # Not a part of it: what is not read now would be passed over.
            _, met = await self._read(freely, after, upto=upto.seq, whole=True)
        done.add(await self._settle(freely.over(after, upto), met, late=self._late(call)))
        return upto

    async def _catch_up(self, call: Call, span: tuple[Position, int], done: Report) -> None:
        after, last = span
        async with _ReadingAhead(partial(self._read, call, upto=last)) as windows:
            while after.seq < last:
                if call.request.stopped:
                    done.cut_short = True
                    return
                async with self._in_time(call):
                    firing, met = await windows.read(after)
                if firing.upto == after:
                    return
                after = firing.upto
                more = after.seq < last
                follow = windows.follow(after) if more else None
                done.add(await self._settle(firing, met, follow, self._late(call)))
                if done.held:
                    return

    async def rehearse(self, rule: ConsolidationRule, at: datetime) -> Report:
        """Say what a firing would do now, at most `REHEARSED` log rows of it; write nothing."""
        mark = await self._ledger.watermark(rule.id)
        if mark is None:
            mark = START if rule.start == "beginning" else await self._episodes.newest()
        call = Call(FireRequest(rule, "manual", at))
        firing, met = await self._read(call, mark, limit=REHEARSED, whole=True)
        done = self._report(rule, rehearsed=True)
        done.unread = max(0, (await self._episodes.newest()).seq - firing.upto.seq)
        done.add(await self._ledger.rehearse(firing, met))
        return done

    async def backfill(
        self,
        rule: ConsolidationRule,
        at: datetime,
        *,
        by: str,
        between: tuple[int, int] | None = None,
        dry_run: bool = False,
        run: str = "",
    ) -> Report:
        """Make what a rule has promoted equal to what it says today; its watermark stays.

        Args:
            rule: The rule, as it is now.
            at: The firing's instant.
            by: Who asks for it.
            between: Only episodes of these instants, microseconds: the first inclusive, the
                second exclusive; None takes all.
            dry_run: Say what would come of it, at most `REHEARSED` log rows of it; write nothing.
            run: The id that all of its batches share.

        Raises:
            FilterError: The rule's filter failed; earlier batches stay committed.
        """
        call = Call(FireRequest(rule, "backfill", at, by, run=run))
        done = self._report(rule, rehearsed=dry_run, run=run)
        mark = await self._ledger.watermark(rule.id) or START
        limit = REHEARSED if dry_run else self._batch
        after = START
        while after.seq < mark.seq:
            window = await self._episodes.select(rule, after=after, limit=limit, upto=mark.seq)
            if window.upto == after:
                break
            if dry_run and after != START:
                done.unread = mark.seq - after.seq
                break
            await self._meet_again(call, mark, _said_between(window.versions, between), done)
            after = window.upto
        return done

    async def retry(
        self,
        rule: ConsolidationRule,
        at: datetime,
        *,
        by: str,
        eids: Sequence[str] | None = None,
        dry_run: bool = False,
        run: str = "",
    ) -> Report:
        """Meet episodes that were quarantined again, as if they came in order now.

        Args:
            rule: The rule.
            at: The firing's instant.
            by: Who asks for it.
            eids: Their ids; None takes all that are quarantined for the rule.
            dry_run: Say what would come of it, and write nothing.
            run: The id that all of its batches share.
        """
        call = Call(FireRequest(rule, "retry", at, by, run=run))
        done = self._report(rule, rehearsed=dry_run, run=run)
        mark = await self._ledger.watermark(rule.id) or START
        held = await self._ledger.quarantined_of(rule.id)
        wanted = held if eids is None else [eid for eid in held if eid in set(eids)]
        versions = await self._episodes.reread(rule, wanted, upto=mark.seq)
        await self._meet_again(call, mark, versions, done)
        return done

    async def _meet_again(
        self, call: Call, mark: Position, versions: Sequence[EpisodeVersion], done: Report
    ) -> None:
        if not versions:
            return
        versions = await self._gatekeeper.judged(versions, call.request.rule, call.request.at)
        met = await asyncio.to_thread(self._meet, versions, call.request.rule)
        met |= await self._withdraw(call.request.rule, versions)
        firing = call.over(mark, mark)
        if done.rehearsed:
            done.add(await self._ledger.rehearse(firing, met))
        else:
            done.add(await self._settle(firing, met))

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
        if mark != START:
            await self._episodes.harden()
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
        call: Call,
        after: Position,
        *,
        limit: int | None = None,
        upto: int | None = None,
        whole: bool = False,
    ) -> tuple[Firing, Met]:
        """Return what a rule meets above a place; less of it when gates take long, unless whole."""
        select = partial(self._episodes.select, call.request.rule, after=after, upto=upto)
        judge = partial(
            self._gatekeeper.judged,
            rule=call.request.rule,
            at=call.request.at,
            late=self._late(call) or never,
        )
        window = await select(limit=limit or self._batch)
        self._check_spelling(window.versions)
        enough = never if whole else self._long_enough(call)
        versions = await judge(window.versions, enough=enough)
        if len(versions) < len(window.versions):
            # As many log rows speak of as many versions at most; the embedder has kept theirs.
            window = await select(limit=len(versions))
            versions = await judge(window.versions)
        met = await asyncio.to_thread(self._meet, versions, call.request.rule, self._late(call))
        return call.over(after, window.upto), met | await self._withdraw(
            call.request.rule, versions
        )

    async def left_channels(self, rule: ConsolidationRule) -> frozenset[str]:
        """Return the channels that a rule emitted into once, and no longer does."""
        asked_for, left = self._left.get(rule.id, ("", frozenset()))
        # Firings under one content emit into the same channels, so one question is enough.
        if asked_for != rule.content_hash:
            emitted = await self._ledger.channels_of(rule.id)
            left = frozenset(emitted).difference(rule.then_emits)
            self._left[rule.id] = rule.content_hash, left
        return left

    async def _withdraw(self, rule: ConsolidationRule, versions: Sequence[EpisodeVersion]) -> Met:
        """Return what a rule withdraws in channels that it no longer emits into."""
        channels = await self.left_channels(rule)
        if not channels or not versions:
            return {}
        withdrawn = withdraw(versions, rule.id, channels)
        fact_ids = [one.fact_id for ones in withdrawn.values() for one in ones]
        promoted = await self._ledger.promoted_by(rule.id, fact_ids)
        found = {
            name: [one for one in ones if one.fact_id in promoted]
            for name, ones in withdrawn.items()
        }
        return {name: ones for name, ones in found.items() if ones}

    def _long_enough(self, call: Call) -> Asked:
        """Return what says that gates have taken their part of the time of a batch."""
        now = self._clock.monotonic()
        ends_at = now + min(_JUDGED_SECONDS, (call.ends_at - now) / 2)
        return lambda: self._clock.monotonic() >= ends_at

    def _check_spelling(self, versions: Sequence[EpisodeVersion]) -> None:
        """Log the misspelled keys of versions that no rule of this process has read before."""
        fresh = [one for one in versions if one.seq > self._spelled_upto]
        if fresh:
            self._spelled_upto = max(one.seq for one in fresh)
            self._log.misspelled(misspellings_in(fresh))

    def _meet(
        self,
        versions: Sequence[EpisodeVersion],
        rule: ConsolidationRule,
        late: Callable[[], bool] | None = None,
    ) -> Met:
        found: Met = {name: [] for name in rule.then_emits}
        for first in range(0, len(versions), _MET):
            if late is not None and late():
                raise StoppedError("it was too late to go on")
            for name, met in meet(versions[first : first + _MET], rule).items():
                found[name] += met
        return found

    def _report(self, rule: ConsolidationRule, *, rehearsed: bool = False, run: str = "") -> Report:
        """Return the report on a rule that has done nothing yet."""
        counts = {channel: Counts() for channel in rule.then_emits}
        return Report(rule.id, counts, run, rehearsed=rehearsed)

    async def _settle(
        self,
        firing: Firing,
        met: Met,
        decided: Callable[[], None] | None = None,
        late: Callable[[], bool] | None = None,
    ) -> Outcome:
        began = self._clock.monotonic()
        # Before the facts say that it is held back: were it said first, a crash in between would
        # leave what no read brings before the rule again.
        if seen := _held_back(met):
            await self._episodes.hold(seen)
        # What the facts come from must be there after a power cut too: the log would give its
        # numbers again, to episodes that the watermark has passed.
        await self._episodes.harden()
        outcome = await self._ledger.commit(firing, met, decided=decided, late=late)
        outcome = replace(outcome, seconds=self._clock.monotonic() - began)
        if late is not None and late():
            self.behind = True  # the lines come later, or at the next start: now it is to end
            self._log.completed(outcome)
        else:
            await self._tell(outcome)
        return outcome

    async def _tell(self, outcome: Outcome) -> None:
        if self.behind:
            await self.tell_again()
        else:
            await self._tell_records([*outcome.noticed, *outcome.records])
        self._log.completed(outcome)

    async def _tell_records(self, records: Sequence[Record]) -> bool:
        """Write the lines of records; return whether somebody reads them."""
        # Until they are written, the next attempt must begin with these.
        self.behind = True
        try:
            await asyncio.to_thread(self._log.applied, records)
        except TimeoutError:
            return False
        await self._ledger.mark_logged(records[-1].seq)
        self.behind = False
        await self._checkpoints.follow(records[-1].seq)
        return True

    async def checkpoint(self) -> None:
        """Tell the log how far the ledger reaches, and its head."""
        await self._checkpoints.write()

    async def tell_again(self) -> int:
        """Write the log lines that were kept back, while somebody reads them; return how many."""
        told = 0
        while records := await self._ledger.unlogged(limit=_REPEATED):
            if not await self._tell_records(records):
                break
            told += len(records)
        return told


def _said_between(
    versions: Sequence[EpisodeVersion], between: tuple[int, int] | None
) -> Sequence[EpisodeVersion]:
    if between is None:
        return versions
    first, end = between
    return [version for version in versions if first <= version.at < end]


def _held_back(met: Met) -> dict[str, int]:
    """Return what a gate holds back, and of how many reads of each it knew."""
    return {
        one.eid: one.gated.reads for ones in met.values() for one in ones if one.gated is not None
    }


class _ReadingAhead:
    """Reads a rule's next window while SQLite writes what the last one came to.

    Deciding needs the interpreter, and so does reading; writing hardly does.
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
