"""Fire each rule with the consolidator, or with the promoter when it reads a graph."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import UNBOUNDED, DryRunBounds, FireRequest
from slumberd.errors import UsageError
from slumberd.graph.promotion import Promoter
from slumberd.model.record import Report
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.stores import Stores


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
        self._enabling: asyncio.Handle | None = None

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
            rule: The rule.
            at: The firing's instant.
            bounds: What bounds the dry run.

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
        enabled = gc.isenabled() or self._enabling is not None
        if self._enabling is not None:
            self._enabling.cancel()
            self._enabling = None
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                # An error keeps its batch alive until the caller has handled it and awaits again.
                self._enabling = asyncio.get_running_loop().call_soon(self._enable_collector)

    def _enable_collector(self) -> None:
        self._enabling = None
        gc.enable()
