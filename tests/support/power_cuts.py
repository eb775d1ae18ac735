"""Cut the power during puts and firings, and check the invariants of every possible remainder."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.errors import SlumberdError
from slumberd.model.firing import Record
from slumberd.storage.sqlite.engine import CheckpointPolicy
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, rule
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.planted_faults import Plant
from tests.support.recorded_disk import Disk, Fate
from tests.support.recording_vfs import record_operations
from tests.support.scripted_histories import EDIT, FIRST, LATER, MEANWHILE, State

Synchronous = Literal["normal", "full"]

SEED = 20_261_123

EVERY = 10**6

PAGES = 12
"""In the write-ahead log when SQLite checkpoints: often."""

PUTS = [FIRST[:4], FIRST[4:], LATER, [*MEANWHILE, EDIT]]
RULES = [rule("all"), rule("notes", then_emits=["notes"])]
FATES: list[Fate] = ["none", "all", "some", "some", "some"]


@dataclass
class Promised:
    """What a caller may rely on: rows of the ledger, or of the episode log."""

    ledger: int = 0
    episodes: int = 0


class AcknowledgingLog(FakeDeltaLog):
    """A log whose lines a reader relies on."""

    def __init__(self, disk: Disk | None) -> None:
        super().__init__()
        self._disk = disk

    def applied(self, records: Sequence[Record]) -> None:
        super().applied(records)
        if self._disk is not None:
            self._disk.acknowledge(Promised(ledger=records[-1].seq))


@dataclass
class FiringStores:
    """The stores of a directory, and the consolidator that fires there."""

    memory: SQLiteMemoryStore
    facts: SQLiteFactStore
    consolidator: Consolidator

    async def fire(self) -> None:
        for given_rule in RULES:
            await self.consolidator.fire(FireRequest(given_rule, "manual", at(100)))

    async def put_and_fire_rest(self, disk: Disk | None = None) -> None:
        """Put what is not put yet, and fire after each put."""
        await self.fire()
        total = 0
        for episodes in PUTS:
            total += len(episodes)
            if (await self.memory.newest()).seq < total:
                await self.memory.put_many(episodes)
                if disk is not None:
                    disk.acknowledge(Promised(episodes=total))
                await self.fire()


@asynccontextmanager
async def opened(
    folder: Path, synchronous: Synchronous, disk: Disk | None = None
) -> AsyncIterator[FiringStores]:
    async with (
        SQLiteMemoryStore(folder / "memory.db", synchronous=synchronous) as memory,
        SQLiteFactStore(
            folder / "facts.db", checkpoints=CheckpointPolicy(usual_pages=PAGES)
        ) as facts,
    ):
        await memory.bootstrap()
        await facts.bootstrap()
        yield FiringStores(
            memory,
            facts,
            Consolidator(memory, facts, AcknowledgingLog(disk), FakeClock(), batch=9),
        )


@dataclass
class Recorded:
    """A run without a power cut: the steps on the disk, and the state at the end.

    Attributes:
        disk: The steps on the disk, with what was acknowledged between them.
        end: The state at the end.
        synchronous: How `memory.db` was written.
        begun: How many steps were done before it.
    """

    disk: Disk
    end: State
    synchronous: Synchronous
    begun: int = 0


NOTHING = (Promised(), dict[str, bytes]())


def recorded(
    folder: Path,
    synchronous: Synchronous,
    plant: Plant | None = None,
    before: tuple[Promised, Mapping[str, bytes]] = NOTHING,
) -> Recorded:
    """Run all puts and firings from a state of the files; record the steps on the disk."""

    async def live(disk: Disk) -> None:
        async with opened(folder, synchronous, disk) as place:
            await place.put_and_fire_rest(disk)

    promised, files = before
    lay_out(folder, files)
    with remembered(plant) as disk:
        disk.hold(files)
        disk.acknowledge(promised)
        begun = len(disk.steps)
        asyncio.run(live(disk))
    return Recorded(disk, State.of(folder / "facts.db"), synchronous, begun)


@contextmanager
def remembered(plant: Plant | None = None, *, pages: int = PAGES) -> Iterator[Disk]:
    """Record what the block does on the disk, in one directory."""
    with pytest.MonkeyPatch.context() as patch:
        if plant is not None:
            plant(patch)
        yield record_operations(patch, pages=pages)


def states(life: Recorded, most: int) -> Iterator[tuple[Promised, dict[str, bytes]]]:
    """Yield each state that a cut may leave, with what was acknowledged before the cut."""
    chance = random.Random(SEED)
    seen: set[int] = set()
    cuts = [(cut, fate) for cut in range(life.begun, len(life.disk.steps) + 1) for fate in FATES]
    for cut, fate in chance.sample(cuts, len(cuts)):
        left = life.disk.after(cut, fate, chance)
        if len(seen) == most:
            return
        if (digest := hash(frozenset(left.items()))) not in seen:
            seen.add(digest)
            yield newest_of(life.disk.acknowledged_before(cut)), left


def newest_of(promises: Sequence[Promised]) -> Promised:
    return Promised(
        max((line.ledger for line in promises), default=0),
        max((line.episodes for line in promises), default=0),
    )


def problems(folder: Path, life: Recorded, promised: Promised) -> list[str]:
    """Return what is wrong with the files after a cut, and with the state after a restart."""
    try:
        return asyncio.run(run_checks(folder, life, promised))
    except (sqlite3.Error, SlumberdError) as error:
        return [repr(error)]


async def run_checks(folder: Path, life: Recorded, promised: Promised) -> list[str]:
    wrong = [f"{path.name}: {problem}" for path in folder.glob("*.db") for problem in damage(path)]
    async with opened(folder, life.synchronous) as place:
        wrong += [
            problem async for problem in out_of_step(place, folder, promised, life.synchronous)
        ]
        await place.put_and_fire_rest()
        _, _, broken = await place.facts.verify()
    if broken:
        wrong.append(f"at the end: {broken}")
    if State.of(folder / "facts.db") != life.end:
        wrong.append("the state at the end differs")
    return wrong


def damage(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchall()
    return [problem for (problem,) in found if problem != "ok"]


async def out_of_step(
    place: FiringStores, folder: Path, promised: Promised, synchronous: Synchronous
) -> AsyncIterator[str]:
    rows, _, broken = await place.facts.verify()
    if broken:
        yield f"{broken}"
    if rows < promised.ledger:
        yield f"{promised.ledger} rows of the ledger were acknowledged, and {rows} are there"
    newest = (await place.memory.newest()).seq
    if synchronous == "full" and newest < promised.episodes:
        yield f"{promised.episodes} episodes were acknowledged, and {newest} are there"
    for mark, last in marks(folder / "facts.db"):
        if mark != last:
            yield f"a watermark is at {mark}, its last firing at {last}"
        if mark[0] and await place.memory.episode_at(mark[0]) != mark[1]:
            yield f"a watermark is at {mark}, which memory.db does not have"


def marks(path: Path) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    """Return the watermark of each rule with the end of its last firing."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT m.seq, m.eid, ifnull(f.upto_seq, 0), ifnull(f.upto_eid, '') "
            "FROM slumberd_watermark AS m LEFT JOIN slumberd_firings AS f "
            "ON f.n = (SELECT max(n) FROM slumberd_firings WHERE rule = m.rule)"
        ).fetchall()
    return [((seq, eid), (upto, last)) for seq, eid, upto, last in found]


def faults(folder: Path, life: Recorded, most: int) -> Iterator[list[str]]:
    """Yield what is wrong in each state; mostly nothing."""
    for number, (promised, left) in enumerate(states(life, most)):
        place = folder / str(number)
        lay_out(place, left)
        yield problems(place, life, promised)
        shutil.rmtree(place)


def lay_out(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
