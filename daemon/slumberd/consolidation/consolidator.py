"""Run a firing: read a window, evaluate it, commit its resolution, and log it after the commit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.consolidation.delta_lines import DeltaLines
from slumberd.consolidation.fire_request import FireRequest, FiringCall, Report
from slumberd.consolidation.incoming import Candidate, HeldBack, evaluate, withdraw
from slumberd.consolidation.protocols import DeltaLog, EpisodeLog, Ledger
from slumberd.consolidation.reading_ahead import ReadingAhead
from slumberd.consolidation.salience_gate import (
    Condition,
    Embedding,
    SalienceGate,
    never,
    no_embedder,
)
from slumberd.errors import FiringTimeoutError, StoppedError
from slumberd.model.episode import EpisodeVersion, misspellings_in
from slumberd.model.firing import (
    NO_LIMITS,
    START,
    Counts,
    Firing,
    Limits,
    Position,
)
from slumberd.model.record import Outcome
from slumberd.model.rule import ConsolidationRule

Candidates = dict[str, list[Candidate]]
"""A rule's candidates of a window, by channel."""

_GATE_SECONDS = 5.0
"""How long a gate may measure relevance for one batch; the next batch continues."""


class Sizes(NamedTuple):
    """How much a consolidator does at once.

    Attributes:
        evaluated: Versions that it evaluates between two checks for cancellation.
        logged: Ledger rows whose pending log lines it writes at once.
        previewed: Log rows that a preview or a rehearsal resolves at most. It keeps them in
            memory, and a rehearsal also keeps the write lock.
    """

    evaluated: int = 500
    logged: int = 1_000
    previewed: int = 100_000


