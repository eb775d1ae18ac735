"""Several processes find in a ledger what one process finds, whatever was changed in it."""

from __future__ import annotations

import pickle
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.record import Checkpoint
from slumberd.storage.audit.verify import verify
from slumberd.storage.engine import SharedWork
from slumberd.storage.sqlite.session import SQLiteSession
from tests.support.example_ledgers import copied, forge
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration

T = TypeVar("T")

DEPTH = 8
TABLES = (
    "slumberd_ledger", "slumberd_ledger", "slumberd_ledger", "slumberd_firings",
    "slumberd_channels", "slumberd_keys", "slumberd_references", "facts",
)  # fmt: skip


class PickledWorks:
    """Runs shared work one by one, on pickled copies; leaves some of it to the caller.

    Args:
        left: The numbers of the works that no process finishes.
    """

    def __init__(self, processes: int, left: frozenset[int]) -> None:
        self.processes = processes
        self._left = left

    def share(self, session: SQLiteSession, works: Sequence[SharedWork[T]]) -> list[T | None]:
        return [
            None if number in self._left else self._run(session, work)
            for number, work in enumerate(works)
        ]

    def _run(self, session: SQLiteSession, work: SharedWork[T]) -> T | None:
        try:
            result = pickle.loads(pickle.dumps(work))(session)  # noqa: S301 # its own bytes
        except Exception:  # noqa: BLE001 # a process that fails leaves its work
            return None
        copy: T = pickle.loads(pickle.dumps(result))  # noqa: S301 # its own bytes
        return copy


@contextmanager
def shared(
    connection: sqlite3.Connection, processes: int, left: frozenset[int]
) -> Iterator[SQLiteSession]:
    with closing(SQLiteSession(connection, "", PickledWorks(processes, left))) as session:
        yield session


def outcome_of(session: SQLiteSession, against: Sequence[Checkpoint], *, chain_only: bool) -> Any:
    """Return what verification finds, or the error that it ends with."""
    try:
        return verify(session, DEPTH, against, chain_only=chain_only)
    except Exception as error:  # noqa: BLE001 # whatever one process raises
        return type(error), str(error)


def checkpoints_of(connection: sqlite3.Connection, chance: random.Random) -> list[Checkpoint]:
    """Return some checkpoints; now and then one is forged."""
    rows = connection.execute("SELECT seq, chain FROM slumberd_ledger ORDER BY seq").fetchall()
    found = [Checkpoint(*row) for row in chance.sample(rows, 2)]
    if chance.random() < 0.2:
        found.append(Checkpoint(chance.choice(rows)[0], chance.randbytes(32), "forged"))
    if chance.random() < 0.1:
        found.append(Checkpoint(rows[-1][0] + 1, rows[-1][1], "later"))
    return found


def damage(connection: sqlite3.Connection, chance: random.Random) -> None:
    """Change, remove, move, swap or forge a row, or remove the end of a table."""
    kinds = [change, change, change, remove, remove_end, swap, forge_reason, blank, add_channels]
    kind = chance.choice(kinds)
    name = TABLE_OF.get(kind) or chance.choice(TABLES)
    found = connection.execute(f"SELECT * FROM {name} ORDER BY 1")
    columns = [column[0] for column in found.description]
    rows = found.fetchall()
    with suppress(sqlite3.Error, TypeError):  # not every row can change so
        if rows:
            kind(connection, Table(name, columns, rows), chance)


class Table(NamedTuple):
    """A table before its damage; `rows` are in the order of the first column."""

    name: str
    columns: list[str]
    rows: list[tuple[Any, ...]]

    @property
    def where(self) -> str:
        """The condition that a row has certain values."""
        return " AND ".join(f'"{column}" IS ?' for column in self.columns)


def change(connection: sqlite3.Connection, table: Table, chance: random.Random) -> None:
    """Change one value of a row."""
    row = chance.choice(table.rows)
    place = chance.randrange(len(row))
    value = row[place]
    match value:
        case bytes() if value:
            at = chance.randrange(len(value))
            other: object = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        case int():
            other = value + chance.choice([-1, 1, 2, 2**40])
        case str():
            other = chance.choice([value + "x", value[1:], ""])
        case _:
            other = chance.choice([1, b"", "x"])
    other = None if chance.random() < 0.1 else other
    sql = f'UPDATE {table.name} SET "{table.columns[place]}" = ? WHERE {table.where}'
    connection.execute(sql, [other, *row])


def remove(connection: sqlite3.Connection, table: Table, chance: random.Random) -> None:
    """Remove a row."""
    row = chance.choice(table.rows)
    connection.execute(f"DELETE FROM {table.name} WHERE {table.where}", row)


def remove_end(connection: sqlite3.Connection, table: Table, chance: random.Random) -> None:
    """Remove the last rows."""
    for row in table.rows[chance.randrange(len(table.rows)) :]:
        connection.execute(f"DELETE FROM {table.name} WHERE {table.where}", row)


def swap(connection: sqlite3.Connection, table: Table, chance: random.Random) -> None:
    """Swap two rows of the ledger."""
    one, other = (chance.choice(table.rows)[0] for _ in range(2))
    for old, new in ((one, -1), (other, one), (-1, other)):
        connection.execute("UPDATE slumberd_ledger SET seq = ? WHERE seq = ?", [new, old])


def blank(connection: sqlite3.Connection, table: Table, chance: random.Random) -> None:
    """Blank some rows of the ledger, as an erasure does."""
    for row in chance.sample(table.rows, 3):
        connection.execute(
            "UPDATE slumberd_ledger SET key_id = NULL, at = NULL, fact_id = NULL, replaces = NULL,"
            " payload = NULL, salt = NULL WHERE seq = ? AND what != 0",
            [row[0]],
        )


def add_channels(connection: sqlite3.Connection, table: Table, chance: random.Random) -> None:
    """Add a setting of channels that no firing has."""
    row = (chance.randrange(-2, 40), *chance.choice(table.rows)[1:])
    connection.execute("INSERT INTO slumberd_channels VALUES (?, ?)", row)


def forge_reason(connection: sqlite3.Connection, table: Table, chance: random.Random) -> None:
    """Change a row of the ledger, and make its hash and all later hashes right."""
    forge(connection, chance.choice(table.rows)[0], None, reason=chance.choice(["", "stale"]))


TABLE_OF: dict[Callable[..., None], str] = {
    swap: "slumberd_ledger",
    forge_reason: "slumberd_ledger",
    blank: "slumberd_ledger",
    add_channels: "slumberd_channels",
}
"""The table of each damage that is of one table only."""


@pytest.fixture(scope="module")
def stories(everything: Path, much: Path) -> dict[str, Path]:
    return {"everything": everything, "much": much}


@pytest.mark.parametrize("story", ["everything", "much"])
@given(
    seed=st.integers(0, 2**32),
    processes=st.integers(2, 5),
    left=st.frozensets(st.integers(0, 24), max_size=3),
    chain_only=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_several_processes_find_what_one_finds(
    stories: dict[str, Path],
    story: str,
    seed: int,
    processes: int,
    left: frozenset[int],
    *,
    chain_only: bool,
) -> None:
    chance = random.Random(seed)
    with copied(stories[story]) as copy:
        against = checkpoints_of(copy, chance)
        for _ in range(chance.choice([0, 1, 1, 2])):
            damage(copy, chance)

        one = outcome_of(session_of(copy), against, chain_only=chain_only)
        with shared(copy, processes, left) as session:
            several = outcome_of(session, against, chain_only=chain_only)

    assert several == one
