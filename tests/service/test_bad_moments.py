"""Whatever changes while a rule fires, or under it, the facts come to what memory and rules say."""

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
from slumberd.consolidation.fire_request import FireRequest
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Window
from slumberd.model.rule import ConsolidationRule
from slumberd.scheduling import cron
from slumberd.storage.episodes.store import SQLiteMemoryStore
from tests.support.builders import START, at, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores
from tests.support.state_directory import StateDirectory, state_directory

pytestmark = pytest.mark.integration

SAID = [triple(f"e{n}", f"s{n % 3}", "is", n, timestamp=at(n)) for n in range(6)]
BOBS = triple("bobs", "s1", "is", "bob's", user="bob")

Moment = Callable[[], Awaitable[None]]


@dataclass
class Meddled:
    """Episodes that something happens to right before, or right after, a window is read."""

    memory: SQLiteMemoryStore
    before: dict[int, Moment] = field(default_factory=dict)
    after: dict[int, Moment] = field(default_factory=dict)
    windows: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    async def select(self, *arguments: Any, **more: Any) -> Window:
        self.windows += 1
        number = self.windows
        await self.before.pop(number, _nothing)()
        window = await self.memory.select(*arguments, **more)
        await self.after.pop(number, _nothing)()
        return window


async def _nothing() -> None:
    return


async def contents(home: OpenStores) -> dict[str, dict[str, Any]]:
    """Return what stands, without who promoted it and when; the ledger must agree."""
    assert (await home.facts.verify())[2] is None
    return {fact.id: fact.payload for fact in await home.facts.query(FactPattern())}


async def from_scratch(folder: Path, memory: SQLiteMemoryStore) -> dict[str, dict[str, Any]]:
    """Return what the episodes that there are now come to."""
    folder.mkdir()
    async with open_stores(folder) as home:
        for user in ("alice", "bob"):
            await home.put(*await memory.recent(user, limit=99))
        await home.fire()
        return await contents(home)


EDITED = triple("e4", "s1", "is", "edited", timestamp=at(4))
RESCOPED = triple("e1", "s1", "is", "another moment", timestamp=at(8))


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("edited", [EDITED, RESCOPED], ids=["of a later batch", "of an earlier"])
async def test_an_id_that_is_put_again_during_a_firing_comes_to_its_newest_version(
    tmp_path: Path, number: int, when: str, edited: Any
) -> None:
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(*SAID, BOBS)
        meddled = Meddled(home.memory)
        getattr(meddled, when)[number] = lambda: home.put(edited)
        firing = Consolidator(meddled, home.facts.ledger, home.log, FakeClock(), batch=2)

        await firing.fire(FireRequest(rule("all"), "manual", START))
        await home.fire()

        found, expected = await contents(home), await from_scratch(tmp_path / "2", home.memory)
    assert found == expected


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_row_that_is_deleted_between_log_and_read_is_not_there_for_its_rule(
    tmp_path: Path, number: int
) -> None:
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(*SAID, BOBS)
        meddled = Meddled(home.memory)
        meddled.before[number] = lambda: changed(tmp_path, "DELETE FROM episodes WHERE id = 'e5'")
        firing = Consolidator(meddled, home.facts.ledger, home.log, FakeClock(), batch=2)

        [report] = [await firing.fire(FireRequest(rule("all"), "manual", START))]
        await home.fire()

        found, expected = await contents(home), await from_scratch(tmp_path / "2", home.memory)
    assert report.channels["facts"].read == 6
    assert found == expected
    assert "e5" not in found


async def test_a_row_that_is_deleted_after_it_was_read_stays_promoted(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*SAID, BOBS)
        meddled = Meddled(home.memory)
        meddled.after[1] = lambda: changed(tmp_path, "DELETE FROM episodes")
        firing = Consolidator(meddled, home.facts.ledger, home.log, FakeClock(), batch=9)

        await firing.fire(FireRequest(rule("all"), "manual", START))
        await home.fire()

        assert set(await contents(home)) == {"e3", "e4", "e5", "bobs"}


