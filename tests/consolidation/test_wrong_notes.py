"""Notes of stages are compared with a look at all episodes, also while the stores change."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from slumberd.consolidation.incoming import UNBOUNDED, Bounds
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.consolidation.stage_runs import Marking
from slumberd.model.errors import StoppedError
from slumberd.model.firing import START as BEGINNING
from slumberd.model.firing import Window
from slumberd.model.stages import Decay, Dedup
from slumberd.storage.sqlite.stage_file import StageFile
from tests.consolidation.stages.test_duplicates import needs_rapidfuzz
from tests.daemon.test_erasure import forget
from tests.support.builders import START, at, episode, rule
from tests.support.embedders import WordSums
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import NewStores

pytestmark = pytest.mark.integration

TIDY = rule("tidy", stages=(Dedup(), Decay(half_life=86_400.0)))
NOW = START + timedelta(hours=1)


class Interrupted:
    """A store of episodes; something happens after the first window is read for stages."""

    def __init__(self, home: OpenStores, happens: Callable[[], Awaitable[object]]) -> None:
        self._home, self._happens = home, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._home.memory, name)

    async def consolidate(self, *given: Any, **named: Any) -> Any:
        batch = await self._home.memory.consolidate(*given, **named)
        await self._happens()
        return batch


async def wrong_note(
    new_stores: NewStores,
    path: Path,
    happens: Callable[[OpenStores], Awaitable[object]],
    bounds: Bounds = UNBOUNDED,
) -> str:
    """Return which note is wrong, of notes that say of each episode that it never decays."""
    file = StageFile(path / "stages.db", "as always")
    with new_stores() as stores:
        async with open_stores(stores) as home:
            home.consolidator.note_stages_in(file)
            await home.put(*(episode(f"e{n}", content=f"Note {n}") for n in range(3)))
            await home.fire(TIDY, when=NOW)
            with closing(sqlite3.connect(file.path)) as notes, notes:
                notes.execute("UPDATE stage_entries SET due = NULL")
            marking = Marking(
                cast("EpisodeLog", Interrupted(home, lambda: happens(home))), home.facts, 500
            )
            marking.index = file
            mark = await home.facts.watermarks.position("tidy") or BEGINNING
            window = Window(mark, mark.seq, at=NOW, dry_run=True)
            return await marking.find_wrong_note(TIDY, window, bounds)


async def nothing(_: OpenStores) -> None:
    """Do nothing."""


async def edit(home: OpenStores) -> None:
    await home.put(*(episode(f"e{n}", content=f"Note {n}!", timestamp=at(9)) for n in range(3)))


async def forget_unnoted(home: OpenStores) -> None:
    home.consolidator.note_stages_in(None)
    await forget(home, "alice", episode="e0")


@pytest.mark.parametrize(
    ("happens", "problem"),
    [
        pytest.param(nothing, "the note of 'e0' has a wrong due", id="nothing"),
        pytest.param(edit, "", id="all are edited"),
        pytest.param(forget_unnoted, "", id="an erasure is not noted"),
    ],
)
async def test_only_the_note_of_an_unchanged_episode_is_wrong(
    new_stores: NewStores,
    tmp_path: Path,
    happens: Callable[[OpenStores], Awaitable[object]],
    problem: str,
) -> None:
    assert await wrong_note(new_stores, tmp_path, happens) == problem


COMPARED = "the note of 'e1' has a wrong compared"


@needs_rapidfuzz
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param(
            "UPDATE stage_texts SET text = 'note' WHERE eid = 'e1'", COMPARED, id="another text"
        ),
        pytest.param(
            "UPDATE stage_texts SET vector = x'0000' WHERE eid = 'e1'", COMPARED, id="a vector"
        ),
        pytest.param("DELETE FROM stage_texts WHERE eid = 'e1'", COMPARED, id="no text"),
        pytest.param(
            "UPDATE stage_texts SET assertion = 3 WHERE eid = 'e1'", COMPARED, id="an assertion"
        ),
        pytest.param(
            "DELETE FROM stage_entries WHERE eid = 'e1'",
            "the note of 'e1' is missing",
            id="no note",
        ),
        pytest.param(
            "INSERT INTO stage_entries SELECT owner, 'e9', rule, NULL, '', x'', NULL, NULL"
            " FROM stage_entries WHERE eid = 'e1'",
            "the note of 'e9' is of no use: no stage sees the episode",
            id="a note of nothing",
        ),
    ],
)
async def test_wrong_note_is_found(
    new_stores: NewStores, tmp_path: Path, damage: str, problem: str
) -> None:
    file = StageFile(tmp_path / "stages.db", "as always")
    compares = rule("tidy", stages=(Dedup(method="fuzzy"), Dedup(method="vectors")))
    found = []
    with new_stores() as stores:
        async with open_stores(stores, embedding=WordSums) as home:
            home.consolidator.note_stages_in(file)
            await home.put(*(episode(f"e{n}", content=f"Note {n}") for n in range(3)))
            await home.fire(compares, when=NOW)
            marking = Marking(home.memory, home.facts, 500)
            marking.index = file
            mark = await home.facts.watermarks.position("tidy") or BEGINNING
            window = Window(mark, mark.seq, at=NOW, dry_run=True)
            found.append(await marking.find_wrong_note(compares, window, UNBOUNDED))
            with closing(sqlite3.connect(file.path)) as notes, notes:
                notes.execute(damage)
            found.append(await marking.find_wrong_note(compares, window, UNBOUNDED))

    assert found == ["", problem]


async def test_nothing_is_compared_when_the_next_firing_looks_at_all(
    new_stores: NewStores, tmp_path: Path
) -> None:
    with new_stores() as stores:
        async with open_stores(stores) as home:
            home.consolidator.note_stages_in(StageFile(tmp_path / "stages.db", "as always"))
            await home.put(episode("e0"))
            await home.fire(TIDY, when=NOW)
            marking = Marking(home.memory, home.facts, 500)
            marking.index = StageFile(tmp_path / "stages.db", "another version")
            mark = await home.facts.watermarks.position("tidy") or BEGINNING
            window = Window(mark, mark.seq, at=NOW, dry_run=True)

            assert await marking.find_wrong_note(TIDY, window, UNBOUNDED) == ""


async def test_comparison_of_notes_stops(new_stores: NewStores, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        await wrong_note(new_stores, tmp_path, nothing, Bounds(cancelled=lambda: True))


async def test_nothing_is_compared_without_notes(new_stores: NewStores) -> None:
    with new_stores() as stores:
        async with open_stores(stores) as home:
            marking = Marking(home.memory, home.facts, 500)

            assert await marking.find_wrong_note(TIDY, Window(dry_run=True), UNBOUNDED) == ""
