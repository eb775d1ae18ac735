"""Report the health of a SQLite file, and check it after a crash."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from slumberd.model.errors import (
    SchemaError,
    SlumberdError,
    StoppedError,
    StoreBusyError,
    StoreError,
)
from slumberd.model.store_status import StoreHealth
from slumberd.sql_statements import statements
from slumberd.storage.sqlite.connection import LOCKED, UNCHANGING, connect, traceless
from slumberd.storage.sqlite.database import Database
from slumberd.storage.sqlite.session import (
    Pragmas,
    data_version,
    interrupting_when,
    lenient_text,
    snapshot,
    translate_errors,
)

T = TypeVar("T")

Warn = Callable[[sqlite3.Connection], list[str]]

_SQL = statements("migrations")
_INSPECTION = statements("inspection")
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_COLUMNS = {
    "episodes": ("id", "scope_key", "content", "timestamp", "metadata"),
    "facts": (
        "fact_id", "user", "agent", "payload", "lineage", "confidence", "metadata", "pinned_at",
    ),
}  # fmt: skip
"""The columns of the specified tables."""

COUNTING_SECONDS = 2.0
_BUSY_SECONDS = 0.25
"""How long a health report waits for a file that is locked even for reading."""
_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "gluster")
_PRAGMAS = Pragmas()

_FORMATS = slice(18, 20)

_WAL = b"\2\2"
"""The versions in the header of a file that is written and read with a write-ahead log."""

LEFT_LOG_SECONDS = 1.0
"""How long a start after a crash may search for damage."""


async def health(
    database: Database, *, table: str, warn: Warn | None = None, seconds: float = COUNTING_SECONDS
) -> StoreHealth:
    """Report the health of a store; never raises for the state of its file, and never creates one.

    The report names only the damage that counting meets; ``slumberd doctor`` searches for all.
    Nothing is written. SQLite creates one file only: the index of a log that a crash left behind.

    Args:
        database: The database of the store.
        table: The specified table, whose rows are counted.
        warn: Returns further problems of the file, one sentence each; raises `SchemaError` when
            the file is not usable.
        seconds: How long the rows may be counted.
    """
    examiner = partial(_examine_contents, table=table, warn=warn or _no_warnings, seconds=seconds)
    return await asyncio.to_thread(_health, database.path, database.pragmas, examiner)


def _no_warnings(_: sqlite3.Connection) -> list[str]:
    return []


@dataclass(slots=True)
class _Findings:
    """What the examination of a file has found so far."""

    ok: bool = False
    version: int = 1
    count: int | None = None
    lock: Literal["free", "held"] = "free"
    warnings: list[str] = field(default_factory=list)


_Examiner = Callable[[sqlite3.Connection, Path, _Findings], None]


def _health(path: Path, pragmas: Pragmas, examiner: _Examiner) -> StoreHealth:
    findings = _examine(path, replace(pragmas, busy_seconds=_BUSY_SECONDS), examiner)
    kind = fs_type(path)
    if kind.startswith(_NETWORK_FILE_SYSTEMS):
        findings.warnings.append(f"{str(path)!r} lies on {kind}: file locks are not reliable there")
    return StoreHealth(
        ok=findings.ok,
        version=findings.version,
        fragment_count=findings.count,
        fs_type=kind,
        lock_state=findings.lock,
        warnings=findings.warnings,
    )


def _examine(path: Path, pragmas: Pragmas, examiner: _Examiner) -> _Findings:
    try:
        _check_files(path)
        return _examine_file(path, pragmas, examiner)
    except StoreBusyError as error:
        return _Findings(lock="held", warnings=[str(error)])
    except (SlumberdError, ValueError) as error:
        return _Findings(warnings=[str(error)])


def _examine_file(path: Path, pragmas: Pragmas, examiner: _Examiner) -> _Findings:
    if _is_closed(path):
        before, findings = _signature(path), _Findings()
        try:
            _examine_opened(path, pragmas, examiner, findings, UNCHANGING)
        except SlumberdError:
            if _signature(path) == before:
                raise
        else:
            if _signature(path) == before:
                return findings
    findings = _Findings()
    _examine_opened(path, pragmas, examiner, findings, LOCKED)
    return findings


def _examine_opened(
    path: Path, pragmas: Pragmas, examiner: _Examiner, findings: _Findings, how: str
) -> None:
    with (
        closing(connect(path, pragmas, access="read", how=how)) as connection,
        translate_errors(path, pragmas),
    ):
        if how == LOCKED:
            # Checked while this is open: the last connection that closes would empty the log.
            findings.lock = lock_state(path)
        examiner(connection, path, findings)
    if not _is_writable(path):
        findings.warnings.append(f"{str(path)!r} can be read, but not written")


def _check_files(path: Path) -> None:
    """Check that a file exists, and that opening it will not wait, as for a pipe.

    Raises:
        StoreError: The file does not exist, or cannot be reached.
        SchemaError: The file, or a log beside it, is a directory, a pipe or the like.
    """
    with translate_errors(path, Pragmas()):
        for file in (path, *_log_files(path)):
            try:
                mode = file.stat().st_mode
            except FileNotFoundError as error:
                if file == path:
                    raise StoreError(f"{str(path)!r} does not exist") from error
                continue
            if not stat.S_ISREG(mode):
                raise SchemaError(str(file), "is no regular file")


def _log_files(path: Path) -> list[Path]:
    return [path.with_name(path.name + end) for end in ("-wal", "-shm")]


def _is_open(path: Path) -> bool:
    """Return whether a program may have a file with a write-ahead log open."""
    return any(file.exists() for file in _log_files(path))


def _signature(path: Path) -> tuple[bool, int, int, int]:
    """Return a signature that changes when a program opens or writes a file."""
    with translate_errors(path, Pragmas()):
        status = path.stat()
    return _is_open(path), status.st_ino, status.st_size, status.st_mtime_ns


def _is_closed(path: Path) -> bool:
    """Return whether a file is of the write-ahead kind, and no program has it open.

    SQLite reads the header: if this process closed a descriptor of its own, it would lose all its
    locks on the file. Without locks, SQLite refuses to open a file of the write-ahead kind.
    """
    if _is_open(path):
        return False
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&nolock=1"
        with closing(sqlite3.connect(uri, uri=True)) as probe:
            data_version(probe)
            probe.execute(_INSPECTION["has_table"], {"name": ""})
    except sqlite3.OperationalError as error:
        return _code(error) == sqlite3.SQLITE_CANTOPEN
    except sqlite3.Error:
        return False
    return False


def _is_writable(path: Path) -> bool:
    places = ((path, os.R_OK | os.W_OK), (path.resolve().parent, os.W_OK | os.X_OK))
    return all(os.access(place, wanted, effective_ids=True) for place, wanted in places)


def _examine_contents(
    connection: sqlite3.Connection,
    path: Path,
    findings: _Findings,
    *,
    table: str,
    warn: Warn,
    seconds: float,
) -> None:
    findings.version, problems = _version(connection, path)
    findings.warnings += problems
    if not has_table(connection, table):
        findings.warnings.append(f"{str(path)!r} has no table {table!r}")
        return
    columns = {name.lower() for (name,) in connection.execute(_SQL["columns"], {"name": table})}
    if lacking := [name for name in _COLUMNS[table] if name not in columns]:
        named = ", ".join(lacking)
        findings.warnings.append(
            f"{str(path)!r}: table {table!r} has another form; it lacks {named}"
        )
        return
    findings.warnings += warn(connection)
    findings.count = _count(connection, table, seconds)
    if findings.count is None:
        findings.warnings.append(f"{str(path)!r}: counting all rows takes over {seconds:g} s")
    findings.ok = True


def _count(connection: sqlite3.Connection, table: str, seconds: float) -> int | None:
    """Return how many rows a table has; None when counting takes too long."""
    try:
        with within(connection, seconds):
            count: int = connection.execute(_INSPECTION[f"count_{table}"]).fetchone()[0]
    except StoppedError:
        return None
    return count


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether a file has a table."""
    return bool(connection.execute(_INSPECTION["has_table"], {"name": name}).fetchone()[0])


