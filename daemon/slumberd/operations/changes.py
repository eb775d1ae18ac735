"""All operations that change facts and episodes, for the daemon and for commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import structlog

from slumberd.clock import Clock
from slumberd.logs.lines import timestamp
from slumberd.model.episode import latest_at
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.edits import Edits
from slumberd.operations.firing import Firing
from slumberd.operations.forms import ReasonedForm, Result
from slumberd.operations.handlers import Answer, Example, Handler, handlers_of, operation
from slumberd.operations.quarantine import QuarantineChanges
from slumberd.operations.stores import Stores
from slumberd.operations.writes.erasures import Erasures
from slumberd.operations.writes.rule_runner import ChangeRunner, RuleRunner, new_run_id, reason_of
from slumberd.rules.rule_loader import RuleSet
from slumberd.storage.ledger.undo import Undoer

_log = structlog.get_logger("slumberd")


class WithdrawFutureForm(ReasonedForm):
    """The request ``withdraw_future``; it concerns all facts."""


class AcceptClockForm(ReasonedForm):
    """The request ``accept_clock``; it concerns all recorded instants."""


class AcceptedClock(Result):
    """That the clock is right.

    Attributes:
        at: What the clock says.
        recorded: The last recorded instant before; null without one.
        firing_id: The firing that records it; null when no recorded instant was later, and for a
            dry run.
    """

    at: datetime
    recorded: datetime | None
    firing_id: str | None


class WithdrawnFuture(Result):
    """What was withdrawn, because its instant is still to come.

    Attributes:
        withdrawn: How many claims went into the quarantine, or got another instant.
        firing_ids: The firings that withdrew them; none of a dry run.
    """

    withdrawn: int
    firing_ids: list[str]


class WrongClock(ChangeRunner):
    """Runs requests after a wrong clock."""

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        example=Example(
            {}, {"at": values.AT, "recorded": "2098-01-01T00:01:00Z", "firing_id": "@clock@121"}
        ),
    )
    async def accept_clock(
        self, request: AcceptClockForm, caller: Caller
    ) -> Annotated[Answer, AcceptedClock]:
        """Record that the clock is right, after a wrong clock recorded later instants."""
        async with self.turn:
            now, recorded = self._clock.now(), await self._facts.watermarks.last_recorded_at()
            outcome = None
            if recorded is not None and recorded > now:
                outcome = await self._facts.ledger.accept_clock(
                    at=now, by=str(caller), dry_run=request.dry_run, reason=reason_of(request)
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
            recorded = await self._facts.watermarks.last_recorded_at()
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
        self, request: WithdrawFutureForm, caller: Caller
    ) -> Annotated[Answer, WithdrawnFuture]:
        """Withdraw claims whose instant is still to come into the quarantine, until it comes."""
        now = self._clock.now()
        latest = latest_at(now, self._consolidator.future_tolerance_seconds)
        async with self.turn:
            undoer = Undoer(now, str(caller), new_run_id(), reason_of(request))
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


class Operations(Firing, Edits, QuarantineChanges, WrongClock):
    """Runs all requests that change something; the other arguments are those of `ChangeRunner`.

    Args:
        waits: Returns whether erasures leave the rewriting of the stores to a quiet window.

    Attributes:
        erasures: Erases scopes.
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
        super().__init__(stores, runner, rules, clock, stop=stop)
        self.erasures = Erasures(
            stores,
            self._consolidator,
            clock,
            self.turn,
            drop_questions=self._drop_questions,
            waits=waits,
        )

    @property
    def handlers(self) -> dict[str, Handler]:
        """The operations that change facts and episodes, by name."""
        return handlers_of(self, self.erasures)

    def _drop_questions(self) -> None:
        """Drop the questions for language models that wait in memory."""
        if self.worker is not None:
            self.worker.drop_questions()

    async def notice(self) -> int:
        """Record what other programs changed in the facts; return the number of ledger rows."""
        async with self.turn:
            rows = len(await self._facts.ledger.notice_external())
            if rows:
                await self._consolidator.log_pending_records()
        return rows
