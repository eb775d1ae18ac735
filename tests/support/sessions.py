"""Sessions of raw connections, for tests that look into a SQLite file."""

from __future__ import annotations

import sqlite3

from slumberd.storage.sqlite.migrations import file_of
from slumberd.storage.sqlite.session import SQLiteSession


def session_of(connection: sqlite3.Connection) -> SQLiteSession:
    """Return a session that runs named statements on a connection."""
    return SQLiteSession(connection, str(file_of(connection)))
