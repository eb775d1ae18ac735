"""Choose the implementations for a configuration whose ``store`` is a PostgreSQL database.

Only `composition` imports this module, and only then: it needs the extra ``postgres``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from slumberd.clock import Clock
from slumberd.daemon.database_requests import ServedShards, answer_requests
from slumberd.daemon.database_tenure import DatabaseTenure
from slumberd.daemon.shard_requests import SPARE_SECONDS, ShardRequests, ask_daemon, find_shard
from slumberd.model.episode import Misspelling
from slumberd.model.errors import MemoryScopeError, StoreError
from slumberd.model.store_status import DatabaseLogin, DatabaseStatus
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, Handler
from slumberd.operations.pauses import PauseStore
from slumberd.rules.settings import Settings
from slumberd.search.embeddings import WordEmbedder
from slumberd.storage.closed_stores import ClosedStores, StoreCopies
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.postgres import installation, replica
from slumberd.storage.postgres.closed_shard import ClosedShard
from slumberd.storage.postgres.connection import where
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.health import read_database_status
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.moves import UserMoves
from slumberd.storage.postgres.rule_sets import PausedTable, RuleSetTable
from slumberd.storage.postgres.shard_copies import PostgresCopies
from slumberd.storage.postgres.shard_map import Shard, shard_map_of


def database_of(settings: Settings) -> str:
    """Return the address of the database of a configuration that names one."""
    if settings.store is None:
        raise LookupError("the configuration names no database")
    return settings.store


def shards_of(settings: Settings) -> list[int]:
    """Return the numbers of the shards of a configuration: all, unless it names one.

    Raises:
        StoreError: The database cannot be used.
    """
    if settings.postgres.shard is not None:
        return [settings.postgres.shard]
    return [shard.number for shard in shard_map_of(database_of(settings)).shards()]


def shard_of(settings: Settings, user: str | None = None) -> Shard:
    """Return the shard of a user, or the shard on which a process works.

    Raises:
        ShardNotNamedError: Neither the caller nor the configuration names one of several.
        UsageError: The configuration names a shard that is not there, or not the user's.
        UserMovingError: The user is being moved to another shard, for longer than a lease.
        StoreError: The database cannot be used.
    """
    return find_shard(
        shard_map_of(database_of(settings)),
        user,
        settings.postgres.shard,
        patience_seconds=settings.postgres.lease + SPARE_SECONDS,
    )


def shard_of_puts(settings: Settings, user: str) -> int:
    """Return the number of the shard into which a user's episodes are put.

    The store of any shard refuses a name that no user can have.

    Raises:
        UserMovingError: The user is being moved to another shard, for longer than a lease.
        StoreError: The database cannot be used.
    """
    try:
        return shard_of(settings, user).number
    except MemoryScopeError:
        return shards_of(settings)[0]


def refuse_other_users(handlers: Mapping[str, Handler], settings: Settings) -> dict[str, Handler]:
    """Return handlers of the daemon of one shard, which refuse a user of another.

    The sender of a request may have read the map before the user was moved.
    """

    def guarded(handler: Handler) -> Handler:
        async def handle(request: dict[str, Any], caller: Caller) -> Answer:
            user = request.get("user") if caller.user is None else caller.user
            if isinstance(user, str):
                with suppress(MemoryScopeError):  # the handler says what is wrong with it
                    await asyncio.to_thread(_check_user, settings, user)
            return await handler(request, caller)

        return handle

    return {name: guarded(handler) for name, handler in handlers.items()}


def _check_user(settings: Settings, user: str) -> None:
    shards = shard_map_of(database_of(settings))
    find_shard(shards, user, settings.postgres.shard, patience_seconds=0.0)


def place_of(settings: Settings) -> str:
    """Return the database of a configuration in words, without its password."""
    return where(database_of(settings))


def _replica_of(settings: Settings, shard: Shard) -> str | None:
    """Return the address of the replica that has a shard: it is one of the map's database."""
    return settings.postgres.read_address if shard.address == settings.store else None


def memory_of(
    settings: Settings,
    clock: Clock,
    *,
    read_only: bool,
    misspelled: Callable[[Misspelling], None],
) -> EngineMemoryStore:
    """Return the memory store of a configuration, not yet opened."""
    shard = shard_of(settings)
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
        read_address=_replica_of(settings, shard),
    )


