"""Hold the facts of a database against what they were before; in SQL, on disk, a page at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import orjson

from slumberd.sql_statements import statements
from slumberd.storage.episodes.rows import lenient_text
from slumberd.storage.sqlite.connection import Pragmas, transaction
from slumberd.storage.sqlite.database import Database

Sign = Literal["+", "-", "~", "="]
"""A fact that appears, one that disappears, one in the place of another, or other rules for it."""

_SQL = statements("compare")
_PAGE = 1_000
_EVERYTHING = 2**62

_COMPARE = (
    "put_gone", "put_come", "name_channels", "name_triples", "put_pairs", "put_differences",
    "put_other_contents", "put_other_support",
)  # fmt: skip


class Side(NamedTuple):
    """A fact as it stands on one side.

    Attributes:
        fact_id: Its id.
        payload: What it says; empty where that cannot be read, or is the same on both sides.
        confidence: 0 to 1; None where it is the same on both sides.
        rules: Of a fact whose rules differ, the rules that promote it.
    """

    fact_id: str
    payload: dict[str, Any]
    confidence: float | None
    rules: list[str]


class Difference(NamedTuple):
    """One difference between two states of the facts.

    Attributes:
        sign: What it is.
        user: Whose fact it is.
        agent: Which agent learnt it.
        old: The fact before; None for one that appears.
        new: The fact after; None for one that disappears.
    """

    sign: Sign
    user: str
    agent: str
    old: Side | None
    new: Side | None


class Totals(NamedTuple):
    """How many facts differ.

    Attributes:
        appear: Facts that stand after, and did not before.
        change: Facts with other content, and facts in the place of one of the same key.
        disappear: Facts that stood before, and do not after.
        stay: Facts that are the same.
        support: Of these, how many are promoted by other rules than before.
    """

    appear: int
    change: int
    disappear: int
    stay: int
    support: int

    @property
    def differ(self) -> bool:
        """Whether any fact is another one."""
        return any((self.appear, self.change, self.disappear))


class Comparison:
    """Keeps what stands in a database of facts, to be held against what stands in it later.

    Lineage does not count, but for the rules that promote a fact.

    Args:
        live: The database; it stays as it is.
        path: A new file for what is kept and what is found.
    """

    def __init__(self, live: Path, path: Path) -> None:
        self._live = live
        # A thread of its own, in whose order it is closed: never under a statement that runs.
        self._database = Database(path, Pragmas(cache_mebibytes=32))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._database.close()

    async def keep(self) -> None:
        """Keep what stands now; once, before anything else."""
        await self._database.write(self._keep)

    def _keep(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = lenient_text
        # It may be as large as the facts, and lasts no longer than this comparison.
        for statement in ("sort_on_disk", "in_memory_journal", "no_sync"):
            connection.execute(_SQL[statement])
        connection.execute(_SQL["attach"], (f"{self._live.absolute().as_uri()}?mode=ro",))
        with transaction(connection):
            for table in ("kept", "sides", "pairs", "differences"):
                connection.execute(_SQL[f"create_{table}"])
            connection.execute(_SQL["keep"])

    async def compare(self, user: str | None = None) -> Totals:
        """Hold what stands now against what was kept; once.

        Args:
            user: Only this user's facts; None takes all.
        """
        return await self._database.write(partial(_compare, user=user))

    async def resting(self) -> dict[str, int]:
        """Count the facts that stand now and that one rule alone promotes, by rule."""
        return await self._database.write(
            lambda connection: dict(connection.execute(_SQL["count_resting"]).fetchall())
        )

    async def differences(
        self, *, support: bool = False, limit: int | None = None
    ) -> AsyncIterator[Difference]:
        """Yield differences, by user, agent and triple; then facts whose content is another.

        Args:
            support: Facts that other rules promote, too; they come last.
            limit: At most so many; None yields all.
        """
        after, left = 0, _EVERYTHING if limit is None else limit
        while left and (rows := await self._page(after, min(left, _PAGE), support=support)):
            for row in rows:
                yield _difference(row)
            after, left = rows[-1][0], left - len(rows)

    async def _page(self, after: int, limit: int, *, support: bool) -> list[tuple[Any, ...]]:
        asked = {"after": after, "support": support, "limit": limit}
        return await self._database.write(
            lambda connection: connection.execute(_SQL["differences"], asked).fetchall()
        )


def _compare(connection: sqlite3.Connection, user: str | None) -> Totals:
    asked = {"user": user}
    with transaction(connection):
        for statement in _COMPARE:
            connection.execute(_SQL[statement], asked)
        found = dict(connection.execute(_SQL["count_signs"]).fetchall())
        standing = connection.execute(_SQL["count_facts"], asked).fetchone()[0]
    appear, change = found.get("+", 0), found.get("~", 0)
    stay = standing - appear - change
    return Totals(appear, change, found.get("-", 0), stay, found.get("=", 0))


def _difference(row: tuple[Any, ...]) -> Difference:
    _, sign, user, agent, *sides = row
    return Difference(sign, user, agent, _side(*sides[:4]), _side(*sides[4:]))


def _side(
    fact_id: str | None, payload: bytes | None, confidence: float | None, rules: str | None
) -> Side | None:
    if fact_id is None:
        return None
    return Side(fact_id, _payload(payload), confidence, orjson.loads(rules) if rules else [])


def _payload(encoded: bytes | None) -> dict[str, Any]:
    try:
        said = orjson.loads(encoded or b"{}")
    except ValueError:  # another program's, which nobody can read
        return {}
    return said if isinstance(said, dict) else {}
