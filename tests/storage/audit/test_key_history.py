"""Which values of a key were current, and when: the same as a query at each instant returns."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from slumberd.consolidation import key_history
from slumberd.consolidation.key_history import KeyHistory, ValuePeriod
from slumberd.model.errors import NoInputError
from slumberd.model.scope import ScopeFilter, channel_of, key_of, owner_of
from tests.storage.ledger.test_two_clocks import FIRST, SECOND, fire
from tests.support.builders import START, at, triple
from tests.support.providers import AnyFactStore, NewStores, Provider
from tests.support.random_histories import (
    EVERYTHING,
    MOMENTS,
    Shown,
    Step,
    Story,
    facts_of,
    play,
)
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

ALICE = ScopeFilter.of("alice", None, None)
IDS = ["e1", "e2", "e3", "p1", "@notes/e1"]
INSTANTS = [START + timedelta(seconds=moment) for moment in (*MOMENTS, 99)]

QUIET = settings(
    max_examples=amount(30, full=150), deadline=None, suppress_health_check=list(HealthCheck)
)
FEW = settings(QUIET, max_examples=amount(4, full=60))


def key_of_fact(id: str, payload: Any) -> str:
    return key_of(owner_of("alice", "rag", channel_of(id)), payload, id)


def on_key(shown: Shown, key: str) -> dict[str, Any]:
    """Return the objects of the facts of a key, by fact id."""
    mine = {id: fact["payload"] for id, fact in shown.items() if fact["user"] == "alice"}
    return {id: said.get("object") for id, said in mine.items() if key_of_fact(id, said) == key}


def current_in(periods: list[ValuePeriod], instant: datetime) -> dict[str, Any]:
    """Return the objects of the facts that were current at an instant, by fact id."""
    return {
        period.fact_id: period.payload.get("object")
        for period in periods
        if period.begins_at <= instant
        if period.ends_at is None or instant < period.ends_at
    }


async def history(store: AnyFactStore, id: str, **limits: Any) -> KeyHistory:
    return await store.history(id, ALICE, **{"most": 1_000, **limits})


async def check_histories(story: Story) -> None:
    for id in IDS:
        try:
            found = await history(story.store, id)
        except NoInputError:
            assert id not in await facts_of(story.store, "alice")
            continue
        key = key_of_fact(id, found.payload)
        for instant in INSTANTS:
            then = await facts_of(story.store, valid_at=instant)
            assert current_in(found.valid, instant) == on_key(then, key), (id, instant)
        for instant, shown in story.shots:
            assert current_in(found.believed, instant) == on_key(shown, key), (id, instant)
        assert not found.cut


@pytest.mark.slow
@pytest.mark.sampled
@QUIET
@given(EVERYTHING)
def test_history_has_at_each_instant_what_a_query_returns(steps: list[Step]) -> None:
    play(steps, check_histories)


@pytest.mark.nightly
@pytest.mark.sampled
@FEW
@given(EVERYTHING)
def test_history_in_a_database_has_what_a_query_returns(
    new_databases: NewStores, steps: list[Step]
) -> None:
    play(steps, check_histories, new_databases)


def lives_in(id: str, place: str, seconds: float) -> Any:
    return triple(id, "alice", "lives_in", place, timestamp=at(seconds))


def shown(periods: list[ValuePeriod]) -> list[tuple[Any, datetime, datetime | None]]:
    return [(one.payload["object"], one.begins_at, one.ends_at) for one in periods]


async def test_each_clock_has_its_own_periods(provider: Provider) -> None:
    async with provider.facts() as store:
        await store.bootstrap()
        await fire(store, FIRST, 1, lives_in("e1", "Porto", 0), lives_in("e2", "Braga", 60))
        await fire(store, SECOND, 3, lives_in("e3", "Faro", 30))

        found = await history(store, "e1")

    assert (found.user, found.agent, found.cut) == ("alice", "rag", False)
    assert shown(found.valid) == [
        ("Porto", at(0), at(30)),
        ("Faro", at(30), at(60)),
        ("Braga", at(60), None),
    ]
    assert shown(found.believed) == [("Braga", FIRST, None)]


async def test_fact_that_is_not_current_has_the_history_of_its_key(provider: Provider) -> None:
    async with provider.facts() as store:
        await store.bootstrap()
        await fire(store, FIRST, 1, lives_in("e1", "Porto", 0))
        await fire(store, SECOND, 2, lives_in("e2", "Braga", 60))

        old, new = await history(store, "e1"), await history(store, "e2")

    assert (old.valid, old.believed) == (new.valid, new.believed)
    assert shown(old.believed) == [("Porto", FIRST, SECOND), ("Braga", SECOND, None)]
    assert [history.payload["object"] for history in (old, new)] == ["Porto", "Braga"]


async def test_value_that_stays_beside_a_later_one_has_one_period(provider: Provider) -> None:
    tea, coffee = (
        triple(id, "alice", "likes", what, timestamp=at(seconds))
        for id, what, seconds in (("e1", "tea", 0), ("e2", "coffee", 60))
    )
    async with provider.facts() as store:
        await store.bootstrap()
        await store.ledger.set_channels({"facts": frozenset({"likes"})}, at=START)
        await fire(store, FIRST, 1, tea)
        await fire(store, SECOND, 2, coffee)

        found = await history(store, "e1")

    assert shown(found.valid) == [("tea", at(0), None), ("coffee", at(60), None)]
    assert shown(found.believed) == [("tea", FIRST, None), ("coffee", SECOND, None)]


async def test_limit_leaves_out_the_earliest_periods_and_says_so(provider: Provider) -> None:
    async with provider.facts() as store:
        await store.bootstrap()
        for n in range(4):
            later = FIRST + timedelta(days=n)
            await fire(store, later, n + 1, lives_in(f"e{n}", f"place {n}", n * 10))

        found = await history(store, "e0", most=2)

    for periods in (found.valid, found.believed):
        assert [one.payload["object"] for one in periods] == ["place 2", "place 3"]
    assert found.cut


async def test_long_key_is_folded_a_bounded_number_of_times(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_history, "MOST_FOLDS", 12)
    async with provider.facts() as store:
        await store.bootstrap()
        await fire(store, FIRST, 1, *(lives_in(f"e{n}", f"place {n}", n * 10) for n in range(6)))

        found = await history(store, "e0")

    assert shown(found.valid) == [("place 4", at(40), at(50)), ("place 5", at(50), None)]
    assert found.cut


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param(("bob", None), id="other user"),
        pytest.param(("alice", "other"), id="other agent"),
    ],
)
async def test_history_of_another_scope_is_refused(
    provider: Provider, scope: tuple[str, str | None]
) -> None:
    user, agent = scope
    async with provider.facts() as store:
        await store.bootstrap()
        await fire(store, FIRST, 1, lives_in("e1", "Porto", 0))

        with pytest.raises(NoInputError, match="nothing of that id"):
            await store.history("e1", ScopeFilter.of(user, None, agent), most=10)


async def test_edit_that_cannot_be_read_ends_the_period_of_its_fact(provider: Provider) -> None:
    stated = lives_in("e1", "Porto", 0)
    odd = stated.model_copy(update={"metadata": {**stated.metadata, "intent": "?"}})
    async with provider.facts() as store:
        await store.bootstrap()
        await fire(store, FIRST, 1, stated)
        await fire(store, SECOND, 2, odd)

        found = await history(store, "e1")

    assert shown(found.believed) == [("Porto", FIRST, SECOND)]
