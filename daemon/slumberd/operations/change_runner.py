"""What the operations that change facts share: their turn, dry runs and answers."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from slumberd.clock import Clock
from slumberd.consolidation.firing import UNBOUNDED, DryRunBounds
from slumberd.model.firing import Outcome
from slumberd.operations import forms
from slumberd.operations.handlers import Answer
from slumberd.operations.responses import (
    LISTED,
    count_by_kind,
    listed_deltas,
)
from slumberd.operations.stores import Stores
from slumberd.operations.writes.model_worker import ModelWorker
from slumberd.operations.writes.rule_runner import RuleRunner, Turn
from slumberd.rules.rule_loader import RuleSet

_RANDOM_BYTES, _CHARACTERS = 8, 12

T = TypeVar("T")


def new_run_id() -> str:
    """Return a random id of 12 letters and digits for a run: all batches of one command."""
    return base64.b32encode(os.urandom(_RANDOM_BYTES)).decode().lower()[:_CHARACTERS]


class ChangeRunner:
    """Runs changes one at a time; with ``dry_run`` a request writes nothing.

    Args:
        stores: The open stores.
        runner: Fires rules into the facts.
        rules: Returns the rules in force.
        stop: When it is set, firings stop; what is committed stays.

    Attributes:
        turn: The lock that each change of the facts holds.
        decided: Called after a decision on a held batch, because its rule may be due.
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
    ) -> None:
        self._facts = stores.facts
        self._runner = runner
        self._consolidator = runner.consolidator
        self._rules = rules
        self._clock = clock
        self._stop = stop
        self.turn = Turn()
        self.decided: Callable[[], None] = _nothing
        self.worker: ModelWorker | None = None

    async def run_change(
        self, work: Callable[[DryRunBounds], Awaitable[T]], request: forms.ChangeForm
    ) -> T:
        """Do work at its turn; as a dry run, it gives way to changes."""
        if request.dry_run:
            return await self.turn.run_dry(work)
        async with self.turn:
            return await work(UNBOUNDED)

    async def report(
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


def limit_of(request: forms.ChangeForm) -> int:
    """Return how many deltas an answer lists at most."""
    return LISTED if request.limit is None else request.limit


def reason_of(request: forms.ReasonedForm) -> str:
    """Return why a person requests a change; empty without a reason."""
    return request.reason or ""


def _nothing() -> None:
    """Do nothing: a command has no scheduler."""
