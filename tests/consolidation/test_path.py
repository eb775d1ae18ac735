"""The one path: a firing consolidates each window once, and applies each batch once."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.firing import FireRequest
from slumberd.model.episode import Episode
from slumberd.model.errors import LogRestoredError, SkippedEpisodesError
from slumberd.model.firing import START as LOG_START
from slumberd.model.firing import Counts, Position, Window
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import START, at, episode, rule, triple
from tests.support.corpora import SETS, lines, needs_corpora
from tests.support.fakes import FakeClock, FakeDeltaLog, FakeEpisodeLog
from tests.support.open_stores import open_stores, stream
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

CHANNELS = [["facts"], ["notes"], ["kg:team"], ["facts", "notes"]]
HISTORIES = amount(4, full=20)


async def test_firing_consolidates_and_applies_each_batch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(*stream(5))
        consolidate, apply_deltas = home.memory.consolidate, home.facts.apply_deltas

        async def count_consolidate(*arguments: Any, **more: Any) -> Any:
            calls.append(f"consolidate after {more['window'].after.seq}")
            return await consolidate(*arguments, **more)

        async def count_apply(*arguments: Any, **more: Any) -> Any:
            calls.append(f"apply up to {arguments[0].upto.seq}")
            return await apply_deltas(*arguments, **more)

        monkeypatch.setattr(home.memory, "consolidate", count_consolidate)
        monkeypatch.setattr(home.facts, "apply_deltas", count_apply)

        await home.fire()

    assert sorted(calls) == [
        "apply up to 2", "apply up to 4", "apply up to 5",
        "consolidate after 0", "consolidate after 2", "consolidate after 4",
    ]  # fmt: skip


async def fire_by_daemon(
    memory: SQLiteMemoryStore, facts: SQLiteFactStore, fired: ConsolidationRule, batch: int
) -> None:
    consolidator = Consolidator(memory, facts, FakeDeltaLog(), FakeClock(), batch=batch)
    await consolidator.fire(FireRequest(fired, "every", START))


async def fire_by_loop(
    memory: SQLiteMemoryStore, facts: SQLiteFactStore, fired: ConsolidationRule, batch: int
) -> None:
    position = await facts.watermarks.position(fired.id) or LOG_START
    while True:
        found = await memory.consolidate(fired, window=Window(position, limit=batch, at=START))
        if found.is_empty:
            return
        await facts.apply_deltas(found)
        position = found.upto


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    """Return the stored facts and the ledger's rows, byte by byte, without random values."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        facts = connection.execute("SELECT * FROM facts ORDER BY fact_id").fetchall()
        ledger = connection.execute(
            "SELECT seq, delta, firing, kind, fact_id, replaces, reason, version, at, "
            "CASE what WHEN 0 THEN NULL ELSE payload END FROM slumberd_ledger ORDER BY seq"
        ).fetchall()
    return [*facts, *ledger]


async def check_loop_equals_daemon(
    folder: Path, steps: Sequence[Sequence[Episode]], fired: ConsolidationRule, batch: int
) -> None:
    """Fire after each step, by the daemon and by the library's loop, and compare the files."""
    async with (
        SQLiteMemoryStore(folder / "memory.db") as memory,
        SQLiteFactStore(folder / "daemon.db", synchronous="normal", clock=FakeClock()) as daemon,
        SQLiteFactStore(folder / "loop.db", synchronous="normal", clock=FakeClock()) as loop,
    ):
        await daemon.bootstrap()
        await loop.bootstrap()
        for step in steps:
            await memory.put_many(step)
            await fire_by_daemon(memory, daemon, fired, batch)
            await fire_by_loop(memory, loop, fired, batch)
    rows = rows_of(folder / "daemon.db")
    assert rows
    assert rows_of(folder / "loop.db") == rows


