"""Fire rules into the fact store: by the consolidator, or by the promoter for rules of a graph."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from slumberd.consolidation.consolidator import Consolidator, Report
from slumberd.consolidation.fire_request import FireRequest
from slumberd.errors import UsageError
from slumberd.graph.promotion import Promoter
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.facts.store import SQLiteFactStore


class RuleRunner:
    """Fires rules into the fact store.

    Attributes:
        facts: The fact store.
        consolidator: Fires the rules that read episodes.

    Args:
        facts: The fact store.
        consolidator: Fires the rules that read episodes.
        promoter: Fires the rules that promote a graph; None when there is no graph.
    """

    def __init__(
        self,
        facts: SQLiteFactStore,
        consolidator: Consolidator,
        promoter: Promoter | None = None,
    ) -> None:
        self.facts = facts
        self.consolidator = consolidator
        self._promoter = promoter
        self._collecting: asyncio.Handle | None = None

    async def fire(self, request: FireRequest) -> Report:
        """Consolidate everything that is pending for a rule.

        Raises:
            UsageError: The rule promotes a graph, and there is none.
            SlumberdError: The firing failed; its earlier batches stay committed.
        """
        with self._uncollected():
            return await self._of(request.rule).fire(request)

    async def rehearse(self, rule: ConsolidationRule, at: datetime) -> Report:
        """Return what a firing would do now; write nothing.

        Raises:
            UsageError: The rule promotes a graph, and there is none.
        """
        return await self._of(rule).rehearse(rule, at)

    def _of(self, rule: ConsolidationRule) -> Consolidator | Promoter:
        if rule.reads_episodes:
            return self.consolidator
        if self._promoter is None:
            raise UsageError(f"rule {rule.id!r} promotes a graph, and there is none here")
        return self._promoter

    @contextmanager
    def _uncollected(self) -> Iterator[None]:
        """Keep Python's collector from walking a batch: it stops every thread for 50 to 100 ms.

        A firing makes no cycles of objects, so there is nothing for the collector to find.
        """
        enabled = gc.isenabled() or self._collecting is not None
        if self._collecting is not None:
            self._collecting.cancel()
            self._collecting = None
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                # An error that the caller handles holds its batch until the caller awaits again.
                self._collecting = asyncio.get_running_loop().call_soon(self._collect)

    def _collect(self) -> None:
        self._collecting = None
        gc.enable()