def _version(connection: sqlite3.Connection, path: Path) -> tuple[int, list[str]]:
    """Return the version of the specified tables: that of the newest migration, else 1."""
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
    return 1, [f"{str(path)!r}: table '_migrations' belongs to another program"]


def _code(error: sqlite3.Error) -> int:
    code: int = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return code


def lock_state(path: Path) -> Literal["free", "held"]:
    """Return whether a program holds the write lock now; ``free`` when that cannot be known."""
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
    """Return the type of the file system of a path, such as ``ext4``; the path need not exist."""
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


def look(path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` on one snapshot of a database that others may be writing; return the result.

    A file that no program has open is read without locks, so that nothing appears beside it. If
    the file changed meanwhile, it is read again with SQLite's locks.

    Raises:
        SchemaError: The file is not a SQLite database, or is damaged.
        StoreError: The file does not exist, or cannot be read.
    """
    return traceless(path, partial(_read, path, work))


def _read(path: Path, work: Callable[[sqlite3.Connection], T], how: str) -> T:
    with (
        translate_errors(path, _PRAGMAS),
        closing(connect(path, _PRAGMAS, access="read", how=how)) as connection,
    ):
        connection.text_factory = lenient_text
        with snapshot(connection):
            return work(connection)


def writes_ahead(path: Path) -> bool:
    """Return whether a database is of the write-ahead kind, by its header.

    A connection that takes no locks does not report this.
    """
    with translate_errors(path, _PRAGMAS), path.open("rb") as file:
        return file.read(_FORMATS.stop)[_FORMATS] == _WAL


def damage_in(connection: sqlite3.Connection, seconds: float | None) -> str | None:
    """Return the first problem that ``PRAGMA quick_check`` finds.

    Args:
        connection: A connection to the database.
        seconds: How long the check may take; None sets no limit.

    Returns:
        An empty text without a problem; None when the check took too long.
    """
    try:
        with within(connection, seconds):
            problem = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except StoppedError:
        return None
    return "" if problem == "ok" else problem


def check_after_a_crash(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a database and the write-ahead log beside it belong together.

    SQLite applies any log that it finds. A log of another file mixes pages of both. This check runs
    on a connection that only reads, which does not yet write the log into the file.

    Raises:
        SchemaError: The log belongs to another file, or the database is damaged.
    """
    if damage_in(connection, LEFT_LOG_SECONDS) or has_foreign_log(connection, path):
        raise SchemaError(str(path), "is damaged")


def has_foreign_log(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the first entry of a database differs with and without its log."""
    try:
        own = _read(path, _first_entry, UNCHANGING)
    except StoreError:  # another program writes it now
        return False
    seen = _first_entry(connection)
    if seen is None and has_table(connection, "episodes"):  # the episode log was dropped
        return False
    erased = b"" in (own, seen)
    return own is not None and own != seen and not erased


def _first_entry(connection: sqlite3.Connection) -> bytes | None:
    """Return what is unique to a database: its first ledger hash, or its first episode."""
    for table in ("slumberd_ledger", "slumberd_episode_log"):
        if has_table(connection, table):
            row = connection.execute(_INSPECTION[f"origin_of_{table}"]).fetchone()
            return row[0] if row else None
    return None


@contextmanager
def within(connection: sqlite3.Connection, seconds: float | None) -> Iterator[None]:
    """Give the block's statements so many seconds; None sets no limit.

    Raises:
        StoppedError: The time was over.
    """
    if seconds == 0:
        raise StoppedError("there was no time")
    if seconds is None:
        yield
        return
    until = time.monotonic() + seconds
    with interrupting_when(connection, lambda: time.monotonic() > until):
        yield
