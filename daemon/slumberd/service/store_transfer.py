"""Move the stores of a state directory into a PostgreSQL database, and back.

A copy is whole or nothing: into a database it is one transaction, and files get their names last.
While it runs, it holds the lock of the directory and the lease of the database.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.config.settings import Settings
from slumberd.errors import NoInputError, OutputExistsError, UnsupportedByStoreError
from slumberd.file_modes import make_directory
from slumberd.service.database_tenure import DatabaseTenure
from slumberd.service.pause import FILE, PausedFile
from slumberd.service.tenure import DirectoryTenure
from slumberd.storage.postgres import installation
from slumberd.storage.postgres import row_copies as copies
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import Connection, connect, translate_errors
from slumberd.storage.postgres.paused_rules import PausedTable
from slumberd.storage.postgres.row_copies import OnProgress
from slumberd.storage.sqlite.connection import Pragmas, snapshot
from slumberd.storage.sqlite.connection import connect as connect_file

SHARD = 0
_LEASE_SECONDS = 30.0
_PRAGMAS = Pragmas()


class Files(NamedTuple):
    """The databases of a state directory.

    Attributes:
        memory: The episodes.
        facts: The facts and their ledger.
    """

    memory: Path
    facts: Path

    @classmethod
    def of(cls, folder: Path, settings: Settings) -> Files:
        """Return the databases of a state directory, named as a configuration names them."""
        return cls(folder / settings.memory.path, folder / settings.facts.path)


class Transferred(NamedTuple):
    """What a copy holds.

    Attributes:
        episodes: Episodes.
        rows: Rows of the ledger.
        facts: Facts.
        head: The head of the ledger's chain, in hexadecimal.
    """

    episodes: int
    rows: int
    facts: int
    head: str


async def copy_into_database(
    folder: Path, address: str, settings: Settings, clock: Clock, on_progress: OnProgress
) -> Transferred:
    """Copy a state directory into an empty database.

    Args:
        folder: The state directory; no daemon may run on it.
        address: The address of the database, with the schema of slumberd and one shard.
        settings: How rows of other programs are read.
        clock: The time.
        on_progress: Called with the name of a table, and how many of its rows are copied.

    Raises:
        NoInputError: The directory has no databases.
        OutputExistsError: The database holds episodes or facts already.
        InputError: Episodes cannot be read, or not be stored in a database.
        StateDirectoryLockedError: A daemon runs on the directory.
        DatabaseHeldError: A daemon holds the database.
    """
    files = Files.of(folder, settings)
    if not await asyncio.to_thread(files.memory.exists):
        raise NoInputError(str(files.memory), "name a state directory with episodes")
    async with DirectoryTenure(folder, {}), _holding(address, clock):
        return await asyncio.to_thread(_copy_in, files, folder, address, settings, on_progress)


async def copy_into_files(
    address: str, folder: Path, settings: Settings, clock: Clock, on_progress: OnProgress
) -> Transferred:
    """Copy a database into a new state directory.

    Args:
        address: The address of the database; no daemon may hold it.
        folder: The directory; it must not exist, or be empty.
        settings: The names of the files.
        clock: The time.
        on_progress: Called with the name of a table, and how many of its rows are copied.

    Raises:
        OutputExistsError: The directory is not empty.
        DatabaseHeldError: A daemon holds the database.
    """
    if await asyncio.to_thread(_is_filled, folder):
        raise OutputExistsError(str(folder))
    async with _holding(address, clock):
        return await asyncio.to_thread(_copy_out, address, folder, settings, on_progress)


async def find_difference(folder: Path, address: str, settings: Settings) -> str:
    """Return the first difference between a state directory and a database; empty without one.

    Raises:
        NoInputError: The directory has no databases.
    """
    return await asyncio.to_thread(_find_difference, Files.of(folder, settings), address)


def _is_filled(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


@asynccontextmanager
async def _holding(address: str, clock: Clock) -> AsyncIterator[None]:
    place = where(address)
    tenure = DatabaseTenure(address, SHARD, place, clock, seconds=_LEASE_SECONDS, is_daemon=False)
    async with tenure:
        yield


def _check_shards(connection: Connection, place: str) -> None:
    row = connection.execute(b"SELECT count(*) FROM slumberd.shards").fetchone()
    if row is None or row[0] != 1:
        problem = "the database has several shards, and a state directory is one"
        raise UnsupportedByStoreError(place, problem, "use a database with one shard")


def _copy_in(
    files: Files, folder: Path, address: str, settings: Settings, on_progress: OnProgress
) -> Transferred:
    place, memory = where(address), settings.memory
    with ExitStack() as stack:
        stack.enter_context(translate_errors(place))
        connection = stack.enter_context(connect(address))
        installation.check(connection, place=place)
        _check_shards(connection, place)
        copies.lock_writers(connection, SHARD)
        copies.refuse_filled_shard(connection, SHARD, place)
        episodes = stack.enter_context(_opened(files.memory))
        copies.read_memory_file(
            episodes,
            connection,
            SHARD,
            on_progress,
            naive=memory.naive_timestamps,
            mismatch=memory.scope_mismatch,
        )
        if files.facts.exists():
            facts = stack.enter_context(_opened(files.facts))
            copies.read_facts_file(facts, connection, SHARD, on_progress)
        done = _describe(connection)
    if (folder / FILE).exists():
        PausedTable(address, SHARD).write(PausedFile(folder).read())
    return done


def _copy_out(
    address: str, folder: Path, settings: Settings, on_progress: OnProgress
) -> Transferred:
    place = where(address)
    part = folder.with_name(f"{folder.name}.incomplete")
    shutil.rmtree(part, ignore_errors=True)  # of a copy that was killed
    make_directory(part)
    files = Files.of(part, settings)
    with translate_errors(place):
        with connect(address) as connection:
            installation.check(connection, place=place)
            _check_shards(connection, place)
            copies.number_waiting(connection, SHARD)
        with connect(address, read_only=True) as connection:
            copies.write_memory_file(connection, SHARD, files.memory, on_progress)
            copies.write_facts_file(connection, SHARD, files.facts, on_progress)
            done = _describe(connection)
    if paused := PausedTable(address, SHARD).read():
        PausedFile(part).write(paused)
    if folder.exists():
        folder.rmdir()
    part.rename(folder)
    return done


def _find_difference(files: Files, address: str) -> str:
    for path in files:
        if not path.exists():
            raise NoInputError(str(path), "name a state directory with both databases")
    place = where(address)
    with ExitStack() as stack:
        stack.enter_context(translate_errors(place))
        memory = stack.enter_context(_opened(files.memory))
        facts = stack.enter_context(_opened(files.facts))
        connection = stack.enter_context(connect(address, read_only=True))
        return copies.find_difference(memory, facts, connection, SHARD)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect_file(path, _PRAGMAS, access="read")) as file, snapshot(file):
        yield file


def _describe(connection: Connection) -> Transferred:
    row = connection.execute(_DESCRIBE).fetchone()
    return Transferred(*(row or (0, 0, 0, "")))


_DESCRIBE = b"""
SELECT
  (SELECT count(*) FROM slumberd.episodes),
  (SELECT count(*) FROM slumberd.ledger),
  (SELECT count(*) FROM slumberd.facts),
  coalesce((SELECT encode(chain, 'hex') FROM slumberd.ledger ORDER BY seq DESC LIMIT 1), '')
"""
