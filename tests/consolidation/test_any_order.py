"""Facts and their ids are equal for every cadence, batch size and order of arrival."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode, microseconds
from slumberd.model.fact import FactPattern
from tests.support.builders import START, rule
from tests.support.corpora import lines, needs_corpora
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.oracle import OracleClaim, claim_of, current_claims, replaced_ids
from tests.support.providers import NewStores, Provider, new_files

pytestmark = [pytest.mark.acceptance, needs_corpora, pytest.mark.slow]

EVERYTHING = 10**9
DEPTH = 8

ORDERS = {
    "as it is": lambda episodes: list(episodes),
    "reversed": lambda episodes: list(reversed(episodes)),
    "shuffled": lambda episodes: random.Random(7).sample(episodes, len(episodes)),
}


@pytest.fixture(scope="module")
def stream() -> list[Episode]:
    return [Episode.model_validate(line) for line in lines("congress_social", "episodes")]


@pytest.fixture(scope="module")
def expected(stream: Sequence[Episode]) -> dict[str, tuple[Any, ...]]:
    """Return the facts of the brute-force oracle, user by user: users share no fact."""
    claims: dict[str, list[OracleClaim]] = {}
    for episode in stream:
        row = episode.model_dump() | {"at": microseconds(episode.timestamp)}
        claim = claim_of(row, "facts", ("all",))
        assert claim is not None
        claims.setdefault(episode.user, []).append(claim)
    return {
        fact_id: (claim.object, claim.confidence, tuple(replaced_ids(claim, mine, set(), DEPTH)))
        for mine in claims.values()
        for fact_id, claim in current_claims(mine, set()).items()
    }


async def consolidate(
    provider: Provider, episodes: Sequence[Episode], *, every: int, batch: int
) -> dict[str, tuple[Any, ...]]:
    """Put episodes in order, firing whenever `every` are pending and once at the end."""
    clock = FakeClock()
    fired = rule("all")
    async with (
        provider.memory() as memory,
        provider.facts(lineage_depth=DEPTH) as facts,
    ):
        await facts.bootstrap()
        consolidator = Consolidator(memory, facts, FakeDeltaLog(), clock, batch=batch)
        for start in range(0, len(episodes), min(every, 1_000)):
            await memory.put_many(episodes[start : start + min(every, 1_000)])
            if every < EVERYTHING:
                await consolidator.fire(FireRequest(fired, "every", START))
        await consolidator.fire(FireRequest(fired, "cron", START))
        _, _, broken = await facts.verify()
        assert broken is None
        return {
            fact.id: (
                fact.payload.get("object"),
                fact.confidence,
                tuple(entry["replaces"] for entry in fact.lineage[1:]),
            )
            for fact in await facts.query(FactPattern())
        }


@pytest.mark.nightly
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("every", "batch"),
    [
        pytest.param(1, 5_000, id="every 1"),
        pytest.param(7, 5_000, id="every 7"),
        pytest.param(100, 13, id="every 100 in batches of 13"),
        pytest.param(EVERYTHING, 1, id="all at once in batches of 1"),
        pytest.param(EVERYTHING, 13, id="all at once in batches of 13"),
        pytest.param(EVERYTHING, 5_000, id="all at once"),
    ],
)
async def test_facts_equal_the_oracle(
    order: str,
    every: int,
    batch: int,
    stream: list[Episode],
    expected: dict[str, tuple[Any, ...]],
) -> None:
    with new_files() as provider:
        found = await consolidate(provider, ORDERS[order](stream), every=every, batch=batch)

    assert found == expected


@pytest.mark.parametrize(
    ("every", "batch"),
    [
        pytest.param(7, 5_000, id="every 7", marks=pytest.mark.nightly),
        pytest.param(EVERYTHING, 13, id="all at once in batches of 13"),
    ],
)
async def test_facts_in_a_database_equal_the_oracle(
    new_databases: NewStores,
    every: int,
    batch: int,
    stream: list[Episode],
    expected: dict[str, tuple[Any, ...]],
) -> None:
    with new_databases() as provider:
        found = await consolidate(provider, ORDERS["shuffled"](stream), every=every, batch=batch)

    assert found == expected
