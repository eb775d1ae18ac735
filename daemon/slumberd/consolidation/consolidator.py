"""Run a firing: consolidate each window, apply its batch, and log it after the commit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.consolidation.firing import (
    UNBOUNDED,
    DeltaLines,
    DryRunBounds,
    FireRequest,
    FiringCall,
    ReadingAhead,
    begin_rule,
    is_in_log,
    last_agreement,
    resume_rule,
    step_back,
)
from slumberd.consolidation.incoming import Bounds, Condition, DeltaBatch, never
from slumberd.consolidation.marks import ended_marks
from slumberd.consolidation.protocols import DeltaLog, EpisodeLog, FactTarget, StageIndex
from slumberd.consolidation.stage_runs import Marking, Retention, StageEnd, purge
from slumberd.garbage_collection import PORTION, free_in_portions
from slumberd.model.episode import (
    FUTURE_TOLERANCE_SECONDS,
    EpisodeVersion,
    latest_at,
    misspellings_in,
)
from slumberd.model.errors import FiringTimeoutError, LogRestoredError, StoppedError
from slumberd.model.extraction import SummaryQuestion
from slumberd.model.firing import (
    NO_LIMITS,
    NO_LOSSES,
    START,
    Counts,
    Firing,
    HeldBatch,
    HeldScope,
    Limits,
    Losses,
    Outcome,
    Position,
    Report,
    Window,
)
from slumberd.model.rule import ConsolidationRule
from slumberd.model.stages import MARKS, KnownMarks

_GATE_SECONDS = 5.0
"""How long a gate may measure relevance for one batch; the next batch continues."""


AskForSummaries = Callable[[ConsolidationRule, Sequence[SummaryQuestion]], None]
"""Takes a rule and the summaries that its language model is to write; returns at once."""


def _ask_nobody(_: ConsolidationRule, __: Sequence[SummaryQuestion]) -> None:
    """Leave the summaries unwritten."""


class Sizes(NamedTuple):
    """How much a consolidator does at once.

    Attributes:
        logged: Ledger rows whose pending log lines it writes at once.
        previewed: Log rows that a preview or a rehearsal resolves at most. It keeps them in
            memory, and a rehearsal also keeps the write lock.
    """

    logged: int = 1_000
    previewed: int = 100_000


class Consolidator:
    """Runs rules over an episode log, commits to a ledger, and logs a line for each delta.

    Attributes:
        limits: The deletion limits of one batch, for a rule without limits of its own.
        future_tolerance_seconds: A version whose instant lies further ahead is still to come.
        retention: How long archived episodes are kept; None keeps them for ever.
        ask_for_summaries: Called with the summaries that the language model of a rule is to write.

    Args:
        facts: The store of facts, with its ledger.
        log: Where each delta is logged, after its commit.
        clock: Measures durations.
        batch: At most this many log rows are resolved in one transaction.
        limits: The deletion limits of one batch, for a rule without limits of its own.
        sizes: How much it does at once.
    """

    def __init__(  # noqa: PLR0913 # one for each component that it joins
        self,
        episodes: EpisodeLog,
        facts: FactTarget,
        log: DeltaLog,
        clock: Clock,
        *,
        batch: int,
        limits: Limits = NO_LIMITS,
        sizes: Sizes = Sizes(),  # noqa: B008 # immutable
    ) -> None:
        self._episodes = episodes
        self._facts = facts
        self._log = log
        self._clock = clock
        self._batch = batch
        self._sizes = sizes
        self.limits = limits
        self.future_tolerance_seconds = FUTURE_TOLERANCE_SECONDS
        self.retention: Retention | None = None
        self.ask_for_summaries: AskForSummaries = _ask_nobody
        self._spelling_checked_upto = 0
        self._marking = Marking(episodes, facts, batch)
        self._lines = DeltaLines(facts.ledger, log, clock, at_once=sizes.logged)

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
        call = await self._begin_call(request, rule.limits.over(self.limits), ends_at)
        report = self._new_report(rule, run=request.run)
        try:
            await self._fire(call, report)
        except (StoppedError, TimeoutError) as error:
            if request.stopped:
                report.cut_short = True
            elif self._is_timed_out(call):
                raise FiringTimeoutError(rule.id, timeout) from error
            else:
                raise
        if report.cut_short:
            self._facts.skip_checkpoint_on_close()
        if report.firing_ids or report.purged:
            self._log.finished(report)
        self._ask_for_summaries(rule, report)
        return report

    async def _begin_call(
        self, request: FireRequest, limits: Limits = NO_LIMITS, ends_at: float = math.inf
    ) -> FiringCall:
        """Return a firing under way.

        When the last recorded instant lies far ahead of the clock, one of both is wrong. Then
        nobody knows which versions are of the future. The facts are asked once: a read of each
        window would wait for the batch that is being committed.
        """
        recorded = await self._facts.watermarks.last_recorded_at()
        ahead = 0.0 if recorded is None else (recorded - request.at).total_seconds()
        is_trusted = ahead <= self.future_tolerance_seconds
        return FiringCall(request, limits, ends_at, "quarantine" if is_trusted else "evaluate")

    def _ask_for_summaries(self, rule: ConsolidationRule, report: Report) -> None:
        """Pass on the summaries that a firing or a backfill lacks; a dry run asks for none."""
        if report.summary_questions:
            report.unrecorded = True
            if not report.dry_run:
                self.ask_for_summaries(rule, report.summary_questions)

    def _cancellation(self, call: FiringCall) -> Callable[[], bool] | None:
        """Return a thread-safe check whether a request must end; None when nothing ends it."""
        if call.ends_at == math.inf:
            return None if call.request.stop is None else call.request.stop.is_set
        return lambda: call.request.stopped or self._is_timed_out(call)

    def _is_timed_out(self, call: FiringCall) -> bool:
        return self._clock.monotonic() >= call.ends_at

    def _time_limit(self, call: FiringCall) -> asyncio.Timeout:
        left = call.ends_at - self._clock.monotonic()
        return asyncio.timeout(None if left == math.inf else left)

    async def _fire(self, call: FiringCall, report: Report) -> None:
        rule = call.request.rule
        async with self._time_limit(call):
            position, held = await self._facts.watermarks.position_of(rule.id)
            watermarks, at = self._facts.watermarks, call.request.at
            after = position or await begin_rule(self._episodes, watermarks, rule, at)
            if held is not None and not await is_in_log(self._episodes, after):
                after, held = await self._step_back(rule.id, after), None
        if held is not None and not held.approved:
            report.held = held
            return
        if held is not None:
            upto = Position(*held.upto)
            if upto == after:  # the batch has only versions whose instant has come
                freely = replace(call, limits=NO_LIMITS)
                await self._evaluate_arrived(freely, report, NO_LOSSES)
            else:
                after = await self._commit_approved(call, after, upto, report)
            if report.unrecorded:
                return
        losses = await self._consume_backlog(call, after, report)
        await self._evaluate_arrived(call, report, losses)
        if not report.held and not report.cut_short:
            mark = await self._facts.watermarks.position(rule.id) or START
            await self._mark(call, mark, report)
        if report.firing_ids and not report.cut_short:
            await self._facts.checkpoint_after_backlog()

    async def _commit_approved(
        self, call: FiringCall, after: Position, upto: Position, report: Report
    ) -> Position:
        """Commit the approved batch, without deletion limits."""
        freely = replace(call, limits=NO_LIMITS)
        # All of its versions: the watermark moves to its end, so a row not read now is lost.
        while after.seq < upto.seq:
            window = Window(after, upto.seq, self._batch)
            async with self._time_limit(call):
                batch = await self._consolidate(freely, window, whole=True)
            report.unrecorded = batch.unrecorded
            if batch.unrecorded:
                return after
            if batch.is_empty or batch.upto.seq >= upto.seq:
                batch = batch.moved_to(after, upto)
            report.add(await self._apply(batch, cancelled=self._cancellation(call)))
            after = batch.upto
        return upto

    async def _consume_backlog(self, call: FiringCall, after: Position, report: Report) -> Losses:
        """Consolidate what the log has above a position, up to its end at the first read.

        Returns:
            What it has deleted.
        """
        report.cut_short = call.request.stopped
        if report.cut_short:
            return NO_LOSSES
        async with self._time_limit(call):
            batch = await self._read_first(call, after)
        last = batch.newest
        report.unrecorded = batch.unrecorded
        losses, planned = NO_LOSSES, call.limits == NO_LIMITS
        async with ReadingAhead(partial(self._read, call, last)) as windows:
            while not batch.is_empty:
                after = batch.upto
                follow = windows.follow(after) if after.seq < last else None
                probes = not planned and follow is not None
                outcome = await self._apply_next(call, batch, losses, follow, probes=probes)
                if outcome.probed:
                    planned = True
                    if await self._hold_backlog(call, batch, losses, report):
                        return losses
                    outcome = await self._apply_next(call, batch, losses, follow, probes=False)
                losses = outcome.losses
                report.add(outcome)
                if len(batch.versions) > PORTION:
                    await asyncio.to_thread(
                        free_in_portions, batch.versions, *batch.candidates.values()
                    )
                report.cut_short = not report.held and after.seq < last and call.request.stopped
                if report.held or report.cut_short or after.seq >= last:
                    break
                async with self._time_limit(call):
                    batch = await windows.read(after)
                report.unrecorded = batch.unrecorded
        return losses

    async def _apply_next(
        self,
        call: FiringCall,
        batch: DeltaBatch,
        losses: Losses,
        follow: Callable[[], None] | None,
        *,
        probes: bool,
    ) -> Outcome:
        """Apply a batch of a command; the deletions of its batches are added."""
        firing = replace(batch.firing, losses=losses, probes=probes)
        return await self._apply(replace(batch, firing=firing), follow, self._cancellation(call))

    async def _hold_backlog(
        self, call: FiringCall, batch: DeltaBatch, losses: Losses, report: Report
    ) -> bool:
        """Plan what a firing has still to read, and hold it back when it is over a limit.

        A firing whose batches delete nothing is never planned.
        """
        after = batch.firing.after
        scope = HeldScope(after=after.seq, upto=batch.newest)
        window = Window(after, batch.newest, self._sizes.previewed, dry_run=True)
        planned, _ = await self._plan(call, window, losses)
        problem = call.limits.describe_excess(planned.impact, planned.current, "this firing")
        if problem:
            upto = Position(batch.newest, await self._episodes.episode_at(batch.newest) or "")
            firing = replace(batch.firing, upto=upto)
            await self._hold(firing, problem, scope, planned, report)
        return bool(problem)

    async def _hold(  # what its ledger row says
        self,
        firing: Firing,
        problem: str,
        scope: HeldScope,
        losses: Losses,
        report: Report,
        instead_of: HeldBatch | None = None,
    ) -> None:
        """Record that a command awaits approval, and log it; an equal one may wait already."""
        for waiting in (await self._facts.watermarks.held()).values():
            known = waiting.rule_id, waiting.rule_hash, waiting.scope, waiting.impact
            if known == (firing.rule_id, firing.rule_hash, scope, losses.impact):
                report.held = waiting
                return
        outcome = await self._facts.ledger.hold(
            firing, problem, scope, losses.impact, instead_of=instead_of
        )
        await self._lines.complete(outcome)
        report.add(outcome)

    async def _plan(
        self,
        call: FiringCall,
        window: Window,
        losses: Losses = NO_LOSSES,
        rejected: Sequence[HeldScope] = (),
    ) -> tuple[Losses, Sequence[int]]:
        """Return what the versions of a window would delete, and their numbers; write nothing.

        A window of more than `Sizes.previewed` log rows is planned in parts of so many; each part
        is compared with the facts of today.
        """
        freely = replace(call, limits=NO_LIMITS)
        numbers: list[int] = []
        while window.upto is None or window.after.seq < window.upto:
            batch = await self._consolidate(freely, window, whole=True)
            if batch.is_empty and window.episodes is None:
                break
            left, _ = _without_rejected(batch, rejected)
            firing = replace(left.firing, losses=losses)
            outcome = await self._facts.apply_deltas(
                replace(left, firing=firing), dry_run=True, cancelled=self._cancellation(call)
            )
            losses = outcome.losses
            numbers += [version.seq for version in left.versions]
            if window.episodes is not None:
                break
            window = window._replace(after=batch.upto)
        return losses, numbers

    async def _evaluate_arrived(self, call: FiringCall, report: Report, losses: Losses) -> None:
        """Evaluate the quarantined episodes whose instant was still to come, and has come."""
        rule, at = call.request.rule, call.request.at
        latest = latest_at(at, self.future_tolerance_seconds)
        ledger = self._facts.ledger
        while not report.held and not report.cut_short:
            arrived = await self._facts.watermarks.future_upto(rule.id, latest, limit=self._batch)
            if not arrived:
                return
            mark = await self._facts.watermarks.position(rule.id) or START
            window = Window(mark, mark.seq, episodes=arrived)
            batch = await self._consolidate_in_time(call, window)
            if batch.versions:
                passed = batch.moved_to(mark, mark)
                outcome = await self._apply_next(call, passed, losses, None, probes=False)
                losses = outcome.losses
                report.add(outcome)
            if rule.asks_model and len(batch.versions) < len(arrived):
                report.unrecorded = True
                return
            if not report.held:
                # Those that are left were deleted, or a newer version of them is not selected.
                await ledger.drop_future(rule.id, arrived, at=at)
            report.cut_short = call.request.stopped

    async def _mark(self, call: FiringCall, mark: Position, report: Report) -> None:
        """Run the stages of a rule that mark episodes, on those up to a position."""
        rule = call.request.rule
        if not rule.stages:
            return
        window = Window(
            mark, mark.seq, at=call.request.at, dry_run=report.dry_run, future=call.future
        )
        # Deletion limits are for facts: a mark that ends deletes nothing, and shows an episode.
        freely = replace(call, limits=NO_LIMITS)
        consolidate = partial(self._consolidate_in_time, freely)
        anew = call.request.trigger == "backfill"
        batches = self._marking.batches(
            rule, consolidate, window, anew=anew, questions=report.summary_questions
        )
        marked: set[str] = set()
        async with aclosing(batches):
            async for batch in batches:
                marked |= {candidate.eid for candidate in batch.candidates[MARKS]}
                report.add(await self._apply_to(report, batch, self._cancellation(call)))
                report.cut_short = call.request.stopped
                if report.cut_short:
                    return
        if self.retention is not None and not report.dry_run:
            end = StageEnd(mark, call.request.at, marked)
            end_marks = partial(self._end_marks, freely, window, report)
            report.purged = await purge(
                self._episodes, self._facts, self.retention, rule, self._marking, end, end_marks
            )

    async def _end_marks(
        self, call: FiringCall, window: Window, report: Report, versions: Sequence[EpisodeVersion]
    ) -> None:
        """Commit the end of a rule's marks of some episodes."""
        nothing = window._replace(episodes=(), marks=KnownMarks())
        batch = await self._consolidate_in_time(call, nothing)
        ended = {**batch.candidates, MARKS: ended_marks(versions, call.request.rule.id)}
        batch = replace(batch, candidates=ended)
        report.add(await self._apply_to(report, batch, self._cancellation(call)))

    async def _consolidate_in_time(self, call: FiringCall, window: Window) -> DeltaBatch:
        async with self._time_limit(call):
            return await self._consolidate(call, window, whole=True)

    async def preview(
        self, rule: ConsolidationRule, at: datetime, bounds: DryRunBounds = UNBOUNDED
    ) -> Report:
        """Report what a firing would do now, to at most `Sizes.previewed` log rows.

        Args:
            at: The firing's instant.

        Raises:
            StoppedError: The stop of the bounds was set.
        """
        mark = await self._facts.watermarks.position(rule.id)
        if mark is None:
            mark = START if rule.start == "beginning" else await self._episodes.newest()
        call = await self._begin_call(FireRequest(rule, "manual", at, stop=bounds.stop))
        window = Window(mark, limit=self._most_rows(bounds), dry_run=True)
        try:
            batch = await self._consolidate(call, window, whole=True)
        except LogRestoredError:
            agreed = await last_agreement(self._episodes, self._facts.watermarks, rule.id, mark)
            earlier = window._replace(after=agreed)
            batch = await self._consolidate(call, earlier, whole=True)
        report = self._new_report(rule, rehearsed=True)
        report.unrecorded = batch.unrecorded
        report.unread = max(0, (await self._episodes.newest()).seq - batch.upto.seq)
        outcome = await self._apply_to(report, batch, bounds.cancelled)
        report.add(outcome)
        losses = await self._preview_arrived(call, mark, report, outcome.losses, bounds)
        limits, scope = rule.limits.over(self.limits), HeldScope(upto=batch.upto.seq)
        _note_excess(report, rule, limits, losses, scope)
        await self._mark(call, batch.upto, report)
        _check_whole(report)
        self._ask_for_summaries(rule, report)
        return report

    async def _preview_arrived(
        self,
        call: FiringCall,
        mark: Position,
        report: Report,
        losses: Losses,
        bounds: DryRunBounds,
    ) -> Losses:
        """Report what versions would change whose instant was still to come, and has come.

        Returns:
            What the firing would have deleted by then.
        """
        latest = latest_at(call.request.at, self.future_tolerance_seconds)
        limit = self._most_rows(bounds)
        arrived = await self._facts.watermarks.future_upto(report.rule_id, latest, limit=limit)
        if arrived:
            window = Window(mark, mark.seq, episodes=arrived, dry_run=True)
            batch = await self._consolidate(call, window, whole=True)
            losses = await self._apply_again(mark, batch, report, losses, bounds.cancelled)
        return losses

    def _most_rows(self, bounds: DryRunBounds) -> int:
        """Return how many log rows a dry run may read."""
        return max(1, self._sizes.previewed // bounds.part)

    async def backfill(  # noqa: PLR0913 # the fields of one request
        self,
        rule: ConsolidationRule,
        at: datetime,
        *,
        by: str,
        between: tuple[int, int] | None = None,
        dry_run: bool = False,
        run: str = "",
        reason: str = "",
        bounds: DryRunBounds = UNBOUNDED,
        approved: HeldBatch | None = None,
    ) -> Report:
        """Make a rule's facts equal to those that it would promote now; keep its watermark.

        Args:
            rule: The rule, as it is now.
            at: The firing's instant.
            by: Who requested it.
            between: Only episodes of these instants, microseconds: the first inclusive, the
                second exclusive; None takes all.
            dry_run: Report the effect on at most `Sizes.previewed` log rows; write nothing.
            run: The id that all of its batches share.
            reason: Why that person requested it; empty without a reason.
            approved: The backfill that waited for approval until now; None for a new one.

        Raises:
            FilterError: The rule's filter failed; earlier batches stay committed.
            StoppedError: The stop of the bounds was set.
        """
        request = FireRequest(rule, "backfill", at, by, bounds.stop, run=run, reason=reason)
        call = await self._begin_call(request)
        report = self._new_report(rule, rehearsed=dry_run, run=run)
        mark = await self._facts.watermarks.position(rule.id) or START
        if approved is not None:
            mark = Position(*approved.upto)
        scope = HeldScope("backfill", upto=mark.seq, between=between)
        limit = self._most_rows(bounds) if dry_run else self._batch
        window = Window(START, mark.seq, limit, between=between, dry_run=dry_run, unrecorded="skip")
        rejected = await self._rejected(rule)
        limits = rule.limits.over(self.limits)
        if not dry_run and (limits != NO_LIMITS or approved is not None):
            whole = window._replace(limit=self._sizes.previewed, dry_run=True)
            planned, _ = await self._plan(call, whole, rejected=rejected)
            if await self._asks(call, mark, planned, scope, report, approved):
                return report
        losses = await self._apply_windows(call, window, mark, report, rejected)
        if dry_run:
            _note_excess(report, rule, limits, losses, scope)
        if between is None:
            await self._mark(call, mark, report)
            _check_whole(report)
            self._ask_for_summaries(rule, report)
        return report

    async def _apply_windows(
        self,
        call: FiringCall,
        window: Window,
        mark: Position,
        report: Report,
        rejected: Sequence[HeldScope],
    ) -> Losses:
        """Apply the batches of a backfill, or rehearse the first one; return what they delete."""
        losses = NO_LOSSES
        while window.after.seq < mark.seq:
            if report.dry_run and window.after != START:
                report.unread = mark.seq - window.after.seq
                break
            read = await self._consolidate(call, window, whole=True)
            if read.is_empty:
                break
            batch, left_out = _without_rejected(read, rejected)
            report.rejected += left_out
            report.unrecorded |= batch.unrecorded
            losses = await self._apply_again(mark, batch, report, losses, self._cancellation(call))
            window = window._replace(after=batch.upto)
        return losses

    async def retry(  # noqa: PLR0913 # the fields of one request
        self,
        rule: ConsolidationRule,
        at: datetime,
        *,
        by: str,
        eids: Sequence[str] | None = None,
        dry_run: bool = False,
        run: str = "",
        reason: str = "",
        bounds: DryRunBounds = UNBOUNDED,
        approved: HeldBatch | None = None,
    ) -> Report:
        """Evaluate quarantined episodes again, as if they came in order now.

        Args:
            at: The firing's instant.
            by: Who requested it.
            eids: Their ids; None takes all that are quarantined for the rule.
            dry_run: Report the effect, and write nothing.
            run: The id that all of its batches share.
            reason: Why that person requested it; empty without a reason.
            approved: The retry that waited for approval until now; None for a new one.

        Raises:
            StoppedError: The stop of the bounds was set.
        """
        request = FireRequest(rule, "retry", at, by, bounds.stop, run=run, reason=reason)
        call = await self._begin_call(request)
        report = self._new_report(rule, rehearsed=dry_run, run=run)
        mark = await self._facts.watermarks.position(rule.id) or START
        quarantined = await self._facts.ledger.quarantined_of(rule.id)
        wanted = quarantined if eids is None else [eid for eid in quarantined if eid in set(eids)]
        window = Window(mark, mark.seq, episodes=wanted, dry_run=dry_run)
        rejected = await self._rejected(rule)
        read = await self._consolidate(call, window, whole=True)
        batch, report.rejected = _without_rejected(read, rejected)
        if approved is not None:
            others = {version.seq for version in batch.versions}
            batch = batch.without(others.difference(approved.scope.versions))
        numbers = tuple(version.seq for version in batch.versions)
        scope = HeldScope("retry", upto=mark.seq, versions=numbers)
        limits = rule.limits.over(self.limits)
        if not dry_run and batch.versions and (limits != NO_LIMITS or approved is not None):
            rehearsal = self._new_report(rule, rehearsed=True)
            planned = await self._apply_again(mark, batch, rehearsal, NO_LOSSES, bounds.cancelled)
            if await self._asks(call, mark, planned, scope, report, approved):
                return report
        losses = await self._apply_again(mark, batch, report, NO_LOSSES, bounds.cancelled)
        if dry_run:
            _note_excess(report, rule, limits, losses, scope)
        return report

    async def _rejected(self, rule: ConsolidationRule) -> Sequence[HeldScope]:
        """Return what people rejected of a rule as it is now."""
        return [*(await self._facts.ledger.rejections(rule.id, rule.content_hash)).values()]

    async def _asks(  # what its ledger row says
        self,
        call: FiringCall,
        mark: Position,
        planned: Losses,
        scope: HeldScope,
        report: Report,
        approved: HeldBatch | None,
    ) -> bool:
        """Hold a planned command back when a person must decide, and return whether they must.

        An approval permits what the plan said when it was asked for: the same rule, and no more
        deletions.
        """
        rule = call.request.rule
        limits, subject = rule.limits.over(self.limits), f"this {scope.again or 'firing'}"
        problem = limits.describe_excess(planned.impact, planned.current, subject)
        if approved is None and not problem:
            return False
        if approved is not None and approved.permits(rule.content_hash, planned.impact):
            return False
        if approved is not None:
            change = "deletes more" if approved.rule_hash in ("", rule.content_hash) else "changed"
            words = problem or f"{subject} would delete {planned.impact.lost:,} facts"
            problem = f"{words}; the rule {change} since {approved.firing_id}"
        firing = call.complete(
            Firing(rule.id, rule.content_hash, call.request.trigger, call.request.at, mark, mark)
        )
        if not scope.again and approved is not None:
            firing = replace(firing, upto=Position(*approved.upto))
        await self._hold(firing, problem, scope, planned, report, approved)
        return True

    async def ask_again(self, rule: ConsolidationRule, held: HeldBatch, at: datetime) -> Report:
        """Plan a held firing again; the report has another held firing when its rule changed.

        Args:
            rule: The rule, as it is now.
            held: The firing.
        """
        call = await self._begin_call(FireRequest(rule, "manual", at))
        report = self._new_report(rule)
        mark = await self._facts.watermarks.position(rule.id) or START
        window = Window(mark, held.upto[0], self._sizes.previewed, dry_run=True)
        planned, _ = await self._plan(call, window)
        await self._asks(call, mark, planned, held.scope, report, held)
        return report

    async def _apply_again(
        self,
        mark: Position,
        batch: DeltaBatch,
        report: Report,
        losses: Losses,
        cancelled: Condition | None,
    ) -> Losses:
        """Apply a batch of versions that the rule has passed; its watermark stays.

        Returns:
            What the command has deleted by now.
        """
        if not batch.versions:
            return losses
        passed = batch.moved_to(mark, mark)
        counted = replace(passed, firing=replace(passed.firing, losses=losses))
        outcome = await self._apply_to(report, counted, cancelled)
        report.add(outcome)
        return outcome.losses

    async def _apply_to(
        self, report: Report, batch: DeltaBatch, cancelled: Condition | None
    ) -> Outcome:
        """Apply a batch; for the report of a dry run, write nothing."""
        if report.dry_run:
            return await self._facts.apply_deltas(batch, dry_run=True, cancelled=cancelled)
        return await self._apply(batch, cancelled=cancelled)

    async def resume(self, rule: ConsolidationRule, at: datetime) -> Position:
        """Return where a rule resumes in the log."""
        return await resume_rule(self._episodes, self._facts.watermarks, rule, at)

    async def _step_back(self, rule_id: str, mark: Position) -> Position:
        return await step_back(self._episodes, self._facts.watermarks, rule_id, mark)

    async def _read_first(self, call: FiringCall, after: Position) -> DeltaBatch:
        """Return the first batch of a firing; step back when the log was restored."""
        try:
            return await self._read(call, None, after)
        except LogRestoredError:
            earlier = await self._step_back(call.request.rule.id, after)
            return await self._read(call, None, earlier)

    async def _read(self, call: FiringCall, upto: int | None, after: Position) -> DeltaBatch:
        """Return the next batch of a firing."""
        batch = await self._consolidate(call, Window(after, upto, self._batch))
        await self._check_spelling(batch.versions)
        return batch

    async def _consolidate(
        self, call: FiringCall, window: Window, *, whole: bool = False
    ) -> DeltaBatch:
        """Return the batch of a window; it is smaller when the gate takes long, unless `whole`."""
        cancelled = self._cancellation(call) or never
        enough = never if whole else self._gate_time_limit(call)
        batch = await self._episodes.consolidate(
            call.request.rule,
            window=window._replace(at=call.request.at, future=call.future),
            bounds=Bounds(cancelled, enough),
        )
        return replace(batch, firing=call.complete(batch.firing))

    def _gate_time_limit(self, call: FiringCall) -> Condition:
        """Return a check whether the gate has used up its share of the batch's time."""
        now = self._clock.monotonic()
        ends_at = now + min(_GATE_SECONDS, (call.ends_at - now) / 2)
        return lambda: self._clock.monotonic() >= ends_at

    async def _check_spelling(self, versions: Sequence[EpisodeVersion]) -> None:
        """Log the misspelled keys of versions that no rule of this process has read before."""
        fresh = [version for version in versions if version.seq > self._spelling_checked_upto]
        if fresh:
            self._spelling_checked_upto = max(version.seq for version in fresh)
            self._log.misspelled(await asyncio.to_thread(misspellings_in, fresh))

    def _new_report(
        self, rule: ConsolidationRule, *, rehearsed: bool = False, run: str = ""
    ) -> Report:
        """Return an empty report on a firing of a rule."""
        counts = {channel: Counts() for channel in rule.channels}
        return Report(rule.id, counts, run, dry_run=rehearsed)

    async def _apply(
        self,
        batch: DeltaBatch,
        on_decided: Callable[[], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Outcome:
        began = self._clock.monotonic()
        outcome = await self._facts.apply_deltas(batch, on_decided=on_decided, cancelled=cancelled)
        outcome = replace(outcome, seconds=self._clock.monotonic() - began)
        await self._lines.complete(outcome, cancelled=cancelled)
        return outcome

    def note_stages_in(self, index: StageIndex | None) -> None:
        """Keep in an index what stages need to know of past episodes; None keeps nothing."""
        self._marking.index = index

    async def erase_notes(self, user: str, eids: Collection[str]) -> int:
        """Remove what is kept of a user's episodes for the stages; return of how many.

        Args:
            eids: The ids of the episodes that are erased.

        Raises:
            StoreError: The notes cannot be removed.
        """
        index = self._marking.index
        return 0 if index is None else await asyncio.to_thread(index.erase, user, eids)

    async def note_erasure(self, user: str, number: int) -> None:
        """Let the notes of the other users stay, after all of an erasure is done.

        Args:
            number: The ledger row of the erasure.
        """
        await self._marking.note_erasure(user, number)

    @property
    def behind(self) -> bool:
        """Whether ledger rows have no log lines yet."""
        return self._lines.behind

    async def log_pending_records(self) -> int:
        """Write the pending log lines, as long as the log takes them; return how many."""
        return await self._lines.write_pending()

    async def checkpoint(self) -> None:
        """Log the ledger's number of rows and its head."""
        await self._lines.checkpoint()


def _without_rejected(batch: DeltaBatch, rejected: Sequence[HeldScope]) -> tuple[DeltaBatch, int]:
    """Return a batch without the versions that a person rejected, and how many these are."""
    left_out = {
        version.seq
        for version in batch.versions
        if any(scope.covers(version.seq, version.at) for scope in rejected)
    }
    return batch.without(left_out), len(left_out)


def _note_excess(
    report: Report, rule: ConsolidationRule, limits: Limits, losses: Losses, scope: HeldScope
) -> None:
    """Note in the report of a dry run that the command would await approval."""
    subject = f"this {scope.again or 'firing'}"
    if problem := limits.describe_excess(losses.impact, losses.current, subject):
        upto = scope.upto, ""
        report.held = HeldBatch(
            rule.id, "", upto, problem, False, rule.content_hash, scope, losses.impact
        )


def _check_whole(report: Report) -> None:
    """Check that nothing has ended a dry run, or a backfill, early.

    Raises:
        StoppedError: A stop was set.
    """
    if report.cut_short:
        raise StoppedError(f"the work on rule {report.rule_id!r} was stopped before its end")
