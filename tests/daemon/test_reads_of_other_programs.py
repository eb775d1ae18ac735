"""A read of a held back episode causes a second evaluation, wherever a process is killed.

The tests kill the firing and the host that reads, at every boundary of their statements on
``memory.db`` and at the commits on ``facts.db``.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import triple
from tests.support.daemons import Home
from tests.support.failpoints import KILLED, begin, begin_reading
from tests.support.forked_commands import FORKS
from tests.support.planted_faults import (
    Plant,
    log_again_in_own_transaction,
    mark_held_back_after_commit,
)
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

EPISODES = [triple("e1", "ada", "likes", "tea"), triple("e2", "ada", "owns", "a cup")]


class GatedHome:
    """A home with one rule, whose salience gate passes only episodes that were just read.

    Args:
        folder: An empty directory.
        plant: Breaks slumberd in the process that is killed.
    """

    def __init__(self, folder: Path, plant: Plant | None = None) -> None:
        self._home = Home(folder)
        self._home.rule("gated", cadence={"every": 1}, salience={"min": 0.03})
        self._memory = self._home.state / "memory.db"
        self._plant = plant
        self._folder = folder
        asyncio.run(self._put())

    async def _put(self) -> None:
        self._home.state.mkdir()
        async with SQLiteMemoryStore(self._memory) as memory:
            await memory.put_many(EPISODES)

    async def _read(self) -> None:
        async with SQLiteMemoryStore(self._memory) as memory:
            await memory.recent("alice", limit=100)

    def fire(self) -> None:
        """Fire the rule in this process."""
        self._home.call("fire", "--all")

    def firing(self, point: str, passed: Path | None = None) -> int | None:
        """Fire up to a boundary; return how the process ended."""
        words = self._home.words(["fire", "--all"])
        return self._exit_code_of(begin, words, point, passed, self._plant)

    def reading(self, point: str, passed: Path | None = None) -> int | None:
        """Read up to a boundary; return how the process ended."""
        return self._exit_code_of(begin_reading, self._memory, "alice", point, passed, self._plant)

    def _exit_code_of(self, target: Callable[..., Any], *given: object) -> int | None:
        child = FORKS.Process(target=target, args=given, daemon=True)
        child.start()
        child.join(PATIENCE_SECONDS)
        code = child.exitcode
        child.kill()
        return code

    def lost(self, killed: Callable[[str, Path | None], int | None]) -> dict[str, object]:
        """Kill a process at each boundary; return which episodes gave no fact, by boundary."""
        base, passed = self._folder / "base", self._folder / "passed"
        shutil.copytree(self._home.state, base)
        assert killed("", passed) == 0
        points = [
            point
            for point in passed.read_text().splitlines()
            if point.startswith("memory.db") or "COMMIT" in point
        ]
        assert any("COMMIT" in point for point in points)
        found: dict[str, object] = {}
        for point in points:
            shutil.rmtree(self._home.state)
            shutil.copytree(base, self._home.state)
            assert killed(point, None) == KILLED, point
            if missing := self._missing():
                found[point] = missing
        return found

    def _missing(self) -> list[str]:
        """Read all episodes and fire the rule; return the episodes that gave no fact."""
        asyncio.run(self._read())
        self.fire()
        verified = self._home.call("audit", "verify", check=False)
        assert verified.returncode == 0, verified.stdout
        return sorted(
            {episode.id for episode in EPISODES} - {fact["id"] for fact in self._home.facts()}
        )


@pytest.mark.nightly
def test_killed_firing_loses_no_second_evaluation(tmp_path: Path) -> None:
    home = GatedHome(tmp_path)

    assert home.lost(home.firing) == {}


@pytest.mark.nightly
def test_kills_find_a_firing_that_records_held_episodes_too_late(tmp_path: Path) -> None:
    home = GatedHome(tmp_path, mark_held_back_after_commit)

    assert home.lost(home.firing)


class HomeWithHeldEpisodes(GatedHome):
    """A gated home whose rule has already held both episodes back."""

    def __init__(self, folder: Path, plant: Plant | None = None) -> None:
        super().__init__(folder, plant)
        self.fire()


def test_killed_host_loses_no_second_evaluation(tmp_path: Path) -> None:
    home = HomeWithHeldEpisodes(tmp_path)

    assert home.lost(home.reading) == {}


@pytest.mark.nightly
def test_kills_find_reads_that_are_written_in_two_transactions(tmp_path: Path) -> None:
    home = HomeWithHeldEpisodes(tmp_path, log_again_in_own_transaction)

    assert home.lost(home.reading)
