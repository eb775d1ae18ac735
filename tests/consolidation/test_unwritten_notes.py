"""Stages say the same where their notes cannot be written, or tell of episodes as they were."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from slumberd.model.errors import StageNotesError, StoreError
from slumberd.model.feed import EpisodeChanges, FeedPlace
from slumberd.model.stages import Dedup
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.sqlite.stage_file import RuleNotes, StageFile
from tests.consolidation.test_incremental_stages import KEPT_BY_ITS_DUPLICATE, run, tear
from tests.support.builders import START, episode, rule
from tests.support.open_stores import open_stores
from tests.support.providers import NewStores

# The notes are a file, wherever the stores are.
ON_FILES = pytest.mark.parametrize("new_stores", ["sqlite"], indirect=True)
pytestmark = [pytest.mark.integration, ON_FILES]

HISTORY = [*KEPT_BY_ITS_DUPLICATE, ("forget", "episode", 9), ("fire", "second", 60)]


def fail(*_: object) -> NoReturn:
    raise StoreError("the disk is full")


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        pytest.param(RuleNotes, "save", id="of episodes"),
        pytest.param(StageFile, "note_erasure", id="of an erasure"),
    ],
)
async def test_stages_say_the_same_where_notes_cannot_be_written(
    new_stores: NewStores, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    monkeypatch.setattr(owner, method, fail)

    await run(new_stores, HISTORY)


async def test_stages_say_the_same_where_the_log_does_not_tell_all_changes(
    new_stores: NewStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = EngineMemoryStore.changed_ids

    async def changed_ids(self: EngineMemoryStore, after: FeedPlace | None) -> EpisodeChanges:
        return (await read(self, after))._replace(known=False)

    monkeypatch.setattr(EngineMemoryStore, "changed_ids", changed_ids)

    await run(new_stores, HISTORY)


TREES = ["stage_entries", "stage_entries_archived", "stage_entries_due", "stage_traces"]


@pytest.mark.parametrize("what", ["lose", "damage", "lock", "unnote", *TREES])
async def test_stages_say_the_same_after_the_file_of_the_notes_was_changed(
    new_stores: NewStores, what: str
) -> None:
    change = [("file", what), ("change", "first", 3), ("fire", "first", 60), ("backfill", "first")]

    await run(new_stores, [*HISTORY, *change, ("delete", "e6"), ("put", "e9", 1, 1, 0.4)])


@pytest.mark.parametrize("tree", TREES)
async def test_firing_looks_at_all_where_it_meets_damaged_notes(
    new_stores: NewStores, tree: str
) -> None:
    edit = [("put", "e9", 5, 0, 1.0), ("fire", "second", 60)]

    await run(new_stores, [*KEPT_BY_ITS_DUPLICATE, ("file", tree), *edit, ("fire", "second", 60)])


async def test_stages_leave_out_a_similar_episode_that_the_rule_no_longer_selects(
    new_stores: NewStores,
) -> None:
    unselected = ("put", "e9", 0, 1, 1.0)
    as_it_was = ("put", "e3", 2, 2, 0.5)

    await run(new_stores, [*KEPT_BY_ITS_DUPLICATE, unselected, as_it_was, ("fire", "second", 60)])


async def test_stages_look_at_all_again_after_their_rule_changed(new_stores: NewStores) -> None:
    await run(new_stores, [*HISTORY, ("fire", "first", 1), ("change", "first", 3)])


async def test_firing_says_that_it_deleted_damaged_notes(
    new_stores: NewStores, tmp_path: Path
) -> None:
    file = StageFile(tmp_path / "stages.db", "as always")
    staged = rule("staged", stages=(Dedup(),))
    with new_stores() as stores:
        async with open_stores(stores) as home:
            home.consolidator.note_stages_in(file)
            await home.put(episode("e0", content="Ann likes green tea"))
            await home.fire(staged)
            tear(file.path, "stage_entries")
            await home.put(episode("e1", content="Ann likes black tea"))

            with capture_logs() as logs:
                await home.fire(staged)

    problems = [line["problem"] for line in logs if line["event"] == "stage_notes.failed"]
    assert [" it was deleted: " in one for one in problems] == [True], problems


async def test_dry_run_leaves_damaged_notes_as_they_are(
    new_stores: NewStores, tmp_path: Path
) -> None:
    file = StageFile(tmp_path / "stages.db", "as always")
    staged = rule("staged", stages=(Dedup(),))
    with new_stores() as stores:
        async with open_stores(stores) as home:
            home.consolidator.note_stages_in(file)
            await home.put(episode("e0", content="Ann likes green tea"))
            await home.fire(staged)
            tear(file.path, "stage_entries_due")
            damaged = file.path.read_bytes()

            with pytest.raises(StageNotesError, match=r"stages\.db.* delete it"):
                await home.consolidator.preview(staged, START)

            assert file.path.read_bytes() == damaged
            await home.fire(staged)
            assert file.find_problem() == ""


async def test_dry_run_makes_no_notes(new_stores: NewStores, tmp_path: Path) -> None:
    file = StageFile(tmp_path / "stages.db", "as always")
    with new_stores() as stores:
        async with open_stores(stores) as home:
            home.consolidator.note_stages_in(file)
            await home.put(episode("e0", content="Ann likes green tea"))

            await home.consolidator.preview(rule("staged", stages=(Dedup(),)), START)

    assert not file.path.exists()
