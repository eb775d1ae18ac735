"""Run a firing: consolidate each window, apply its batch, and log it after the commit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple

from slumberd.clock import Clock
from slumberd.consolidation.delta_batch import Bounds, Condition, DeltaBatch, never
from slumberd.consolidation.delta_lines import DeltaLines
from slumberd.consolidation.fire_request import UNBOUNDED, DryRunBounds, FireRequest, FiringCall
from slumberd.consolidation.marking import Marking
from slumberd.consolidation.protocols import DeltaLog, EpisodeLog, FactTarget
from slumberd.consolidation.reading_ahead import ReadingAhead
from slumberd.consolidation.retention import Retention, purge
from slumberd.errors import FiringTimeoutError, LogRestoredError, StoppedError
from slumberd.model.episode import (
    FUTURE_TOLERANCE_SECONDS,
    EpisodeVersion,
    latest_at,
    misspellings_in,
)
from slumberd.model.extraction import SummaryQuestion
from slumberd.model.firing import (
    NO_LIMITS,
    START,
    Counts,
    Limits,
    Position,
    Window,
)
from slumberd.model.record import Outcome
from slumberd.model.report import Report
from slumberd.model.rule import ConsolidationRule

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
        episodes: The episode log.
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
        call = FiringCall(request, rule.limits.over(self.limits), ends_at)
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
            self._facts.ledger.skip_checkpoint_on_close()
        if report.firing_ids or report.purged:
            self._log.finished(report)
        self._ask_for_summaries(rule, report)
        return report

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
            position, held = await self._facts.ledger.position_of(rule.id)
            after = position or await self._begin(rule, call.request.at)
            if held is not None and not await self._agrees_with_log(after):
                after, held = await self._walk_back(rule.id, after), None
        if held is not None and not held.approved:
            report.held = held
            return
        if held is not None:
            upto = Position(*held.upto)
            if upto == after:  # the batch has only versions whose instant has come
                await self._evaluate_arrived(replace(call, limits=NO_LIMITS), report)
            else:
                after = await self._commit_approved(call, after, upto, report)
            if report.unrecorded:
                return
        await self._consume_backlog(call, after, report)
        await self._evaluate_arrived(call, report)
        if not report.held and not report.cut_short:
            mark = await self._facts.watermarks.position(rule.id) or START
            await self._mark(call, mark, report)
        if report.firing_ids and not report.cut_short:
            await self._facts.ledger.checkpoint_after_backlog()

    async def _commit_approved(
        self, call: FiringCall, after: Position, upto: Position, report: Report
    ) -> Position:
        """Commit the approved batch, without deletion limits."""
        freely = replace(call, limits=NO_LIMITS)
        # The whole batch: the watermark moves to its end, so a row not read now is lost.
        window = Window(after, upto.seq, upto.seq - after.seq)
        async with self._time_limit(call):
            batch = await self._consolidate(freely, window, whole=True)
        report.unrecorded = batch.unrecorded
        if batch.unrecorded:
            return after
        approved = batch.moved_to(after, upto)
        report.add(await self._apply(approved, cancelled=self._cancellation(call)))
        return upto

    async def _consume_backlog(self, call: FiringCall, after: Position, report: Report) -> None:
        """Consolidate what the log has above a position, up to its end at the first read."""
        report.cut_short = call.request.stopped
        if report.cut_short:
            return
        async with self._time_limit(call):
            batch = await self._read_first(call, after)
        last = batch.newest
        report.unrecorded = batch.unrecorded
        async with ReadingAhead(partial(self._read, call, last)) as windows:
            while not batch.is_empty:
                after = batch.upto
                follow = windows.follow(after) if after.seq < last else None
                report.add(await self._apply(batch, follow, self._cancellation(call)))
                if report.held or after.seq >= last:
                    return
                report.cut_short = call.request.stopped
                if report.cut_short:
                    return
                async with self._time_limit(call):
                    batch = await windows.read(after)
                report.unrecorded = batch.unrecorded

    async def _evaluate_arrived(self, call: FiringCall, report: Report) -> None:
        """Evaluate the quarantined episodes whose instant was still to come, and has come."""
        rule, at = call.request.rule, call.request.at
        latest = latest_at(at, self.future_tolerance_seconds)
        ledger = self._facts.ledger
        while not report.held and not report.cut_short:
            arrived = await ledger.future_upto(rule.id, latest, limit=self._batch)
            if not arrived:
                return
            mark = await self._facts.watermarks.position(rule.id) or START
            window = Window(mark, mark.seq, episodes=arrived)
            batch = await self._consolidate_in_time(call, window)
            if batch.versions:
                passed = batch.moved_to(mark, mark)
                report.add(await self._apply(passed, cancelled=self._cancellation(call)))
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
        window = Window(mark, mark.seq, dry_run=report.dry_run)
        # Deletion limits are for facts: a mark that ends deletes nothing, and shows an episode.
        freely = replace(call, limits=NO_LIMITS)
        consolidate = partial(self._consolidate_in_time, freely)
        anew = call.request.trigger == "backfill"
        batches = self._marking.batches(
            rule, consolidate, window, anew=anew, questions=report.summary_questions
        )
        async for batch in batches:
            report.add(await self._apply_to(report, batch, self._cancellation(call)))
            report.cut_short = call.request.stopped
            if report.cut_short:
                return
        if self.retention is not None and not report.dry_run:
            report.purged = await purge(
                self._episodes, self._facts, self.retention, rule, mark, call.request.at
            )

    async def _consolidate_in_time(self, call: FiringCall, window: Window) -> DeltaBatch:
        async with self._time_limit(call):
            return await self._consolidate(call, window, whole=True)

    async def preview(
        self, rule: ConsolidationRule, at: datetime, bounds: DryRunBounds = UNBOUNDED
    ) -> Report:
        """Report what a firing would do now, to at most `Sizes.previewed` log rows.

        Args:
            rule: The rule.
            at: The firing's instant.
            bounds: What bounds the dry run.

        Raises:
            StoppedError: The stop of the bounds was set.
        """
        mark = await self._facts.watermarks.position(rule.id)
        if mark is None:
            mark = START if rule.start == "beginning" else await self._episodes.newest()
        call = FiringCall(FireRequest(rule, "manual", at, stop=bounds.stop))
        window = Window(mark, limit=self._most_rows(bounds), dry_run=True)
        try:
            batch = await self._consolidate(call, window, whole=True)
        except LogRestoredError:
            earlier = window._replace(after=await self._last_agreement(rule.id, mark))
            batch = await self._consolidate(call, earlier, whole=True)
        report = self._new_report(rule, rehearsed=True)
        report.unrecorded = batch.unrecorded
        report.unread = max(0, (await self._episodes.newest()).seq - batch.upto.seq)
        report.add(await self._apply_to(report, batch, bounds.cancelled))
        await self._preview_arrived(call, mark, report, bounds)
        await self._mark(call, batch.upto, report)
        _check_whole(report)
        self._ask_for_summaries(rule, report)
        return report

    async def _preview_arrived(
        self, call: FiringCall, mark: Position, report: Report, bounds: DryRunBounds
    ) -> None:
        """Report what versions would change whose instant was still to come, and has come."""
        latest = latest_at(call.request.at, self.future_tolerance_seconds)
        limit = self._most_rows(bounds)
        arrived = await self._facts.ledger.future_upto(report.rule_id, latest, limit=limit)
        if arrived:
            window = Window(mark, mark.seq, episodes=arrived, dry_run=True)
            batch = await self._consolidate(call, window, whole=True)
            await self._apply_again(mark, batch, report, bounds.cancelled)

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
            bounds: What bounds a dry run.

        Raises:
            FilterError: The rule's filter failed; earlier batches stay committed.
            StoppedError: The stop of the bounds was set.
        """
        request = FireRequest(rule, "backfill", at, by, bounds.stop, run=run, reason=reason)
        call = FiringCall(request)
        report = self._new_report(rule, rehearsed=dry_run, run=run)
        mark = await self._facts.watermarks.position(rule.id) or START
        limit = self._most_rows(bounds) if dry_run else self._batch
        window = Window(START, mark.seq, limit, between=between, dry_run=dry_run, unrecorded="skip")
        while window.after.seq < mark.seq:
            if dry_run and window.after != START:
                report.unread = mark.seq - window.after.seq
                break
            batch = await self._consolidate(call, window, whole=True)
            if batch.is_empty:
                break
            report.unrecorded |= batch.unrecorded
            await self._apply_again(mark, batch, report, bounds.cancelled)
            window = window._replace(after=batch.upto)
        if between is None:
            await self._mark(call, mark, report)
            _check_whole(report)
            self._ask_for_summaries(rule, report)
        return report

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
    ) -> Report:
        """Evaluate quarantined episodes again, as if they came in order now.

        Args:
            rule: The rule.
            at: The firing's instant.
            by: Who requested it.
            eids: Their ids; None takes all that are quarantined for the rule.
            dry_run: Report the effect, and write nothing.
            run: The id that all of its batches share.
            reason: Why that person requested it; empty without a reason.
            bounds: What bounds a dry run.

        Raises:
            StoppedError: The stop of the bounds was set.
        """
        request = FireRequest(rule, "retry", at, by, bounds.stop, run=run, reason=reason)
        call = FiringCall(request)
        report = self._new_report(rule, rehearsed=dry_run, run=run)
        mark = await self._facts.watermarks.position(rule.id) or START
        quarantined = await self._facts.ledger.quarantined_of(rule.id)
        wanted = quarantined if eids is None else [eid for eid in quarantined if eid in set(eids)]
        window = Window(mark, mark.seq, episodes=wanted, dry_run=dry_run)
        batch = await self._consolidate(call, window, whole=True)
        await self._apply_again(mark, batch, report, bounds.cancelled)
        return report

    async def _apply_again(
        self, mark: Position, batch: DeltaBatch, report: Report, cancelled: Condition | None
    ) -> None:
        """Apply a batch of versions that the rule has passed; its watermark stays."""
        if not batch.versions:
            return
        passed = batch.moved_to(mark, mark)
        report.add(await self._apply_to(report, passed, cancelled))

    async def _apply_to(
        self, report: Report, batch: DeltaBatch, cancelled: Condition | None
    ) -> Outcome:
        """Apply a batch; for the report of a dry run, write nothing."""
        if report.dry_run:
            return await self._facts.apply_deltas(batch, dry_run=True, cancelled=cancelled)
        return await self._apply(batch, cancelled=cancelled)

    async def resume(self, rule: ConsolidationRule, at: datetime) -> Position:
        """Return where a rule resumes; step back when the log lost rows below its watermark.

        The log's row at the watermark must still have the same episode. If not, the episodes
        were restored from a backup, and the rule resumes where the log and the ledger last agree.
        """
        mark = await self._facts.watermarks.position(rule.id)
        if mark is None:
            return await self._begin(rule, at)
        if await self._agrees_with_log(mark):
            return mark
        return await self._walk_back(rule.id, mark)

    async def _begin(self, rule: ConsolidationRule, at: datetime) -> Position:
        mark = START if rule.start == "beginning" else await self._episodes.newest()
        if mark != START:
            await self._episodes.fsync()
        await self._facts.watermarks.begin(rule.id, mark, served=at)
        return mark

    async def _walk_back(self, rule_id: str, mark: Position) -> Position:
        earlier = await self._last_agreement(rule_id, mark)
        await self._facts.watermarks.rewind(rule_id, earlier)
        return earlier

    async def _last_agreement(self, rule_id: str, mark: Position) -> Position:
        """Return the last end of a batch below a position at which log and ledger agree."""
        for earlier in await self._facts.watermarks.batch_ends(rule_id):
            if earlier.seq < mark.seq and await self._agrees_with_log(earlier):
                return earlier
        return START

    async def _agrees_with_log(self, mark: Position) -> bool:
        return mark == START or await self._episodes.episode_at(mark.seq) == mark.eid

    async def _read_first(self, call: FiringCall, after: Position) -> DeltaBatch:
        """Return the first batch of a firing; step back when the log was restored."""
        try:
            return await self._read(call, None, after)
        except LogRestoredError:
            earlier = await self._walk_back(call.request.rule.id, after)
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
        at = call.request.at
        trusted: Literal["quarantine", "evaluate"] = (
            "quarantine" if await self._trusts_clock(at) else "evaluate"
        )
        batch = await self._episodes.consolidate(
            call.request.rule,
            window=window._replace(at=at, future=trusted),
            bounds=Bounds(cancelled, enough),
        )
        return replace(batch, firing=call.complete(batch.firing))

    async def _trusts_clock(self, at: datetime) -> bool:
        """Return whether an instant of the clock agrees with the last one that was recorded.

        If it does not, one of both is wrong, and nobody knows which versions are of the future.
        """
        recorded = await self._facts.ledger.last_recorded_at()
        if recorded is None:
            return True
        return (recorded - at).total_seconds() <= self.future_tolerance_seconds

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


def _check_whole(report: Report) -> None:
    """Check that nothing has ended a dry run, or a backfill, early.

    Raises:
        StoppedError: A stop was set.
    """
    if report.cut_short:
        raise StoppedError(f"the work on rule {report.rule_id!r} was stopped before its end")
