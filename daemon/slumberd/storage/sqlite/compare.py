"""Compare the facts of a database with its earlier facts; in SQL, on disk, a page at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import orjson

from slumberd.sql_statements import statements
from slumberd.storage.audit.results import Difference, Side, Totals
from slumberd.storage.sqlite.database import Database
from slumberd.storage.sqlite.session import Pragmas, lenient_text, transaction

_SQL = statements("compare")
_PAGE = 1_000
_EVERYTHING = 2**62

_COMPARE = (
    "put_removed", "put_added", "name_channels", "name_triples", "put_pairs", "put_differences",
    "put_other_contents", "put_other_support",
)  # fmt: skip


class Comparison:
    """Keeps a copy of the facts of a database, and compares the later facts with it.

    Of the lineage it compares only the rules that promote a fact.

    Args:
        live: The database; the comparison does not write to it.
        path: A new file for the copy and the differences.
    """

    def __init__(self, live: Path, path: Path) -> None:
        self._live = live
        # Its own thread closes it after the last statement, never during one.
        self._database = Database(path, Pragmas(cache_mebibytes=32))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._database.close()

    async def keep(self) -> None:
        """Copy the facts; call this once, before anything else."""
        await self._database.write(self._keep)

    def _keep(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = lenient_text
        # The copy may be as large as the facts; it is temporary, so it need not survive a crash.
        for statement in ("sort_on_disk", "in_memory_journal", "no_sync"):
            connection.execute(_SQL[statement])
        connection.execute(_SQL["attach"], (f"{self._live.absolute().as_uri()}?mode=ro",))
        with transaction(connection):
            for table in ("facts_before", "sides", "pairs", "differences"):
                connection.execute(_SQL[f"create_{table}"])
            connection.execute(_SQL["copy_facts"])

    async def compare(self, user: str | None = None) -> Totals:
        """Compare the facts with the copy; call this once.

        Args:
            user: Compare only this user's facts; None compares all.
        """
        return await self._database.write(partial(_compare, user=user))

    async def count_sole_promotions(self) -> dict[str, int]:
        """Count by rule the facts that only this rule promotes."""
        return await self._database.write(
            lambda connection: dict(connection.execute(_SQL["count_facts_by_rule"]).fetchall())
        )

    async def differences(
        self, *, support: bool = False, limit: int | None = None
    ) -> AsyncIterator[Difference]:
        """Yield differences by user, agent and triple; then facts whose content differs.

        Args:
            support: Also yield the facts that other rules promote; they come last.
            limit: At most this many; None yields all.
        """
        after, left = 0, _EVERYTHING if limit is None else limit
        while left and (rows := await self._page(after, min(left, _PAGE), support=support)):
            for row in rows:
                yield _difference(row)
            after, left = rows[-1][0], left - len(rows)

    async def _page(self, after: int, limit: int, *, support: bool) -> list[tuple[Any, ...]]:
        parameters = {"after": after, "support": support, "limit": limit}
        return await self._database.write(
            lambda connection: connection.execute(_SQL["differences"], parameters).fetchall()
        )


def _compare(connection: sqlite3.Connection, user: str | None) -> Totals:
    parameters = {"user": user}
    with transaction(connection):
        for statement in _COMPARE:
            connection.execute(_SQL[statement], parameters)
        found = dict(connection.execute(_SQL["count_signs"]).fetchall())
        current = connection.execute(_SQL["count_facts"], parameters).fetchone()[0]
    appear, change = found.get("+", 0), found.get("~", 0)
    stay = current - appear - change
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
        payload = orjson.loads(encoded or b"{}")
    except ValueError:  # another program wrote it, and it is not JSON
        return {}
    return payload if isinstance(payload, dict) else {}
