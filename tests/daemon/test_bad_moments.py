"""Changes during a firing: the facts equal those of a new consolidation of the same episodes."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.incoming import DeltaBatch
from slumberd.model.fact import FactPattern
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.workers.scheduling import cron
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.state_directory import StateDirectory, state_directory

pytestmark = pytest.mark.integration

EPISODES = [triple(f"e{n}", f"s{n % 3}", "is", n, timestamp=at(n)) for n in range(6)]
BOBS = triple("bobs", "s1", "is", "bob's", user="bob")

Change = Callable[[], Awaitable[None]]


@dataclass
class ChangingEpisodes:
    """An episode store that runs a change right before, or right after, it reads a window."""

    memory: EngineMemoryStore
    before: dict[int, Change] = field(default_factory=dict)
    after: dict[int, Change] = field(default_factory=dict)
    windows: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    async def consolidate(self, *arguments: Any, **more: Any) -> DeltaBatch:
        self.windows += 1
        number = self.windows
        await self.before.pop(number, _nothing)()
        batch: DeltaBatch = await self.memory.consolidate(*arguments, **more)
        await self.after.pop(number, _nothing)()
        return batch


async def _nothing() -> None:
    return


async def contents(home: OpenStores) -> dict[str, dict[str, Any]]:
    """Return the payloads of the current facts, by id; the ledger must verify."""
    assert (await home.facts.verify())[2] is None
    return {fact.id: fact.payload for fact in await home.facts.query(FactPattern())}


async def from_scratch(folder: Path, memory: EngineMemoryStore) -> dict[str, dict[str, Any]]:
    """Return the facts that a new consolidation of the current episodes makes."""
    folder.mkdir()
    async with open_stores(folder) as home:
        for user in ("alice", "bob"):
            await home.put(*await memory.recent(user, limit=99))
        await home.fire()
        return await contents(home)


EDITED = triple("e4", "s1", "is", "edited", timestamp=at(4))
RESCOPED = triple("e1", "s1", "is", "another moment", timestamp=at(8))


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("edited", [EDITED, RESCOPED], ids=["of a later batch", "of an earlier"])
async def test_episode_edited_during_a_firing_gives_the_fact_of_its_newest_version(
    tmp_path: Path, number: int, when: str, edited: Any
) -> None:
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(*EPISODES, BOBS)
        episodes = ChangingEpisodes(home.memory)
        getattr(episodes, when)[number] = lambda: home.put(edited)
        firing = Consolidator(episodes, home.facts, home.log, FakeClock(), batch=2)

        await firing.fire(FireRequest(rule("all"), "manual", START))
        await home.fire()

        found, expected = await contents(home), await from_scratch(tmp_path / "2", home.memory)
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_episode_deleted_before_it_is_read_gives_no_fact(tmp_path: Path, number: int) -> None:
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(*EPISODES, BOBS)
        episodes = ChangingEpisodes(home.memory)
        episodes.before[number] = lambda: run_statements(
            tmp_path, "DELETE FROM episodes WHERE id = 'e5'"
        )
        firing = Consolidator(episodes, home.facts, home.log, FakeClock(), batch=2)

        [report] = [await firing.fire(FireRequest(rule("all"), "manual", START))]
        await home.fire()

        found, expected = await contents(home), await from_scratch(tmp_path / "2", home.memory)
    assert report.channels["facts"].read == 6
    assert found == expected
    assert "e5" not in found


async def test_episode_deleted_after_it_is_read_stays_promoted(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*EPISODES, BOBS)
        episodes = ChangingEpisodes(home.memory)
        episodes.after[1] = lambda: run_statements(tmp_path, "DELETE FROM episodes")
        firing = Consolidator(episodes, home.facts, home.log, FakeClock(), batch=9)

        await firing.fire(FireRequest(rule("all"), "manual", START))
        await home.fire()

        assert set(await contents(home)) == {"e3", "e4", "e5", "bobs"}


async def run_statements(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "memory.db", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


REBUILT = (
    "CREATE TABLE copied AS SELECT * FROM episodes ORDER BY id DESC",
    "DROP TABLE episodes",
    "CREATE TABLE episodes (id TEXT PRIMARY KEY, scope_key TEXT NOT NULL, content BLOB NOT NULL,"
    " timestamp TEXT NOT NULL, metadata BLOB NOT NULL)",
    "INSERT INTO episodes SELECT * FROM copied",
    "DROP TABLE copied",
)
VACUUMED = ("DELETE FROM episodes WHERE id IN ('e0', 'e1')", "VACUUM")
REPLACED = ("INSERT OR REPLACE INTO episodes SELECT * FROM episodes ORDER BY id DESC",)


async def dump_and_restore(folder: Path) -> None:
    """Dump the database and restore it, which gives the rows new numbers."""
    with closing(sqlite3.connect(folder / "memory.db", isolation_level=None)) as connection:
        script = [line for line in connection.iterdump() if "sqlite_sequence" not in line]
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        ).fetchall():
            connection.execute(f'DROP TABLE "{table}"')
        connection.executescript("\n".join(script))


REWRITTEN: dict[str, Callable[[Path], Awaitable[None]]] = {
    "rebuilt": lambda folder: run_statements(folder, *REBUILT),
    "vacuumed": lambda folder: run_statements(folder, *VACUUMED),
    "replaced row by row": lambda folder: run_statements(folder, *REPLACED),
    "dumped and restored": dump_and_restore,
}


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("how", REWRITTEN)
async def test_table_rewritten_during_a_firing_changes_no_fact(
    tmp_path: Path, how: str, number: int
) -> None:
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(*EPISODES, BOBS)
        episodes = ChangingEpisodes(home.memory)
        episodes.before[number] = lambda: REWRITTEN[how](tmp_path)
        firing = Consolidator(episodes, home.facts, home.log, FakeClock(), batch=2)

        await firing.fire(FireRequest(rule("all"), "manual", START))
        await home.put(triple("new", "s9", "is", "after it", timestamp=at(9)))
        await home.fire()

        found, expected = await contents(home), await from_scratch(tmp_path / "2", home.memory)
    assert found == expected
    assert {"new", "e3", "e4", "e5", "bobs"} == set(found)


# rules


async def payloads(home: StateDirectory) -> dict[str, dict[str, Any]]:
    return {fact.id: fact.payload for fact in await home.facts()}


async def promoters(home: StateDirectory) -> set[str]:
    return {
        own["rule_id"] for fact in await home.facts() for own in fact.lineage if "rule_id" in own
    }


OLD, NEW = rule("old"), rule("new")
STRICTER = rule("old", when_filter="subject = 's1'")
AFTERWARDS: dict[str, tuple[list[ConsolidationRule], set[str], set[str]]] = {
    "edited": ([STRICTER], {"e3", "e4", "e5", "bobs", "later"}, {"old"}),
    "renamed": ([NEW], {"e3", "e4", "e5", "bobs", "later", "other"}, {"old", "new"}),
    "removed": ([], {"e3", "e4", "e5", "bobs"}, {"old"}),
    "joined by another on its keys": (
        [OLD, NEW],
        {"e3", "e4", "e5", "bobs", "later", "other"},
        {"old", "new"},
    ),
}


@pytest.mark.parametrize("how", AFTERWARDS)
async def test_change_of_a_rule_ends_its_firing_and_applies_to_later_firings(
    tmp_path: Path, how: str
) -> None:
    rules, ids, by = AFTERWARDS[how]
    async with state_directory(tmp_path, [OLD]) as home:
        await home.stores.memory.put_many([*EPISODES, BOBS])

        async def change() -> None:
            home.rules[:] = rules

        home.runner.consolidator._episodes = ChangingEpisodes(home.stores.memory, after={1: change})
        await home.fire(OLD)
        await home.stores.memory.put_many(
            [triple("later", "s1", "is", 7, user="carol"), triple("other", "s2", "is", 8, user="d")]
        )
        for given_rule in home.rules:
            await home.fire(given_rule)

        assert set(await payloads(home)) == ids
        assert await promoters(home) == by


# the time


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(datetime(1970, 1, 1, tzinfo=UTC), id="1970"),
        pytest.param(datetime(2100, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC), id="2100"),
    ],
)
async def test_clock_far_from_the_present_changes_no_fact(tmp_path: Path, now: datetime) -> None:
    clock = FakeClock(now)
    async with open_stores(tmp_path, clock=clock) as home:
        await home.put(*EPISODES, BOBS)
        report = await home.consolidator.fire(FireRequest(rule("all"), "every", now))
        await home.facts.ledger.undo(
            report.firing_ids[0], at=now + timedelta(seconds=1), by="me", dry_run=False
        )
        await home.consolidator.backfill(rule("all"), now + timedelta(seconds=2), by="me")

        found, expected = await contents(home), await from_scratch(tmp_path / "2", home.memory)
        believed = await home.facts.query(FactPattern(), believed_at=now)
    assert found == expected
    assert {fact.id for fact in believed} == set(expected)


@pytest.mark.parametrize("year", [1970, 2100])
def test_cron_finds_the_next_instant_far_from_the_present(year: int) -> None:
    after = datetime(year, 2, 28, 23, 59, 59, tzinfo=UTC)

    assert cron.next_instant("30 2 * * *", "Europe/Berlin", after=after) == datetime(
        year, 3, 1, 1, 30, tzinfo=UTC
    )
    assert (
        cron.next_instant("0 0 29 2 *", "UTC", after=after).year == {1970: 1972, 2100: 2104}[year]
    )
