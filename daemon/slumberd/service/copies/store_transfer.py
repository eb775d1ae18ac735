"""Move the stores of a state directory into a PostgreSQL database, and back.

A copy is whole or nothing. Into a database it is one transaction. Into a directory the files are
written under other names, and exchanged as a restore does it. While a copy runs, it holds the lock
of the directory and the leases of the shards. A database with several shards gets the rows divided
among them; a directory gets the rows of one shard.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.config.settings import Settings
from slumberd.errors import (
    BrokenLedgerError,
    LedgerKeyError,
    NoInputError,
    OutputExistsError,
    SourceChangedError,
)
from slumberd.model.record import Break, ForeignBlank
from slumberd.operations.caller import Caller
from slumberd.service import file_exchange
from slumberd.service.composition import adopt, facts_of, inspections_at, key_of, memory_of
from slumberd.service.database.tenure import DatabaseTenure
from slumberd.service.pause import FILE, PausedFile, write_paused
from slumberd.service.tenure import DirectoryTenure
from slumberd.storage.closed_stores import StoreName
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.copies.divided_shards import CopiedShard, DividedShards
from slumberd.storage.postgres.copies.row_copies import (
    Difference,
    OnProgress,
    Whole,
    copy_rows,
    find_differences,
)
from slumberd.storage.postgres.copies.shard_division import ShardDivision
from slumberd.storage.postgres.copies.shard_rows import (
    ShardRows,
    check_readable,
    filling_shards,
    reading_shard,
    reading_shards,
)
from slumberd.storage.postgres.copies.store_copies import write_files
from slumberd.storage.postgres.hosts.paused_rules import PausedTable
from slumberd.storage.postgres.installation import count_shards
from slumberd.storage.sqlite.file_rows import FileRows, ForeignRows, reading_files
from slumberd.storage.sqlite.schemas import SCHEMAS, find_numbers

_LEASE_SECONDS = 10.0
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
        self.all: dict[str, Path] = {"paused": folder / FILE}
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
    """Copy a state directory into an empty database.

    Args:
        folder: The state directory; no daemon may run on it.
        address: The address of the database, with the schema of slumberd.
        settings: The names of the files, how rows of other programs are read, and the key of the
            ledger, which only a database with several shards needs.
        clock: The time.
        on_progress: Called after each page of rows.

    Raises:
        NoInputError: The directory has no episodes.
        OutputExistsError: The database holds rows already.
        BrokenLedgerError: The ledger does not verify, and the database has several shards.
        LedgerKeyError: The key of the ledger is missing, and the database has several shards.
        RowsNotCopiedError: Rows of other programs cannot be stored in a database.
        SourceChangedError: Programs put episodes meanwhile.
        StateDirectoryLockedError: A daemon runs on the directory.
        DatabaseHeldError: A daemon holds the database.
    """
    files = StateFiles(folder, settings)
    await asyncio.to_thread(files.check_source)
    shards = await asyncio.to_thread(count_shards, address)
    async with files.locked(), _holding(address, range(shards), clock):
        await files.complete(clock)
        origin = await _origin_of(files, clock) if shards > 1 else None
        return await asyncio.to_thread(_fill_shards, files, address, origin, on_progress)


class _Origin(NamedTuple):
    """From where a database with several shards gets its rows.

    Attributes:
        head: The head of the ledger's chain, in hexadecimal.
        at: The instant of the copy.
        by: Who copies.
    """

    head: str
    at: datetime
    by: str


async def _origin_of(files: StateFiles, clock: Clock) -> _Origin:
    """Verify the ledger, which gets other chain hashes.

    Raises:
        BrokenLedgerError: The ledger does not verify.
        LedgerKeyError: The key of the ledger is missing.
    """
    head, broken = await _verify_files(files, clock)
    if broken is not None and not isinstance(broken, ForeignBlank):
        raise BrokenLedgerError(str(files.databases["facts"]), broken.seq, broken.problem)
    return _Origin(head, clock.now(), Caller.here().name)


def _fill_shards(
    files: StateFiles, address: str, origin: _Origin | None, on_progress: OnProgress
) -> Transferred:
    paused = PausedFile(files.folder).read()
    with filling_shards(address, key_of(files.settings) if origin else None) as shards:
        with reading_files(files.databases, files.foreign) as source:
            if origin is None:
                rows = copy_rows(source, shards[0], on_progress)
            else:
                target = DividedShards(_division_of(source, shards, files), shards)
                rows = copy_rows(source, target, on_progress)
                target.write_copied(*origin)
            end, left_out = source.log_end().version, source.added_columns()
        with reading_files({"memory": files.databases["memory"]}) as later:
            _check_unchanged(str(files.databases["memory"]), end, later)
        # Before the rows are kept: a copy that is killed leaves no rules that fire unpaused.
        for shard in range(len(shards)):
            PausedTable(address, shard).write(paused)
    return Transferred(rows, source.converted, len(paused), left_out)


def _division_of(source: FileRows, shards: Sequence[ShardRows], files: StateFiles) -> ShardDivision:
    tables = {table.name: table for table in source.tables}
    positions = {row[1] for row in source.read(tables["watermark"])}
    positions |= {row[2] for row in source.read(tables["held_batches"])}
    return ShardDivision(
        len(shards),
        source.read(tables["keys"]),
        positions,
        shards[0].find_shards,
        mismatch=files.foreign.mismatch,
        key=key_of(files.settings),
    )


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
        clock: The time.
        on_progress: Called after each page of rows.

    Raises:
        UnsupportedByStoreError: The database has no such shard, or several and none is chosen.
        OutputExistsError: The directory has stores.
        SourceChangedError: Programs put episodes meanwhile.
        StateDirectoryLockedError: A daemon runs on the directory.
        DatabaseHeldError: A daemon holds the database.
    """
    files = StateFiles(folder, settings)
    shard = settings.postgres.shard
    await asyncio.to_thread(check_readable, address, shard)
    async with _holding(address, [settings.shard], clock), files.locked():
        await asyncio.to_thread(files.check_target)
        stamp = f"{clock.now():%Y%m%dT%H%M%SZ}"
        return await asyncio.to_thread(_write_directory, address, files, stamp, on_progress)


