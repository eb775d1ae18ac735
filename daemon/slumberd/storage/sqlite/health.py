"""Look at a SQLite file from outside: whether it can be used, where it lies, who holds it."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from slumberd.errors import SchemaError, SlumberdError, StoreBusyError, StoreError
from slumberd.model.health import StoreHealth
from slumberd.sql_statements import statements
from slumberd.storage.sqlite.connection import Pragmas, connect, data_version, translated
from slumberd.storage.sqlite.database import LOCKED, UNCHANGING, Database

Warn = Callable[[sqlite3.Connection], list[str]]

_SQL = statements("migrations")
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_COLUMNS = {
    "episodes": ("id", "scope_key", "content", "timestamp", "metadata"),
    "facts": (
        "fact_id", "user", "agent", "payload", "lineage", "confidence", "metadata", "pinned_at",
    ),
}  # fmt: skip
"""Of the specified tables."""

COUNTING_SECONDS = 2.0
_PATIENCE_SECONDS = 0.25
"""Of whoever reads a file that somebody has locked even for reading."""
_STEPS = 10_000
_SHARED = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "gluster")


async def health(
    database: Database, *, table: str, warn: Warn | None = None, seconds: float = COUNTING_SECONDS
) -> StoreHealth:
    """Describe a store; never raises for the state of its file, and never creates one.

    Damage is told where the count meets it; who wants all of it found asks ``slumberd doctor``.
    Nothing is written, and no file appears beside a database that nobody has open; only where a
    crash has left a log without its index, SQLite makes that.

    Args:
        database: The store's.
        table: The specified table, whose rows are counted.
        warn: Says what else is wrong with the file, one sentence each; raises `SchemaError` when
            it cannot be used.
        seconds: How long the rows may be counted.
    """
    look = partial(_contents, table=table, warn=warn or _nothing, seconds=seconds)
    return await asyncio.to_thread(_health, database.path, database.pragmas, look)


def _nothing(_: sqlite3.Connection) -> list[str]:
    return []


@dataclass(slots=True)
class _Seen:
    """What is known of a file so far."""

    ok: bool = False
    version: int = 1
    count: int | None = None
    lock: Literal["free", "held"] = "free"
    warnings: list[str] = field(default_factory=list)


_Look = Callable[[sqlite3.Connection, Path, _Seen], None]


def _health(path: Path, pragmas: Pragmas, look: _Look) -> StoreHealth:
    seen = _seen(path, replace(pragmas, busy_seconds=_PATIENCE_SECONDS), look)
    kind = fs_type(path)
    if kind.startswith(_SHARED):
        seen.warnings.append(f"{str(path)!r} lies on {kind}: locks there cannot be relied on")
    return StoreHealth(
        ok=seen.ok,
        version=seen.version,
        fragment_count=seen.count,
        fs_type=kind,
        lock_state=seen.lock,
        warnings=seen.warnings,
    )


def _seen(path: Path, pragmas: Pragmas, look: _Look) -> _Seen:
    try:
        _check_files(path)
        return _looked_at(path, pragmas, look)
    except StoreBusyError as error:
        return _Seen(lock="held", warnings=[str(error)])
    except (SlumberdError, ValueError) as error:
        return _Seen(warnings=[str(error)])


def _looked_at(path: Path, pragmas: Pragmas, look: _Look) -> _Seen:
    if _is_closed(path):
        before, seen = _signature(path), _Seen()
        try:
            _open(path, pragmas, look, seen, UNCHANGING)
        except SlumberdError:
            if _signature(path) == before:
                raise
        else:
            if _signature(path) == before:
                return seen
    seen = _Seen()
    _open(path, pragmas, look, seen, LOCKED)
    return seen


def _open(path: Path, pragmas: Pragmas, look: _Look, seen: _Seen, how: str) -> None:
    with (
        closing(connect(path, pragmas, access="read", how=how)) as connection,
        translated(path, pragmas),
    ):
        if how == LOCKED:
            # While this is open, what asks is not the last to close, which would empty the log.
            seen.lock = lock_state(path)
        look(connection, path, seen)
    if not _is_writable(path):
        seen.warnings.append(f"{str(path)!r} may be read here, and not written")


def _check_files(path: Path) -> None:
    """Make sure that a file is there, and that opening it will not wait: a pipe would.

    Raises:
        StoreError: It is not there, or cannot be reached.
        SchemaError: It, or one beside it, is a directory, a pipe or the like.
    """
    with translated(path, Pragmas()):
        for file in (path, *_beside(path)):
            try:
                mode = file.stat().st_mode
            except FileNotFoundError as error:
                if file == path:
                    raise StoreError(f"{str(path)!r} does not exist") from error
                continue
            if not stat.S_ISREG(mode):
                raise SchemaError(file, "is no regular file")


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + end) for end in ("-wal", "-shm")]


def _is_open(path: Path) -> bool:
    """Say whether somebody may have a file open that has a write-ahead log."""
    return any(file.exists() for file in _beside(path))


def _signature(path: Path) -> tuple[bool, int, int, int]:
    """Return what tells that nobody opened a file, or wrote it."""
    with translated(path, Pragmas()):
        status = path.stat()
    return _is_open(path), status.st_ino, status.st_size, status.st_mtime_ns


def _is_closed(path: Path) -> bool:
    """Say whether a file has a write-ahead log, and nobody has it open.

    SQLite is asked, for to close a descriptor of ours would drop all locks that other connections
    of this process have on the file. Without locks it cannot open what has such a log.
    """
    if _is_open(path):
        return False
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&nolock=1"
        with closing(sqlite3.connect(uri, uri=True)) as probe:
            data_version(probe)
            probe.execute(_SQL["table_exists"], {"name": ""})
    except sqlite3.OperationalError as error:
        return _code(error) == sqlite3.SQLITE_CANTOPEN
    except sqlite3.Error:
        return False
    return False


def _is_writable(path: Path) -> bool:
    places = ((path, os.R_OK | os.W_OK), (path.resolve().parent, os.W_OK | os.X_OK))
    return all(os.access(place, wanted, effective_ids=True) for place, wanted in places)


def _contents(
    connection: sqlite3.Connection,
    path: Path,
    seen: _Seen,
    *,
    table: str,
    warn: Warn,
    seconds: float,
) -> None:
    seen.version, problems = _version(connection, path)
    seen.warnings += problems
    if not has_table(connection, table):
        seen.warnings.append(f"{str(path)!r} has no table {table!r}")
        return
    columns = {name.lower() for (name,) in connection.execute(_SQL["columns"], {"name": table})}
    if lacking := [name for name in _COLUMNS[table] if name not in columns]:
        named = ", ".join(lacking)
        seen.warnings.append(f"{str(path)!r}: table {table!r} is another one; it lacks {named}")
        return
    seen.warnings += warn(connection)
    seen.count = _count(connection, table, seconds)
    if seen.count is None:
        seen.warnings.append(f"{str(path)!r}: to count all rows would take over {seconds:g} s")
    seen.ok = True


def _count(connection: sqlite3.Connection, table: str, seconds: float) -> int | None:
    """Return how many rows a table has; None when that takes too long to count."""
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() >= end, _STEPS)
    try:
        count: int = connection.execute(_SQL[f"count_{table}"]).fetchone()[0]
    except sqlite3.OperationalError as error:
        if _code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        connection.set_progress_handler(None, 0)
    return count


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Say whether a file has a table."""
    return bool(connection.execute(_SQL["table_exists"], {"name": name}).fetchone()[0])


