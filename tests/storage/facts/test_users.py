"""The users who have facts, and the quarantine, are read a page at a time, on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.firing import Counts, Firing, Position
from slumberd.model.store_status import MOST_AGENTS, LastBatch, UserFacts
from slumberd.storage.facts.store import EngineFactStore
from tests.support.builders import START, at, rule, triple, version_of
from tests.support.fakes import FakeClock
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

LONG = "l" * 600
OWNERS = [
    ("ada", "desk", 2), ("ada", "phone", 1), ("Zoe", "desk", 1), ("adam", "desk", 1),
    ("\u00e9va", "desk", 1), ("\U0001f600", "desk", 1), (f"{LONG}a", "desk", 1),
    (f"{LONG}b", "desk", 1),
]  # fmt: skip


@pytest.fixture
async def store(provider: Provider) -> AsyncIterator[EngineFactStore]:
    async with provider.facts(clock=FakeClock()) as opened:
        await opened.bootstrap()
        yield opened


async def promote(
    store: EngineFactStore,
    owners: list[tuple[str, str, int]],
    *channels: str,
    of: str = "all",
    **metadata: Any,
) -> None:
    """Let a rule promote so many facts of each owner, and mark their episodes in other channels."""
    fired = rule(of, then_emits=list(channels or ("facts",)))
    episodes = [
        triple(f"{of}-{owner}-{n}", user, f"p{n}", "x", user=user, agent=agent, metadata=metadata)
        for owner, (user, agent, count) in enumerate(owners)
        for n in range(count)
    ]
    versions = [version_of(one, seq=seq) for seq, one in enumerate(episodes, 1)]
    upto = Position(len(versions), versions[-1].id)
    firing = Firing(of, "h", "every", START, Position(), upto)
    await store.apply_deltas(DeltaBatch(firing, evaluate(versions, fired)))


async def pages(store: EngineFactStore, prefix: str, limit: int) -> list[UserFacts]:
    """Return all users, page after page."""
    found: list[UserFacts] = []
    while page := await store.reads.users(
        prefix, after=found[-1].user if found else None, limit=limit
    ):
        found += page
    return found


async def test_users_are_counted_with_their_agents(store: EngineFactStore) -> None:
    await promote(store, OWNERS)

    found = await store.reads.users("ad", after=None, limit=10)

    assert found == [UserFacts("ada", ["desk", "phone"], 3), UserFacts("adam", ["desk"], 1)]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_every_user_is_on_one_page(store: EngineFactStore, limit: int) -> None:
    await promote(store, OWNERS)

    found = [user.user for user in await pages(store, "", limit)]

    # The index of a database has long names in a shorter form, and sorts by that.
    short = [user for user in found if len(user) < len(LONG)]
    assert sorted(found) == sorted({user for user, _, _ in OWNERS})
    assert short == sorted(short)


@pytest.mark.parametrize(
    ("prefix", "users"),
    [
        pytest.param("ada", ["ada", "adam"], id="a whole name, and longer ones"),
        pytest.param("A", [], id="case counts"),
        pytest.param("\u00e9", ["\u00e9va"], id="beyond ASCII"),
        pytest.param("l" * 100, [f"{LONG}a", f"{LONG}b"], id="of long names"),
        pytest.param("%", [], id="no pattern"),
    ],
)
async def test_prefix_selects_users(store: EngineFactStore, prefix: str, users: list[str]) -> None:
    await promote(store, OWNERS)

    assert sorted(user.user for user in await pages(store, prefix, 1)) == users


async def test_marks_and_weights_are_no_facts(store: EngineFactStore) -> None:
    await promote(store, [("ada", "desk", 2)], "facts", "marks", "weights", "notes")
    await promote(store, [("bob", "desk", 2)], "marks", "weights", of="other")

    assert await store.reads.users("", after=None, limit=9) == [UserFacts("ada", ["desk"], 4)]


async def test_only_the_first_agents_are_named_and_all_facts_counted(
    store: EngineFactStore,
) -> None:
    many = [("ada", f"agent{n:03}", 1) for n in range(MOST_AGENTS + 5)]
    await promote(store, many)

    (found,) = await store.reads.users("", after=None, limit=9)

    assert found.agents == [agent for _, agent, _ in many[:MOST_AGENTS]]
    assert found.facts == MOST_AGENTS + 5


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("wanted", [None, "one", "none"])
async def test_every_entry_of_the_quarantine_is_on_one_page(
    store: EngineFactStore, limit: int, wanted: str | None
) -> None:
    for name in ("two", "one"):
        await promote(store, [("ada", "desk", 3)], "facts", "notes", of=name, intent="shout")
    found: list[dict[str, Any]] = []
    after = None

    while page := await store.reads.quarantine_page(wanted, after=after, limit=limit):
        found += page
        after = page[-1]["rule_id"], page[-1]["channel"], page[-1]["episode_id"]

    owner = {"user": "ada", "agent": "desk"}
    every = [entry | owner for entry in await store.reads.quarantine()]
    assert len(every) == 12
    assert found == [entry for entry in every if wanted in (None, entry["rule_id"])]


async def test_last_batch_of_each_rule_has_its_instant_and_counts(store: EngineFactStore) -> None:
    await promote(store, [("ada", "desk", 2)], "facts", "notes")

    found = await store.reads.last_batches()

    assert found == {"all": LastBatch(at(0), Counts(read=4, added=4))}
