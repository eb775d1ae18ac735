"""A tenure admits one writer at a time, and finishes what the last one left."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.clock import SystemClock
from slumberd.daemon.composition import backed_up_files, tenure_of
from slumberd.daemon.file_exchange import JOURNAL, begin, staging_path
from slumberd.model.errors import StaleWriterError, StateDirectoryLockedError, StoreError
from slumberd.model.fact import Fact
from slumberd.rules.settings import Settings
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import at

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path / "state", rules_dir=tmp_path)


def fact(id: str) -> Fact:
    return Fact(
        id=id,
        user="alice",
        agent="",
        payload={},
        lineage=[{"source_episode_ids": []}],
        confidence=1.0,
        metadata={},
        pinned_at=at(0),
    )


async def test_second_tenure_is_refused_until_the_first_ends(settings: Settings) -> None:
    async with tenure_of(settings, SystemClock()):
        with pytest.raises(StateDirectoryLockedError) as refused:
            await tenure_of(settings, SystemClock()).__aenter__()

    assert refused.value.exit_code == 75
    async with tenure_of(settings, SystemClock()):
        pass


async def test_tenure_finishes_a_restore_that_was_begun(settings: Settings) -> None:
    target = backed_up_files(settings)["facts"]
    target.parent.mkdir()
    target.write_bytes(b"old")
    staging_path(target).write_bytes(b"new")
    begin(settings.state_dir, "20260101T000000Z", {"facts": True})

    async with tenure_of(settings, SystemClock()):
        assert target.read_bytes() == b"new"
        assert not (settings.state_dir / JOURNAL).exists()


async def test_tenure_that_cannot_finish_a_restore_holds_no_lock(settings: Settings) -> None:
    settings.state_dir.mkdir()
    journal = settings.state_dir / JOURNAL
    journal.write_text("{}")

    with pytest.raises(StoreError, match="no journal of a restore"):
        await tenure_of(settings, SystemClock()).__aenter__()

    journal.unlink()
    async with tenure_of(settings, SystemClock()):
        pass


async def test_fence_shuts_out_a_writer_that_the_lock_did_not_see(
    settings: Settings, tmp_path: Path
) -> None:
    elsewhere = settings.model_copy(update={"state_dir": tmp_path / "elsewhere"})
    path = tmp_path / "facts.db"
    async with (
        SQLiteFactStore(path) as first,
        SQLiteFactStore(path) as second,
        tenure_of(settings, SystemClock()) as earlier,
        tenure_of(elsewhere, SystemClock()) as later,
    ):
        await first.bootstrap()
        await earlier.fence(first.transactions)
        await first.pin(fact("f1"))

        await later.fence(second.transactions)

        with pytest.raises(StaleWriterError):
            await first.pin(fact("f2"))
        await second.pin(fact("f3"))
        assert await first.ledger.head() == await second.ledger.head()
