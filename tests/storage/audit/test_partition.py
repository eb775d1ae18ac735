"""A ledger is settled again in parts: what comes of them is what comes of all at once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.record import Break
from slumberd.storage.audit import partition, worker
from slumberd.storage.audit.partition import EVERY_KEY, Part, Parts, in_one
from slumberd.storage.audit.recompute import Findings, Resettling, Settled
from slumberd.storage.audit.replay import Replay, rebuild
from slumberd.storage.audit.worker import Helper
from slumberd.storage.facts.store import SQLiteFactStore
from slumberd.storage.ledger.rows import WHATS
from tests.support.builders import at
from tests.support.stories import ALL, copied, fire, forge, rows_of, said

DEPTH = 8
STORIES = ["everything", pytest.param("much", marks=pytest.mark.slow), "woven"]


@pytest.fixture(scope="module")
def woven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("woven") / "facts.db"
    asyncio.run(weave(path))
    return path


async def weave(path: Path) -> None:
    """Write a ledger whose keys have to do with each other: by names, by edits, by withdrawals."""
    async with SQLiteFactStore(path, synchronous="normal") as store:
        await store.bootstrap()
        await fire(store, ALL, [_of("a", 1), _of("b", 2), _of("c", 3), _of("d", 4), _of("e", 5)])
        away = [
            said("e1", 6, subject="f", predicate="is", object=6),
            said("e2", 7, intent="remember"),
            said("x8", 8, intent="update", replaces=["e3", "e99"], subject="g", predicate="is"),
            said("e4", 9)._replace(matched=False),
        ]
        gone = await fire(store, ALL, away)
        await store.set_channels({"facts": frozenset({"is"})}, at=at(200))
        await fire(store, ALL, [_of("c", 10), _of("c", 11), _of("b", 12), _of("d", 13)])
        await store.undo(gone.firing_id, at=at(1100), by="uid 0", dry_run=False)
        await store.set_channels({}, at=at(1200))
        await fire(store, ALL, [said("e99", 14, subject="h", predicate="is", object=14)])


def _of(subject: str, seq: int) -> Any:
    return said(f"e{seq}", seq, subject=subject, predicate="is", object=seq)


def parts_of(connection: sqlite3.Connection) -> Iterator[Part]:
    parts = Parts(connection)
    yield from parts.of_keys(*EVERY_KEY)
    yield from parts.of_several_keys()
    yield from parts.of_no_key()


@pytest.fixture
def story(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.mark.parametrize("held", [1, 3, 200])
@pytest.mark.parametrize("story", STORIES, indirect=True)
def test_every_row_is_in_one_part(story: Path, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "ROWS", held)

    with copied(story) as copy:
        parts = [*parts_of(copy)]
        whole = in_one(copy)

    assert sorted(row for part in parts for row in part) == whole
    assert all(part == sorted(part) for part in parts)


@pytest.mark.parametrize("held", [1, 3, 200])
@pytest.mark.parametrize("story", STORIES, indirect=True)
def test_what_stands_does_not_depend_on_the_parts(
    story: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "ROWS", held)

    with copied(story) as copy:
        resettling = Resettling(copy, DEPTH)
        settled = [resettling.settle(part) for part in parts_of(copy)]
        whole, findings = resettling.settle(in_one(copy))

    facts = sorted(row for one, _ in settled for row in one.facts)
    heads = sorted(row for one, _ in settled for row in one.heads)
    assert (facts, heads) == (sorted(whole.facts), sorted(whole.heads))
    assert findings._replace(resettled=()) == Findings(findings.rows)
    assert {found._replace(rows=0, resettled=()) for _, found in settled} == {Findings()}
    resettled = sorted(one for _, found in settled for one in found.resettled)
    assert resettled == sorted(findings.resettled)


def test_keys_that_have_to_do_with_each_other_are_in_one_part(
    woven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "ROWS", 1)

    with copied(woven) as copy:
        parts = [{row.fact_id for row in part} for part in parts_of(copy)]

    together = [{"e3", "e10", "e11", "x8", "e99"}]
    assert [part for part in parts if "e3" in part] == together
    assert sum("e1" in part for part in parts) == 1


@pytest.mark.parametrize("story", STORIES, indirect=True)
@pytest.mark.parametrize("column", ["kind", "what", "replaces", "reason", "delta"])
def test_any_row_that_the_law_does_not_make_is_named(
    story: Path, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "ROWS", 1)
    values = {"kind": 5, "what": WHATS.index("restored"), "replaces": '["?"]', "reason": "?"}
    # Of what gets another meaning by it, more may come out differently, and earlier.
    rows = [row for row in rows_of(story, "slumberd_ledger") if row["what"] != 0]
    for row in rows[:: max(1, len(rows) // 12)]:
        value = values.get(column, row["delta"] - 1)
        if row[column] == value:
            continue
        with copied(story) as copy:
            forge(copy, row["seq"], None, **{column: value})
            found = [Resettling(copy, DEPTH).settle(part)[1] for part in parts_of(copy)]
            whole = Resettling(copy, DEPTH).settle(in_one(copy))[1]

        # Why something could not be read is known from its row alone.
        assert whole.first is not None or (column, row["kind"]) == ("reason", 5)
        first = None if whole.first is None else whole.first.seq
        assert min((one.first.seq for one in found if one.first), default=None) == first
        assert first is None or first <= row["seq"]


def test_what_came_with_other_channels_in_another_order_is_a_difference(woven: Path) -> None:
    with copied(woven) as copy:
        resettling = Resettling(copy, DEPTH)
        _, findings = resettling.settle(in_one(copy))
    number = findings.resettled[0][0]
    other = findings._replace(resettled=((number, 7, "b"), (number, 8, "a"), (number + 9, 20, "a")))

    assert resettling.in_order(findings) == findings
    assert resettling.in_order(other).first == Break(8, "comes out in another order")
    assert resettling.in_order(other).differing == 1


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settled, Findings]]:
    """Let every ledger be long enough for help; what comes of it is in the list."""
    came: list[tuple[Settled, Findings]] = []
    settled = Helper.settled

    def seen(helper: Helper) -> Iterator[tuple[Settled, Findings]]:
        for one in settled(helper):
            came.append(one)
            yield one

    monkeypatch.setattr(worker, "MANY", 0)
    monkeypatch.setattr(Helper, "settled", seen)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return came


def unchanging(path: Path, folder: Path, *changes: tuple[int, dict[str, object]]) -> Path:
    """Return a copy that nobody has open, with some rows forged."""
    copy = folder / "unchanging.db"
    with copied(path) as source:
        for seq, columns in changes:
            forge(source, seq, None, **columns)
        source.execute("VACUUM INTO ?", (str(copy),))
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    return copy


@pytest.mark.parametrize("story", STORIES, indirect=True)
def test_another_process_settles_most_keys(
    story: Path, tmp_path: Path, helped: list[tuple[Settled, Findings]]
) -> None:
    live = unchanging(story, tmp_path)

    replayed = rebuild(live, tmp_path / "again.db", DEPTH, None)

    assert replayed == expected(live)
    assert helped
    assert rows_of(tmp_path / "again.db", "facts") == rows_of(live, "facts")
    assert {file.name for file in tmp_path.iterdir()} == {"unchanging.db", "again.db"}


def expected(live: Path) -> Replay:
    """Return what comes of a replay in which nothing differs."""
    rows, firings, facts = (
        len(rows_of(live, table)) for table in ("slumberd_ledger", "slumberd_firings", "facts")
    )
    return Replay(rows, firings, facts, 0, 0, 0, None)


def test_what_another_process_fails_at_is_settled_here(
    much: Path,
    tmp_path: Path,
    helped: list[tuple[Settled, Findings]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    live = unchanging(much, tmp_path)

    assert rebuild(live, tmp_path / "again.db", DEPTH, None) == expected(live)
    assert helped == []
    assert rows_of(tmp_path / "again.db", "facts") == rows_of(live, "facts")


def test_what_another_process_did_before_it_failed_does_not_count(
    much: Path,
    tmp_path: Path,
    helped: list[tuple[Settled, Findings]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled = Helper.settled

    def cut_short(helper: Helper) -> Iterator[tuple[Settled, Findings]]:
        yield next(iter(settled(helper)))
        raise worker.HelperError

    monkeypatch.setattr(Helper, "settled", cut_short)
    live = unchanging(much, tmp_path)

    assert rebuild(live, tmp_path / "again.db", DEPTH, None) == expected(live)
    assert len(helped) == 1


@pytest.mark.parametrize("held", [1, 200])
def test_a_key_of_several_numbers_is_settled_as_one(
    much: Path, tmp_path: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "ROWS", held)
    claims = [row for row in rows_of(much, "slumberd_ledger") if row["key_id"] and row["what"] == 1]
    again = next(row for row in reversed(claims) if row["key_id"] != row["seq"])
    live = unchanging(much, tmp_path, (again["seq"], {"key_id": again["seq"]}))

    replayed = rebuild(live, tmp_path / "again.db", DEPTH, None)

    assert replayed.differing == 1
    assert replayed.first is not None
    assert replayed.first.seq == again["seq"]
    assert rows_of(tmp_path / "again.db", "facts") == rows_of(much, "facts")


def test_a_row_that_is_in_no_part_is_settled_with_all_others(much: Path, tmp_path: Path) -> None:
    # SQLite takes what it is asked for as JSON, whose texts end at NUL.
    row = next(row for row in rows_of(much, "slumberd_ledger") if row["key_id"] == row["seq"])
    unread: dict[str, object] = {
        "fact_id": "e\0",
        "key_id": None,
        "what": 3,
        "payload": b'{"owner":"","eid":"e"}',
    }
    live = unchanging(much, tmp_path, (row["seq"], unread))
    with closing(sqlite3.connect(live)) as copy:
        assert len(in_one(copy)) == 1 + sum(map(len, parts_of(copy)))

    replayed = rebuild(live, tmp_path / "again.db", DEPTH, None)

    assert replayed.first is not None
    assert replayed.first.seq == row["seq"]
