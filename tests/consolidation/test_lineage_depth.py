"""The lineage names the facts that a fact replaced, up to a depth, in any order of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.providers import NewStores, Provider

pytestmark = pytest.mark.integration

DEPTH = 2


def statement(id: str, what: str, seconds: float) -> Episode:
    return triple(id, "alice", "drinks", what, timestamp=at(seconds))


async def consolidate(
    provider: Provider, episodes: Sequence[Episode], *, together: bool
) -> list[Fact]:
    """Return the facts of episodes that come in this order, at once or one by one."""
    async with (
        provider.memory() as memory,
        provider.facts(lineage_depth=DEPTH, clock=FakeClock()) as facts,
    ):
        await facts.bootstrap()
        consolidator = Consolidator(memory, facts, FakeDeltaLog(), FakeClock(), batch=5_000)
        for some in [episodes] if together else [[episode] for episode in episodes]:
            await memory.put_many(some)
            await consolidator.fire(FireRequest(rule("all"), "manual", START))
        return await facts.query(FactPattern())


def links(fact: Fact) -> list[str]:
    return [entry["replaces"] for entry in fact.lineage if "replaces" in entry]


STREAM = [statement(f"e{n}", f"drink {n}", n) for n in range(5)]


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize(
    "order",
    [
        pytest.param([0, 1, 2, 3, 4], id="in order"),
        pytest.param([4, 3, 2, 1, 0], id="backwards"),
        pytest.param([2, 0, 4, 1, 3], id="mixed"),
    ],
)
async def test_lineage_names_the_newest_replaced_facts_up_to_its_depth(
    provider: Provider, order: Sequence[int], *, together: bool
) -> None:
    (fact,) = await consolidate(provider, [STREAM[n] for n in order], together=together)

    assert (fact.id, links(fact)) == ("e4", ["e3", "e2"])
    assert [entry["source_episode_ids"] for entry in fact.lineage] == [["e4"], ["e3"], ["e2"]]


async def test_lineage_names_all_replaced_facts_below_its_depth(provider: Provider) -> None:
    (fact,) = await consolidate(provider, STREAM[:2], together=True)

    assert (fact.id, links(fact)) == ("e1", ["e0"])


@pytest.mark.slow
async def test_lineage_does_not_depend_on_the_order_of_arrival(new_stores: NewStores) -> None:
    same = [statement("a", "tea", 1), statement("b", "tea", 1), statement("c", "tea", 1)]
    found = []
    for order in permutations(same):
        with new_stores() as provider:
            (fact,) = await consolidate(provider, order, together=False)
        found.append((fact.id, links(fact)))

    assert found == [("c", ["b", "a"])] * 6
