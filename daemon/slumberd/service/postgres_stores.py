"""Choose the implementations for a configuration whose ``store`` is a PostgreSQL database.

Only `composition` imports this module, and only then: it needs the extra ``postgres``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from slumberd.clock import Clock
from slumberd.config.settings import Settings
from slumberd.errors import StoreError, UsageError
from slumberd.model.episode import Misspelling
from slumberd.model.store_status import DatabaseLogin, DatabaseStatus
from slumberd.operations.handlers import Answer, Handler
from slumberd.operations.protocols import Episodes, Facts
from slumberd.retrieval.embeddings import WordEmbedder
from slumberd.service.database.requests import ServedShards, answer_requests, ask_database
from slumberd.service.database.tenure import DatabaseTenure
from slumberd.service.pause import PausedRules
from slumberd.service.shards.requests import ShardRequests, requests_of
from slumberd.storage.closed_stores import StoreCopies, StoreInspections
from slumberd.storage.postgres import installation
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.copies.store_copies import PostgresCopies
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.hosts.database_status import read_database_status
from slumberd.storage.postgres.hosts.paused_rules import PausedTable
from slumberd.storage.postgres.hosts.rule_sets import RuleSetTable
from slumberd.storage.postgres.inspection import (
    PostgresEpisodeInspection,
    PostgresFactInspection,
)
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shard_map import Shard, ShardMap


def database_of(settings: Settings) -> str:
    """Return the address of the database of a configuration that names one."""
    if settings.store is None:
        raise LookupError("the configuration names no database")
    return settings.store


def count_shards_of(settings: Settings) -> int:
    """Return how many shards the database of a configuration has."""
    return len(ShardMap(database_of(settings)).shards())


def own_shard(settings: Settings) -> Shard:
    """Return the shard on which a process works.

    Raises:
        UsageError: The map has several, and the configuration names none, or an unknown one.
        StoreError: The database cannot be used.
    """
    shards = ShardMap(database_of(settings))
    if settings.postgres.shard is not None:
        return shards.shard(settings.postgres.shard)
    found = shards.shards()
    if len(found) > 1:
        numbers = ", ".join(str(shard.number) for shard in found)
        raise UsageError(
            f"{place_of(settings)!r} has the shards {numbers}, each with a ledger of its own; "
            "name one by --shard"
        )
    return found[0]


def place_of(settings: Settings) -> str:
    """Return the database of a configuration in words, without its password."""
    return where(database_of(settings))


def memory_of(
    settings: Settings,
    clock: Clock,
    *,
    read_only: bool,
    misspelled: Callable[[Misspelling], None],
) -> Episodes:
    """Return the memory store of a configuration, not yet opened."""
    shard = own_shard(settings)
    return PostgresMemoryStore(
        shard.address,
        shard=shard.number,
        naive_timestamps=settings.memory.naive_timestamps,
        future_tolerance_seconds=settings.memory.future_tolerance,
        clock=clock,
        read_only=read_only,
        misspelled=misspelled,
        embedding=WordEmbedder,
        person=settings.memory.person,
    )


def facts_of(settings: Settings, clock: Clock, *, key: bytes | None) -> Facts:
    """Return the fact store of a configuration, not yet opened."""
    shard = own_shard(settings)
    return PostgresFactStore(
        shard.address,
        shard=shard.number,
        lineage_depth=settings.facts.lineage_depth,
        clock=clock,
        key=key,
        comparer=WordEmbedder,
    )


def inspections_of(settings: Settings) -> StoreInspections:
    """Return what looks at the stores of a configuration while they are closed.

    A database that cannot be used is no error yet: it is what the inspections report.
    """
    memory = settings.memory
    try:
        shard = own_shard(settings)
    except StoreError:
        shard = Shard(settings.shard, database_of(settings))
    return StoreInspections(
        PostgresEpisodeInspection(
            shard, memory.naive_timestamps, memory.scope_mismatch, memory.person
        ),
        PostgresFactInspection(shard),
    )


def copies_of(settings: Settings) -> StoreCopies:
    """Return what copies the stores of a configuration into files."""
    return PostgresCopies(own_shard(settings))


def tenure_of(
    settings: Settings, clock: Clock, *, is_daemon: bool, name: str | None
) -> DatabaseTenure:
    """Return the right to write the shard of a configuration, not yet taken."""
    return DatabaseTenure(
        own_shard(settings),
        database_of(settings),
        clock,
        seconds=settings.postgres.lease,
        is_daemon=is_daemon,
        name=name,
    )


def is_divided(settings: Settings) -> bool:
    """Return whether a daemon divides the shards of the database with others.

    Raises:
        StoreError: The database cannot be used.
    """
    if settings.postgres.shard is not None:
        return False
    return count_shards_of(settings) > 1


def status_of(settings: Settings, *, most_xids: int, few_dead_rows: int) -> DatabaseStatus:
    """Return the state of the database of a configuration, as `read_database_status` does."""
    return read_database_status(
        database_of(settings), most_xids=most_xids, few_dead_rows=few_dead_rows
    )


def login_of(settings: Settings) -> DatabaseLogin:
    """Return what the login of a configuration may do; check server and schema.

    Raises:
        DatabaseUnreachableError: The server does not answer.
        SchemaError: The schema is missing or of another version, or the server cannot hold it.
        PermissionDeniedError: The login may not use the schema at all.
    """
    return installation.examine(database_of(settings))


def ask(address: str, shard: int, operation: str, request: dict[str, Any]) -> Answer:
    """Return the answer of the daemon that holds a shard of a database."""
    return ask_database(ShardMap(address).shard(shard), operation, request)


def ask_shards(address: str, shard: int | None, operation: str, request: dict[str, Any]) -> Answer:
    """Return the answer of a shard of a database; for None, of those that a request concerns."""
    requests = requests_of(address) if shard is None else None
    if requests is None:
        return ask(address, shard or 0, operation, request)
    return requests.call(operation, request)


def shard_requests_of(settings: Settings) -> ShardRequests | None:
    """Return what sends requests to the shards of the database of a configuration.

    None when the database has one shard only, or when the configuration names one.

    Raises:
        StoreError: The database cannot be used.
    """
    return None if settings.postgres.shard is not None else requests_of(database_of(settings))


@asynccontextmanager
async def answer_requests_of(
    settings: Settings, operations: Mapping[str, Handler], holder: str
) -> AsyncIterator[None]:
    """Answer the requests for the shard of a configuration while the block runs."""
    served = ServedShards()
    async with (
        answer_requests(served, holder=holder),
        served.serve(own_shard(settings), operations),
    ):
        yield


def rule_sets_of(settings: Settings) -> RuleSetTable:
    """Return the published rules of the database of a configuration."""
    return RuleSetTable(database_of(settings))


def paused_rules_of(settings: Settings, holder: str | None) -> PausedRules:
    """Return where the paused rules of a configuration are kept."""
    return PausedTable(own_shard(settings), holder=holder)
