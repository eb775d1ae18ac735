"""slumberd with failpoints: the process ends at a named boundary, as by ``kill -9``.

``SLUMBERD_FAILPOINT='facts.db COMMIT#2' python -m tests.support.failpoints fire all --config FILE``
exits with 137 before the second COMMIT on facts.db. A boundary lies before every statement of a
connection that writes, before the second row of one that takes many, after each COMMIT, and
before, within and after each write to the log. A run without a failpoint finds them.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

import pytest

from slumberd.cli import main
from slumberd.logs.lines import LineStream
from slumberd.sql_statements import statements
from slumberd.storage.sqlite import connection as sqlite_connection
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.storage.sqlite.session import KeyedConnection
from tests.support.planted_faults import Plant
from tests.support.sql_files import files_of

KILLED = 137
FAILPOINT, PASSED = "SLUMBERD_FAILPOINT", "SLUMBERD_FAILPOINTS_PASSED"


class Boundaries:
    """Counts the boundaries that a process passes, and ends it at one of them.

    Args:
        fatal: The name of a boundary and, after ``#``, the how manyth of that name; or nothing.
        passed: Where those that were passed are noted, a line each.
    """

    def __init__(self, fatal: str = "", passed: Path | None = None) -> None:
        self._fatal = fatal
        self._passed = passed
        self._seen: Counter[str] = Counter()
        self._lock = Lock()

    def is_next(self, name: str) -> bool:
        """Say whether the next passing of a boundary ends the process."""
        return self._fatal == f"{name}#{self._seen[name] + 1}"

    def cross(self, name: str) -> None:
        """Pass a boundary, or end."""
        with self._lock:
            if self.is_next(name):
                os._exit(KILLED)
            self._seen[name] += 1
            if self._passed is not None:
                with self._passed.open("a") as file:
                    file.write(f"{name}#{self._seen[name]}\n")


def begin(
    words: Iterable[str],
    fatal: str = "",
    passed: Path | None = None,
    plant: Plant | None = None,
) -> NoReturn:
    """Run a command of slumberd, in a process of its own, up to a boundary.

    Args:
        words: The command.
        fatal: Where it ends; nowhere before its end when empty.
        passed: Where the boundaries are noted.
        plant: Breaks slumberd first, to show that this is found.
    """
    _prepare(fatal, passed, plant)
    main(list(words))


def begin_reading(
    memory: Path,
    user: str,
    fatal: str = "",
    passed: Path | None = None,
    plant: Plant | None = None,
) -> NoReturn:
    """Read what a user has as a host does, up to a boundary; else as in `begin`."""
    _prepare(fatal, passed, plant)
    asyncio.run(_read(memory, user))
    os._exit(0)


async def _read(path: Path, user: str) -> None:
    async with SQLiteMemoryStore(path) as memory:
        await memory.recent(user, limit=100)


def _prepare(fatal: str, passed: Path | None, plant: Plant | None) -> None:
    boundaries = Boundaries(fatal, passed)
    patch = pytest.MonkeyPatch()
    patch.setattr(sqlite_connection, "KeyedConnection", _watched(boundaries))
    patch.setattr(LineStream, "write", _write_across(boundaries))
    if plant is not None:
        plant(patch)


def _names() -> dict[str, str]:
    """Return what the statements of our SQL files are called there, by their texts."""
    return {sql: f"{file}.{name}" for file in files_of() for name, sql in statements(file).items()}


class _Watched(KeyedConnection):
    """A connection that reports each statement before it executes it."""

    boundaries: Boundaries
    names: dict[str, str]

    def __init__(self, database: str, *args: Any, **keywords: Any) -> None:
        super().__init__(database, *args, **keywords)
        address, _, mode = database.rpartition("?mode=")
        self._file = address.rpartition("/")[2] if mode == "rw" else ""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self._cross(self._name(sql))
        done = super().execute(sql, *values)
        if sql == "COMMIT":
            self._cross("after COMMIT")
        return done

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        self._cross(self._name(sql))
        return super().executemany(sql, self._across(f"{self._name(sql)}, second row", rows))

    def _across(self, name: str, rows: Iterable[Any]) -> Iterator[Any]:
        for number, row in enumerate(rows):
            if number == 1:
                self._cross(name)
            yield row

    def _name(self, sql: str) -> str:
        return self.names.get(sql) or " ".join(sql.split())

    def _cross(self, name: str) -> None:
        if self._file:
            self.boundaries.cross(f"{self._file} {name}")


def _watched(boundaries: Boundaries) -> type[_Watched]:
    class Watched(_Watched):
        pass

    Watched.boundaries, Watched.names = boundaries, _names()
    return Watched


def _write_across(boundaries: Boundaries) -> Callable[..., bool]:
    write = LineStream.write

    def write_across(sink: LineStream, lines: bytes, *, must: bool = False) -> bool:
        boundaries.cross("log before")
        if boundaries.is_next("log half"):
            write(sink, lines[: len(lines) // 2], must=must)
        boundaries.cross("log half")
        is_written = write(sink, lines, must=must)
        boundaries.cross("log after")
        return is_written

    return write_across


if __name__ == "__main__":
    import sys

    # Taken out of the environment: what begins with SLUMBERD_ there is a setting.
    point, noted = (os.environ.pop(name, "") for name in (FAILPOINT, PASSED))
    begin(sys.argv[1:], point, Path(noted) if noted else None)
