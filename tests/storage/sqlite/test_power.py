"""A power cut at any write of a firing loses no acknowledged write, and damages no file.

Every step that SQLite takes on the disk is remembered; then the power is cut after each, with
none, all or some of what was not synced. The real stores open what is left. `TEST_LONG=1` takes
every cut several times; else so many states, by chance.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from slumberd.model.episode import microseconds
from slumberd.model.fact import FactPattern
from slumberd.model.scope import ScopeFilter
from slumberd.storage.sqlite import connection
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.storage.sqlite.session import Pragmas
from tests.support.builders import at, triple
from tests.support.planted_faults import (
    Plant,
    commit_facts_before_watermark,
    commit_watermark_before_facts,
    disable_fsync,
    disable_sync,
)
from tests.support.power_cuts import (
    EVERY,
    SEED,
    Synchronous,
    faults,
    lay_out,
    opened,
    recorded,
    remembered,
    states,
)
from tests.support.recorded_disk import Acknowledged, Disk, Fate
from tests.support.sample_sizes import amount
from tests.support.scripted_histories import FIRST

pytestmark = pytest.mark.acceptance

LONG = bool(os.environ.get("TEST_LONG"))
STATES = amount(15, full=405)
"""States for each setting; equal states count once."""

STATES_AGAIN = 20
"""After a second cut."""


@pytest.mark.sampled
@pytest.mark.parametrize("synchronous", ["full", "normal"])
def test_nothing_acknowledged_is_lost_by_a_power_cut(
    tmp_path: Path, synchronous: Synchronous
) -> None:
    life = recorded(tmp_path / "life", synchronous)

    found = list(faults(tmp_path, life, EVERY if LONG else STATES))

    assert len(found) >= STATES
    assert [problem for problem in found if problem] == []


@pytest.mark.cases(2)
@pytest.mark.slow
@pytest.mark.parametrize("which", range(100 if LONG else 4))
def test_second_power_cut_during_recovery_loses_nothing(tmp_path: Path, which: int) -> None:
    synchronous: Synchronous = "normal" if which % 2 else "full"
    first = recorded(tmp_path / "first", synchronous)
    left = next(islice(states(first, EVERY), 7 * which, None))
    again = recorded(tmp_path / "again", synchronous, before=left)

    found = list(faults(tmp_path, again, STATES_AGAIN))

    assert again.end == first.end
    assert [problem for problem in found if problem] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("synchronous", "plant"),
    [
        pytest.param("full", commit_facts_before_watermark, id="facts before the watermark"),
        pytest.param("full", commit_watermark_before_facts, id="watermark before the facts"),
        pytest.param("full", disable_sync, id="synchronous off"),
        pytest.param("normal", disable_fsync, id="facts ahead of memory"),
    ],
)
def test_power_test_finds_a_planted_fault(
    tmp_path: Path, synchronous: Synchronous, plant: Plant
) -> None:
    life = recorded(tmp_path / "life", synchronous, plant)

    found = any(faults(tmp_path, life, STATES))

    assert found


@pytest.mark.slow
def test_power_test_finds_a_disk_without_syncs(tmp_path: Path) -> None:
    life = recorded(tmp_path / "life", "full")
    lied = replace(life, disk=life.disk.lying())

    found = any(faults(tmp_path, lied, STATES))

    assert found


@pytest.mark.path
def test_episode_lost_in_a_power_cut_and_put_again_is_evaluated(
    tmp_path: Path,
) -> None:
    async def live(folder: Path, drink: str, disk: Disk | None = None) -> list[object]:
        async with opened(folder, "normal", disk) as place:
            await place.memory.put_many([triple("e1", "alice", "likes", drink)])
            await place.fire()
            return [fact.payload["object"] for fact in await place.facts.query(FactPattern())]

    (tmp_path / "life").mkdir()
    with remembered(pages=1_000) as disk:
        asyncio.run(live(tmp_path / "life", "tea", disk))
    cut = max(n for n, step in enumerate(disk.steps) if isinstance(step, Acknowledged))
    lay_out(tmp_path / "left", disk.after(cut, "none", random.Random(SEED)))
    found = asyncio.run(live(tmp_path / "left", "wine"))

    assert found == ["wine", "wine"]


@pytest.mark.parametrize("fate", ["none", "all"])
def test_erased_scope_stays_erased_after_a_power_cut(tmp_path: Path, fate: Fate) -> None:
    reach = ScopeFilter.of("bob", None, None)

    async def live(disk: Disk) -> None:
        async with opened(tmp_path / "life", "normal") as place:
            await place.memory.put_many(FIRST)
            # All is in the database; a reader keeps SQLite from checkpointing and syncing.
            with closing(
                connection.connect(tmp_path / "life" / "memory.db", Pragmas(), access="read")
            ) as held:
                held.execute("BEGIN")
                held.execute("SELECT count(*) FROM episodes")
                await place.memory.forget(reach, (), moment=microseconds(at(100)))
                await place.memory.scrub()
                disk.acknowledge("the scope is erased")

    async def left() -> int:
        async with SQLiteMemoryStore(tmp_path / "left" / "memory.db") as memory:
            return len((await memory.episodes_in(reach)).eids)

    (tmp_path / "life").mkdir()
    with remembered(pages=1) as disk:
        asyncio.run(live(disk))
    cut = max(n for n, step in enumerate(disk.steps) if isinstance(step, Acknowledged))
    lay_out(tmp_path / "left", disk.after(cut, fate, random.Random(SEED)))

    assert asyncio.run(left()) == 0
