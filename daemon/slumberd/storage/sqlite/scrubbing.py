"""Remove the bytes of deleted rows from a SQLite file and from its write-ahead log."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

from slumberd.errors import StoppedError
from slumberd.storage.engine import Scrubbed
from slumberd.storage.sqlite import overwriting
from slumberd.storage.sqlite.migrations import file_of


def scrub(connection: sqlite3.Connection) -> Scrubbed:
    """Remove every byte of deleted content from a file, and empty its write-ahead log.

    Free bytes are overwritten in place, by a process of its own. Where that is impossible, the
    whole file is rewritten, which no other program can write meanwhile.

    Args:
        connection: Outside of any transaction.

    Raises:
        StoppedError: A signal ended the process; free bytes may be left.
    """
    path = Path(file_of(connection))
    milliseconds: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    done = _overwrite(path, milliseconds / 1000)
    return _rewrite(connection, done) if isinstance(done, str) else done


def _overwrite(path: Path, busy_seconds: float) -> Scrubbed | str:
    """Overwrite the free bytes in place; return why this is impossible, when it is."""
    words = [sys.executable, "-P", "-m", overwriting.__name__, str(path), str(busy_seconds)]
    try:
        done = subprocess.run(words, capture_output=True, check=False)  # noqa: S603 # our own words
    except OSError as error:
        return f"{error}"
    if done.returncode < 0:
        raise StoppedError(f"{str(path)!r}: a signal stopped the overwriting of its free bytes")
    if done.returncode > 0:
        lines = done.stderr.decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line), f"exit code {done.returncode}")
    return Scrubbed(bool(json.loads(done.stdout)["log_emptied"]))


def _rewrite(connection: sqlite3.Connection, reason: str) -> Scrubbed:
    # In memory, a copy of a large file would not fit.
    connection.execute("PRAGMA temp_store = FILE")
    try:
        connection.execute("VACUUM")
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")
    busy: int = connection.execute("PRAGMA wal_checkpoint = TRUNCATE").fetchone()[0]
    return Scrubbed(not busy, reason)
