"""Keep the calls of language models within the budget of a day. Failed calls count, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slumberd.clock import Clock
from slumberd.model.errors import BudgetSpentError
from slumberd.model.extraction import (
    ModelUsage,
    Questions,
    RecordedAnswer,
    RecordedSummary,
    SentRequest,
)
from slumberd.model.rule import ConsolidationRule

_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """What calls may cost in one day, UTC; None means no limit.

    Attributes:
        calls: The most requests.
        tokens: The most tokens of requests and answers. The last call may exceed it.
        cost: The most cost. The last call may exceed it.
        price_in: The price of a million tokens of requests.
        price_out: The price of a million tokens of answers.
    """

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    price_in: float = 0.0
    price_out: float = 0.0

    def check(self, spent: ModelUsage) -> None:
        """Check that another call is within the budget.

        Args:
            spent: What the calls of the day cost before it.

        Raises:
            BudgetSpentError: It is not.
        """
        found = {
            "calls": (spent.calls, self.calls),
            "tokens": (spent.tokens_in + spent.tokens_out, self.tokens),
            "cost": (spent.cost_micros / _MICRO, self.cost),
        }
        for kind, (amount, limit) in found.items():
            if limit is not None and amount >= limit:
                raise BudgetSpentError(kind, amount, limit)

    def usage_of(self, tokens_in: int, tokens_out: int) -> ModelUsage:
        """Return what the tokens of one call cost, without the call itself."""
        cost = tokens_in * self.price_in + tokens_out * self.price_out
        return ModelUsage(0, tokens_in, tokens_out, round(cost))


class AnswerLog(Protocol):
    """The questions about episodes, and the recorded answers."""

    async def questions(
        self, rule: ConsolidationRule, *, after: int, limit: int, again: bool = False
    ) -> Questions:
        """Return what the language model of a rule is to be asked about a window of the log.

        Args:
            after: The number of the log row before the window.
            limit: At most this many log rows.
            again: Whether questions count whose recorded answer is ``refused`` or ``invalid``.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
            StoppedError: The store was stopped.
        """
        ...

    async def record(
        self, answers: Sequence[RecordedAnswer], request: SentRequest | None = None
    ) -> None:
        """Record answers, and the request that brought them, in one transaction.

        Answers about deleted episodes are dropped, and so is a request with their words.
        """
        ...

    async def summaries(self, eids: Sequence[str]) -> dict[str, RecordedSummary]:
        """Return the recorded summaries of groups that begin with some episodes, by key."""
        ...

    async def record_summary(self, summary: RecordedSummary) -> None:
        """Record a summary; nothing if its first episode was deleted meanwhile."""
        ...

    async def spend(self, day: str, usage: ModelUsage) -> ModelUsage:
        """Add a cost to the sum of a day, as ``2026-03-09``; return the new sum."""
        ...

    async def spent(self, day: str) -> ModelUsage:
        """Return what the calls of a day cost."""
        ...

    async def remove_orphans(self) -> int:
        """Remove the answers about episodes that their host has deleted; return how many."""
        ...


class Spending:
    """Checks and counts the calls of a store in its database, so that a restart changes nothing.

    Args:
        answers: Keeps the sums.
        clock: Says which day it is.
    """

    def __init__(self, answers: AnswerLog, budget: Budget, clock: Clock) -> None:
        self._answers = answers
        self._budget = budget
        self._clock = clock

    async def begin_call(self) -> None:
        """Count one call, before it is made: a crash must not make it free.

        Raises:
            BudgetSpentError: The budget of the day is spent; nothing was counted.
        """
        day = self._day()
        self._budget.check(await self._answers.spent(day))
        await self._answers.spend(day, ModelUsage(calls=1))

    async def end_call(self, tokens_in: int, tokens_out: int) -> None:
        """Count the tokens and the cost of a call."""
        await self._answers.spend(self._day(), self._budget.usage_of(tokens_in, tokens_out))

    def _day(self) -> str:
        return self._clock.now().date().isoformat()
