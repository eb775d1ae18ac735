"""Faults to plant in slumberd, so that a harness can show that it finds them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from slumberd.core.firing import Firing
from slumberd.core.record import Outcome
from slumberd.stores import sqlite
from slumberd.stores.facts import SQLiteFactStore
from slumberd.stores.memory import SQLiteMemoryStore
from slumberd.stores.sqlite import Access, Pragmas

Plant = Callable[[pytest.MonkeyPatch], None]


def facts_first(patch: pytest.MonkeyPatch) -> None:
    """Commit the facts, and the watermark in a transaction of its own."""
    move = SQLiteFactStore._move_watermark

    def later(self: SQLiteFactStore, connection: sqlite3.Connection, firing: Firing) -> None:
        _commit(connection)
        move(self, connection, firing)

    patch.setattr(SQLiteFactStore, "_move_watermark", later)


def watermark_first(patch: pytest.MonkeyPatch) -> None:
    """Commit the watermark, and the facts in a transaction of their own."""
    settle = SQLiteFactStore._settle

    def earlier(
        self: SQLiteFactStore, connection: sqlite3.Connection, firing: Firing, *rest: Any
    ) -> Outcome:
        self._move_watermark(connection, firing)
        _commit(connection)
        return settle(self, connection, firing, *rest)

    patch.setattr(SQLiteFactStore, "_settle", earlier)


def unsynced(patch: pytest.MonkeyPatch) -> None:
    """Let SQLite never wait for the disk."""
    configure = sqlite._configure

    def carelessly(connection: sqlite3.Connection, pragmas: Pragmas, access: Access) -> None:
        configure(connection, pragmas, access)
        connection.execute("PRAGMA synchronous = OFF")

    patch.setattr(sqlite, "_configure", carelessly)


def unhardened(patch: pytest.MonkeyPatch) -> None:
    """Let facts know of episodes that the disk may not have."""

    async def nothing(self: SQLiteMemoryStore) -> None:
        pass

    patch.setattr(SQLiteMemoryStore, "harden", nothing)


def _commit(connection: sqlite3.Connection) -> None:
    connection.execute("COMMIT")
    connection.execute("BEGIN IMMEDIATE")
