"""Faults to plant in slumberd, to show that a test harness finds them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
import pytest

from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.incoming import DeltaBatch
from slumberd.model.firing import Firing, Outcome
from slumberd.storage.engine import Session
from slumberd.storage.episodes import access_tracking
from slumberd.storage.facts.apply import DeltaApplier, WatermarkTable
from slumberd.storage.sqlite import connection as sqlite_connection
from slumberd.storage.sqlite.connection import Access
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.storage.sqlite.session import Pragmas
from tests.support.sessions import connection_of

Plant = Callable[[pytest.MonkeyPatch], None]


def commit_facts_before_watermark(patch: pytest.MonkeyPatch) -> None:
    """Commit the facts, and the watermark in a transaction of its own."""
    move = WatermarkTable.advance

    def later(self: WatermarkTable, session: Session, firing: Firing) -> None:
        _commit(session)
        move(self, session, firing)

    patch.setattr(WatermarkTable, "advance", later)


def commit_watermark_before_facts(patch: pytest.MonkeyPatch) -> None:
    """Commit the watermark, and the facts in a transaction of their own."""
    resolve = DeltaApplier._resolve_and_advance

    def earlier(self: DeltaApplier, session: Session, batch: DeltaBatch, **more: Any) -> Outcome:
        self._watermarks.advance(session, batch.firing)
        _commit(session)
        return resolve(self, session, batch, **more)

    patch.setattr(DeltaApplier, "_resolve_and_advance", earlier)


def mark_held_back_after_commit(patch: pytest.MonkeyPatch) -> None:
    """Mark episodes as held back after the commit of the facts, not before."""
    hold, apply = SQLiteMemoryStore.log_again_after_read, Consolidator._apply

    async def nothing(self: SQLiteMemoryStore, seen: Mapping[str, int]) -> None:
        pass

    async def apply_first(
        self: Consolidator, batch: DeltaBatch, *rest: Any, **more: Any
    ) -> Outcome:
        outcome = await apply(self, batch, *rest, **more)
        seen = batch.reads_of_held_back
        if isinstance(self._episodes, SQLiteMemoryStore) and seen:
            await hold(self._episodes, seen)
        return outcome

    patch.setattr(SQLiteMemoryStore, "log_again_after_read", nothing)
    patch.setattr(Consolidator, "_apply", apply_first)


def log_again_in_own_transaction(patch: pytest.MonkeyPatch) -> None:
    """Log episodes again after the commit that clears their mark of being held back."""
    log_again = access_tracking._log_again

    def later(session: Session, eids: Iterable[str]) -> bool:
        eids = list(eids)
        connection = connection_of(session)
        held = connection.execute(_HELD, {"ids": orjson.dumps(eids).decode()}).fetchall()
        session.do("accesses.let_go", {"ids": eids})
        _commit(session)
        connection.executemany("UPDATE slumberd_accesses SET held = 1 WHERE eid = ?", held)
        return log_again(session, eids)

    patch.setattr(access_tracking, "_log_again", later)


_HELD = """
SELECT eid FROM slumberd_accesses
WHERE held AND eid IN (SELECT value FROM json_each(:ids))
"""


def disable_sync(patch: pytest.MonkeyPatch) -> None:
    """Let SQLite never wait for the disk."""
    configure = sqlite_connection._configure

    def carelessly(connection: sqlite3.Connection, pragmas: Pragmas, access: Access) -> None:
        configure(connection, pragmas, access)
        connection.execute("PRAGMA synchronous = OFF")

    patch.setattr(sqlite_connection, "_configure", carelessly)


def disable_fsync(patch: pytest.MonkeyPatch) -> None:
    """Commit facts before their episodes are synced to the disk."""

    async def nothing(self: SQLiteMemoryStore) -> None:
        pass

    patch.setattr(SQLiteMemoryStore, "fsync", nothing)


def _commit(session: Session) -> None:
    connection = connection_of(session)
    connection.execute("COMMIT")
    connection.execute("BEGIN IMMEDIATE")
