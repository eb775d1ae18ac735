"""Choose the implementations and connect them: the composition root."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from slumberd.clock import Clock
from slumberd.consolidation.consolidator import Consolidator
from slumberd.consolidation.protocols import Logs
from slumberd.consolidation.stage_runs import Retention
from slumberd.daemon.rules import PAUSED_FILE
from slumberd.daemon.stores import (
    facts_of,
    inspections_of,
    key_of,
    memory_of,
    refuse_host_store,
)
from slumberd.daemon.tenure import DirectoryTenure, Tenure, refuse_network
from slumberd.model.episode import Misspelling
from slumberd.model.errors import NoInputError, UsageError
from slumberd.model.firing import Limits
from slumberd.model.provenance import SLOTS
from slumberd.operations.stores import Stores
from slumberd.operations.users import Moves
from slumberd.operations.writes.put_once import UserStores
from slumberd.operations.writes.rule_runner import RuleRunner
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.search.saved_indexes import remove_indexes_of
from slumberd.storage.closed_stores import StoreCopies, StoreName
from slumberd.storage.episodes.writes import log_misspelling
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.sqlite.backup import SQLiteCopies
from slumberd.storage.sqlite.schemas import SCHEMAS, find_numbers
from slumberd.workers.graph.ladybug_store import LadybugGraphStore
from slumberd.workers.graph.promotion import EVIDENCE, EVIDENCE_SLOTS, GraphStore, Promoter
from slumberd.workers.provenance.fathom_sink import FathomSink, open_engine
from slumberd.workers.provenance.publisher import (
    DeliveryPolicy,
    FileSink,
    ProvenancePublisher,
    ProvenanceSink,
)

_log = structlog.get_logger("slumberd")

SWITCH_SECONDS = 0.001
"""How long a thread keeps the interpreter while others wait, such as the event loop."""


def tune_interpreter() -> None:
    """Set what suits a process that only consolidates; a program of others is left as it is."""
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)


def user_stores_of(
    settings: Settings, clock: Clock, *, misspelled: Callable[[Misspelling], None] = log_misspelling
) -> UserStores:
    """Return the memory stores of all users of a configuration, not yet opened."""
    if settings.store is None:
        return UserStores(lambda _: 0, lambda _: memory_of(settings, clock, misspelled=misspelled))
    from slumberd.daemon import postgres_stores

    return UserStores(
        partial(postgres_stores.shard_of_puts, settings),
        lambda shard: memory_of(settings.of_shard(shard), clock, misspelled=misspelled),
    )


def copies_of(settings: Settings) -> StoreCopies:
    """Return what copies the stores of a configuration into files.

    Raises:
        UnsupportedByStoreError: They are a host's own.
    """
    refuse_host_store(settings)
    if settings.store is not None:
        from slumberd.daemon import postgres_stores

        return postgres_stores.copies_of(settings)
    return SQLiteCopies({"memory": settings.memory_path, "facts": settings.facts_path})


@asynccontextmanager
async def open_stores(settings: Settings, clock: Clock, facts_path: Path) -> AsyncIterator[Stores]:
    """Open the stores of a configuration, create missing ones, and close them at the end.

    Args:
        facts_path: The database of facts.

    Raises:
        ConfigurationError: The ledger key cannot be read.
        LedgerKeyError: The key is not the ledger's.
        SchemaError: A file has an unknown schema; nothing is changed.
    """
    fact_store = facts_of(settings, clock, facts_path, key=key_of(settings))
    former = await asyncio.to_thread(_find_schemas, settings, facts_path)
    async with memory_of(settings, clock) as memory, fact_store as facts:
        await memory.bootstrap()
        await facts.bootstrap()
        for store, number in former.items():
            if 0 < number < SCHEMAS[store].newest:
                newest = SCHEMAS[store].newest
                _log.info("schema.upgraded", store=store, former=number, schema=newest)
        yield Stores(memory, facts)


def older_schemas(settings: Settings) -> dict[StoreName, tuple[int, int]]:
    """Return the number of the schema and the newest one, of each file that is older.

    Raises:
        UnsupportedByStoreError: The stores are a host's own.
        SchemaError: A file has an unknown schema, or tables that do not fit its number.
    """
    refuse_host_store(settings)
    return {
        store: (number, SCHEMAS[store].newest)
        for store, number in _find_schemas(settings, settings.facts_path).items()
        if 0 < number < SCHEMAS[store].newest
    }


def _find_schemas(settings: Settings, facts_path: Path) -> Mapping[StoreName, int]:
    """Return the numbers of the schemas of both files, before either is changed."""
    if settings.store is not None:
        return {}
    return find_numbers({"memory": settings.memory_path, "facts": facts_path})


def backed_up_files(settings: Settings) -> dict[str, Path]:
    """Return the files of a state directory that a backup holds, by kind."""
    return {
        "memory": settings.memory_path,
        "facts": settings.facts_path,
        "paused": settings.state_dir / PAUSED_FILE,
    }


def tenure_of(
    settings: Settings, clock: Clock, *, is_daemon: bool = False, name: str | None = None
) -> Tenure:
    """Return the right to write the state of a configuration, not yet taken.

    Args:
        is_daemon: Whether a daemon takes it, which answers the requests of commands.
        name: The name of a process that holds several shards of a database; else None.
    """
    if settings.store is not None:
        from slumberd.daemon import postgres_stores

        return postgres_stores.tenure_of(settings, clock, is_daemon=is_daemon, name=name)
    return DirectoryTenure(settings.state_dir, backed_up_files(settings))


def moves_of(settings: Settings, stores: Stores) -> Moves | None:
    """Return what moves users out of the shard of this process; None for files."""
    if settings.store is None:
        return None
    from slumberd.daemon import postgres_stores

    return postgres_stores.moves_of(settings, stores.facts)


@asynccontextmanager
async def open_for_writing(settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    """Take the right to write, open the stores, and begin a new epoch.

    Raises:
        UnsupportedByStoreError: The stores are a host's own.
        StateDirectoryLockedError: A daemon runs on the directory.
        DatabaseHeldError: A daemon holds the database.
        StoreError: A database is on a network file system.
    """
    refuse_host_store(settings)
    refuse_network_of(settings)
    async with (
        tenure_of(settings, clock) as tenure,
        open_under(tenure, settings, clock) as stores,
    ):
        yield stores


def refuse_network_of(settings: Settings) -> None:
    """Refuse stores in files on a network file system.

    Raises:
        StoreError: A database is on a network file system.
    """
    if settings.store is None:
        for path in (settings.memory_path, settings.facts_path):
            refuse_network(path.parent)


@asynccontextmanager
async def open_under(tenure: Tenure, settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    """Open the stores and begin a new epoch, under a right to write that is taken already."""
    async with open_stores(settings, clock, settings.facts_path) as stores:
        await tenure.fence(stores.facts.transactions)
        await adopt(stores.facts, clock)
        if settings.logging.scope == "hashed":
            stores = replace(stores, scope_key=await stores.facts.transactions.scope_key())
        yield stores


async def adopt(facts: EngineFactStore, clock: Clock) -> None:
    """Record external changes of the facts, and resolve them under the newest law.

    A first start logs how many facts it finds, and what a new law changes.
    """
    is_first = not await facts.reads.ledger_rows()
    kinds = [record.kind for record in await facts.ledger.notice_external()]
    found = sum(kind != "firing" for kind in kinds)
    if is_first and found:
        unreadable = kinds.count("quarantine")
        _log.info("facts.adopted", found=found, unreadable=unreadable)
    changed = await facts.ledger.adopt_law(at=clock.now())
    if changed is not None:
        deltas = [record for record in changed.records if record.kind != "firing"]
        gone = sum(record.kind == "delete" for record in deltas)
        appeared = len(deltas) - gone
        firing_id = changed.firing_id
        _log.info("law.changed", firing_id=firing_id, appeared=appeared, gone=gone)


@asynccontextmanager
async def open_for_dry_run(settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    """Lock the state directory and open the stores for a dry run.

    Raises:
        NoInputError: There are no episodes yet.
        StateDirectoryLockedError: A daemon runs on the state directory.
    """
    episodes, facts = inspections_of(settings)
    if not episodes.exists():
        remedy = "there are no episodes yet; `slumberd import` puts some"
        raise NoInputError(episodes.where, remedy)
    if settings.store is not None:  # a transaction that is rolled back needs no lock of its own
        async with open_stores(settings, clock, settings.facts_path) as stores:
            yield stores
        return
    async with tenure_of(settings, clock):
        with TemporaryDirectory(prefix="slumberd-") as spare:
            path = settings.facts_path if facts.exists() else Path(spare, "facts.db")
            async with open_stores(settings, clock, path) as stores:
                yield stores


def graph_of(settings: Settings) -> GraphStore:
    """Return the graph of a configuration, read-only and not yet opened.

    Raises:
        UsageError: The configuration names no graph.
    """
    if settings.graph_path is None:
        raise UsageError("there is no graph to promote; set 'graph.path' in the configuration")
    return LadybugGraphStore(settings.graph_path, read_only=True)


def rule_runner_of(settings: Settings, stores: Stores, log: Logs, clock: Clock) -> RuleRunner:
    """Return the rule runner of open stores."""
    consolidator = Consolidator(
        stores.memory,
        stores.facts,
        log.keyed(stores.scope_key),
        clock,
        batch=settings.facts.batch,
        limits=limits_of(settings),
    )
    consolidator.future_tolerance_seconds = settings.memory.future_tolerance
    promoter = Promoter(partial(graph_of, settings), stores.facts, consolidator, clock)
    return RuleRunner(stores, consolidator, promoter)


def limits_of(settings: Settings) -> Limits:
    """Return the limits of rules without their own."""
    return Limits(settings.limits.max_deletes, settings.limits.max_delete_fraction)


def retention_of(settings: Settings, rules: Callable[[], RuleSet]) -> Retention | None:
    """Return how long archived episodes are kept; None means for ever.

    Args:
        rules: Returns the rules in force; all enabled ones must have read an episode before.
    """
    seconds = settings.retention.purge_archived_after
    if seconds is None:
        return None
    return Retention(
        seconds, lambda: _readers(rules()), partial(remove_indexes_of, settings.state_dir)
    )


def _readers(rules: RuleSet) -> list[str]:
    return [rule.id for rule in rules.rules if rule.enabled and rule.reads_episodes]


@asynccontextmanager
async def provenance_sink(settings: Settings) -> AsyncIterator[ProvenanceSink | None]:
    """Open the provenance sink of a configuration, None without one, and close it at the end.

    Raises:
        ExtraMissingError: The sink is an engine, and the extra ``fathom`` is not installed.
        ConfigurationError: The engine's rules cannot be loaded.
    """
    sink = _sink_of(settings)
    try:
        yield sink
    finally:
        if sink is not None:
            await sink.close()


def _sink_of(settings: Settings) -> FileSink | FathomSink | None:
    wanted = settings.provenance
    if wanted.sink is None:
        return None
    if wanted.sink == "file":
        return FileSink(settings.provenance_path)
    templates = {EVIDENCE: EVIDENCE_SLOTS, wanted.template: SLOTS}
    return FathomSink(open_engine(settings.pack_path, templates), run_rules=True)


def publisher_of(
    settings: Settings, stores: Stores, sink: ProvenanceSink | None, clock: Clock
) -> ProvenancePublisher | None:
    """Return the publisher of provenance; None without a sink."""
    wanted = settings.provenance
    if sink is None or wanted.sink is None:
        return None
    policy = DeliveryPolicy(
        wanted.sink,
        wanted.template,
        wanted.timeout_seconds,
        wanted.retry_seconds,
        starts_empty=wanted.sink == "fathom",
    )
    return ProvenancePublisher(stores.facts.promotion_feed, sink, clock, policy)
