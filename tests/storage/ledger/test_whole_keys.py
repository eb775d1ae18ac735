"""A delete that gives no object retracts every object of its key, however claims arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slumberd.model.episode import Episode
from slumberd.model.firing import Counts
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

SUBJECTS = [f"s{number}" for number in range(12)]
"""Several ids, since the order in which claims are resolved depends on their hashes."""
LIKES = {"facts": frozenset({"likes"})}


def likes(id: str, subject: str, what: str, seconds: float) -> Episode:
    return triple(id, subject, "likes", what, timestamp=at(seconds))


def clears(id: str, subject: str, seconds: float, *, what: str | None = None) -> Episode:
    deletion = {"intent": "delete"}
    return triple(id, subject, "likes", what, timestamp=at(seconds), metadata=deletion)


@pytest.fixture
async def home(provider: Provider) -> AsyncIterator[OpenStores]:
    async with open_stores(provider) as opened:
        yield opened
        assert (await opened.facts.verify())[2] is None


async def test_retracted_objects_stay_gone_when_their_predicate_becomes_multi_valued(
    home: OpenStores,
) -> None:
    for subject in SUBJECTS:
        await home.put(likes(f"a-{subject}", subject, "tea", 1), clears(f"z-{subject}", subject, 2))
    await home.fire()

    await home.facts.ledger.set_channels(LIKES, at=START)

    assert await home.objects() == {}


async def test_retracted_objects_stay_gone_when_their_key_is_resolved_again(
    home: OpenStores,
) -> None:
    await home.facts.ledger.set_channels(LIKES, at=START)
    for subject in SUBJECTS:
        await home.put(likes(f"a-{subject}", subject, "tea", 1), clears(f"z-{subject}", subject, 2))
    await home.put(*[likes(f"m-{subject}", subject, "rum", 3) for subject in SUBJECTS])
    (firing_id,) = (await home.fire()).firing_ids
    assert set((await home.objects()).values()) == {"rum"}
    await home.put(*[likes(f"m-{subject}", subject, "gin", 3) for subject in SUBJECTS])

    report = await home.fire()

    assert set((await home.objects()).values()) == {"gin"}
    assert report.channels["facts"] == Counts(read=len(SUBJECTS), updated=len(SUBJECTS))
    assert firing_id == "all@2"


async def test_older_object_of_a_key_that_was_cleared_is_retracted_when_it_arrives(
    home: OpenStores,
) -> None:
    await home.facts.ledger.set_channels(LIKES, at=START)
    await home.put(clears("z", "ada", 5))
    await home.fire()
    await home.put(likes("a", "ada", "tea", 1), likes("b", "ada", "rum", 9))

    report = await home.fire()

    assert await home.objects() == {"b": "rum"}
    assert report.channels["facts"] == Counts(read=2, added=1, noop=1)


async def test_delete_of_one_object_leaves_the_others_of_its_key(home: OpenStores) -> None:
    await home.facts.ledger.set_channels(LIKES, at=START)
    await home.put(likes("a", "ada", "tea", 1), likes("b", "ada", "rum", 2))
    await home.put(clears("z", "ada", 5, what="tea"))

    report = await home.fire()

    assert await home.objects() == {"b": "rum"}
    assert report.channels["facts"] == Counts(read=3, added=2, deleted=1)


async def test_withdrawn_delete_of_a_whole_key_restores_each_object(home: OpenStores) -> None:
    await home.facts.ledger.set_channels(LIKES, at=START)
    await home.put(likes("a", "ada", "tea", 1), likes("b", "ada", "rum", 2))
    await home.fire()
    await home.put(clears("z", "ada", 5))
    (firing_id,) = (await home.fire()).firing_ids
    assert await home.objects() == {}

    await home.facts.ledger.undo(firing_id, at=START, by="me", dry_run=False)

    assert await home.objects() == {"a": "tea", "b": "rum"}


async def test_predicate_that_becomes_single_valued_keeps_its_newest_object(
    home: OpenStores,
) -> None:
    await home.facts.ledger.set_channels(LIKES, at=START)
    await home.put(likes("a", "ada", "tea", 1), likes("b", "ada", "rum", 2))
    await home.fire()

    [outcome] = await home.facts.ledger.set_channels({}, at=START)

    assert await home.objects() == {"b": "rum"}
    assert ("delete", "a", ("a",)) in [
        (record.kind, record.fact_id, record.replaces) for record in outcome.records
    ]
    [again] = await home.facts.ledger.set_channels(LIKES, at=START)
    assert await home.objects() == {"a": "tea", "b": "rum"}
    assert ("add", "a") in [(record.kind, record.fact_id) for record in again.records]


async def test_channels_that_stay_as_they_were_change_nothing(home: OpenStores) -> None:
    await home.facts.ledger.set_channels(LIKES, at=START)
    await home.put(likes("a", "ada", "tea", 1))
    await home.fire(rule("all"))

    assert await home.facts.ledger.set_channels(LIKES, at=START) == []
