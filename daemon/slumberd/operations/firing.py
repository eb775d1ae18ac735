"""Fire rules on request, and decide on batches that await approval."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from slumberd.consolidation.firing import UNBOUNDED, DryRunBounds, FireRequest
from slumberd.model.errors import UsageError
from slumberd.model.extraction import ModelSummariser
from slumberd.model.firing import CHANNELS, HeldBatch, Report
from slumberd.model.rule import ConsolidationRule
from slumberd.operations import example_values as values
from slumberd.operations import forms
from slumberd.operations.caller import Caller, Right
from slumberd.operations.example_values import COUNTS, FIRING, RUN
from slumberd.operations.forms import (
    OperatorForm,
    ReasonedForm,
    Result,
    Texts,
    choose_rules,
    require_episode_rules,
)
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.operations.responses import (
    Delta,
    report_firings,
    report_recording,
)
from slumberd.operations.writes.rule_runner import ChangeRunner, limit_of, new_run_id, reason_of
from slumberd.workers.language_models.recorder import Recording

_INSTANTS = 2**62
"""Microseconds around 1970; the calendar has no instant beyond them."""


Microseconds = Annotated[int, Field(ge=-_INSTANTS, le=_INSTANTS)]
"""An instant of the calendar, or one before or after all of them."""


FIRED: dict[str, Any] = {
    "run": RUN,
    "reports": [{"rule_id": "home", "firing_ids": [FIRING], "channels": {"facts": COUNTS}}],
}


class FireForm(ReasonedForm):
    """The request ``fire``: rules.

    Attributes:
        rules: The ids of the rules; by default every enabled one.
    """

    rules: Texts = None


class ExtractForm(OperatorForm):
    """The request ``extract``: a rule, and whether to ask again where there was no answer."""

    rule: str
    again: bool = False


class BackfillForm(ReasonedForm):
    """The request ``backfill``: a rule, and two instants in microseconds since 1970 UTC."""

    rule: str
    between: Annotated[list[Microseconds], Field(min_length=2, max_length=2)] | None = None


class DecideForm(ReasonedForm):
    """The request ``decide``: the firing of a held batch, and whether it is approved.

    Attributes:
        firing: The firing of the batch.
        approve: Whether the batch is applied; else it is skipped.
    """

    firing: str
    approve: bool = False


class WaitingBatch(Result):
    """A batch that awaits approval: its firing, and why it waits."""

    firing_id: str
    problem: str


class FiringReport(Result):
    """What the firings of one rule did.

    Attributes:
        rule_id: The rule.
        firing_ids: One for each batch.
        channels: By channel: how many episode versions it read, and what became of them.
        purged: How many archived episodes were deleted; absent for none.
        unrecorded: Whether episodes wait for a language model; absent when none does.
        held_batch: What awaits approval; absent without one. A dry run has no firing for it.
        rejected: How many versions were left out, because a person rejected them for the rule.
        deltas: The first deltas; only of a dry run.
        deltas_total: How many there are; only of a dry run.
        deltas_cut: Whether the list is cut; only of a dry run.
        unread: How many log rows were not read; only of a dry run.
    """

    rule_id: str
    firing_ids: list[str]
    channels: dict[str, dict[str, int]]
    purged: int | None = None
    unrecorded: bool | None = None
    held_batch: WaitingBatch | None = None
    rejected: int | None = None
    deltas: list[Delta] | None = None
    deltas_total: int | None = None
    deltas_cut: bool | None = None
    unread: int | None = None


class Fired(Result):
    """What a run did.

    Attributes:
        run: The run, which ``undo`` takes back; None when nothing fired.
        reports: By rule.
    """

    run: str | None
    reports: list[FiringReport]


class Extracted(Result):
    """What was asked of a language model.

    Attributes:
        rule_id: The rule.
        calls: How many questions were asked.
        ok: How many got an answer.
        refused: How many the model refused.
        invalid: How many got an answer that could not be read.
        triples: How many triples the answers hold.
        dropped: How many triples were dropped.
        tokens_in: The tokens of the questions.
        tokens_out: The tokens of the answers.
    """

    rule_id: str
    calls: int
    ok: int
    refused: int
    invalid: int
    triples: int
    dropped: int
    tokens_in: int
    tokens_out: int


class Firing(ChangeRunner):
    """Runs requests that fire rules."""

    @operation(
        right=Right.OPERATE,
        example=Example({"rules": ["home"]}, FIRED),
    )
    async def fire(self, request: FireForm, caller: Caller) -> Annotated[Answer, Fired]:
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
        return report_firings(reports, limit=limit_of(request))

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
                reason=reason_of(request),
            )
        )

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        example=Example({"rule": "home"}, FIRED),
    )
    async def backfill(self, request: BackfillForm, caller: Caller) -> Annotated[Answer, Fired]:
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
                reason=reason_of(request),
                bounds=bounds,
            )

        report = await self.run_change(backfill, request)
        return report_firings([report], limit=limit_of(request), run=run)

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
    async def extract(self, request: ExtractForm, _: Caller) -> Annotated[Answer, Extracted]:
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
        example=Example({"firing": values.FIRING, "approve": True}, FIRED),
    )
    async def decide(self, request: DecideForm, caller: Caller) -> Annotated[Answer, Fired]:
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
        request: DecideForm,
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
        self, held: HeldBatch, request: DecideForm, caller: Caller
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

    async def _record_decision(self, held: HeldBatch, request: DecideForm, caller: Caller) -> None:
        await self._facts.ledger.decide(
            held,
            approve=request.approve,
            at=self._clock.now(),
            by=str(caller),
            reason=reason_of(request),
        )
        await self._consolidator.log_pending_records()

    async def _repeat(  # the fields of one request
        self,
        held: HeldBatch,
        rule: ConsolidationRule,
        bounds: DryRunBounds,
        request: DecideForm,
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
                reason=reason_of(request),
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
            reason=reason_of(request),
            bounds=bounds,
            approved=held,
        )

    async def _preview_again(
        self, held: HeldBatch, rule: ConsolidationRule, request: DecideForm
    ) -> Answer:
        """Report what a backfill or a retry that awaits approval would do now."""

        async def work(bounds: DryRunBounds) -> Report:
            return await self._repeat(held, rule, bounds, request, None, "")

        report = await self.turn.run_dry(work)
        return report_firings([report], limit=limit_of(request))

    def _approved_rules(self, held: HeldBatch, *, approve: bool) -> list[ConsolidationRule]:
        """Return the rules to fire after a decision; a change of channels has none."""
        if not approve or held.rule_id == CHANNELS:
            return []
        return choose_rules(self._rules(), [held.rule_id])

    async def _held_batch(self, firing_id: str) -> HeldBatch:
        held = (await self._facts.watermarks.held()).values()
        waiting = {batch.firing_id: batch for batch in held if not batch.approved}
        if firing_id not in waiting:
            known = ", ".join(waiting) or "none"
            raise UsageError(f"no batch {firing_id!r} is held; there are {known}")
        return waiting[firing_id]