def random_steps(seed: int) -> list[list[Episode]]:
    """Return episodes of few keys, some of them edited, that add, update and delete."""
    pick = random.Random(seed).choice
    return [
        [
            triple(
                pick(["e1", "e2", "e3", "@odd/e4"]), "alice", pick(["likes", "is"]),
                pick(["tea", "coffee", None]), timestamp=at(pick(range(4))), content=pick("xyz"),
                metadata=pick(
                    [{}, {}, {"intent": "delete"}, {"intent": "update", "replaces": ["e1"]},
                     {"intent": "?"}, {"intent": "noop"}, {"confidence": 0.5},
                     {"confidence": "high"}]
                ),
            )
            for _ in range(pick(range(1, 5)))
        ]
        for _ in range(6)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("channels", CHANNELS)
async def test_loop_of_a_library_equals_the_daemon_on_random_histories(
    tmp_path: Path, channels: list[str]
) -> None:
    for seed in range(HISTORIES):
        folder = tmp_path / str(seed)
        fired = rule("all", then_emits=channels, when_filter="content <> 'z'")
        await check_loop_equals_daemon(folder, random_steps(seed), fired, batch=1 + seed % 3)


@pytest.mark.nightly
@pytest.mark.acceptance
@needs_corpora
@pytest.mark.parametrize("name", SETS)
async def test_loop_of_a_library_equals_the_daemon_on_a_real_stream(
    tmp_path: Path, name: str
) -> None:
    episodes = [Episode.model_validate(line) for line in lines(name, "episodes")]
    steps = [episodes[first : first + 2_000] for first in range(0, len(episodes), 2_000)]
    fired = rule("all", then_emits=["facts", "notes"])
    await check_loop_equals_daemon(tmp_path, steps, fired, batch=700)


async def test_loop_that_does_not_secure_its_batch_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that loses a candidate makes the files differ, so the comparison can fail."""
    apply_deltas = SQLiteFactStore.apply_deltas

    async def lose_one(self: SQLiteFactStore, batch: Any, **more: Any) -> Any:
        if self.path.name == "loop.db":
            batch.candidates["facts"].pop()
        return await apply_deltas(self, batch, **more)

    monkeypatch.setattr(SQLiteFactStore, "apply_deltas", lose_one)

    with pytest.raises(AssertionError):
        await check_loop_equals_daemon(tmp_path, [stream(3)], rule("all"), batch=5)


async def test_deltas_of_a_window_of_everything_are_those_of_consolidate(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db", clock=FakeClock()) as memory:
        for step in random_steps(1):
            await memory.put_many(step)
        fired = rule("all", then_emits=["facts", "notes"], when_filter="content <> 'z'")

        batch = await memory.consolidate(fired, window=Window())

        assert batch.deltas == await memory.consolidate(fired)
        assert batch.deltas


async def test_batch_of_an_empty_log_is_empty(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        batch = await memory.consolidate(rule("all"), window=Window())

        assert (batch.is_empty, batch.size, batch.deltas) == (True, 0, [])


async def test_dry_run_of_a_batch_writes_nothing(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(episode("e1"))
        batch = await home.memory.consolidate(rule("all"), window=Window(dry_run=True))

        outcome = await home.facts.apply_deltas(batch, dry_run=True)

        assert outcome.channels["facts"].added == 1
        assert await home.facts.reads.ledger_rows() == 0


async def test_batch_that_passes_over_unread_episodes_is_refused(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*stream(4))
        window = Window(Position(2, "e1"))
        batch = await home.memory.consolidate(rule("all"), window=window)

        with pytest.raises(SkippedEpisodesError, match=r"up to log row 0, .* after row 2"):
            await home.facts.apply_deltas(batch)

        assert await home.facts.reads.ledger_rows() == 0


async def test_window_after_a_row_that_the_log_lost_is_refused(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*stream(4))

        with pytest.raises(LogRestoredError, match="log row 2 is not episode 'gone' any more"):
            await home.memory.consolidate(rule("all"), window=Window(Position(2, "gone")))


async def test_next_window_begins_after_what_a_rule_has_read(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*stream(3))
        fired = rule("all")
        assert await home.facts.next_window("all", limit=2) == Window(limit=2)

        window = await home.facts.next_window("all", limit=2)
        await home.facts.apply_deltas(await home.memory.consolidate(fired, window=window))

        assert await home.facts.next_window("all") == Window(Position(2, "e1"))


async def test_preview_of_a_new_rule_that_starts_now_reads_nothing(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*stream(3))

        report = await home.consolidator.preview(rule("late", start="now"), START)

        assert report.channels["facts"].read == 0


async def test_batch_accounts_for_its_window_in_each_channel(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(
            triple("e1", "s", "is", 1),
            triple("e2", "s", "is", 2, metadata={"intent": "update", "replaces": ["e1"]}),
            triple("e3", "s", "is", 3, metadata={"intent": "delete"}),
            triple("e4", "s", "is", 4, metadata={"intent": "noop"}),
            triple("e5", "s", "is", 5, metadata={"intent": "?"}),
            triple("e6", "s", "is", 6, content="left out"),
        )
        fired = rule("all", then_emits=["facts", "notes"], when_filter="content <> 'left out'")

        batch = await home.memory.consolidate(fired, window=Window())

        counts = Counts(read=6, filtered=1, added=1, updated=1, deleted=1, noop=1, quarantined=1)
        assert batch.counts == {"facts": counts, "notes": counts}


async def test_window_whose_episodes_are_deleted_is_synced_before_the_watermark_passes_it() -> None:
    log = FakeEpisodeLog("e1", "e1")

    batch = await log.consolidate(rule("all"), window=Window(limit=1))

    assert (batch.versions, batch.is_empty) == ([], False)
    assert log.queries[-1] == "fsync"


async def test_preview_of_a_restored_log_begins_where_log_and_ledger_agree(tmp_path: Path) -> None:
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(*stream(4))
        await home.fire()
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as backup:
        backup.execute("DELETE FROM slumberd_episode_log WHERE seq > 2")
        backup.execute("DELETE FROM episodes WHERE id IN ('e2', 'e3')")
    async with open_stores(tmp_path, batch=2) as home:
        await home.put(triple("new1", "n", "is", 1), triple("new2", "n", "is", 2))

        report = await home.consolidator.preview(rule("all"), START)

        assert report.channels["facts"].read == 2
        assert await home.facts.watermarks.position("all") == Position(4, "e3")
