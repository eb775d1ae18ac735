"""Remove the bytes of erased rows from a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def overwriting(connection: sqlite3.Connection) -> Iterator[None]:
    """Make SQLite overwrite with zeros what the block deletes; outside of any transaction."""
    connection.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        connection.execute("PRAGMA secure_delete = OFF")


def scrub(connection: sqlite3.Connection) -> bool:
    """Rewrite the file, so that no free page holds deleted content, and empty its log.

    Returns:
        Whether the write-ahead log could be emptied; a reader may prevent it.
    """
    # In memory, a copy of a large file would not fit.
    connection.execute("PRAGMA temp_store = FILE")
    try:
        connection.execute("VACUUM")
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")
    busy: int = connection.execute("PRAGMA wal_checkpoint = TRUNCATE").fetchone()[0]
    return not busy
