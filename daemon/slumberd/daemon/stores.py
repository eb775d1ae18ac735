"""Open the stores that a configuration names. Knows no rules, and changes nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from slumberd.clock import Clock, SystemClock
from slumberd.garbage_collection import collection_paused
from slumberd.model.episode import Misspelling
from slumberd.model.errors import (
    NoInputError,
    SchemaError,
    UnsupportedByStoreError,
)
from slumberd.model.store_status import DatabaseStatus
from slumberd.rules.file_access import read_key
from slumberd.rules.settings import Settings
from slumberd.search.embeddings import WordEmbedder
from slumberd.storage.closed_stores import ClosedStores
from slumberd.storage.replica_reads import allow_replica_reads
from slumberd.storage.sqlite.closed_file import ClosedEpisodeFile, closed_fact_file

if (
    TYPE_CHECKING
):  # a command that reads one store does not import the other, nor what looks at both
    from slumberd.search.saved_indexes import SavedIndexes
    from slumberd.search.searcher import Searcher
    from slumberd.storage.episodes.store import EngineMemoryStore
    from slumberd.storage.facts.store import EngineFactStore
    from slumberd.storage.inspections import StoreInspections
    from slumberd.storage.sqlite.helpers import Helper

MOST_XIDS = 1_000_000
"""A transaction of unknown age counts as old when so many transactions began after it."""

_SHARED_BYTES = 16 * 2**20
"""From so many bytes on, several processes verify a file of facts."""

_MOST_PROCESSES = 3
"""So many processes verify a file of facts at most: together they take less than 150 MiB."""

FEW_DEAD_ROWS = 100_000
"""So many old versions of rows of one table do not matter."""


def refuse_host_store(settings: Settings) -> None:
    """Refuse work on slumberd's own stores when a configuration names a host's.

    Raises:
        UnsupportedByStoreError: It names a host's.
    """
    if settings.host_store is not None:
        problem = "slumberd keeps no episodes, facts or ledger beside a host's own stores"
        raise UnsupportedByStoreError(settings.host_store, problem, "ask the host's program")


def key_of(settings: Settings) -> bytes | None:
    """Return the ledger key that a configuration names; None without one.

    Raises:
        ConfigurationError: The key file cannot be read, or other users can read it.
    """
    file = settings.facts.key_file
    return None if file is None else read_key(file, credentials=settings.credentials_dir)


def memory_of(
    settings: Settings,
    clock: Clock,
    *,
    traceless: bool = False,
    misspelled: Callable[[Misspelling], None] | None = None,
) -> EngineMemoryStore:
    """Return the memory store of a configuration, not yet opened.

    Args:
        misspelled: What is called for a key that is probably misspelled; None logs it.
    """
    from slumberd.storage.episodes.writes import log_misspelling
    from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore

    refuse_host_store(settings)
    misspelled = misspelled or log_misspelling
    if settings.store is not None:
        from slumberd.daemon import postgres_stores

        return postgres_stores.memory_of(
            settings, clock, read_only=traceless, misspelled=misspelled
        )
    return SQLiteMemoryStore(
        settings.memory_path,
        synchronous=settings.memory.synchronous,
        scope_mismatch=settings.memory.scope_mismatch,
        naive_timestamps=settings.memory.naive_timestamps,
        future_tolerance_seconds=settings.memory.future_tolerance,
        clock=clock,
        traceless=traceless,
        misspelled=misspelled,
        embedding=WordEmbedder,
        person=settings.memory.person,
    )


def facts_of(
    settings: Settings,
    clock: Clock,
    path: Path,
    *,
    key: bytes | None = None,
    traceless: bool = False,
    helpers: Sequence[Helper] = (),
) -> EngineFactStore:
    """Return the fact store of a configuration, not yet opened.

    Args:
        key: The ledger key; reading rows and facts needs none.
        traceless: Whether reads leave no files beside a database that no program has open.
        helpers: Processes that share reads which can be divided; only of a file.
    """
    refuse_host_store(settings)
    if settings.store is not None:
        from slumberd.daemon import postgres_stores

        return postgres_stores.facts_of(settings, clock, key=key)
    from slumberd.storage.sqlite.fact_store import SQLiteFactStore

    depth = settings.facts.lineage_depth
    return SQLiteFactStore(
        path,
        lineage_depth=depth,
        clock=clock,
        key=key,
        traceless=traceless,
        comparer=WordEmbedder,
        helpers=helpers,
    )


def _closed_stores_of(settings: Settings) -> ClosedStores:
    """Return what opens the stores of a configuration for one read each.

    Raises:
        UnsupportedByStoreError: They are a host's own.
    """
    refuse_host_store(settings)
    if settings.store is not None:
        from slumberd.daemon import postgres_stores

        return postgres_stores.closed_stores_of(settings)
    return _closed_files(settings, settings.memory_path, settings.facts_path)


def _closed_files(settings: Settings, memory: Path, facts: Path) -> ClosedStores:
    episodes = ClosedEpisodeFile(memory, settings.memory.naive_timestamps, settings.memory.person)
    return ClosedStores(episodes, closed_fact_file(facts))


def inspections_of(settings: Settings) -> StoreInspections:
    """Return what looks at the stores of a configuration while they are closed.

    Raises:
        UnsupportedByStoreError: They are a host's own.
    """
    return _inspections(settings, _closed_stores_of(settings))


def inspections_at(settings: Settings, memory: Path, facts: Path) -> StoreInspections:
    """Return what looks at stores in two files, such as the copies of a backup."""
    return _inspections(settings, _closed_files(settings, memory, facts))


def _inspections(settings: Settings, stores: ClosedStores) -> StoreInspections:
    from slumberd.storage.inspections import EpisodeInspection, FactInspection, StoreInspections

    memory = settings.memory
    episodes = EpisodeInspection(
        stores.episodes, memory.naive_timestamps, memory.scope_mismatch, memory.person
    )
    return StoreInspections(episodes, FactInspection(stores.facts))


def searcher_of(
    settings: Settings, memory: EngineMemoryStore, facts: EngineFactStore | None, clock: Clock
) -> Searcher:
    """Return a searcher of open stores, as a configuration says.

    Raises:
        ExtraMissingError: Meanings are to count, and the extra ``vectors`` is not installed.
    """
    from slumberd.search.searcher import Searcher

    wanted = settings.search
    return Searcher(
        memory,
        facts,
        language=wanted.language,
        vectors=wanted.vectors,
        clock=clock,
        future_tolerance_seconds=settings.memory.future_tolerance,
        recorded_at=None if facts is None else facts.watermarks.last_recorded_at,
        most_bytes=wanted.max_index_bytes,
        saved=_saved_indexes_of(settings),
    )


def _saved_indexes_of(settings: Settings) -> SavedIndexes | None:
    """Return where the indexes of a search are saved; None when they are not saved.

    Several hosts may search a database. An erasure on one of them could not remove the files of
    another, so none is written.
    """
    if settings.store is not None:
        return None
    from slumberd.search.saved_indexes import SavedIndexes, local_time_zone

    memory, search = settings.memory, settings.search
    try:
        files = [settings.memory_path.stat()]
        if settings.facts_path.exists():
            files.append(settings.facts_path.stat())
        return SavedIndexes(
            settings.state_dir,
            # A file that takes the place of another, as a restored one does, has another number.
            store=[number for file in files for number in (file.st_dev, file.st_ino)],
            made_with=[
                search.language,
                search.vectors,
                memory.scope_mismatch,
                memory.naive_timestamps,
                local_time_zone() if memory.naive_timestamps == "local" else None,
            ],
            most_bytes=search.max_index_bytes,
        )
    except OSError:  # there is no file, or this process may not read the files of its own code
        return None


async def erase_files_of(settings: Settings, user: str) -> int:
    """Remove what files beside the stores hold of a user; return how many indexes they held.

    Raises:
        StoreError: A file cannot be removed or written.
    """
    from slumberd.operations.transcript_counts import TranscriptFile
    from slumberd.search.saved_indexes import remove_indexes_of

    await TranscriptFile(settings.state_dir).forget(user)
    return await asyncio.to_thread(remove_indexes_of, settings.state_dir, user)


def shards_of(settings: Settings) -> list[int]:
    """Return the numbers of the shards of a configuration: all, unless it names one; files have 0.

    Raises:
        StoreError: The database cannot be used.
    """
    if settings.store is None:
        return [0]
    from slumberd.daemon import postgres_stores

    return postgres_stores.shards_of(settings)


def settings_of_user(settings: Settings, user: str | None) -> Settings:
    """Return settings for the shard of a user; unchanged for files, and for the only shard.

    Args:
        user: The user; None for the shard that the configuration names.

    Raises:
        ShardNotNamedError: Neither names one of several shards.
        UsageError: The configuration names another shard than the user's.
        UserMovingError: The user is being moved to another shard, for longer than a lease.
        StoreError: The database cannot be used.
    """
    if settings.store is None:
        return settings
    from slumberd.daemon import postgres_stores

    if settings.postgres.shard is None and len(postgres_stores.shards_of(settings)) == 1:
        return settings
    return settings.of_shard(postgres_stores.shard_of(settings, user).number)


def is_divided(settings: Settings) -> bool:
    """Return whether daemons divide the shards of the database among them.

    Raises:
        StoreError: The database cannot be used.
    """
    if settings.store is None:
        return False
    from slumberd.daemon import postgres_stores

    return postgres_stores.is_divided(settings)


@asynccontextmanager
async def open_facts_for_audit(
    settings: Settings, *, alone: bool = False
) -> AsyncIterator[EngineFactStore]:
    """Open the facts with the key of their ledger, for passes over the whole ledger.

    Args:
        alone: Fork no helpers: only a verification has work for them.

    Raises:
        ConfigurationError: The key cannot be read.
        NoInputError: The database does not exist yet.
    """
    # The pass frees its objects page by page, and makes no cycles.
    sharing = nullcontext(()) if alone else _started_helpers(settings)
    with collection_paused(), sharing as helpers:
        async with _open_existing_facts(settings, key=key_of(settings), helpers=helpers) as facts:
            yield facts


@contextmanager
def _started_helpers(settings: Settings) -> Iterator[Sequence[Helper]]:
    """Fork helpers for a large file of facts, one less than there are processors, 2 at most."""
    size = 0
    if settings.store is None and settings.host_store is None:
        with suppress(OSError):  # the store reports a file that cannot be read
            size = settings.facts_path.stat().st_size
    if size < _SHARED_BYTES:
        yield ()
        return
    from slumberd.storage.sqlite.helpers import started_helpers

    with started_helpers(min(len(os.sched_getaffinity(0)), _MOST_PROCESSES) - 1) as helpers:
        yield helpers


@asynccontextmanager
async def open_facts(settings: Settings) -> AsyncIterator[EngineFactStore]:
    """Open the facts for reading, without a trace in the directory.

    Raises:
        NoInputError: The database does not exist yet.
    """
    async with _open_existing_facts(settings) as facts:
        with allow_replica_reads():
            yield facts


@asynccontextmanager
async def _open_existing_facts(
    settings: Settings, *, key: bytes | None = None, helpers: Sequence[Helper] = ()
) -> AsyncIterator[EngineFactStore]:
    path, found = settings.facts_path, _closed_stores_of(settings).facts
    if not found.exists():
        remedy = "no rule has fired yet; `slumberd run` or `slumberd fire --all` fires the rules"
        raise NoInputError(found.where, remedy)
    found.check_version()
    async with facts_of(
        settings, SystemClock(), path, key=key, traceless=True, helpers=helpers
    ) as facts:
        yield facts


@asynccontextmanager
async def open_facts_if_present(settings: Settings) -> AsyncIterator[EngineFactStore | None]:
    """Open the facts for reading; yield None when slumberd has not made the database yet."""
    found = _closed_stores_of(settings).facts
    if not (found.exists() and found.is_begun()):
        yield None
        return
    async with facts_of(settings, SystemClock(), settings.facts_path, traceless=True) as facts:
        with allow_replica_reads():
            yield facts


@asynccontextmanager
async def open_memory(settings: Settings) -> AsyncIterator[EngineMemoryStore]:
    """Open the episodes for reading, without a trace in the directory.

    Raises:
        NoInputError: The database does not exist yet.
        SchemaError: The database has no episode log yet.
    """
    found = _closed_stores_of(settings).episodes
    if not found.exists():
        remedy = "there are no episodes yet; `slumberd import` puts some"
        raise NoInputError(found.where, remedy)
    if not found.is_begun():
        problem = "has no episode log yet; `slumberd run` or `slumberd fire --all` installs it"
        raise SchemaError(found.where, problem)
    memory = memory_of(settings, SystemClock(), traceless=True)
    try:
        with allow_replica_reads():
            yield memory
    finally:
        await memory.close()


@asynccontextmanager
async def open_memory_if_present(settings: Settings) -> AsyncIterator[EngineMemoryStore | None]:
    """Open the episodes for reading; yield None when no episode was ever put."""
    if not _closed_stores_of(settings).episodes.exists():
        yield None
        return
    async with open_memory(settings) as memory:
        yield memory


def database_status_of(
    settings: Settings, *, most_xids: int = MOST_XIDS, few_dead_rows: int = FEW_DEAD_ROWS
) -> DatabaseStatus | None:
    """Return the state of the database of a configuration; None when it names none.

    Args:
        most_xids: A transaction is reported first when more transactions began after it.
        few_dead_rows: Tables with at most so many old versions of rows are not reported.

    Raises:
        StoreError: The database cannot be read.
    """
    if settings.store is None:
        return None
    from slumberd.daemon import postgres_stores

    return postgres_stores.status_of(settings, most_xids=most_xids, few_dead_rows=few_dead_rows)
