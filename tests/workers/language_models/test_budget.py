"""The budget of a day: no call goes beyond it, failed calls count, and nothing is lost."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.errors import BudgetSpentError
from slumberd.model.extraction import ModelUsage
from slumberd.operations.writes.model_worker import BACKOFF_SECONDS
from slumberd.workers.language_models.budget import Budget
from tests.support.asked_models import asked_stores, asking, said
from tests.support.model_server import Answer, Reply, completion, likes_everything

DAY = 86_400.0

REPLIES: dict[str, Answer] = {
    "valid": likes_everything,
    "wrong schema": lambda _: completion('{"found": 7}'),
    "cut": lambda _: completion('{"triples": [', finish="length"),
    "refused": lambda _: completion("", refusal="no"),
    "down": lambda _: Reply(500, b"down"),
    "slow down": lambda _: Reply(429, b"", ("Retry-After: 3",)),
}


@pytest.mark.parametrize(
    ("budget", "spent", "kind"),
    [
        pytest.param(Budget(calls=3), ModelUsage(calls=3), "calls", id="calls"),
        pytest.param(Budget(tokens=30), ModelUsage(1, 20, 10), "tokens", id="tokens"),
        pytest.param(Budget(cost=0.5), ModelUsage(1, 0, 0, 500_000), "cost", id="cost"),
        pytest.param(Budget(calls=0), ModelUsage(), "calls", id="nothing"),
    ],
)
def test_spent_budget_allows_no_call(budget: Budget, spent: ModelUsage, kind: str) -> None:
    with pytest.raises(BudgetSpentError) as caught:
        budget.check(spent)

    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        pytest.param(Budget(), ModelUsage(10**9, 10**9, 10**9, 10**12), id="no limit"),
        pytest.param(Budget(calls=3), ModelUsage(calls=2), id="calls"),
        pytest.param(Budget(tokens=30), ModelUsage(1, 20, 9), id="tokens"),
        pytest.param(Budget(cost=0.5), ModelUsage(1, 0, 0, 499_999), id="cost"),
    ],
)
def test_budget_that_is_not_spent_allows_a_call(budget: Budget, spent: ModelUsage) -> None:
    budget.check(spent)


def test_cost_is_that_of_the_tokens() -> None:
    budget = Budget(price_in=0.15, price_out=0.6)

    assert budget.usage_of(2_000, 500) == ModelUsage(0, 2_000, 500, 600)


@pytest.mark.slow
@pytest.mark.integration
async def test_episodes_wait_for_the_next_day_when_the_budget_is_spent(tmp_path: Path) -> None:
    rule = asking(turns_per_call=1)
    async with asked_stores(tmp_path, rule, budget=Budget(calls=2)) as asked:
        await asked.home.put(*(said(f"e{n}", f"I like w{n}", n) for n in range(3)))

        spent = await asked.worker.turn()
        first = len(asked.server.requests)
        again = await asked.worker.turn()
        still = len(asked.server.requests)
        asked.clock.advance(DAY)
        rested = await asked.worker.turn()

        assert (first, still, len(asked.server.requests)) == (2, 2, 3)
        assert (spent, again, rested) == (BACKOFF_SECONDS[-1], BACKOFF_SECONDS[-1], 1.0)
        days = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
        usage = [await asked.home.memory.answers.spent(day.date().isoformat()) for day in days]
        assert [one.calls for one in usage] == [2, 1]
        assert (usage[0].tokens_in, usage[0].tokens_out) == (200, 20)


@pytest.mark.slow
@pytest.mark.integration
@settings(max_examples=15, deadline=None)
@given(
    script=st.lists(st.sampled_from(sorted(REPLIES)), max_size=12),
    calls=st.integers(1, 4),
    turns=st.integers(1, 6),
    together=st.integers(1, 3),
)
def test_any_failures_keep_the_budget_and_lose_nothing(
    script: list[str], calls: int, turns: int, together: int
) -> None:
    async def ask() -> None:
        with tempfile.TemporaryDirectory() as folder:
            rule = asking(turns_per_call=together)
            replies = tuple(REPLIES[name] for name in script)
            budget = Budget(calls=calls)
            async with asked_stores(Path(folder), rule, script=replies, budget=budget) as asked:
                await asked.home.put(*(said(f"e{n}", f"I like w{n}", n) for n in range(turns)))
                for _ in range(40):  # more days than any script can fail
                    before = len(asked.server.requests)
                    for _ in range(3):
                        await asked.worker.turn()
                    made = len(asked.server.requests) - before
                    day = asked.clock.now().date().isoformat()
                    assert made <= calls
                    assert (await asked.home.memory.answers.spent(day)).calls == made
                    asked.clock.advance(DAY)
                left = await asked.home.memory.answers.questions(rule, after=0, limit=99)
                assert left.questions == []

    asyncio.run(ask())
