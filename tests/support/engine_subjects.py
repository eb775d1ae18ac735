"""An engine, a table of its store, and names of statements, for the contract of every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from slumberd.storage.engine import Engine, Row, Session, Values
from tests.support.providers import Provider

MANY = 1_000


@dataclass(frozen=True)
class Table:
    """A table of a store, and the names of the statements that write and read it.

    Attributes:
        row: Returns the row of a number, as it is inserted; its key is first.
        insert: Inserts a row.
        all: Reads every row.
        values: The parameters of `all`.
        column: Where the key is in these rows.
        of_keys: Reads the rows of some keys, which are a parameter.
        parameter: The name of that parameter.
    """

    row: Callable[[int], Row]
    insert: str
    all: str
    values: Values
    column: int
    of_keys: str
    parameter: str

    def key(self, number: int) -> Any:
        return self.row(number)[0]

    def keys(self, session: Session) -> list[Any]:
        return sorted(row[self.column] for row in session.rows(self.all, self.values))


EPISODES = Table(
    row=lambda number: (
        f"e{number:04}",
        "/user/u/session/s/agent/a/",
        b"{}",
        "2026-01-01T00:00:00+00:00",
        b"{}",
    ),
    insert="episodes.insert",
    all="episodes.page",
    values={"after": -1, "limit": 10 * MANY},
    column=1,
    of_keys="erased_scopes.episodes_of",
    parameter="eids",
)
REFERENCES = Table(
    row=lambda number: (f"f{number:04}", "referrer"),
    insert="ledger.add_reference",
    all="ledger.all_references",
    values=(),
    column=0,
    of_keys="ledger.referrers",
    parameter="values",
)


@dataclass(frozen=True)
class Subject:
    """An engine, a way to open the same store again, and a table of the store."""

    engine: Engine
    again: Callable[[], Engine]
    table: Table

    async def insert(self, *numbers: int) -> None:
        rows = [self.table.row(number) for number in numbers]
        await self.engine.write(lambda session: session.do_each(self.table.insert, rows))

    async def keys(self) -> list[Any]:
        return await self.engine.read(self.table.keys)


@pytest.fixture(params=["episodes", "facts"])
async def subject(request: pytest.FixtureRequest, provider: Provider) -> AsyncIterator[Subject]:
    opened: list[Engine] = []

    def again() -> Engine:
        is_of_facts = request.param == "facts"
        opened.append(provider.fact_engine() if is_of_facts else provider.episode_engine())
        return opened[-1]

    table = REFERENCES if request.param == "facts" else EPISODES
    engine = again()
    await engine.bootstrap()
    yield Subject(engine, again, table)
    for one in opened:
        await one.close()


def keys_of(table: Table, *numbers: int) -> list[Any]:
    return [table.key(number) for number in numbers]
