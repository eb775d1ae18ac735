"""Run the operation that returns which values of a fact's key were current, and when."""

from __future__ import annotations

from collections.abc import Iterable

from slumberd.consolidation.key_history import ValuePeriod
from slumberd.errors import MemoryScopeError, NoInputError
from slumberd.operations import example_values as values
from slumberd.operations.caller import Caller, Right
from slumberd.operations.history_forms import FactHistory, HistoryForm, Period
from slumberd.operations.operation import Example, operation
from slumberd.storage.facts.store import EngineFactStore


class FactHistories:
    """Runs requests for the history of facts.

    Args:
        facts: The facts.
    """

    def __init__(self, facts: EngineFactStore) -> None:
        self._facts = facts

    @operation(
        right=Right.READ,
        read_only=True,
        errors=(MemoryScopeError, NoInputError),
        example=Example(
            {"id": "e1"},
            {
                "id": "e1",
                "user": "ana",
                "agent": "desk",
                "payload": values.FACT["payload"],
                "valid": [values.PERIOD],
                "believed": [values.PERIOD],
                "cut": False,
            },
        ),
    )
    async def history(self, request: HistoryForm, caller: Caller) -> FactHistory:
        """Return which facts of the same subject and predicate were current, and when.

        Raises:
            NoInputError: The scope has never had such a fact.
        """
        scope = caller.scope(request.user, request.agent, all_agents=request.all_agents)
        found = await self._facts.history(request.id, scope, most=request.limit)
        return FactHistory(
            id=request.id,
            user=found.user,
            agent=found.agent,
            payload={**found.payload},
            valid=_periods(found.valid),
            believed=_periods(found.believed),
            cut=found.cut,
        )


def _periods(periods: Iterable[ValuePeriod]) -> list[Period]:
    return [
        Period(
            fact_id=period.fact_id,
            payload={**period.payload},
            begins_at=period.begins_at,
            ends_at=period.ends_at,
        )
        for period in periods
    ]
