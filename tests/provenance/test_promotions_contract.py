"""The contract of what a publisher reads: pages without gaps, and a position for each reader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest

from slumberd.model.episode import microseconds
from slumberd.model.scope import ScopeFilter
from slumberd.provenance.protocols import Promotions
from slumberd.storage.facts.store import SQLiteFactStore
from tests.support.builders import at
from tests.support.fakes import FakePromotions
from tests.support.stories import ALL, fire, said

pytestmark = pytest.mark.integration


class Told(Protocol):
    """A ledger that is told of episodes, and forgets them."""

    @property
    def ledger(self) -> Promotions: ...
    async def promote(self, count: int) -> None: ...
    async def forget(self) -> None: ...


class Faked:
    """The fake, which numbers a firing's own row, too."""

    def __init__(self) -> None:
        self.ledger = FakePromotions()

    async def promote(self, count: int) -> None:
        self.ledger.promote(False, *[True] * count)

    async def forget(self) -> None:
        self.ledger.erased |= {row.seq for row in self.ledger.rows if row}
        self.ledger.promote(False)


class Stored:
    """A store, with episodes that no other replaces."""

    def __init__(self, store: SQLiteFactStore) -> None:
        self.ledger = store.promotion_feed
        self._store = store
        self._said = 0

    async def promote(self, count: int) -> None:
        first, self._said = self._said + 1, self._said + count
        told = [said(f"e{seq}", seq) for seq in range(first, self._said + 1)]
        await fire(self._store, ALL, told)

    async def forget(self) -> None:
        reach, moment = ScopeFilter.of("alice", None, None), microseconds(at(9_999))
        await self._store.erasures.forget(reach, moment=moment, at=at(200), by="me", dry_run=False)


@pytest.fixture(params=["fake", "sqlite"])
async def told(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Told]:
    if request.param == "fake":
        yield Faked()
        return
    async with SQLiteFactStore(tmp_path / "facts.db", synchronous="normal") as store:
        await store.bootstrap()
        yield Stored(store)


async def seqs_of(told: Told, after: int, limit: int) -> tuple[list[int], int]:
    page = await told.ledger.promotions(after, limit=limit, current_only=False)
    return [one.seq for one in page.promotions], page.upto


async def test_pages_follow_each_other_without_gaps(told: Told) -> None:
    await told.promote(3)
    await told.promote(2)

    assert await seqs_of(told, 0, 100) == ([2, 3, 4, 6, 7], 7)
    assert await seqs_of(told, 0, 1) == ([], 1)
    assert await seqs_of(told, 1, 2) == ([2, 3], 3)
    assert await seqs_of(told, 3, 3) == ([4, 6], 6)


async def test_page_at_the_end_is_empty_and_goes_no_further(told: Told) -> None:
    assert await seqs_of(told, 0, 5) == ([], 0)
    await told.promote(1)
    assert await seqs_of(told, 2, 5) == ([], 2)
    assert await seqs_of(told, 7, 5) == ([], 7)
    assert await told.ledger.ledger_rows() == 2


async def test_what_is_forgotten_is_told_no_more(told: Told) -> None:
    await told.promote(2)
    assert await told.ledger.is_publishable(2)
    await told.forget()
    assert not await told.ledger.is_publishable(2)
    assert await seqs_of(told, 0, 100) == ([], 4)


async def test_each_reader_has_a_place_of_its_own(told: Told) -> None:
    await told.promote(2)
    assert await told.ledger.published_position("one") == (0, 0)
    await told.ledger.save_published_position("one", 3, 1)
    await told.ledger.save_published_position("other", 2, 0)
    assert await told.ledger.published_position("one") == (3, 1)
    assert await told.ledger.published_position("other") == (2, 0)
    await told.ledger.save_published_position("one", 0, 1)
    assert await told.ledger.published_position("one") == (0, 1)


async def test_lag_counts_the_rows_above_a_readers_place(told: Told) -> None:
    assert (await told.ledger.lag("one")) == (0, None)
    await told.promote(2)
    lag = await told.ledger.lag("one")
    assert lag.rows == 3
    assert lag.since is not None
    await told.ledger.save_published_position("one", 3, 0)
    assert (await told.ledger.lag("one")) == (0, None)
