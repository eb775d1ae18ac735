"""The report on all memory follows the ledger, and reads only what is new."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import microseconds
from slumberd.model.record import GroupedChanges
from slumberd.model.scope import ScopeFilter
from slumberd.operations.change_report import RecentChanges, read_changes
from slumberd.storage.facts.reads import FactReader
from tests.support.builders import START, at, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

MINUTE = timedelta(minutes=1)


class CountingReader:
    """Counts the rows that are read in groups."""

    def __init__(self, reads: FactReader) -> None:
        self._reads = reads
        self.groups = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._reads, name)

    async def group_changes(self, **window: int) -> GroupedChanges:
        found = await self._reads.group_changes(**window)
        self.groups += len(found.groups)
        return found


async def fire_at(home: OpenStores, minute: int, user: str = "ada") -> None:
    await home.put(triple(f"e{minute}", "s", "is", minute, timestamp=at(minute), user=user))
    await home.consolidator.fire(FireRequest(rule("all"), "manual", START + minute * MINUTE))


async def test_report_follows_rows_that_enter_and_leave_its_time(provider: Provider) -> None:
    async with open_stores(provider) as home:
        recent = RecentChanges(home.facts.reads)
        for minute in range(6):
            await fire_at(home, minute, user="ada" if minute < 3 else "bob")
            since = START + (minute - 2) * MINUTE

            found = await recent.report(since, days=1, most=5)

            wanted = await read_changes(home.facts.reads, since, most=5)
            assert found.document(5) == wanted.document(5)
            assert found.changes.facts == min(3, minute + 1)


async def test_second_report_reads_only_new_rows(provider: Provider) -> None:
    async with open_stores(provider) as home:
        reader = CountingReader(home.facts.reads)
        recent = RecentChanges(reader)  # type: ignore[arg-type] # passes on what it lacks
        for minute in range(5):
            await fire_at(home, minute)
        await recent.report(START, days=1, most=5)
        first = reader.groups
        await fire_at(home, 5)

        await recent.report(START, days=1, most=5)

    assert (first, reader.groups - first) == (10, 2)


async def test_report_knows_no_user_who_was_erased(provider: Provider) -> None:
    async with open_stores(provider) as home:
        recent = RecentChanges(home.facts.reads)
        for minute, user in enumerate(["ada", "bob"]):
            await fire_at(home, minute, user=user)
        before = await recent.report(START, days=1, most=5)
        assert set(before.users) == {"ada", "bob"}
        moment = START + MINUTE
        scope = ScopeFilter.of("ada", None, None)
        await home.facts.erasures.forget(
            scope, ["e0"], moment=microseconds(moment), at=moment, by="me", dry_run=False
        )

        after = await recent.report(START, days=1, most=5)

        assert set(after.users) == {"bob"}
        wanted = await read_changes(home.facts.reads, START, most=5)
        assert after.document(5) == wanted.document(5)


async def test_report_names_the_largest_batches_again_when_those_it_kept_have_left(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slumberd.operations.change_report.MOST", 1)
    async with open_stores(provider) as home:
        recent = RecentChanges(home.facts.reads)
        for minute in range(8):
            await home.put(*(triple(f"e{minute}-{n}", f"s{n}", "is", n) for n in range(9 - minute)))
            moment = START + minute * MINUTE
            await home.consolidator.fire(FireRequest(rule("all"), "manual", moment))
        await recent.report(START, days=1, most=2)

        found = await recent.report(START + 6 * MINUTE, days=1, most=2)

    assert [batch.at for batch in found.largest] == [START + 6 * MINUTE, START + 7 * MINUTE]


async def test_lengths_of_time_have_sums_of_their_own(provider: Provider) -> None:
    async with open_stores(provider) as home:
        recent = RecentChanges(home.facts.reads)
        for minute in range(6):
            await fire_at(home, minute)
        for _ in range(2):
            for length in range(6):
                found = await recent.report(START + length * MINUTE, days=length + 1, most=5)
                assert found.changes.facts == 6 - length
