"""All operations that change facts and episodes, for the daemon and for commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from slumberd.clock import Clock
from slumberd.operations.edits import (
    Edits,
)
from slumberd.operations.firing import Firing
from slumberd.operations.handlers import Handler, handlers_of
from slumberd.operations.quarantine import QuarantineChanges
from slumberd.operations.stores import Stores
from slumberd.operations.writes.erasures import Erasures
from slumberd.operations.writes.rule_runner import RuleRunner
from slumberd.operations.wrong_clock import WrongClock
from slumberd.rules.rule_loader import RuleSet


class Operations(Firing, Edits, QuarantineChanges, WrongClock):
    """Runs requests one at a time; with ``dry_run`` a request writes nothing.

    Args:
        stores: The open stores.
        runner: Fires rules into the facts.
        rules: Returns the rules in force.
        stop: When it is set, firings stop; what is committed stays.
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
