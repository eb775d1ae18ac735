"""A state directory with very many facts and ledger rows, made in seconds.

A real daemon needs some minutes for so many rows. So one user's episodes are put and consolidated
by the real stores, and each further user gets a copy of these rows, with other names, numbers and
days. The hashes of the ledger are computed anew, so ``slumberd audit verify`` accepts the copies.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import orjson

from slumberd.model.episode import Episode
from slumberd.model.rule import ConsolidationRule
from slumberd.sql_statements import statement
from slumberd.storage.ledger.rows import FIRING, LedgerRow, seal
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.storage.sqlite.session import MANY, own_writes
from tests.support.builders import rule
from tests.support.fakes import FakeClock

FIRST_USER = "user-0000"
RULE: ConsolidationRule = rule("all")

STATED = 10
"""How often each fact is stated, each time with another object."""

TRIPLES = 10
"""The triples of an episode."""

SESSIONS = 10
FIRINGS = 5
"""Of each user."""

_DAY_MICROSECONDS = 86_400 * 1_000_000
_PUT_TIME, _FIRE_TIME = time(8, 0), time(22, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a state directory is.

    Attributes:
        users: The users, at most 10,000; each is called as `user_name` says.
        facts: The current facts of each user.
        days: On how many days the users were consolidated, one day after the other.
    """

    users: int = 1_000
    facts: int = 100
    days: int = 100

    @property
    def episodes(self) -> int:
        """The episodes of each user."""
        return self.facts * STATED // TRIPLES

    @property
    def current(self) -> int:
        """The current facts of all users."""
        return self.users * self.facts


def user_name(number: int) -> str:
    """Return the name of a user, by its number from 0."""
    return f"user-{number:04}"


def write_large_state(folder: Path, size: Size, *, last_day: date) -> None:
    """Write ``memory.db`` and ``facts.db`` of many users into an empty directory.

    Args:
        folder: The directory.
        size: How large they are.
        last_day: The day on which the last users were consolidated, at 22:00 UTC.
    """
    first_day = last_day - timedelta(days=size.days - 1)
    asyncio.run(_write_first_user(folder, size, first_day))
    copies = [*_copies(size, first_day)]
    with closing(sqlite3.connect(folder / "memory.db")) as memory, memory:
        _copy_episodes(memory, copies)
    with closing(sqlite3.connect(folder / "facts.db")) as facts, facts:
        _copy_ledger(facts, copies)
        _copy_facts(facts, copies)


