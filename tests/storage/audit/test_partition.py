"""Replay in parts gives the same result as replay of the whole ledger at once."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.fact import FactPattern
from slumberd.model.record import Break
from slumberd.storage.audit.partition import Partition, read_as_one_part
from slumberd.storage.audit.recompute import Findings, Recomputation
from slumberd.storage.ledger.rows import EVENTS
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.replay import rebuild
from tests.support.builders import at
from tests.support.example_ledgers import ALL, copied, fire, forge, rows_of, said
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration

DEPTH = 8
STORIES = ["everything", pytest.param("much", marks=pytest.mark.slow), "woven"]


@pytest.fixture(scope="module")
def woven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("woven") / "facts.db"
    asyncio.run(weave(path))
    return path


async def weave(path: Path) -> None:
    """Write a ledger whose keys depend on each other: by references, edits and withdrawals."""
    async with SQLiteFactStore(path, synchronous="normal") as store:
        await store.bootstrap()
        await fire(store, ALL, [_of("a", 1), _of("b", 2), _of("c", 3), _of("d", 4), _of("e", 5)])
        away = [
            said("e1", 6, subject="f", predicate="is", object=6),
            said("e2", 7, intent="remember"),
            said("x8", 8, intent="update", replaces=["e3", "e99"], subject="g", predicate="is"),
            said("e4", 9)._replace(matched=False),
        ]
        deleted = await fire(store, ALL, away)
        await store.ledger.set_channels({"facts": frozenset({"is"})}, at=at(200))
        await fire(store, ALL, [_of("c", 10), _of("c", 11), _of("b", 12), _of("d", 13)])
        await store.ledger.undo(deleted.firing_id, at=at(1100), by="uid 0", dry_run=False)
        await store.ledger.set_channels({}, at=at(1200))
        await fire(store, ALL, [said("e99", 14, subject="h", predicate="is", object=14)])
        each = [{"subject": name, "predicate": "is", "object": 15} for name in "ij"]
        await fire(store, ALL, [said("w", 15, triples=each)])
        over = {"intent": "update", "replaces": ["w"], "subject": "k", "predicate": "is"}
        await fire(store, ALL, [said("x16", 16, **over)])


def _of(subject: str, seq: int) -> Any:
    return said(f"e{seq}", seq, subject=subject, predicate="is", object=seq)


@pytest.fixture
def story(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.mark.parametrize("part_rows", [1, 3, 200])
@pytest.mark.parametrize("story", STORIES, indirect=True)
def test_partition_puts_every_row_into_one_part(story: Path, part_rows: int) -> None:
    with copied(story) as copy:
        parts = [*Partition(session_of(copy), part_rows)]
        [whole] = read_as_one_part(session_of(copy))

    assert sorted(row for part in parts for row in part) == whole
    assert all(part == sorted(part) for part in parts)


@pytest.mark.parametrize("part_rows", [1, 3, 200])
@pytest.mark.parametrize("story", STORIES, indirect=True)
def test_recomputation_makes_the_same_facts_of_any_parts(story: Path, part_rows: int) -> None:
    with copied(story) as copy:
        recomputation = Recomputation(session_of(copy), DEPTH)
        resolved = [recomputation.resolve(part) for part in Partition(session_of(copy), part_rows)]
        [(whole, findings)] = map(recomputation.resolve, read_as_one_part(session_of(copy)))

    facts = sorted(row for part, _ in resolved for row in part.facts)
    heads = sorted(row for part, _ in resolved for row in part.heads)
    assert (facts, heads) == (sorted(whole.facts), sorted(whole.heads))
    assert findings._replace(by_settings=()) == Findings(findings.rows)
    assert {found._replace(rows=0, by_settings=()) for _, found in resolved} == {Findings()}
    by_settings = sorted(delta for _, found in resolved for delta in found.by_settings)
    assert by_settings == sorted(findings.by_settings)


def test_partition_puts_keys_that_depend_on_each_other_into_one_part(
    woven: Path,
) -> None:
    with copied(woven) as copy:
        parts = [{row.fact_id for row in part} for part in Partition(session_of(copy), 1)]

    assert [part for part in parts if "e3" in part] == [{"e3", "e10", "e11", "x8", "e99"}]
    assert [part for part in parts if "x16" in part] == [{"w", "w#1", "w#2", "x16"}]


async def test_facts_verify_although_a_claim_names_all_that_an_episode_says(woven: Path) -> None:
    async with SQLiteFactStore(woven) as store:
        current = {fact.id for fact in await store.query(FactPattern())}
        _, _, broken = await store.verify()

    assert broken is None
    assert "x16" in current
    assert not current & {"w#1", "w#2"}


@pytest.mark.cases(2)
@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, indirect=True)
@pytest.mark.parametrize("column", ["kind", "what", "replaces", "reason", "delta"])
def test_recomputation_finds_any_row_with_another_delta(story: Path, column: str) -> None:
    values = {"kind": 5, "what": EVENTS.index("restored"), "replaces": '["?"]', "reason": "?"}
    # A forged row may change the deltas of earlier rows, too.
    rows = [row for row in rows_of(story, "slumberd_ledger") if row["what"] != 0]
    for row in rows[:: max(1, len(rows) // 12)]:
        value = values.get(column, row["delta"] - 1)
        if row[column] == value:
            continue
        with copied(story) as copy:
            forge(copy, row["seq"], None, **{column: value})
            found = [
                Recomputation(session_of(copy), DEPTH).resolve(part)[1]
                for part in Partition(session_of(copy), 1)
            ]
            [part] = read_as_one_part(session_of(copy))
            whole = Recomputation(session_of(copy), DEPTH).resolve(part)[1]

        # Only the row of a version contains why it was unreadable.
        assert whole.first is not None or (column, row["kind"]) == ("reason", 5)
        first = None if whole.first is None else whole.first.seq
        assert min((some.first.seq for some in found if some.first), default=None) == first
        assert first is None or first <= row["seq"]


def test_recomputation_finds_deltas_of_a_channel_change_in_another_order(woven: Path) -> None:
    with copied(woven) as copy:
        recomputation = Recomputation(session_of(copy), DEPTH)
        [(_, findings)] = map(recomputation.resolve, read_as_one_part(session_of(copy)))
    number = findings.by_settings[0][0]
    deltas = (number, 7, "b"), (number, 8, "a"), (number + 9, 20, "a")
    other = findings._replace(by_settings=deltas)

    assert recomputation.check_order(findings) == findings
    assert recomputation.check_order(other).first == Break(8, "comes out in another order")
    assert recomputation.check_order(other).differing == 1


def forged_copy(path: Path, folder: Path, *changes: tuple[int, dict[str, object]]) -> Path:
    """Return a closed copy with some forged rows."""
    copy = folder / "forged.db"
    with copied(path) as source:
        for seq, columns in changes:
            forge(source, seq, None, **columns)
        source.execute("VACUUM INTO ?", (str(copy),))
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("part_rows", [1, 200])
def test_replay_resolves_a_ledger_whole_when_a_key_has_two_numbers(
    much: Path, tmp_path: Path, part_rows: int
) -> None:
    claims = [row for row in rows_of(much, "slumberd_ledger") if row["key_id"] and row["what"] == 1]
    again = next(row for row in reversed(claims) if row["key_id"] != row["seq"])
    live = forged_copy(much, tmp_path, (again["seq"], {"key_id": again["seq"]}))

    replayed = rebuild(live, tmp_path / "again.db", DEPTH, None, part_rows=part_rows)

    assert replayed.differing == 1
    assert replayed.first is not None
    assert replayed.first.seq == again["seq"]
    assert rows_of(tmp_path / "again.db", "facts") == rows_of(much, "facts")


@pytest.mark.slow
def test_replay_resolves_a_ledger_whole_when_a_row_is_in_no_part(
    much: Path, tmp_path: Path
) -> None:
    # SQLite ends a text in JSON at NUL, so the queries for parts miss this row.
    row = next(row for row in rows_of(much, "slumberd_ledger") if row["key_id"] == row["seq"])
    unread: dict[str, object] = {
        "fact_id": "e\0",
        "key_id": None,
        "what": 3,
        "payload": b'{"owner":"","eid":"e"}',
    }
    live = forged_copy(much, tmp_path, (row["seq"], unread))
    with closing(sqlite3.connect(live)) as copy:
        [whole] = read_as_one_part(session_of(copy))
        assert len(whole) == 1 + sum(map(len, Partition(session_of(copy))))

    replayed = rebuild(live, tmp_path / "again.db", DEPTH, None)

    assert replayed.first is not None
    assert replayed.first.seq == row["seq"]