def _version(connection: sqlite3.Connection, path: Path) -> tuple[int, list[str]]:
    """Return the version of the specified tables: the newest migration; 1 without any."""
    if not has_table(connection, "_migrations"):
        return 1, []
    try:
        found = connection.execute(_SQL["migrated_to"]).fetchone()[0]
    except sqlite3.OperationalError as error:
        if _code(error) != sqlite3.SQLITE_ERROR:
            raise
        found = ""
    if found is None or isinstance(found, int):
        return found or 1, []
    return 1, [f"{str(path)!r}: table '_migrations' is another program's"]


def _code(error: sqlite3.Error) -> int:
    code: int = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return code


def lock_state(path: Path) -> Literal["free", "held"]:
    """Say whether somebody holds the write lock at this moment; free where nobody can ask."""
    try:
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as probe:
            probe.execute("BEGIN IMMEDIATE")
            probe.execute("ROLLBACK")
    except (sqlite3.Error, ValueError) as error:
        busy = isinstance(error, sqlite3.Error) and _code(error) in _BUSY
        return "held" if busy else "free"
    return "free"


def fs_type(path: Path) -> str:
    """Return the type of the file system that a path lies on, as ``ext4``, or would."""
    try:
        place = path.resolve()
        mounts = [(point, kind) for point, kind in _mounts() if place.is_relative_to(point)]
        # Of two mounts on one point, the later one covers the other.
        return max(enumerate(mounts), key=lambda at: (len(at[1][0].parts), at[0]))[1][1]
    except (OSError, ValueError, RuntimeError, IndexError):  # a loop of links, an odd line
        return "unknown"


def _mounts() -> Iterator[tuple[Path, str]]:
    for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields, _, source = line.partition(" - ")
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields.split()[4])
        yield Path(point), source.split()[0]
