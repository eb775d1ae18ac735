"""Sessions of raw connections, and connections of sessions, for tests of a SQLite file."""

from __future__ import annotations

import sqlite3

from slumberd.storage.engine import Session
from slumberd.storage.sqlite.file_schema import file_of
from slumberd.storage.sqlite.session import SQLiteSession


def session_of(connection: sqlite3.Connection) -> SQLiteSession:
    """Return a session that runs named statements on a connection."""
    return SQLiteSession(connection, str(file_of(connection)))


def connection_of(session: Session) -> sqlite3.Connection:
    """Return the connection on which a session of the SQLite engine runs its statements."""
    assert isinstance(session, SQLiteSession)
    return session._connection
