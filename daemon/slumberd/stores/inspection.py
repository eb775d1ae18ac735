"""Look at a SQLite file from outside: whether it can be used, where it lies, who holds it."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

from slumberd.core.health import StoreHealth
from slumberd.errors import StoreError
from slumberd.stores.database import Database
from slumberd.stores.queries import statements
from slumberd.stores.sqlite import connect, translated

Warn = Callable[[sqlite3.Connection], list[str]]

_SQL = statements("migrations")
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
_SHARED = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "gluster")


async def health(database: Database, *, table: str, warn: Warn | None = None) -> StoreHealth:
    """Describe a store; never raises for the state of its file, and never creates one.

    Args:
        database: The store's.
        table: The specified table, whose rows are counted.
        warn: Says what else is wrong with the file, one sentence each.
    """
    return await asyncio.to_thread(_health, database, table, warn or _nothing)


def _nothing(_: sqlite3.Connection) -> list[str]:
    return []


def _health(database: Database, table: str, warn: Warn) -> StoreHealth:
    path = database.path
    ok, version, count, warnings = _contents(database, table, warn)
    kind = fs_type(path)
    if kind.startswith(_SHARED):
        warnings.append(f"{str(path)!r} lies on {kind}: locks there cannot be relied on")
    return StoreHealth(
        ok=ok,
        version=version,
        fragment_count=count,
        fs_type=kind,
        lock_state=lock_state(path),
        warnings=warnings,
    )


def _contents(
    database: Database, table: str, warn: Warn
) -> tuple[bool, int, int | None, list[str]]:
    path, pragmas = database.path, database.pragmas
    try:
        with (
            closing(connect(path, pragmas, access="read")) as connection,
            translated(path, pragmas),
        ):
            version = table_version(connection)
            if not has_table(connection, table):
                return False, version, None, [f"{str(path)!r} has no table {table!r}"]
            return True, version, _count(connection, table), warn(connection)
    except (StoreError, ValueError) as error:
        return False, 1, None, [str(error)]


def _count(connection: sqlite3.Connection, table: str) -> int:
    count: int = connection.execute(_SQL[f"count_{table}"]).fetchone()[0]
    return count


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Say whether a file has a table."""
    return bool(connection.execute(_SQL["table_exists"], {"name": name}).fetchone()[0])


def table_version(connection: sqlite3.Connection) -> int:
    """Return the version of the specified tables: the newest migration; 1 without any."""
    if not has_table(connection, "_migrations"):
        return 1
    return connection.execute(_SQL["migrated_to"]).fetchone()[0] or 1


def lock_state(path: Path) -> Literal["free", "held"]:
    """Say whether somebody holds the write lock at this moment."""
    try:
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as probe:
            probe.execute("BEGIN IMMEDIATE")
            probe.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return "held"
    except (sqlite3.Error, ValueError):
        return "free"
    return "free"


def fs_type(path: Path) -> str:
    """Return the type of the file system that a path lies on, as ``ext4``, or would."""
    try:
        place = path.resolve()
        mounts = [(point, kind) for point, kind in _mounts() if place.is_relative_to(point)]
        # Of two mounts on one point, the later one covers the other.
        return max(enumerate(mounts), key=lambda at: (len(at[1][0].parts), at[0]))[1][1]
    except (OSError, ValueError):
        return "unknown"


def _mounts() -> Iterator[tuple[Path, str]]:
    for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields, _, source = line.partition(" - ")
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields.split()[4])
        yield Path(point), source.split()[0]
