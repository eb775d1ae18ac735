"""Run the operations that change facts and episodes, for the daemon and for commands."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypeVar

import structlog

from slumberd.clock import Clock
from slumberd.config.rule_loader import RuleSet
from slumberd.consolidation.firing import UNBOUNDED, DryRunBounds, FireRequest
from slumberd.consolidation.manual import Assert, Edit, ManualBatch, Retract
from slumberd.errors import (
    MemoryScopeError,
    NoInputError,
    NotQuarantinedError,
    UsageError,
)
from slumberd.language_models.recorder import Recording
from slumberd.model.episode import latest_at
from slumberd.model.extraction import ModelSummariser
from slumberd.model.firing import CHANNELS, HeldBatch
from slumberd.model.record import Outcome, Record, Report
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import timestamp
from slumberd.operations import change_results, forms
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.handlers import Answer, Handler, handlers_of
from slumberd.operations.operation import Example, operation
from slumberd.operations.requests import (
    assertion_of,
    choose_rules,
    describe_unknown,
    fact_ids_of,
    lineage_entry,
    require_episode_rules,
    wanted_firings,
)
from slumberd.operations.responses import (
    LISTED,
    count_by_kind,
    listed_deltas,
    report_firings,
    report_recording,
    report_undo,
)
from slumberd.operations.stores import Stores
from slumberd.operations.writes.erasures import Erasures
from slumberd.operations.writes.model_worker import ModelWorker
from slumberd.operations.writes.rule_runner import RuleRunner
from slumberd.operations.writes.turn import Turn
from slumberd.storage.ledger.undo import Undoer, Wanted

_RANDOM_BYTES, _CHARACTERS = 8, 12

_log = structlog.get_logger("slumberd")

T = TypeVar("T")


Check = Callable[[], Awaitable[object]]
"""Raises an error when a change must not be made after all."""


def new_run_id() -> str:
    """Return a random id of 12 letters and digits for a run: all batches of one command."""
    return base64.b32encode(os.urandom(_RANDOM_BYTES)).decode().lower()[:_CHARACTERS]


class Operations:
    """Runs requests one at a time; with ``dry_run`` a request writes nothing.

    Args:
        stores: The open stores.
        runner: Fires rules into the facts.
        rules: Returns the rules in force.
        clock: The time.
        stop: When it is set, firings stop; what is committed stays.
        waits: Returns whether erasures leave the rewriting of the stores to a quiet window.

    Attributes:
        turn: The lock that each change of the facts holds.
        decided: Called after a decision on a held batch, because its rule may be due.
        erasures: Erases scopes.
        worker: Asks language models; None without a configured one.
    """

    def __init__(
        self,
        stores: Stores,
        runner: RuleRunner,
        rules: Callable[[], RuleSet],
        clock: Clock,
        *,
        stop: asyncio.Event | None = None,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._memory, self._facts = stores.memory, stores.facts
        self._runner = runner
        self._consolidator = runner.consolidator
        self._rules = rules
        self._clock = clock
        self._stop = stop
        self.turn = Turn()
        self.decided: Callable[[], None] = _nothing
        self.erasures = Erasures(
            stores,
            self._consolidator,
            clock,
            self.turn,
            drop_questions=self._drop_questions,
            waits=waits,
        )
        self.worker: ModelWorker | None = None

    @property
    def handlers(self) -> dict[str, Handler]:
        """The operations that change facts and episodes, by name."""
        return handlers_of(self, self.erasures)

    @operation(
        right=Right.OPERATE,
        example=Example({"rules": ["home"]}, values.FIRED),
    )
    async def fire(
        self, request: forms.FireForm, caller: Caller
    ) -> Annotated[Answer, change_results.Fired]:
        """Fire the named rules, or every enabled rule."""
        rules = choose_rules(self._rules(), request.rules)
        if request.dry_run:
            return await self._preview(rules, request)
        async with self.turn:
            run = new_run_id()
            reports = [await self._fire(rule, request, caller, run) for rule in rules]
        return report_firings(reports, run=run)

    async def _preview(
        self,
        rules: Sequence[ConsolidationRule],
        request: forms.ReasonedForm,
        approved: HeldBatch | None = None,
    ) -> Answer:
        """Report what firings of rules would do now."""
        reports = [
            await self.turn.run_dry(partial(self._preview_one, rule, approved)) for rule in rules
        ]
        return report_firings(reports, limit=_limit(request))

    async def _preview_one(
        self, rule: ConsolidationRule, approved: HeldBatch | None, bounds: DryRunBounds
    ) -> Report:
        report = await self._runner.preview(rule, self._clock.now(), bounds)
        waiting = report.held
        if approved and waiting and waiting.impact:
            # The approval permits what the firing would do, so nothing awaits another one.
            permitted = approved.permits(rule.content_hash, waiting.impact)
            report.held = None if permitted else waiting
        return report

    async def _run(
        self, work: Callable[[DryRunBounds], Awaitable[T]], request: forms.ChangeForm
    ) -> T:
        """Do work at its turn; as a dry run, it gives way to changes."""
        if request.dry_run:
            return await self.turn.run_dry(work)
        async with self.turn:
            return await work(UNBOUNDED)

    async def _fire(
        self, rule: ConsolidationRule, request: forms.ReasonedForm, caller: Caller, run: str
    ) -> Report:
        return await self._runner.fire(
            FireRequest(
                rule,
                "manual",
                self._clock.now(),
                by=str(caller),
                stop=self._stop,
                run=run,
                reason=_reason(request),
            )
        )

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        example=Example({"rule": "home"}, values.FIRED),
    )
    async def backfill(
        self, request: forms.BackfillForm, caller: Caller
    ) -> Annotated[Answer, change_results.Fired]:
        """Make the facts of a period equal to what a rule would promote now."""
        (rule,) = require_episode_rules(choose_rules(self._rules(), [request.rule]), "backfill")
        between, run = request.between, new_run_id()

        async def backfill(bounds: DryRunBounds) -> Report:
            return await self._consolidator.backfill(
                rule,
                self._clock.now(),
                by=str(caller),
                between=(int(between[0]), int(between[1])) if between else None,
                dry_run=request.dry_run,
                run=run,
                reason=_reason(request),
                bounds=bounds,
            )

        report = await self._run(backfill, request)
        return report_firings([report], limit=_limit(request), run=run)

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        example=Example(
            {"rules": ["home"]},
            {**values.FIRED, "still_quarantined": [], "still_quarantined_total": 0},
        ),
    )
    async def retry(
        self, request: forms.QuarantineForm, caller: Caller
    ) -> Annotated[Answer, change_results.Retried]:
        """Evaluate quarantined episodes again.

        The answer lists the episodes that still cannot be read under ``still_quarantined``.
        """
        rules = choose_rules(self._rules(), request.rules)
        if request.rules is None:
            rules = [rule for rule in rules if rule.reads_episodes]
        rules = require_episode_rules(rules, "quarantine retry")
        run = new_run_id()

        async def retry(bounds: DryRunBounds) -> Answer:
            reports = [
                await self._consolidator.retry(
                    rule,
                    self._clock.now(),
                    by=str(caller),
                    eids=request.episodes,
                    dry_run=request.dry_run,
                    run=run,
                    reason=_reason(request),
                    bounds=bounds,
                )
                for rule in rules
            ]
            still = await self._still_quarantined(reports, request)
            return report_firings(reports, limit=_limit(request), run=run) | still

        return await self._run(retry, request)

    async def _still_quarantined(
        self, reports: Sequence[Report], request: forms.QuarantineForm
    ) -> Answer:
        """Return which of the retried episodes are still in quarantine."""
        # A dry run leaves readable episodes in quarantine.
        readable = {
            (report.rule_id, eid)
            for report in reports
            for record in report.records
            if record.kind not in ("firing", "quarantine")
            for eid in record.source_episode_ids
        }
        rules = list({report.rule_id for report in reports})
        found = [
            entry
            for entry in await self._quarantine(rules, request.episodes)
            if (entry["rule_id"], entry["episode_id"]) not in readable
        ]
        listed = found[: _limit(request)]
        return {"still_quarantined": listed, "still_quarantined_total": len(found)}

    async def _quarantine(
        self, rules: Sequence[str] | None, episodes: Sequence[str] | None
    ) -> list[dict[str, Any]]:
        """Return entries of the quarantine; None means all rules, or all episodes."""
        return [
            entry
            for entry in await self._facts.reads.quarantine()
            if rules is None or entry["rule_id"] in rules
            if episodes is None or entry["episode_id"] in episodes
        ]

    @operation(
        right=Right.OPERATE,
        errors=(NotQuarantinedError,),
        example=Example({"episodes": ["e7"]}, {"dropped": 1}),
    )
    async def drop(
        self, request: forms.DropForm, caller: Caller
    ) -> Annotated[Answer, change_results.Dropped]:
        """Remove episodes from the quarantine.

        Raises:
            UsageError: Neither or both of ``episodes`` and ``all`` are given.
            NotQuarantinedError: An episode is not in quarantine; nothing was changed.
        """
        dry_run = request.dry_run
        async with self.turn:
            await self._check_named(request)
            dropped = await self._facts.ledger.drop_quarantined(
                request.rules,
                request.episodes,
                at=self._clock.now(),
                by=str(caller),
                dry_run=dry_run,
                reason=_reason(request),
            )
            if not dry_run:
                await self._consolidator.log_pending_records()
        return {"dropped": dropped}

    async def _check_named(self, request: forms.DropForm) -> None:
        """Check that the request names episodes that are in quarantine."""
        episodes, rules = request.episodes, request.rules
        if bool(episodes) == request.all:
            raise UsageError("name the episodes to drop, or give --all; not both")
        quarantined = {entry["episode_id"] for entry in await self._quarantine(rules, episodes)}
        if missing := [eid for eid in episodes or () if eid not in quarantined]:
            raise NotQuarantinedError(missing)

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        example=Example(
            {}, {"at": values.AT, "recorded": "2098-01-01T00:01:00Z", "firing_id": "@clock@121"}
        ),
    )
    async def accept_clock(
        self, request: forms.AcceptClockForm, caller: Caller
    ) -> Annotated[Answer, change_results.AcceptedClock]:
        """Record that the clock is right, after a wrong clock recorded later instants."""
        async with self.turn:
            now, recorded = self._clock.now(), await self._facts.ledger.last_recorded_at()
            outcome = None
            if recorded is not None and recorded > now:
                outcome = await self._facts.ledger.accept_clock(
                    at=now, by=str(caller), dry_run=request.dry_run, reason=_reason(request)
                )
                if not request.dry_run:
                    await self._consolidator.log_pending_records()
        self.decided()
        return {
            "at": timestamp(now),
            "recorded": timestamp(recorded) if recorded else None,
            "firing_id": outcome.firing_id if outcome and not request.dry_run else None,
        }

    async def accept_synchronised(self, kernel: datetime | None) -> bool:
        """Record that the clock is right, if the kernel keeps it so; return whether it did.

        Args:
            kernel: What the clock of the kernel says; None when it is not synchronised.
        """
        now, tolerance = self._clock.now(), self._consolidator.future_tolerance_seconds
        if kernel is None or abs((kernel - now).total_seconds()) > tolerance:
            return False
        async with self.turn:
            recorded = await self._facts.ledger.last_recorded_at()
            if recorded is None or (recorded - now).total_seconds() <= tolerance:
                return False
            await self._facts.ledger.accept_clock(at=now, by="")
            await self._consolidator.log_pending_records()
        _log.warning("clock.accepted", recorded=timestamp(recorded), at=timestamp(now))
        self.decided()
        return True

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        example=Example({}, {"withdrawn": 2, "firing_ids": ["@undo@120"]}),
    )
    async def withdraw_future(
        self, request: forms.WithdrawFutureForm, caller: Caller
    ) -> Annotated[Answer, change_results.WithdrawnFuture]:
        """Withdraw claims whose instant is still to come into the quarantine, until it comes."""
        now = self._clock.now()
        latest = latest_at(now, self._consolidator.future_tolerance_seconds)
        async with self.turn:
            undoer = Undoer(now, str(caller), new_run_id(), _reason(request))
            done = await self._facts.ledger.withdraw_future(latest, undoer, dry_run=request.dry_run)
            if not request.dry_run:
                await self._consolidator.log_pending_records()
        self.decided()
        deltas = [record for outcome in done for record in outcome.records]
        withdrawn = [one for one in deltas if one.kind not in ("firing", "add", "quarantine")]
        return {
            "withdrawn": len(withdrawn),
            "firing_ids": [] if request.dry_run else [outcome.firing_id for outcome in done],
        }

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        example=Example(
            {"rule": "home"},
            {
                "rule_id": "home",
                "calls": 2,
                "ok": 2,
                "refused": 0,
                "invalid": 0,
                "triples": 3,
                "dropped": 0,
                "tokens_in": 812,
                "tokens_out": 96,
            },
        ),
    )
    async def extract(
        self, request: forms.ExtractForm, _: Caller
    ) -> Annotated[Answer, change_results.Extracted]:
        """Ask the language model of a rule about all its episodes that have no answer."""
        [rule] = choose_rules(self._rules(), [request.rule])
        if not rule.asks_model:
            raise UsageError(f"rule {rule.id!r} asks no language model")
        if self.worker is None:
            raise UsageError("there is no language model; set 'language_model.base_url'")
        done = Recording()
        if rule.extract is not None and rule.extract.asks_model:
            done.add_all(await self.worker.ask_all(rule, again=request.again))
        if isinstance(rule.summariser, ModelSummariser):
            async with self.turn:
                report = await self._runner.preview(rule, self._clock.now())
            done.add_all(await self.worker.summarise_all(rule, report.summary_questions))
        return {"rule_id": rule.id, **report_recording(done)}

    @operation(
        right=Right.OPERATE,
        example=Example({"firing": values.FIRING, "approve": True}, values.FIRED),
    )
    async def decide(
        self, request: forms.DecideForm, caller: Caller
    ) -> Annotated[Answer, change_results.Fired]:
        """Approve or reject a batch that awaits approval.

        An approval plans again. When the rule changed, or more facts would go, the answer names
        what awaits another approval.
        """
        approve = request.approve
        if request.dry_run:
            held = await self._held_batch(request.firing)
            rules = self._approved_rules(held, approve=approve)
            if held.scope.again and rules:
                return await self._preview_again(held, rules[0], request)
            return await self._preview(rules, request, held)
        run = new_run_id()
        async with self.turn:
            held = await self._held_batch(request.firing)
            reports = []
            if approve and held.rule_id == CHANNELS:
                reports = await self._approve_channels(held, request, caller)
            elif approve:
                (rule,) = choose_rules(self._rules(), [held.rule_id])
                reports = [await self._approve(rule, held, request, caller, run)]
            else:
                await self._record_decision(held, request, caller)
        self.decided()
        return report_firings(reports, run=run)

    async def _approve(
        self,
        rule: ConsolidationRule,
        held: HeldBatch,
        request: forms.DecideForm,
        caller: Caller,
        run: str,
    ) -> Report:
        """Do what awaited approval; return the report, which may ask for another approval."""
        if held.scope.again:
            report = await self._repeat(held, rule, UNBOUNDED, request, caller, run)
            if report.held is None:
                await self._record_decision(held, request, caller)
            return report
        report = await self._consolidator.ask_again(rule, held, self._clock.now())
        if report.held is not None:
            return report
        await self._record_decision(held, request, caller)
        return await self._fire(rule, request, caller, run)

    async def _approve_channels(
        self, held: HeldBatch, request: forms.DecideForm, caller: Caller
    ) -> list[Report]:
        """Do a change of channels that awaited approval; the reports may ask for another one."""
        ledger, channels = self._facts.ledger, self._rules().multi_valued
        plan = await ledger.plan_channels(channels)
        if plan is not None and not held.permits(plan.content_hash, plan.impact):
            problem = plan.describe_excess(self._consolidator.limits) or held.problem
            again = await ledger.hold_channels(plan, problem, at=self._clock.now())
            await self._consolidator.log_pending_records()
            return [Report(CHANNELS, {}, held=again)]
        await self._record_decision(held, request, caller)
        await ledger.set_channels(channels, at=self._clock.now())
        await self._consolidator.log_pending_records()
        return []

    async def _record_decision(
        self, held: HeldBatch, request: forms.DecideForm, caller: Caller
    ) -> None:
        await self._facts.ledger.decide(
            held,
            approve=request.approve,
            at=self._clock.now(),
            by=str(caller),
            reason=_reason(request),
        )
        await self._consolidator.log_pending_records()

    async def _repeat(  # the fields of one request
        self,
        held: HeldBatch,
        rule: ConsolidationRule,
        bounds: DryRunBounds,
        request: forms.DecideForm,
        caller: Caller | None,
        run: str,
    ) -> Report:
        """Do a backfill or a retry that awaits approval."""
        at, by = self._clock.now(), str(caller or "")
        if held.scope.again == "retry":
            return await self._consolidator.retry(
                rule,
                at,
                by=by,
                dry_run=request.dry_run,
                run=run,
                reason=_reason(request),
                bounds=bounds,
                approved=held,
            )
        return await self._consolidator.backfill(
            rule,
            at,
            by=by,
            between=held.scope.between,
            dry_run=request.dry_run,
            run=run,
            reason=_reason(request),
            bounds=bounds,
            approved=held,
        )

    async def _preview_again(
        self, held: HeldBatch, rule: ConsolidationRule, request: forms.DecideForm
    ) -> Answer:
        """Report what a backfill or a retry that awaits approval would do now."""

        async def work(bounds: DryRunBounds) -> Report:
            return await self._repeat(held, rule, bounds, request, None, "")

        report = await self.turn.run_dry(work)
        return report_firings([report], limit=_limit(request))

    def _approved_rules(self, held: HeldBatch, *, approve: bool) -> list[ConsolidationRule]:
        """Return the rules to fire after a decision; a change of channels has none."""
        if not approve or held.rule_id == CHANNELS:
            return []
        return choose_rules(self._rules(), [held.rule_id])

    def _drop_questions(self) -> None:
        """Drop the questions for language models that wait in memory."""
        if self.worker is not None:
            self.worker.drop_questions()

    async def _held_batch(self, firing_id: str) -> HeldBatch:
        held = (await self._facts.ledger.held()).values()
        waiting = {batch.firing_id: batch for batch in held if not batch.approved}
        if firing_id not in waiting:
            known = ", ".join(waiting) or "none"
            raise UsageError(f"no batch {firing_id!r} is held; there are {known}")
        return waiting[firing_id]

    @operation(
        right=Right.OPERATE,
        example=Example(
            {"run": values.RUN},
            {
                "run": "b2c4d6f8a0xy",
                "undone": [values.FIRING],
                "firing_ids": ["@undo:4"],
                "counts": {"delete": 1},
                **values.DELTAS,
            },
        ),
    )
    async def undo(
        self, request: forms.UndoForm, caller: Caller
    ) -> Annotated[Answer, change_results.Undone]:
        """Undo one firing, the firings of a run, or those of a rule since an instant.

        One transaction undoes all firings that are not undone already.
        """
        dry_run, run = request.dry_run, new_run_id()
        wanted = wanted_firings(request)

        async def undo(bounds: DryRunBounds) -> Answer:
            undoer = Undoer(self._clock.now(), str(caller), run, _reason(request))
            if not isinstance(wanted, str):
                return await self._undo_each(wanted, undoer, request, bounds)
            outcome = await self._facts.ledger.undo(
                wanted, dry_run=dry_run, cancelled=bounds.cancelled, **undoer._asdict()
            )
            answer = await self._answer(outcome, dry_run=dry_run, limit=_limit(request))
            done = {} if dry_run else {"run": run, "firing_ids": [outcome.firing_id]}
            return {**answer, "run": None, "firing_ids": [], "undone": [wanted], **done}

        return await self._run(undo, request)

    async def _undo_each(
        self, wanted: Wanted, undoer: Undoer, request: forms.UndoForm, bounds: DryRunBounds
    ) -> Answer:
        dry_run = request.dry_run
        if not await self._facts.reads.has_any(wanted):
            raise UsageError(describe_unknown(wanted))
        done = await self._facts.ledger.undo_each(
            wanted,
            undoer,
            dry_run=dry_run,
            limit=_limit(request),
            cancelled=bounds.cancelled,
        )
        if not dry_run:
            await self._consolidator.log_pending_records()
        return report_undo(done, None if dry_run else undoer.run)

    @operation(
        right=Right.OPERATE,
        errors=(MemoryScopeError,),
        example=Example(
            {
                "user": "ana",
                "agent": "desk",
                "subject": "ana",
                "predicate": "lives_in",
                "object": "Porto",
                "reason": "ana said so",
            },
            {"firing_id": "@hand:3", "fact_id": "f1", "counts": {"add": 1}, **values.DELTAS},
        ),
    )
    async def pin(
        self,
        request: forms.PinForm,
        caller: Caller,
        *,
        check: Check | None = None,
        only: bool = False,
    ) -> Annotated[Answer, change_results.Pinned]:
        """Assert a fact as a person, for any user.

        With `only`, it replaces every value of its subject and predicate.
        """
        assertion = assertion_of(request, lineage_entry(request.reason, caller, self._clock.now()))
        edit = Assert(assertion, only=only)
        answer, _ = await self._edit_manually(edit, request, caller, check)
        return {**answer, "fact_id": assertion.fact_id}

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        errors=(NoInputError,),
        example=Example(
            {"facts": ["e1"], "reason": "it is wrong"},
            {"firing_id": "@hand:5", "counts": {"add": 1}, "not_current": [], **values.DELTAS},
        ),
    )
    async def unpin(
        self, request: forms.UnpinForm, caller: Caller, *, check: Check | None = None
    ) -> Annotated[Answer, change_results.Unpinned]:
        """Retract facts as a person, of any user."""
        fact_ids = fact_ids_of(request)
        lineage = (lineage_entry(request.reason, caller, self._clock.now()),)
        retract = Retract(fact_ids, lineage, known_only=True)
        answer, records = await self._edit_manually(retract, request, caller, check)
        removed = {fact_id for record in records for fact_id in record.replaces}
        not_current = [fact_id for fact_id in fact_ids if fact_id not in removed]
        return {**answer, "not_current": not_current}

    async def _edit_manually(
        self, edit: Edit, request: forms.ChangeForm, caller: Caller, check: Check | None
    ) -> tuple[Answer, Sequence[Record]]:
        dry_run = request.dry_run
        async with self.turn:
            if check is not None:
                await check()
            outcome = await self._facts.apply_deltas(
                ManualBatch([edit], str(caller)), dry_run=dry_run
            )
            answer = await self._answer(outcome, dry_run=dry_run)
        return answer, outcome.records if outcome else ()

    async def notice(self) -> int:
        """Record what other programs changed in the facts; return the number of ledger rows."""
        async with self.turn:
            rows = len(await self._facts.ledger.notice_external())
            if rows:
                await self._consolidator.log_pending_records()
        return rows

    async def _answer(
        self, outcome: Outcome | None, *, dry_run: bool, limit: int = LISTED
    ) -> Answer:
        """Write the log lines of an outcome, and return the outcome as JSON."""
        if not dry_run:
            await self._consolidator.log_pending_records()
        records = outcome.records if outcome else []
        return {
            "firing_id": outcome.firing_id if outcome and not dry_run else None,
            "counts": count_by_kind(records),
            **listed_deltas(records, limit=limit),
        }


def _limit(request: forms.ChangeForm) -> int:
    """Return how many deltas an answer lists at most."""
    return LISTED if request.limit is None else request.limit


def _reason(request: forms.ReasonedForm) -> str:
    """Return why a person requests a change; empty without a reason."""
    return request.reason or ""


def _nothing() -> None:
    """Do nothing: a command has no scheduler."""