def facts_of(settings: Settings, clock: Clock, *, key: bytes | None) -> EngineFactStore:
    """Return the fact store of a configuration, not yet opened."""
    shard = shard_of(settings)
    return PostgresFactStore(
        shard.address,
        shard=shard.number,
        lineage_depth=settings.facts.lineage_depth,
        clock=clock,
        key=key,
        comparer=WordEmbedder,
        read_address=_replica_of(settings, shard),
    )


def closed_stores_of(settings: Settings) -> ClosedStores:
    """Return what opens the stores of a configuration for one read each.

    A database that cannot be used is no error yet: it is what the inspections report.
    """
    memory = settings.memory
    try:
        found = shard_of(settings)
    except StoreError:
        found = Shard(settings.shard, database_of(settings))
    episodes = ClosedShard(found, "episodes", memory.naive_timestamps, memory.person)
    return ClosedStores(episodes, ClosedShard(found, "facts"))


def copies_of(settings: Settings) -> StoreCopies:
    """Return what copies the stores of a configuration into files."""
    return PostgresCopies(shard_of(settings))


def tenure_of(
    settings: Settings, clock: Clock, *, is_daemon: bool, name: str | None
) -> DatabaseTenure:
    """Return the right to write the shard of a configuration, not yet taken."""
    return DatabaseTenure(
        shard_of(settings),
        database_of(settings),
        clock,
        seconds=settings.postgres.lease,
        is_daemon=is_daemon,
        name=name,
    )


def moves_of(settings: Settings, facts: EngineFactStore) -> UserMoves:
    """Return what moves users out of the shard of a configuration.

    Args:
        facts: The open store of the facts of the shard.
    """
    if not isinstance(facts, PostgresFactStore):
        raise TypeError("users move between the shards of a database only")
    depth = settings.facts.lineage_depth
    shards = shard_map_of(database_of(settings))
    return UserMoves(facts.engine, shards, depth=depth, key=facts.engine.key)


def is_divided(settings: Settings) -> bool:
    """Return whether a daemon divides the shards of the database with others.

    Raises:
        StoreError: The database cannot be used.
    """
    return len(shards_of(settings)) > 1


def status_of(settings: Settings, *, most_xids: int, few_dead_rows: int) -> DatabaseStatus:
    """Return the state of the database of a configuration, as `read_database_status` does."""
    return read_database_status(
        database_of(settings), most_xids=most_xids, few_dead_rows=few_dead_rows
    )


def find_problem_of_replica(settings: Settings) -> tuple[str, str]:
    """Return the replica of a configuration in words, and why it cannot answer; empty if it can.

    Raises:
        StoreError: The primary cannot be used.
    """
    address = settings.postgres.read_address
    if address is None:
        raise LookupError("the configuration names no replica")
    return where(address), replica.examine(database_of(settings), address)


def login_of(settings: Settings) -> DatabaseLogin:
    """Return what the login of a configuration may do; check server and schema.

    Raises:
        DatabaseUnreachableError: The server does not answer.
        SchemaError: The schema is missing or of another version, or the server cannot hold it.
        PermissionDeniedError: The login may not use the schema at all.
    """
    return installation.examine(database_of(settings))


def ask(settings: Settings, operation: str, request: dict[str, Any]) -> Answer:
    """Return the answer of the daemon that holds the shard of a configuration."""
    return ask_daemon(shard_of(settings), operation, request)


def requests_of(address: str, shard: int | None, lease_seconds: float) -> ShardRequests:
    """Return what sends requests to the shards of a database.

    Args:
        address: The address of the database.
        shard: The shard of requests that name none; None without one.
        lease_seconds: The lease of the shards.
    """
    return ShardRequests(shard_map_of(address), lease_seconds=lease_seconds, own=shard)


@asynccontextmanager
async def answer_requests_of(
    settings: Settings, operations: Mapping[str, Handler], holder: str
) -> AsyncIterator[None]:
    """Answer the requests for the shard of a configuration while the block runs."""
    served, shard = ServedShards(), shard_of(settings)
    async with (
        answer_requests(served, holder=holder),
        served.serve(shard, operations),
    ):
        yield


def rule_sets_of(settings: Settings) -> RuleSetTable:
    """Return the published rules of the database of a configuration."""
    return RuleSetTable(database_of(settings))


def paused_rules_of(settings: Settings, holder: str | None) -> PauseStore:
    """Return where the paused rules of a configuration are kept."""
    return PausedTable(shard_of(settings), holder=holder)