async def _write_first_user(folder: Path, size: Size, day: date) -> None:
    clock = FakeClock(datetime.combine(day, _FIRE_TIME, UTC))
    episodes = [*_episodes(size, day)]
    async with (
        SQLiteMemoryStore(folder / "memory.db", synchronous="normal", clock=clock) as memory,
        SQLiteFactStore(folder / "facts.db", synchronous="normal", clock=clock) as facts,
    ):
        await memory.bootstrap()
        await facts.bootstrap()
        await memory.put_many(episodes)
        for _ in range(FIRINGS):
            window = await facts.next_window(RULE.id, limit=len(episodes) // FIRINGS)
            await facts.apply_deltas(await memory.consolidate(RULE, window=window))
        await facts.watermarks.mark_logged((await facts.ledger.head()).rows)


def _episodes(size: Size, day: date) -> Iterator[Episode]:
    """Yield the episodes of the first user; they state each fact some times."""
    count = size.episodes
    begin = datetime.combine(day, _PUT_TIME, UTC)
    for number in range(count):
        stated = [(number * TRIPLES + place) % size.facts for place in range(TRIPLES)]
        yield Episode(
            id=f"{FIRST_USER}-e{number:04}",
            content=f"They spoke of ten things, and of thing {stated[0]} first.",
            timestamp=begin + timedelta(hours=12) * number / count,
            source_node="chat",
            agent="agent",
            user=FIRST_USER,
            session=f"session-{number * SESSIONS // count}",
            metadata={
                "triples": [
                    {"subject": f"thing {thing}", "predicate": "is", "object": f"value {number}"}
                    for thing in stated
                ]
            },
        )


@dataclass(frozen=True, slots=True)
class _Copy:
    """What a user's rows have instead of the first user's.

    Attributes:
        number: The number of the user.
        day: How many days later the user was consolidated.
        texts: Old and new texts.
    """

    number: int
    day: int
    texts: tuple[tuple[str, str], ...]

    def of(self, value: Any) -> Any:
        """Return a text, or a document as bytes, with the user's own name and day."""
        if isinstance(value, str):
            for old, new in self.texts:
                value = value.replace(old, new)
        elif isinstance(value, bytes):
            for old, new in self.texts:
                value = value.replace(old.encode(), new.encode())
        return value


def _copies(size: Size, first_day: date) -> Iterator[_Copy]:
    for number in range(1, size.users):
        day = number * size.days // size.users
        then = first_day + timedelta(days=day)
        texts = ((FIRST_USER, user_name(number)), (first_day.isoformat(), then.isoformat()))
        yield _Copy(number, day, texts)


def _copy_episodes(connection: sqlite3.Connection, copies: Sequence[_Copy]) -> None:
    """Copy the episodes; the triggers number their versions in the same order."""
    rows = _rows(connection, "episodes")
    for copy in copies:
        _insert(connection, "episodes", ([copy.of(value) for value in row] for row in rows))


def _copy_ledger(connection: sqlite3.Connection, copies: Sequence[_Copy]) -> None:
    """Copy the ledger, its firings and its keys, and move the watermark to the end."""
    rows = [LedgerRow(*row) for row in connection.execute(_LEDGER_ROWS)]
    firings = _rows(connection, "slumberd_firings")
    keys = _rows(connection, "slumberd_keys")
    step = _Step(rows=len(rows), versions=max(row.version for row in rows))
    ledger = (step.ledger_row(row, copy) for copy in copies for row in rows)
    with _without_indexes(connection, "slumberd_ledger"):
        sealed = seal(ledger, rows[-1].chain, None)
        connection.executemany(statement("ledger", "add_row"), sealed)
    found = (step.firing(row, copy) for copy in copies for row in firings)
    _insert(connection, "slumberd_firings", found)
    _insert(connection, "slumberd_keys", (step.key(row, copy) for copy in copies for row in keys))
    connection.execute(_END_OF_WATERMARK)
    connection.execute(_END_OF_SUCCESSES)
    connection.execute(_END_OF_LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """How far the numbers of two users are apart.

    Attributes:
        rows: The rows of the ledger of each user.
        versions: The versions of episodes of each user.
    """

    rows: int
    versions: int

    def ledger_row(self, row: LedgerRow[str], copy: _Copy) -> LedgerRow[str]:
        """Return the row of another user, without its hashes."""
        shift = copy.number * self.rows
        payload = copy.of(row.payload)
        return LedgerRow(
            row.seq + shift,
            row.first + shift,
            row.firing + shift,
            row.event,
            row.kind,
            row.reason,
            row.version and row.version + copy.number * self.versions,
            row.key_id and row.key_id + shift,
            row.at and row.at + copy.day * _DAY_MICROSECONDS,
            copy.of(row.fact_id),
            copy.of(row.replaces),
            self._firing_document(payload, copy) if row.event == FIRING else payload,
        )

    def _firing_document(self, payload: bytes, copy: _Copy) -> bytes:
        document = orjson.loads(payload)
        for name, step in (("after", self.versions), ("upto", self.versions)):
            document[name] += copy.number * step
        document["last_seq"] += copy.number * self.rows
        return orjson.dumps(document)

    def firing(self, row: Sequence[Any], copy: _Copy) -> Sequence[Any]:
        """Return the row of another user in the table of firings."""
        n, rule_id, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts = row
        shift = copy.number * self.rows
        return (
            n + shift, rule_id, rule_hash, cause, at + copy.day * _DAY_MICROSECONDS,
            last_seq + shift, generation, upto_seq + copy.number * self.versions,
            copy.of(upto_eid), counts,
        )  # fmt: skip

    def key(self, row: Sequence[Any], copy: _Copy) -> Sequence[Any]:
        """Return the row of another user in the table of keys."""
        key, slot, key_id, winner_at, *summary = row
        return (
            copy.of(key),
            slot,
            key_id + copy.number * self.rows,
            winner_at and winner_at + copy.day * _DAY_MICROSECONDS,
            *map(copy.of, summary),
        )


def _copy_facts(connection: sqlite3.Connection, copies: Sequence[_Copy]) -> None:
    rows = _rows(connection, "facts")
    with _without_indexes(connection, "facts"), own_writes(connection, rows=MANY):
        found = ([copy.of(value) for value in row] for copy in copies for row in rows)
        _insert(connection, "facts", found)


def _rows(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT * FROM {table}").fetchall()


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    columns = len(connection.execute(f"PRAGMA table_info({table})").fetchall())
    marks = ", ".join("?" * columns)
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


@contextmanager
def _without_indexes(connection: sqlite3.Connection, table: str) -> Iterator[None]:
    """Drop the indexes of a table, and make them again after the block: this is faster."""
    found = connection.execute(_INDEXES, (table,)).fetchall()
    for name, _ in found:
        connection.execute(f"DROP INDEX {name}")
    yield
    for _, sql in found:
        connection.execute(sql)


_LEDGER_ROWS = """
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, payload,
  salt, commitment, chain
FROM slumberd_ledger
ORDER BY seq
"""
_INDEXES = """
SELECT name, sql
FROM sqlite_master
WHERE type = 'index'
  AND tbl_name = ?
  AND sql IS NOT NULL
"""
_END_OF_WATERMARK = """
UPDATE slumberd_watermark
SET (seq, eid, served) = (
  SELECT upto_seq, upto_eid, at
  FROM slumberd_firings
  ORDER BY n DESC
  LIMIT 1
)
"""
_END_OF_SUCCESSES = """
UPDATE slumberd_successes
SET at = (
  SELECT max(at)
  FROM slumberd_firings
)
"""
_END_OF_LOG = """
UPDATE slumberd_numbers
SET value = (
  SELECT max(seq)
  FROM slumberd_ledger
)
WHERE name = 'logged'
"""