def _write_directory(
    address: str, files: StateFiles, stamp: str, on_progress: OnProgress
) -> Transferred:
    shard = files.settings.postgres.shard
    file_exchange.discard(files.all.values())  # of a copy that was killed
    paused = PausedTable(address, shard or 0).read()
    staged: dict[StoreName, Path] = {
        store: file_exchange.staging_path(path) for store, path in files.databases.items()
    }
    with reading_shard(address, shard) as source:
        rows = write_files(source, staged, on_progress)
        end, left_out = source.log_end().version, source.added_columns()
    try:
        with reading_shard(address, shard) as later:
            _check_unchanged(where(address), end, later)
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
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for folder in {path.parent for path in paths}:
        file_exchange.sync_directory(folder)


async def compare(
    folder: Path, address: str, settings: Settings, clock: Clock, on_progress: OnProgress
) -> Verified:
    """Compare a directory with a database or its chosen shard, row by row; verify the ledger.

    Args:
        folder: The state directory.
        address: The address of the database.
        settings: The names of the files, the key of the ledger, and the shard.
        clock: The time.
        on_progress: Called after each page of rows.

    Raises:
        NoInputError: The directory has no episodes, or no ledger.
        LedgerKeyError: The key is missing, and the directory was divided among several shards.
    """
    files = StateFiles(folder, settings)
    await asyncio.to_thread(_check_both, files)
    if settings.postgres.shard is None and await asyncio.to_thread(count_shards, address) > 1:
        head, broken = await _verify_files(files, clock)
        rows, differences, problem = await asyncio.to_thread(
            _compare_divided, files, address, head, on_progress
        )
        return Verified(rows, head, differences, _words(broken) or problem)
    rows, differences = await asyncio.to_thread(_compare, files, address, on_progress)
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
    files: StateFiles, address: str, on_progress: OnProgress
) -> tuple[dict[str, int], list[Difference]]:
    with (
        reading_files(files.databases, files.foreign) as ours,
        reading_shard(address, files.settings.postgres.shard) as theirs,
    ):
        differences = find_differences(ours, [theirs], on_progress, names=_NAMES, division=Whole())
        return _count_rows(ours), differences


def _compare_divided(
    files: StateFiles, address: str, head: str, on_progress: OnProgress
) -> tuple[dict[str, int], list[Difference], str]:
    """Compare a directory with all shards of a database, and verify the ledger of each shard."""
    with (
        reading_files(files.databases, files.foreign) as ours,
        reading_shards(address, key_of(files.settings)) as shards,
    ):
        division = _division_of(ours, shards, files)
        theirs = [*map(CopiedShard, shards)]
        differences = find_differences(ours, theirs, on_progress, names=_NAMES, division=division)
        for number, shard in enumerate(theirs):
            if shard.copied != division.copied(head, number):
                problem = f"shard {number} does not say that it was copied from this ledger"
                differences.append(Difference("ledger", 1, problem))
            elif broken := shard.verify():
                return _count_rows(ours), differences, f"shard {number}, {_words(broken)}"
        return _count_rows(ours), differences, ""


def _count_rows(files: FileRows) -> dict[str, int]:
    return {table.name: files.count(table) for table in files.tables}


@asynccontextmanager
async def _holding(address: str, shards: Iterable[int], clock: Clock) -> AsyncIterator[None]:
    place = where(address)
    async with AsyncExitStack() as stack:
        for shard in shards:
            await stack.enter_async_context(
                DatabaseTenure(
                    address, shard, place, clock, seconds=_LEASE_SECONDS, is_daemon=False
                )
            )
        yield
