"""Run rules and requests that change facts, one at a time, with dry runs that give way."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from slumberd.clock import Clock
from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import UNBOUNDED, DryRunBounds, FireRequest
from slumberd.garbage_collection import begin_pause, end_pause
from slumberd.model.errors import StoppedError, UsageError
from slumberd.model.firing import Outcome, Report
from slumberd.model.rule import ConsolidationRule
from slumberd.operations import forms
from slumberd.operations.handlers import Answer
from slumberd.operations.responses import LISTED, count_by_kind, listed_deltas
from slumberd.operations.stores import Stores
from slumberd.operations.writes.model_worker import ModelWorker
from slumberd.rules.rule_loader import RuleSet
from slumberd.workers.graph.promotion import Promoter


class RuleRunner:
    """Fires rules into the fact store.

    Attributes:
        facts: The fact store.
        consolidator: Fires the rules that read episodes.

    Args:
        stores: The open stores.
        consolidator: Fires the rules that read episodes.
        promoter: Fires the rules that promote a graph; None when there is no graph.
    """

    def __init__(
        self,
        stores: Stores,
        consolidator: Consolidator,
        promoter: Promoter | None = None,
    ) -> None:
        self.facts = stores.facts
        self.consolidator = consolidator
        self._promoter = promoter
        self._ending: asyncio.Handle | None = None

    async def fire(self, request: FireRequest) -> Report:
        """Consolidate everything that is pending for a rule.

        Raises:
            UsageError: The rule promotes a graph, and there is none.
            SlumberdError: The firing failed; its earlier batches stay committed.
        """
        with self._without_collector():
            return await self._firer_of(request.rule).fire(request)

    async def preview(
        self, rule: ConsolidationRule, at: datetime, bounds: DryRunBounds = UNBOUNDED
    ) -> Report:
        """Report what a firing would do now; write nothing.

        Args:
            at: The firing's instant.

        Raises:
            StoppedError: The stop of the bounds was set.
            UsageError: The rule promotes a graph, and there is none.
        """
        return await self._firer_of(rule).preview(rule, at, bounds)

    def _firer_of(self, rule: ConsolidationRule) -> Consolidator | Promoter:
        if rule.reads_episodes:
            return self.consolidator
        if self._promoter is None:
            raise UsageError(f"rule {rule.id!r} promotes a graph, and there is none here")
        return self._promoter

    @contextmanager
    def _without_collector(self) -> Iterator[None]:
        """Disable the garbage collector during a firing: it stops every thread for 50 to 100 ms.

        A firing makes no cycles of objects, so the collector would find nothing.
        """
        if self._ending is not None:
            self._ending.cancel()
            self._end_pause()
        begin_pause()
        try:
            yield
        finally:
            # An error keeps its batch alive until the caller has handled it and awaits again.
            self._ending = asyncio.get_running_loop().call_soon(self._end_pause)

    def _end_pause(self) -> None:
        self._ending = None
        end_pause()


GIVES_WAY = 3
"""How often a dry run ends for a change that waits; the next time, the change waits for it."""


PART = 4
"""Each further attempt of a dry run reads at most this part of the rows of the one before."""


T = TypeVar("T")


class Turn:
    """A lock that each change of the facts holds: ``async with turn``.

    A dry run holds it, too, since it writes in a transaction that is rolled back. Without giving
    way, a long one would delay each firing that becomes due.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._wanted = asyncio.Event()

    async def __aenter__(self) -> None:
        self._waiting += 1
        self._wanted.set()
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._wanted.clear()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()

    async def run_dry(self, work: Callable[[DryRunBounds], Awaitable[T]]) -> T:
        """Run a dry run at its turn, and return its result.

        When a change waits for its turn, the dry run ends. It begins anew after the change, with
        fewer rows. The last attempt reads few rows, and does not end for a change.

        Args:
            work: Writes nothing. Raises `StoppedError` soon after the stop of its bounds is set.
        """
        for attempt in range(GIVES_WAY):
            async with self._lock:
                try:
                    return await work(DryRunBounds(self._wanted, PART**attempt))
                except StoppedError:
                    if not self._wanted.is_set():
                        raise
        async with self._lock:
            return await work(DryRunBounds(None, PART**GIVES_WAY))


_RANDOM_BYTES, _CHARACTERS = 8, 12


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