async def changed(folder: Path, *statements: str) -> None:
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


async def restored(folder: Path) -> None:
    """Write every row anew from a dump, as a restored one numbers them."""
    with closing(sqlite3.connect(folder / "memory.db", isolation_level=None)) as connection:
        script = [one for one in connection.iterdump() if "sqlite_sequence" not in one]
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        ).fetchall():
            connection.execute(f'DROP TABLE "{table}"')
        connection.executescript("\n".join(script))


REWRITTEN: dict[str, Callable[[Path], Awaitable[None]]] = {
    "rebuilt": lambda folder: changed(folder, *REBUILT),
    "vacuumed": lambda folder: changed(folder, *VACUUMED),
    "replaced row by row": lambda folder: changed(folder, *REPLACED),
    "dumped and restored": restored,
}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("how", REWRITTEN)
async def test_a_table_that_is_written_anew_during_a_firing_changes_no_fact(
    tmp_path: Path, how: str, number: int
) -> None:
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(*SAID, BOBS)
        meddled = Meddled(home.memory)
        meddled.before[number] = lambda: REWRITTEN[how](tmp_path)
        firing = Consolidator(meddled, home.facts.ledger, home.log, FakeClock(), batch=2)

        await firing.fire(FireRequest(rule("all"), "manual", START))
        await home.put(triple("new", "s9", "is", "after it", timestamp=at(9)))
        await home.fire()

        found, expected = await contents(home), await from_scratch(tmp_path / "2", home.memory)
    assert found == expected
    assert {"new", "e3", "e4", "e5", "bobs"} == set(found)


# rules


async def standing(home: StateDirectory) -> dict[str, dict[str, Any]]:
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
async def test_a_rule_that_is_changed_during_its_firing_ends_it_and_counts_from_then_on(
    tmp_path: Path, how: str
) -> None:
    rules, ids, by = AFTERWARDS[how]
    async with state_directory(tmp_path, [OLD]) as home:
        await home.stores.memory.put_many([*SAID, BOBS])

        async def change() -> None:
            home.rules[:] = rules

        home.runner.consolidator._episodes = Meddled(home.stores.memory, after={1: change})
        await home.fire(OLD)
        await home.stores.memory.put_many(
            [triple("later", "s1", "is", 7, user="carol"), triple("other", "s2", "is", 8, user="d")]
        )
        for given_rule in home.rules:
            await home.fire(given_rule)

        assert set(await standing(home)) == ids
        assert await promoters(home) == by


# the time


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(datetime(1970, 1, 1, tzinfo=UTC), id="1970"),
        pytest.param(datetime(2100, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC), id="2100"),
    ],
)
async def test_a_clock_that_is_far_off_changes_no_fact(tmp_path: Path, now: datetime) -> None:
    clock = FakeClock(now)
    async with open_stores(tmp_path, clock=clock) as home:
        await home.put(*SAID, BOBS)
        report = await home.consolidator.fire(FireRequest(rule("all"), "every", now))
        await home.facts.ledger.undo(
            report.firing_ids[0], at=now + timedelta(seconds=1), by="me", dry_run=False
        )
        await home.consolidator.backfill(rule("all"), now + timedelta(seconds=2), by="me")

        found, expected = await contents(home), await from_scratch(tmp_path / "2", home.memory)
        held = await home.facts.query(FactPattern(), believed_at=now)
    assert found == expected
    assert {one.id for one in held} == set(expected)


@pytest.mark.parametrize("year", [1970, 2100])
def test_cron_goes_on_at_a_clock_that_is_far_off(year: int) -> None:
    after = datetime(year, 2, 28, 23, 59, 59, tzinfo=UTC)

    assert cron.next_instant("30 2 * * *", "Europe/Berlin", after=after) == datetime(
        year, 3, 1, 1, 30, tzinfo=UTC
    )
    assert (
        cron.next_instant("0 0 29 2 *", "UTC", after=after).year == {1970: 1972, 2100: 2104}[year]
    )
