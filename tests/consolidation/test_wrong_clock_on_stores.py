"""A wrong clock recorded instants of the future; a person says that the clock is right now."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from slumberd.model.fact import FactPattern
from slumberd.model.firing import START as BEGINNING
from slumberd.model.record import FiringPlace
from slumberd.model.scope import ScopeFilter
from slumberd.operations.caller import Caller
from slumberd.storage.ledger.undo import BySince, Undoer
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores, stream
from tests.support.providers import ON_FILES, Provider

pytestmark = pytest.mark.integration

WRONG = START + timedelta(days=365 * 72)
HOUR = timedelta(hours=1)
TOLERANCE = 300.0
EVERYTHING = FactPattern()
ALL = FiringPlace(2**62, 2**62)


async def verifies(home: OpenStores) -> bool:
    return (await home.facts.verify())[2] is None


async def fire_under_a_wrong_clock(home: OpenStores) -> None:
    await home.put(triple("tea", "ada", "likes", "tea", timestamp=at(-60)))
    await home.fire(when=WRONG)


async def believed(home: OpenStores, when: datetime) -> set[str]:
    return {fact.id for fact in await home.facts.query(EVERYTHING, believed_at=when)}


async def test_what_a_wrong_clock_recorded_counts_as_recorded_when_the_clock_is_accepted(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await fire_under_a_wrong_clock(home)
        assert await believed(home, at(5)) == set()

        await home.facts.ledger.accept_clock(at=at(5), by="me")
        await home.put(triple("e2", "bob", "likes", "milk", timestamp=at(-30)))
        await home.fire(when=at(10))

        assert await believed(home, at(4)) == set()
        assert await believed(home, at(5)) == {"tea"}
        assert await believed(home, at(10)) == {"tea", "e2"}
        assert await home.facts.watermarks.last_recorded_at() == at(10)
        assert await verifies(home)


async def test_reports_and_undo_count_the_accepted_instant(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await fire_under_a_wrong_clock(home)
        await home.facts.ledger.accept_clock(at=at(5), by="me")
        await home.put(triple("e2", "bob", "likes", "milk", timestamp=at(-30)))
        await home.fire(when=at(10))

        firings = await home.facts.reads.firings(ALL, limit=10)
        assert [(one.rule_id, one.at) for one in firings] == [
            ("all", at(10)), ("@clock", at(5)), ("all", at(5)),
        ]  # fmt: skip
        after = FiringPlace(2**62, firings[-1].number and 10**6 * int(at(5).timestamp()))
        assert [one.at for one in await home.facts.reads.firings(after, limit=10)] == [at(5)] * 2
        batches = await home.facts.reads.last_batches()
        assert {name: batch.at for name, batch in batches.items()} == {
            "all": at(10), "@clock": at(5)
        }  # fmt: skip

        since = BySince("all", at(6))
        await home.facts.ledger.undo_each(since, Undoer(at(11), "me"), dry_run=False, limit=9)
        assert set(await home.objects()) == {"tea"}


async def test_rows_of_the_ledger_show_the_accepted_instant(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await fire_under_a_wrong_clock(home)
        before = await home.facts.reads.records(after=0, limit=99)
        await home.facts.ledger.accept_clock(at=at(5), by="me")
        await home.put(triple("e2", "bob", "likes", "milk", timestamp=at(-30)))
        await home.fire(when=at(10))

        rows = await home.facts.reads.records(after=0, limit=99)
        of_tea = (await home.facts.why("tea")).assertions
        believed = (
            await home.facts.history("tea", ScopeFilter("alice", None, None), most=9)
        ).believed

        assert {row.at for row in before} == {WRONG}
        assert [row.at for row in rows] == [at(5)] * (len(before) + 1) + [at(10)] * 2
        assert [one.row.record.at for one in of_tea] == [at(5)]
        assert [period.begins_at for period in believed] == [at(5)]
        assert await verifies(home)


async def test_a_second_acceptance_takes_nothing_back(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await fire_under_a_wrong_clock(home)
        await home.facts.ledger.accept_clock(at=at(50), by="me")
        await home.fire(when=at(60))
        await home.facts.ledger.accept_clock(at=at(5), by="me")

        firings = await home.facts.reads.firings(ALL, limit=10)

        assert {one.at for one in firings} == {at(5)}
        assert await verifies(home)


async def test_served_instants_and_successes_of_the_wrong_clock_count_as_now(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.facts.watermarks.begin("all", BEGINNING, served=WRONG)
        await fire_under_a_wrong_clock(home)

        await home.facts.ledger.accept_clock(at=at(5), by="me")

        assert await home.facts.watermarks.served("all") == at(5)
        assert await home.facts.watermarks.successes() == {"all": at(5)}


@ON_FILES
async def test_replay_holds_after_the_acceptance(provider: Provider, tmp_path: Path) -> None:
    async with open_stores(provider) as home:
        await fire_under_a_wrong_clock(home)
        await home.facts.ledger.accept_clock(at=at(5), by="me")
        await home.put(triple("e2", "ada", "likes", "milk", timestamp=at(-30)))
        await home.fire(when=at(10))

        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


async def test_nothing_is_of_the_future_while_the_clock_and_the_ledger_disagree(
    provider: Provider,
) -> None:
    async with open_stores(provider, future_tolerance_seconds=TOLERANCE) as home:
        await fire_under_a_wrong_clock(home)
        await home.put(triple("e2", "bob", "likes", "milk", timestamp=START + HOUR))
        await home.fire(when=START)
        assert set(await home.objects()) == {"tea", "e2"}

        await home.facts.ledger.accept_clock(at=at(1), by="me")
        await home.put(triple("e3", "eve", "likes", "milk", timestamp=START + HOUR))
        await home.fire(when=at(2))

        assert set(await home.objects()) == {"tea", "e2"}


async def test_operation_accepts_the_clock_only_when_a_later_instant_is_recorded(
    tmp_path: Path,
) -> None:
    clock = FakeClock(START)
    async with open_stores(tmp_path) as home:
        await fire_under_a_wrong_clock(home)
        accept = home.operations(rule("all"), clock=clock).handlers["accept_clock"]
        dry = await accept({"dry_run": True}, Caller.here())
        assert dry["firing_id"] is None
        assert await home.facts.watermarks.last_recorded_at() == WRONG

        done = await accept({}, Caller.here())
        again = await accept({}, Caller.here())

        assert done["firing_id"].startswith("@clock@")
        assert again["firing_id"] is None
        assert await home.facts.watermarks.last_recorded_at() == START


@pytest.mark.parametrize(
    ("kernel", "accepted"),
    [
        pytest.param(None, False, id="not synchronised"),
        pytest.param(START, True, id="synchronised"),
        pytest.param(WRONG, False, id="the process has another clock than the kernel"),
    ],
)
async def test_synchronised_clock_is_accepted_without_a_person(
    tmp_path: Path, kernel: datetime | None, accepted: bool
) -> None:
    async with open_stores(tmp_path) as home:
        await fire_under_a_wrong_clock(home)
        operations = home.operations(rule("all"), clock=FakeClock(START))

        assert await operations.accept_synchronised(kernel) is accepted
        assert await operations.accept_synchronised(kernel) is False

        expected = START if accepted else WRONG
        assert await home.facts.watermarks.last_recorded_at() == expected


async def test_firing_reads_the_last_recorded_instant_once_for_all_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(tmp_path, batch=2) as home:
        read, reads = home.facts.watermarks.last_recorded_at, []

        async def read_and_count() -> datetime | None:
            reads.append(await read())
            return reads[-1]

        monkeypatch.setattr(home.facts.watermarks, "last_recorded_at", read_and_count)
        await home.put(*stream(7))

        report = await home.fire()

    assert len(report.firing_ids) == 4
    assert len(reads) == 1
