"""Move the stores of a state directory into a PostgreSQL database, and back.

A copy is whole or nothing. Into a database it is one transaction. Into a directory the files are
written under other names, and exchanged as a restore does it. While a copy runs, it holds the lock
of the directory and the lease of the shard. A copy fills or reads one shard of a database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.daemon import file_exchange
from slumberd.daemon.composition import adopt
from slumberd.daemon.database_tenure import DatabaseTenure
from slumberd.daemon.rules import PAUSED_FILE, PausedFile, write_paused
from slumberd.daemon.shard_requests import find_shard
from slumberd.daemon.stores import facts_of, inspections_at, key_of, memory_of
from slumberd.daemon.tenure import DirectoryTenure
from slumberd.file_modes import sync_to_disk
from slumberd.model.errors import (
    LedgerKeyError,
    NoInputError,
    OutputExistsError,
    SourceChangedError,
)
from slumberd.model.record import Break
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import LEASE_SECONDS
from slumberd.storage.closed_stores import StoreName
from slumberd.storage.postgres.connection import where
from slumberd.storage.postgres.rule_sets import PausedTable
from slumberd.storage.postgres.shard_copies import (
    Difference,
    OnProgress,
    ShardRows,
    copy_rows,
    filling_shard,
    find_differences,
    reading_shard,
    write_files,
)
from slumberd.storage.postgres.shard_map import Shard, shard_map_of
from slumberd.storage.sqlite.file_rows import FileRows, ForeignRows, reading_files
from slumberd.storage.sqlite.schemas import SCHEMAS, find_numbers

_MOST_USERS = 10**9
_NAMES = ("the directory", "the database")


class Transferred(NamedTuple):
    """What a copy holds.

    Attributes:
        rows: How many rows, by table.
        converted: Episodes of other programs that were written as `put` writes them.
        paused: How many rules are paused.
        left_out: Columns that programs added, which the copy lacks, as ``facts.colour``.
    """

    rows: dict[str, int]
    converted: int
    paused: int
    left_out: list[str]


class Verified(NamedTuple):
    """What a comparison found.

    Attributes:
        rows: How many rows the tables of the directory have, by table.
        head: The head of the ledger's chain, in hexadecimal; None when it was not verified, because
            the configuration does not have the key.
        differences: The tables that differ.
        broken: What is wrong with the ledger itself; empty when nothing is.
    """

    rows: dict[str, int]
    head: str | None
    differences: list[Difference]
    broken: str


class StateFiles:
    """The files of a state directory that a copy reads or writes.

    Args:
        folder: The state directory.
        settings: The names of its files, and how rows of other programs are read.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        # A configuration that names a database names no files.
        self.settings = settings.model_copy(update={"store": None, "state_dir": folder})
        self.folder = folder
        self.databases: dict[StoreName, Path] = {
            "memory": folder / settings.memory.path,
            "facts": folder / settings.facts.path,
        }
        self.all: dict[str, Path] = {"paused": folder / PAUSED_FILE}
        self.all |= self.databases.items()
        memory = settings.memory
        self.foreign = ForeignRows(memory.naive_timestamps, memory.scope_mismatch)

    def check_source(self) -> None:
        """Check that there are episodes to copy.

        Raises:
            NoInputError: There is no database of episodes.
        """
        path = self.databases["memory"]
        if not path.exists():
            raise NoInputError(str(path), "name a state directory with episodes")

    def check_target(self) -> None:
        """Check that the directory has no stores.

        Raises:
            OutputExistsError: It has.
        """
        for path in self.all.values():
            if path.exists() or path.is_symlink():
                remedy = "name a directory without stores; `--verify` compares both"
                raise OutputExistsError(str(path), remedy)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Lock the directory, and finish an exchange of files that was begun in it.

        Raises:
            StateDirectoryLockedError: A daemon runs on the directory.
        """
        async with DirectoryTenure(self.folder, self.all):
            yield

    async def complete(self, clock: Clock) -> None:
        """Create or upgrade the tables, and record what other programs changed.

        Raises:
            LedgerKeyError: There is something to record, and the configuration lacks the key.
        """
        numbers = await asyncio.to_thread(find_numbers, self.databases)
        async with memory_of(self.settings, clock) as memory:
            await memory.bootstrap()
        is_newest = numbers["facts"] == SCHEMAS["facts"].newest
        if is_newest and await asyncio.to_thread(self._has_complete_ledger):
            return
        path, key = self.databases["facts"], key_of(self.settings)
        async with facts_of(self.settings, clock, path, key=key) as facts:
            await facts.bootstrap()
            await adopt(facts, clock)

    def _has_complete_ledger(self) -> bool:
        path = self.databases["facts"]
        inspection = inspections_at(self.settings, self.databases["memory"], path).facts
        if not (inspection.exists() and inspection.has_ledger()):
            return False
        with reading_files({"facts": path}) as rows:
            return not rows.count_external_changes()


async def copy_into_database(
    folder: Path, address: str, settings: Settings, clock: Clock, on_progress: OnProgress
) -> Transferred:
    """Copy a state directory into an empty shard of a database.

    Args:
        folder: The state directory; no daemon may run on it.
        address: The address of the database, with the schema of slumberd.
        settings: The names of the files, how rows of other programs are read, the key of the
            ledger, and the shard; without one, the database must have one.
        on_progress: Called after each page of rows.

    Raises:
        NoInputError: The directory has no episodes.
        ShardNotNamedError: The database has several shards, and none is chosen.
        UsageError: It has no such shard, or a user of the directory lies in another one.
        OutputExistsError: The shard holds rows already.
        RowsNotCopiedError: Rows of other programs cannot be stored in a database.
        SourceChangedError: Programs put episodes meanwhile.
        StateDirectoryLockedError: A daemon runs on the directory.
        DatabaseHeldError: A daemon holds the database.
    """
    files = StateFiles(folder, settings)
    await asyncio.to_thread(files.check_source)
    shard = await asyncio.to_thread(_shard_of, address, settings)
    async with files.locked(), _holding(shard, address, clock):
        await files.complete(clock)
        await asyncio.to_thread(_name_users, address, shard, files)
        return await asyncio.to_thread(_fill_shard, shard, files, on_progress)


def _shard_of(address: str, settings: Settings) -> Shard:
    number, shards = settings.postgres.shard, shard_map_of(address)
    return find_shard(shards, None, number, patience_seconds=0.0)


def _name_users(address: str, shard: Shard, files: StateFiles) -> None:
    """Let the users of a directory lie in a shard, before its rows are there."""
    shards = shard_map_of(address)
    if len(shards.shards()) > 1:
        episodes, facts = inspections_at(files.settings, *files.databases.values())
        users = {*episodes.users(_MOST_USERS), *facts.users(_MOST_USERS)}
        shards.name_users(sorted(users), shard.number)


def _fill_shard(shard: Shard, files: StateFiles, on_progress: OnProgress) -> Transferred:
    paused = PausedFile(files.folder).read()
    with filling_shard(shard) as target:
        with reading_files(files.databases, files.foreign) as source:
            rows = copy_rows(source, target, on_progress)
            end, left_out = source.log_end().version, source.added_columns()
        with reading_files({"memory": files.databases["memory"]}) as later:
            _check_unchanged(str(files.databases["memory"]), end, later)
        # Before the rows are kept: a copy that is killed leaves no rules that fire unpaused.
        PausedTable(shard).write(paused)
    return Transferred(rows, source.converted, len(paused), left_out)


def _check_unchanged(place: str, end: int, later: FileRows | ShardRows) -> None:
    versions = later.log_end().version - end
    if versions:
        raise SourceChangedError(place, versions)


async def copy_into_files(
    address: str, folder: Path, settings: Settings, clock: Clock, on_progress: OnProgress
) -> Transferred:
    """Copy a database, or one shard of several, into a state directory without stores.

    Args:
        address: The address of the database; no daemon may hold it.
        folder: The directory; it may have a configuration and rules.
        settings: The names of the files, and the shard; without one, the database must have one.
        on_progress: Called after each page of rows.

    Raises:
        ShardNotNamedError: The database has several shards, and none is chosen.
        UsageError: It has no such shard.
        OutputExistsError: The directory has stores.
        SourceChangedError: Programs put episodes meanwhile.
        StateDirectoryLockedError: A daemon runs on the directory.
        DatabaseHeldError: A daemon holds the database.
    """
    files = StateFiles(folder, settings)
    shard = await asyncio.to_thread(_shard_of, address, settings)
    async with _holding(shard, address, clock), files.locked():
        await asyncio.to_thread(files.check_target)
        stamp = f"{clock.now():%Y%m%dT%H%M%SZ}"
        return await asyncio.to_thread(_write_directory, shard, files, stamp, on_progress)


def _write_directory(
    shard: Shard, files: StateFiles, stamp: str, on_progress: OnProgress
) -> Transferred:
    file_exchange.discard(files.all.values())  # of a copy that was killed
    paused = PausedTable(shard).read()
    staged: dict[StoreName, Path] = {
        store: file_exchange.staging_path(path) for store, path in files.databases.items()
    }
    with reading_shard(shard) as source:
        rows = write_files(source, staged, on_progress)
        end, left_out = source.log_end().version, source.added_columns()
    try:
        with reading_shard(shard) as later:
            _check_unchanged(where(shard.address), end, later)
        if paused:
            write_paused(file_exchange.staging_path(files.all["paused"]), paused)
        _sync([*staged.values()])
    except BaseException:
        file_exchange.discard(files.all.values())
        raise
    changes: Mapping[str, bool] = dict.fromkeys((*staged, *(["paused"] if paused else [])), True)
    file_exchange.begin(files.folder, stamp, changes)
    file_exchange.finish(files.folder, files.all)
    return Transferred(rows, 0, len(paused), left_out)


def _sync(paths: list[Path]) -> None:
    """Sync new files, which no connection has open."""
    for path in paths:
        sync_to_disk(path)
    for folder in {path.parent for path in paths}:
        sync_to_disk(folder)


async def compare(
    folder: Path, address: str, settings: Settings, clock: Clock, on_progress: OnProgress
) -> Verified:
    """Compare a directory with a database or its chosen shard, row by row; verify the ledger.

    Args:
        folder: The state directory.
        address: The address of the database.
        settings: The names of the files, the key of the ledger, and the shard.
        on_progress: Called after each page of rows.

    Raises:
        NoInputError: The directory has no episodes, or no ledger.
        ShardNotNamedError: The database has several shards, and none is chosen.
        UsageError: It has no such shard.
    """
    files = StateFiles(folder, settings)
    await asyncio.to_thread(_check_both, files)
    shard = await asyncio.to_thread(_shard_of, address, settings)
    rows, differences = await asyncio.to_thread(_compare, files, shard, on_progress)
    try:
        head, broken = await _verify_files(files, clock)
    except LedgerKeyError:
        if key_of(files.settings) is not None:
            raise
        return Verified(rows, None, differences, "")
    return Verified(rows, head, differences, _words(broken))


async def _verify_files(files: StateFiles, clock: Clock) -> tuple[str, Break | None]:
    """Verify the ledger of a directory; return its head and its first break.

    Raises:
        LedgerKeyError: The key of the ledger is missing, or another one.
    """
    path, key = files.databases["facts"], key_of(files.settings)
    async with facts_of(files.settings, clock, path, key=key, traceless=True) as facts:
        _, head, broken = await facts.verify(())
    return head, broken


def _words(broken: Break | None) -> str:
    return f"row {broken.seq}: {broken.problem}" if broken else ""


def _check_both(files: StateFiles) -> None:
    for path in files.databases.values():
        if not path.exists():
            raise NoInputError(str(path), "name a state directory with episodes and facts")


def _compare(
    files: StateFiles, shard: Shard, on_progress: OnProgress
) -> tuple[dict[str, int], list[Difference]]:
    with (
        reading_files(files.databases, files.foreign) as ours,
        reading_shard(shard) as theirs,
    ):
        differences = find_differences(ours, theirs, on_progress, names=_NAMES)
        return _count_rows(ours), differences


def _count_rows(files: FileRows) -> dict[str, int]:
    return {table.name: files.count(table) for table in files.tables}


def _holding(shard: Shard, address: str, clock: Clock) -> DatabaseTenure:
    return DatabaseTenure(shard, address, clock, seconds=LEASE_SECONDS, is_daemon=False)
