"""Verify proves the facts of plain keys by less work, and finds the same in them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.storage.audit.table_check import KeyPages
from slumberd.storage.audit.verify import verify
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.builders import at
from tests.support.example_ledgers import ALL, copied, fire, forge, rows_of, said
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration

DEPTH = 8
TEA = said("e1", 1, subject="ann", predicate="drinks", object="tea", session="s")
Write = Callable[[EngineFactStore], Awaitable[object]]


async def _write(path: Path, *steps: Write) -> None:
    async with SQLiteFactStore(path, synchronous="normal") as store:
        await store.bootstrap()
        for step in steps:
            await step(store)


async def _say_tea(store: EngineFactStore) -> None:
    await fire(store, ALL, [TEA])


async def _say_likes(store: EngineFactStore) -> None:
    await store.ledger.set_channels({"facts": frozenset({"likes"})}, at=at(50))
    await fire(store, ALL, [said("e2", 2, subject="bob/x", predicate="likes", object={"a": 1})])


async def _name_tea(store: EngineFactStore) -> None:
    await fire(store, ALL, [said("e3", 3, intent="delete", replaces=["e1"])])


async def _delete_by_key(store: EngineFactStore) -> None:
    await fire(store, ALL, [said("e3", 3, intent="delete", subject="ann", predicate="drinks")])


async def _withdraw_tea(store: EngineFactStore) -> None:
    await fire(store, ALL, [said("e1", 3, intent="noop", subject="ann", predicate="drinks")])


async def _undo_tea(store: EngineFactStore) -> None:
    await store.ledger.undo("all@1", at=at(60), by="uid 0", dry_run=False)


async def _retract_tea(store: EngineFactStore) -> None:
    await store.retract("e1", by="ann", reason="never")


async def _replace_tea(store: EngineFactStore) -> None:
    await fire(store, ALL, [said("e3", 3, subject="ann", predicate="drinks", object="coffee")])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "facts.db"
    asyncio.run(_write(path, _say_tea, _say_likes))
    return path


def test_a_key_with_one_claim_is_proved(plain: Path) -> None:
    with copied(plain) as copy:
        pages = KeyPages(session_of(copy), DEPTH)

        assert list(pages.unproved()) == []
        assert (pages.proved, pages.summaries.found, len(pages.key_hashes)) == (2, 2, 2)


@pytest.mark.parametrize("story", ["everything", "much"])
def test_each_current_fact_is_proved_or_compared(
    story: str, request: pytest.FixtureRequest
) -> None:
    with copied(request.getfixturevalue(story)) as copy:
        pages = KeyPages(session_of(copy), DEPTH)
        every = [fact for page in pages for fact in page]
        hashes, summaries = sorted(pages.key_hashes), pages.summaries.found
        compared = [fact for page in pages.unproved() for fact in page]

        assert 0 < pages.proved == len(every) - len(compared)
        assert (sorted(pages.key_hashes), pages.summaries.found) == (hashes, summaries)
        assert pages.summaries.changed == []


@pytest.mark.parametrize("table", ["facts", "slumberd_keys"])
def test_another_value_in_any_column_of_a_plain_key_is_found(plain: Path, table: str) -> None:
    # A summary without a winner says nothing.
    for row in (row for row in rows_of(plain, table) if row.get("winner_at", 0) is not None):
        for column, value in row.items():
            with copied(plain) as copy:
                conditions = " AND ".join(f'"{name}" IS ?' for name in row)
                copy.execute(
                    f'UPDATE {table} SET "{column}" = ? WHERE {conditions}',
                    [_other(value), *row.values()],
                )

                assert verify(session_of(copy), DEPTH)[2] is not None, (column, value)


def _other(value: Any) -> Any:
    match value:
        case None:
            return b"{}"
        case str():
            return f"{value}x"
        case bytes():
            return value + b"x"
        case _:
            return value + 1


@pytest.mark.parametrize(
    ("claim", "payload"),
    [
        pytest.param({"confidence": 0.5}, {}, id="another confidence"),
        pytest.param({"asserts": False}, {}, id="a retraction"),
        pytest.param({}, {"summarises": ["e1", "e9"]}, id="a summary of two episodes"),
    ],
)
def test_a_fact_of_another_claim_is_found(
    plain: Path, claim: dict[str, Any], payload: dict[str, Any]
) -> None:
    with copied(plain) as copy:
        seq, stored = copy.execute(
            "SELECT seq, payload FROM slumberd_ledger WHERE fact_id = 'e1'"
        ).fetchone()
        document = orjson.loads(stored)
        document = {**document, **claim, "payload": {**document["payload"], **payload}}
        forge(copy, seq, None, payload=orjson.dumps(document))
        changed = orjson.dumps(document["payload"])
        copy.execute("UPDATE facts SET payload = ? WHERE fact_id = 'e1'", [changed])

        assert verify(session_of(copy), DEPTH)[2] is not None


@pytest.mark.parametrize(
    "step",
    [_name_tea, _delete_by_key, _withdraw_tea, _undo_tea, _retract_tea, _replace_tea],
    ids=lambda step: step.__name__.strip("_"),
)
def test_a_fact_that_was_retracted_and_put_back_is_found(tmp_path: Path, step: Write) -> None:
    before, after = tmp_path / "before.db", tmp_path / "after.db"
    asyncio.run(_write(before, _say_tea))
    asyncio.run(_write(after, _say_tea, step))
    with copied(after) as copy:
        assert verify(session_of(copy), DEPTH)[2] is None
        with closing(sqlite3.connect(before)) as source:
            for table in ("facts", "slumberd_keys"):
                for row in source.execute(f"SELECT * FROM {table}").fetchall():
                    marks = ", ".join("?" * len(row))
                    copy.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)

        assert verify(session_of(copy), DEPTH)[2] is not None
