"""The composition root: which implementations, and how they are joined."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from slumberd import cron
from slumberd.branches import Branch, Branches
from slumberd.consolidator import Consolidator, Part
from slumberd.core.brake import Limits
from slumberd.credentials import read_key
from slumberd.errors import NoInputError
from slumberd.lock import StateLock, refuse_network
from slumberd.ports import Clock, Logs
from slumberd.rulebook import RuleSet, load_rules
from slumberd.settings import Settings
from slumberd.stores.facts import SQLiteFactStore
from slumberd.stores.filters import checking_filters
from slumberd.stores.memory import SQLiteMemoryStore
from slumberd.vectors import WordEmbedder

SWITCH_SECONDS = 0.001
"""How long a thread keeps the interpreter from others: the event loop, and a batch that is written
while the next window is read."""


def rules_of(settings: Settings) -> RuleSet:
    """Load the rules that a configuration names.

    Raises:
        ConfigurationError: With every mistake of every rule file.
    """
    return rules_in(settings.rules_dir, settings.timezone)


def rules_in(directory: Path, timezone: str) -> RuleSet:
    """Load the rules of a directory.

    Args:
        directory: Of rule files.
        timezone: Of cron rules that name none.

    Raises:
        ConfigurationError: With every mistake of every rule file.
    """
    with checking_filters() as check:
        return load_rules(
            directory,
            check_filter=check,
            check_cron=cron.check,
            timezone=timezone,
        )


def key_of(settings: Settings) -> bytes | None:
    """Return the key that a configuration gives the ledger, if any.

    Raises:
        ConfigurationError: Its file cannot be read, or others can read it.
    """
    file = settings.facts.key_file
    return None if file is None else read_key(file, credentials=settings.credentials_dir)


def memory_of(settings: Settings, clock: Clock, *, traceless: bool = False) -> SQLiteMemoryStore:
    """Return the episodes of a configuration; nothing is opened yet."""
    return SQLiteMemoryStore(
        settings.memory_path,
        synchronous=settings.memory.synchronous,
        scope_mismatch=settings.memory.scope_mismatch,
        clock=clock,
        traceless=traceless,
    )


def facts_of(
    settings: Settings,
    clock: Clock,
    path: Path,
    *,
    key: bytes | None = None,
    traceless: bool = False,
) -> SQLiteFactStore:
    """Return one fact store of a configuration; nothing is opened yet.

    Args:
        settings: The configuration.
        clock: The time.
        path: Of the database.
        key: Of the ledger; whoever only looks at rows and facts needs none.
        traceless: Whether reads leave nothing beside a file that nobody has open.
    """
    depth = settings.facts.lineage_depth
    return SQLiteFactStore(
        path,
        lineage_depth=depth,
        clock=clock,
        key=key,
        traceless=traceless,
        embedder=WordEmbedder,
    )


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a state directory: episodes, and facts by name."""

    memory: SQLiteMemoryStore
    facts: Mapping[str, SQLiteFactStore]


@asynccontextmanager
async def opened(
    settings: Settings, clock: Clock, paths: Mapping[str, Path]
) -> AsyncIterator[Stores]:
    """Open the stores of a configuration, created if need be, and close them after.

    Args:
        settings: The configuration.
        clock: The time.
        paths: Of the fact stores, by name.

    Raises:
        ConfigurationError: The key of the ledger cannot be read.
        LedgerKeyError: It is not the ledger's.
    """
    key = key_of(settings)
    facts = {name: facts_of(settings, clock, path, key=key) for name, path in paths.items()}
    async with AsyncExitStack() as closing:
        memory = await closing.enter_async_context(memory_of(settings, clock))
        await memory.bootstrap()
        for store in facts.values():
            closing.push_async_callback(store.close)
            await store.bootstrap()
        yield Stores(memory, facts)


@asynccontextmanager
async def writing(settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    """Open the stores as their only slumberd: the directory is locked, the epoch is ours.

    Raises:
        StateDirectoryLockedError: A daemon runs on the directory.
        StoreError: A database is on a network file system.
    """
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)
    for path in (settings.memory_path, *settings.facts_paths.values()):
        refuse_network(path.parent)
    with StateLock(settings.state_dir):
        async with opened(settings, clock, settings.facts_paths) as stores:
            for facts in stores.facts.values():
                await facts.take_over()
                await facts.notice_external()
            yield stores


@asynccontextmanager
async def rehearsing(settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    """Open the stores as their only slumberd, for what writes nothing.

    Raises:
        NoInputError: There are no episodes yet.
        StateDirectoryLockedError: A daemon runs on the state directory.
    """
    if not settings.memory_path.exists():
        remedy = "there are no episodes yet; `slumberd import` puts some"
        raise NoInputError(settings.memory_path, remedy)
    with StateLock(settings.state_dir), TemporaryDirectory(prefix="slumberd-") as spare:
        paths = {
            name: path if path.exists() else Path(spare) / f"{number}.db"
            for number, (name, path) in enumerate(settings.facts_paths.items())
        }
        async with opened(settings, clock, paths) as stores:
            yield stores


def branches_of(
    settings: Settings, stores: Stores, log: Logs, clock: Clock, rules: Callable[[], RuleSet]
) -> Branches:
    """Join the episodes with each fact store."""

    def branch(name: str, facts: SQLiteFactStore) -> Branch:
        part = Part(name, lambda channel: settings.store_of(channel) == name)
        consolidator = Consolidator(
            stores.memory,
            facts,
            log.of(name),
            clock,
            batch=settings.facts.batch,
            limits=limits_of(settings),
            part=part,
            embedding=WordEmbedder,
        )
        return Branch(part, facts, consolidator)

    return Branches([branch(name, facts) for name, facts in stores.facts.items()], rules)


def limits_of(settings: Settings) -> Limits:
    """Return the limits of rules that have none of their own."""
    return Limits(settings.limits.max_deletes, settings.limits.max_delete_fraction)
