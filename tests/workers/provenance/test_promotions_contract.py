"""The contract of `Promotions`: pages without gaps, and a position for each reader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from slumberd.model.episode import microseconds
from slumberd.model.scope import ScopeFilter
from slumberd.storage.facts.store import EngineFactStore
from slumberd.workers.provenance.publisher import Promotions
from tests.support.builders import at
from tests.support.example_ledgers import ALL, fire, said
from tests.support.fakes import FakePromotions
from tests.support.providers import maker_of
from tests.support.selection import ENGINES

pytestmark = pytest.mark.integration


class PromotedEpisodes(Protocol):
    """A ledger that promotes episodes and erases them."""

    @property
    def ledger(self) -> Promotions: ...
    async def promote(self, count: int) -> None: ...
    async def erase(self) -> None: ...


class FakeLedger:
    """The fake; like a store, it numbers the row of a firing too."""

    def __init__(self) -> None:
        self.ledger = FakePromotions()

    async def promote(self, count: int) -> None:
        self.ledger.promote(False, *[True] * count)

    async def erase(self) -> None:
        self.ledger.erased |= {row.seq for row in self.ledger.rows if row}
        self.ledger.promote(False)


class StoredLedger:
    """A store with episodes that replace no other."""

    def __init__(self, store: EngineFactStore) -> None:
        self.ledger = store.promotion_feed
        self._store = store
        self._newest = 0

    async def promote(self, count: int) -> None:
        first, self._newest = self._newest + 1, self._newest + count
        versions = [said(f"e{seq}", seq) for seq in range(first, self._newest + 1)]
        await fire(self._store, ALL, versions)

    async def erase(self) -> None:
        scope, moment = ScopeFilter.of("alice", None, None), microseconds(at(9_999))
        await self._store.erasures.forget(scope, moment=moment, at=at(200), by="me", dry_run=False)


@pytest.fixture(params=["fake", *ENGINES])
async def promoted(request: pytest.FixtureRequest) -> AsyncIterator[PromotedEpisodes]:
    if request.param == "fake":
        yield FakeLedger()
        return
    with maker_of(request.param, request)() as provider:
        async with provider.facts() as store:
            await store.bootstrap()
            yield StoredLedger(store)


async def seqs_of(promoted: PromotedEpisodes, after: int, limit: int) -> tuple[list[int], int]:
    page = await promoted.ledger.promotions(after, limit=limit, current_only=False)
    return [promotion.seq for promotion in page.promotions], page.upto


async def test_pages_follow_each_other_without_gaps(promoted: PromotedEpisodes) -> None:
    await promoted.promote(3)
    await promoted.promote(2)

    assert await seqs_of(promoted, 0, 100) == ([2, 3, 4, 6, 7], 7)
    assert await seqs_of(promoted, 0, 1) == ([], 1)
    assert await seqs_of(promoted, 1, 2) == ([2, 3], 3)
    assert await seqs_of(promoted, 3, 3) == ([4, 6], 6)


async def test_page_at_the_end_is_empty(promoted: PromotedEpisodes) -> None:
    assert await seqs_of(promoted, 0, 5) == ([], 0)
    await promoted.promote(1)
    assert await seqs_of(promoted, 2, 5) == ([], 2)
    assert await seqs_of(promoted, 7, 5) == ([], 7)
    assert await promoted.ledger.ledger_rows() == 2


async def test_erased_promotion_is_not_published(promoted: PromotedEpisodes) -> None:
    await promoted.promote(2)
    assert await promoted.ledger.is_publishable(2)
    await promoted.erase()
    assert not await promoted.ledger.is_publishable(2)
    assert await seqs_of(promoted, 0, 100) == ([], 4)


async def test_each_reader_has_its_own_position(promoted: PromotedEpisodes) -> None:
    await promoted.promote(2)
    assert await promoted.ledger.published_position("first") == (0, 0)
    await promoted.ledger.save_published_position("first", 3, 1)
    await promoted.ledger.save_published_position("other", 2, 0)
    assert await promoted.ledger.published_position("first") == (3, 1)
    assert await promoted.ledger.published_position("other") == (2, 0)
    await promoted.ledger.save_published_position("first", 0, 1)
    assert await promoted.ledger.published_position("first") == (0, 1)


async def test_lag_counts_the_rows_above_a_readers_position(promoted: PromotedEpisodes) -> None:
    assert (await promoted.ledger.lag("first")) == (0, None)
    await promoted.promote(2)
    lag = await promoted.ledger.lag("first")
    assert lag.rows == 3
    assert lag.since is not None
    await promoted.ledger.save_published_position("first", 3, 0)
    assert (await promoted.ledger.lag("first")) == (0, None)