class Consolidator:
    """Runs rules over an episode log, commits to a ledger, and logs a line for each delta.

    Attributes:
        limits: The deletion limits of one batch, for a rule without limits of its own.

    Args:
        episodes: The episode log.
        ledger: The ledger, with the facts.
        log: Where each delta is logged, after its commit.
        clock: Measures durations.
        batch: At most this many log rows are resolved in one transaction.
        limits: The deletion limits of one batch, for a rule without limits of its own.
        embedding: Makes the embedder of the salience gates, when a gate first needs it.
        sizes: How much it does at once.
    """

    def __init__(  # noqa: PLR0913 # one for each component that it joins
        self,
        episodes: EpisodeLog,
        ledger: Ledger,
        log: DeltaLog,
        clock: Clock,
        *,
        batch: int,
        limits: Limits = NO_LIMITS,
        embedding: Embedding = no_embedder,
        sizes: Sizes = Sizes(),  # noqa: B008 # immutable
    ) -> None:
        self._episodes = episodes
        self._ledger = ledger
        self._log = log
        self._clock = clock
        self._batch = batch
        self._salience_gate = SalienceGate(episodes, embedding)
        self._sizes = sizes
        self.limits = limits
        self._left_channels: dict[str, tuple[str, frozenset[str]]] = {}
        self._spelling_checked_upto = 0
        self._lines = DeltaLines(ledger, log, clock, at_once=sizes.logged)

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
            self._ledger.skip_checkpoint_on_close()
        return report

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
        async with self._time_limit(call):
            after = await self.resume(call.request.rule, call.request.at)
            held = (await self._ledger.held()).get(call.request.rule.id)
            last = (await self._episodes.newest()).seq
        if held is not None and not held.approved:
            report.held = held
            return
        if held is not None:
            after = await self._commit_approved(call, after, Position(*held.upto), report)
        await self._consume_backlog(call, (after, last), report)
        if report.firing_ids and not report.cut_short:
            await self._ledger.checkpoint_after_backlog()

    async def _commit_approved(
        self, call: FiringCall, after: Position, upto: Position, report: Report
    ) -> Position:
        """Commit the approved batch, without deletion limits."""
        freely = replace(call, limits=NO_LIMITS)
        async with self._time_limit(call):
            # The whole batch: the watermark moves to its end, so a row not read now is lost.
            _, candidates = await self._read(freely, after, upto=upto.seq, whole=True)
        report.add(
            await self._commit(
                freely.firing(after, upto), candidates, cancelled=self._cancellation(call)
            )
        )
        return upto

    async def _consume_backlog(
        self, call: FiringCall, span: tuple[Position, int], report: Report
    ) -> None:
        after, last = span
        async with ReadingAhead(partial(self._read, call, upto=last)) as windows:
            while after.seq < last:
                if call.request.stopped:
                    report.cut_short = True
                    return
                async with self._time_limit(call):
                    firing, candidates = await windows.read(after)
                if firing.upto == after:
                    return
                after = firing.upto
                more = after.seq < last
                follow = windows.follow(after) if more else None
                report.add(await self._commit(firing, candidates, follow, self._cancellation(call)))
                if report.held:
                    return

    async def preview(self, rule: ConsolidationRule, at: datetime) -> Report:
        """Report what a firing would do now, to at most `Sizes.previewed` log rows."""
        mark = await self._ledger.watermarks.position(rule.id)
        if mark is None:
            mark = START if rule.start == "beginning" else await self._episodes.newest()
        call = FiringCall(FireRequest(rule, "manual", at))
        firing, candidates = await self._read(call, mark, limit=self._sizes.previewed, whole=True)
        report = self._new_report(rule, rehearsed=True)
        report.unread = max(0, (await self._episodes.newest()).seq - firing.upto.seq)
        report.add(await self._ledger.preview(firing, candidates))
        return report

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
        """Make a rule's facts equal to those that it would promote now; keep its watermark.

        Args:
            rule: The rule, as it is now.
            at: The firing's instant.
            by: Who requested it.
            between: Only episodes of these instants, microseconds: the first inclusive, the
                second exclusive; None takes all.
            dry_run: Report the effect on at most `Sizes.previewed` log rows; write nothing.
            run: The id that all of its batches share.

        Raises:
            FilterError: The rule's filter failed; earlier batches stay committed.
        """
        call = FiringCall(FireRequest(rule, "backfill", at, by, run=run))
        report = self._new_report(rule, rehearsed=dry_run, run=run)
        mark = await self._ledger.watermarks.position(rule.id) or START
        limit = self._sizes.previewed if dry_run else self._batch
        after = START
        while after.seq < mark.seq:
            window = await self._episodes.select(rule, after=after, limit=limit, upto=mark.seq)
            if window.upto == after:
                break
            if dry_run and after != START:
                report.unread = mark.seq - after.seq
                break
            await self._evaluate_again(
                call, mark, _versions_between(window.versions, between), report
            )
            after = window.upto
        return report

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
        """Evaluate quarantined episodes again, as if they came in order now.

        Args:
            rule: The rule.
            at: The firing's instant.
            by: Who requested it.
            eids: Their ids; None takes all that are quarantined for the rule.
            dry_run: Report the effect, and write nothing.
            run: The id that all of its batches share.
        """
        call = FiringCall(FireRequest(rule, "retry", at, by, run=run))
        report = self._new_report(rule, rehearsed=dry_run, run=run)
        mark = await self._ledger.watermarks.position(rule.id) or START
        quarantined = await self._ledger.quarantined_of(rule.id)
        wanted = quarantined if eids is None else [eid for eid in quarantined if eid in set(eids)]
        versions = await self._episodes.reread(rule, wanted, upto=mark.seq)
        await self._evaluate_again(call, mark, versions, report)
        return report

    async def _evaluate_again(
        self,
        call: FiringCall,
        mark: Position,
        versions: Sequence[EpisodeVersion],
        report: Report,
    ) -> None:
        if not versions:
            return
        versions = await self._salience_gate.apply(versions, call.request.rule, call.request.at)
        candidates = await asyncio.to_thread(self._evaluate, versions, call.request.rule)
        candidates |= await self._withdraw(call.request.rule, versions)
        firing = call.firing(mark, mark)
        if report.dry_run:
            report.add(await self._ledger.preview(firing, candidates))
        else:
            report.add(await self._commit(firing, candidates))

    async def resume(self, rule: ConsolidationRule, at: datetime) -> Position:
        """Return where a rule resumes; step back when memory.db lost rows below its watermark.

        The log's row at the watermark must still have the same episode. If not, memory.db was
        restored from a backup, and the rule resumes where the log and the ledger last agree.
        """
        mark = await self._ledger.watermarks.position(rule.id)
        if mark is None:
            return await self._begin(rule, at)
        if await self._agrees_with_log(mark):
            return mark
        return await self._walk_back(rule.id, mark)

    async def _begin(self, rule: ConsolidationRule, at: datetime) -> Position:
        mark = START if rule.start == "beginning" else await self._episodes.newest()
        if mark != START:
            await self._episodes.fsync()
        await self._ledger.watermarks.begin(rule.id, mark, served=at)
        return mark

    async def _walk_back(self, rule_id: str, mark: Position) -> Position:
        for earlier in await self._ledger.watermarks.batch_ends(rule_id):
            if earlier.seq < mark.seq and await self._agrees_with_log(earlier):
                await self._ledger.watermarks.rewind(rule_id, earlier)
                return earlier
        await self._ledger.watermarks.rewind(rule_id, START)
        return START

    async def _agrees_with_log(self, mark: Position) -> bool:
        return mark == START or await self._episodes.episode_at(mark.seq) == mark.eid

    async def _read(
        self,
        call: FiringCall,
        after: Position,
        *,
        limit: int | None = None,
        upto: int | None = None,
        whole: bool = False,
    ) -> tuple[Firing, Candidates]:
        """Return the next batch of a rule: its firing and candidates.

        The batch is smaller when the salience gate takes long, unless `whole`.
        """
        select = partial(self._episodes.select, call.request.rule, after=after, upto=upto)
        apply_gate = partial(
            self._salience_gate.apply,
            rule=call.request.rule,
            at=call.request.at,
            cancelled=self._cancellation(call) or never,
        )
        window = await select(limit=limit or self._batch)
        self._check_spelling(window.versions)
        enough = never if whole else self._gate_time_limit(call)
        versions = await apply_gate(window.versions, enough=enough)
        if len(versions) < len(window.versions):
            # Each log row has at most one version. The embedder has cached their vectors.
            window = await select(limit=len(versions))
            versions = await apply_gate(window.versions)
        candidates = await asyncio.to_thread(
            self._evaluate, versions, call.request.rule, self._cancellation(call)
        )
        return call.firing(after, window.upto), candidates | await self._withdraw(
            call.request.rule, versions
        )

    async def _channels_left(self, rule: ConsolidationRule) -> frozenset[str]:
        """Return the channels that a rule emitted into before, and no longer does."""
        content_hash, left = self._left_channels.get(rule.id, ("", frozenset()))
        # A rule of one content always emits into the same channels, so one query is enough.
        if content_hash != rule.content_hash:
            emitted = await self._ledger.channels_of(rule.id)
            left = frozenset(emitted).difference(rule.then_emits)
            self._left_channels[rule.id] = rule.content_hash, left
        return left

    async def _withdraw(
        self, rule: ConsolidationRule, versions: Sequence[EpisodeVersion]
    ) -> Candidates:
        """Return candidates that withdraw versions in channels that a rule has left."""
        channels = await self._channels_left(rule)
        if not channels or not versions:
            return {}
        withdrawn = withdraw(versions, rule.id, channels)
        fact_ids = [candidate.fact_id for found in withdrawn.values() for candidate in found]
        promoted = await self._ledger.promoted_by(rule.id, fact_ids)
        applicable = {
            name: [candidate for candidate in found if candidate.fact_id in promoted]
            for name, found in withdrawn.items()
        }
        return {name: found for name, found in applicable.items() if found}

    def _gate_time_limit(self, call: FiringCall) -> Condition:
        """Return a check whether the gate has used up its share of the batch's time."""
        now = self._clock.monotonic()
        ends_at = now + min(_GATE_SECONDS, (call.ends_at - now) / 2)
        return lambda: self._clock.monotonic() >= ends_at

    def _check_spelling(self, versions: Sequence[EpisodeVersion]) -> None:
        """Log the misspelled keys of versions that no rule of this process has read before."""
        fresh = [version for version in versions if version.seq > self._spelling_checked_upto]
        if fresh:
            self._spelling_checked_upto = max(version.seq for version in fresh)
            self._log.misspelled(misspellings_in(fresh))

    def _evaluate(
        self,
        versions: Sequence[EpisodeVersion],
        rule: ConsolidationRule,
        cancelled: Callable[[], bool] | None = None,
    ) -> Candidates:
        found: Candidates = {name: [] for name in rule.then_emits}
        for first in range(0, len(versions), self._sizes.evaluated):
            if cancelled is not None and cancelled():
                raise StoppedError("the firing was cancelled")
            for name, candidates in evaluate(
                versions[first : first + self._sizes.evaluated], rule
            ).items():
                found[name] += candidates
        return found

    def _new_report(
        self, rule: ConsolidationRule, *, rehearsed: bool = False, run: str = ""
    ) -> Report:
        """Return an empty report on a firing of a rule."""
        counts = {channel: Counts() for channel in rule.then_emits}
        return Report(rule.id, counts, run, dry_run=rehearsed)

    async def _commit(
        self,
        firing: Firing,
        candidates: Candidates,
        on_decided: Callable[[], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Outcome:
        began = self._clock.monotonic()
        # Before facts.db records what the gate holds back. In the other order, a crash in between
        # would leave episodes that the rule never evaluates again, even after a read.
        if seen := _reads_of_held_back(candidates):
            await self._episodes.log_again_after_read(seen)
        # The episodes must survive a power cut before their facts do. Otherwise the log would give
        # their numbers to new episodes, which the watermark has passed already.
        await self._episodes.fsync()
        outcome = await self._ledger.commit(
            firing, candidates, on_decided=on_decided, cancelled=cancelled
        )
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


def _versions_between(
    versions: Sequence[EpisodeVersion], between: tuple[int, int] | None
) -> Sequence[EpisodeVersion]:
    if between is None:
        return versions
    first, end = between
    return [version for version in versions if first <= version.at < end]


def _reads_of_held_back(candidates: Candidates) -> dict[str, int]:
    """Return the episodes that a gate holds back, each with the number of its known reads."""
    return {
        candidate.eid: candidate.shortfall.reads
        for found in candidates.values()
        for candidate in found
        if isinstance(candidate, HeldBack)
    }
