"""A version whose instant is still to come waits in quarantine, and is evaluated then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from slumberd.consolidation.manual import Assert, ManualAssertion, ManualBatch
from slumberd.model.episode import Episode, latest_at
from slumberd.model.firing import Limits
from slumberd.model.scope import ScopeFilter
from slumberd.storage.ledger.undo import Undoer
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

HOUR = timedelta(hours=1)
TOLERANCE = 300.0


@asynccontextmanager
async def stores(provider: Provider, **options: Any) -> AsyncIterator[OpenStores]:
    async with open_stores(provider, future_tolerance_seconds=TOLERANCE, **options) as home:
        yield home


def city(id: str, name: str, when: datetime) -> Episode:
    return triple(id, "ada", "lives_in", name, timestamp=when)


async def quarantine(home: OpenStores) -> list[tuple[str, str, str]]:
    found = await home.facts.reads.quarantine()
    return [(entry["rule_id"], entry["episode_id"], entry["reason"]) for entry in found]


async def verifies(home: OpenStores) -> bool:
    return (await home.facts.verify())[2] is None


async def test_version_of_the_future_owns_no_key_until_its_instant(provider: Provider) -> None:
    async with stores(provider) as home:
        await home.put(city("mars", "Mars", START + HOUR), city("bonn", "Bonn", START))

        report = await home.fire()

        assert await home.objects() == {"bonn": "Bonn"}
        counts = report.channels["facts"]
        assert (counts.read, counts.added, counts.quarantined) == (2, 1, 1)
        assert await quarantine(home) == [("all", "mars", "future")]

        await home.fire(when=START + HOUR - timedelta(seconds=TOLERANCE + 1))
        assert await home.objects() == {"bonn": "Bonn"}
        await home.fire(when=START + HOUR)
        assert await home.objects() == {"mars": "Mars"}
        assert await quarantine(home) == []
        assert await verifies(home)


async def test_version_within_the_tolerance_is_evaluated_at_once(provider: Provider) -> None:
    async with stores(provider) as home:
        await home.put(city("a", "A", START + timedelta(seconds=TOLERANCE)))

        await home.fire()

        assert await home.objects() == {"a": "A"}


async def test_older_version_stays_current_while_a_newer_one_waits(provider: Provider) -> None:
    async with stores(provider) as home:
        await home.put(city("e", "Bonn", START))
        await home.fire()
        await home.put(city("e", "Mars", START + HOUR))

        await home.fire()
        assert await home.objects() == {"e": "Bonn"}
        await home.fire(when=START + HOUR)

        assert await home.objects() == {"e": "Mars"}
        assert await verifies(home)


async def test_correction_of_the_instant_ends_the_wait(provider: Provider) -> None:
    async with stores(provider) as home:
        await home.put(city("e", "Mars", START + HOUR))
        await home.fire()
        await home.put(city("e", "Mars", START))

        await home.fire()

        assert await home.objects() == {"e": "Mars"}
        assert await quarantine(home) == []


async def test_version_that_the_filter_does_not_select_waits_for_nothing(
    provider: Provider,
) -> None:
    async with stores(provider) as home:
        await home.put(city("e", "Mars", START + HOUR))

        report = await home.fire(rule("all", when_filter="predicate = 'likes'"))

        assert report.channels["facts"].filtered == 1
        assert await quarantine(home) == []


@pytest.mark.parametrize("change", ["filtered", "deleted"])
async def test_version_that_is_gone_when_its_instant_comes_leaves_the_quarantine(
    provider: Provider, change: str
) -> None:
    likes = rule("all", when_filter="predicate = 'lives_in'")
    async with stores(provider) as home:
        await home.put(city("e", "Mars", START + HOUR))
        await home.fire(likes)
        if change == "filtered":
            await home.put(triple("e", "ada", "likes", "tea", timestamp=START))
        else:
            await home.memory.purge({"e": 1})
        await home.fire(likes)
        await home.fire(likes, when=START + HOUR)

        assert await quarantine(home) == []
        assert await home.objects() == {}
        assert await verifies(home)


async def test_every_statement_of_a_version_waits_together(provider: Provider) -> None:
    triples = [{"subject": "ada", "predicate": "likes", "object": name} for name in "ab"]
    several = city("e", "Mars", START + HOUR).model_copy(update={"metadata": {"triples": triples}})
    async with stores(provider) as home:
        await home.put(several)
        report = await home.fire(rule("all", then_emits=["facts", "notes"]))
        assert [counts.quarantined for counts in report.channels.values()] == [1, 1]

        await home.fire(rule("all", then_emits=["facts", "notes"]), when=START + HOUR)

        ids = {f"{channel}e#{n}" for channel in ("", "@notes/") for n in (1, 2)}
        assert set(await home.objects()) == ids


async def test_backfill_keeps_what_waits_and_quarantines_what_is_new(provider: Provider) -> None:
    async with stores(provider) as home:
        await home.put(city("e", "Mars", START + HOUR), triple("f", "ada", "likes", "tea"))
        await home.fire(rule("all", when_filter="predicate = 'likes'"))
        everything = rule("all")
        await home.consolidator.backfill(everything, START, by="me")
        rows = await home.facts.reads.ledger_rows()
        await home.consolidator.backfill(everything, START, by="me")

        assert await quarantine(home) == [("all", "e", "future")]
        assert await home.facts.reads.ledger_rows() == rows + 1
        await home.consolidator.retry(everything, START, by="me")
        await home.fire(everything, when=START + HOUR)
        assert await home.objects() == {"e": "Mars", "f": "tea"}


async def test_arrived_batch_over_a_deletion_limit_waits_for_approval(provider: Provider) -> None:
    async with stores(provider, limits=Limits(0, None)) as home:
        await home.put(city("bonn", "Bonn", START))
        await home.fire()
        gone = triple("gone", "ada", "lives_in", None, timestamp=START + HOUR)
        await home.put(gone.model_copy(update={"metadata": gone.metadata | {"intent": "delete"}}))
        await home.fire()
        later = START + HOUR

        held = (await home.fire(when=later)).held
        assert held is not None
        assert await home.objects() == {"bonn": "Bonn"}
        await home.facts.ledger.decide(held, approve=True, at=later, by="me")
        await home.fire(when=later)

        assert await home.objects() == {}
        assert await home.facts.watermarks.held() == {}
        assert await quarantine(home) == []


async def test_undo_of_the_firing_that_set_a_version_aside_forgets_it(provider: Provider) -> None:
    async with stores(provider) as home:
        await home.put(city("e", "Mars", START + HOUR))
        [firing_id] = (await home.fire()).firing_ids

        await home.facts.ledger.undo(firing_id, at=at(1), by="me", dry_run=False)

        assert await quarantine(home) == []
        assert await verifies(home)


async def test_preview_shows_what_arrives_and_writes_nothing(provider: Provider) -> None:
    async with stores(provider) as home:
        await home.put(city("e", "Mars", START + HOUR))
        await home.fire()

        report = await home.consolidator.preview(rule("all"), START + HOUR)

        assert report.channels["facts"].added == 1
        assert await home.objects() == {}


async def correct(home: OpenStores, name: str, *, when: datetime = START) -> None:
    said = {"user": "alice", "agent": "rag", "subject": "ada", "predicate": "lives_in"}
    stated = ManualAssertion("b", "alice", "rag", {**said, "object": name}, 1.0, (), None)
    home.facts.transactions.clock = FakeClock(when)
    await home.facts.apply_deltas(ManualBatch([Assert(stated)], "me"))


async def test_correction_takes_no_instant_of_the_future(provider: Provider) -> None:
    async with stores(provider) as home:
        await home.put(city("mars", "Mars", START + HOUR))
        await home.fire()

        await correct(home, "Berlin")
        assert await home.objects() == {"b": "Berlin"}
        await home.put(city("paris", "Paris", at(1)))
        await home.fire(when=at(2))

        assert await home.objects() == {"paris": "Paris"}


async def test_correction_beside_a_claim_of_the_future_withdraws_that_claim(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:  # a store without a tolerance takes the claims
        await home.put(city("mars", "Mars", START + HOUR))
        await home.put(triple("f", "bob", "likes", "tea", agent="desk", timestamp=START + HOUR))
        await home.fire()

        await correct(home, "Berlin")
        assert await home.objects() == {"b": "Berlin", "f": "tea"}
        assert await quarantine(home) == [("all", "mars", "future")]
        await home.put(city("paris", "Paris", at(1)))
        await home.fire(when=at(2))

        assert await home.objects() == {"paris": "Paris", "f": "tea"}
        assert await verifies(home)


async def test_correction_after_a_wrong_clock_has_the_instant_of_the_right_one(
    provider: Provider,
) -> None:
    async with stores(provider) as home:
        await home.put(triple("x", "bob", "likes", "tea"))
        await home.fire(when=START + 100 * HOUR)  # the clock was ahead

        await correct(home, "Berlin", when=at(1))
        await home.put(city("paris", "Paris", at(2)))
        await home.fire(when=at(3))

        assert (await home.objects())["paris"] == "Paris"
        assert await verifies(home)


async def withdraw(home: OpenStores, when: datetime = START) -> list[str]:
    latest = latest_at(when, TOLERANCE)
    done = await home.facts.ledger.withdraw_future(latest, Undoer(when, "me"))
    return [outcome.firing_id for outcome in done]


async def test_claims_that_an_earlier_release_took_are_withdrawn_until_their_instant(
    provider: Provider,
) -> None:
    both = [rule("one"), rule("two", then_emits=["facts", "notes"])]
    async with open_stores(provider) as home:  # a store without a tolerance takes them
        await home.put(city("bonn", "Bonn", START), city("e", "Oslo", START))
        for each in both:
            await home.fire(each)
        await home.put(city("e", "Mars", START + HOUR))
        await home.put(triple("f", "ada", "likes", "tea", timestamp=START + HOUR))
        for each in both:
            await home.fire(each)
        assert len(await home.facts.ledger.future_facts(latest_at(START, TOLERANCE))) == 4

    async with stores(provider) as home:
        assert await withdraw(home)

        assert await home.objects() == {"e": "Oslo", "@notes/e": "Oslo"}
        found = await quarantine(home)
        assert found == [
            ("one", "e", "future"), ("one", "f", "future"), ("two", "e", "future"),
            ("two", "f", "future"), ("two", "e", "future"), ("two", "f", "future"),
        ]  # fmt: skip
        assert await home.facts.ledger.future_facts(latest_at(START, TOLERANCE)) == []
        assert await withdraw(home) == []
        assert await verifies(home)

        await home.put(city("paris", "Paris", at(1)))
        for each in both:
            await home.fire(each)
        assert (await home.objects())["paris"] == "Paris"
        for each in both:
            await home.fire(each, when=START + HOUR)
        assert await home.objects() == {
            "e": "Mars", "f": "tea", "@notes/e": "Mars", "@notes/f": "tea"
        }  # fmt: skip
        assert await quarantine(home) == []
        assert await verifies(home)


async def test_correction_that_took_a_future_instant_gets_that_of_the_withdrawal(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(city("e", "Mars", START + HOUR))
        await home.fire(when=START)
        await correct(home, "Berlin", when=START + HOUR)

    async with stores(provider) as home:
        await withdraw(home, START)

        await home.put(city("paris", "Paris", at(1)))
        await home.fire(when=at(2))
        assert await home.objects() == {"paris": "Paris"}
        assert await verifies(home)


async def test_erasure_of_a_session_finds_what_waits_and_what_was_withdrawn(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(city("taken", "Mars", START + HOUR))
        await home.fire()
    async with stores(provider) as home:
        await home.put(city("waiting", "Rome", START + HOUR))
        await home.fire()
        await withdraw(home)
        assert [eid for _, eid, _ in await quarantine(home)] == ["taken", "waiting"]

        found = await home.facts.erasures.episodes_in(ScopeFilter("alice", "s1", None))
        others = await home.facts.erasures.episodes_in(ScopeFilter("alice", "s2", None))

        assert found.eids == {"taken", "waiting"}
        assert others.eids == set()
