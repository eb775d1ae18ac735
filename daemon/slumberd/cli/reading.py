"""Open what is there for reading: a command that only looks creates nothing and changes nothing."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.errors import NoInputError, SchemaError
from slumberd.model.rule import FACTS
from slumberd.service.composition import facts_of, key_of, memory_of
from slumberd.storage.audit.recovery import logs_episodes, look
from slumberd.storage.episodes.store import SQLiteMemoryStore
from slumberd.storage.facts.store import SQLiteFactStore
from slumberd.storage.sqlite.health import has_table


@asynccontextmanager
async def auditing(settings: Settings, store: str) -> AsyncIterator[SQLiteFactStore]:
    """Open the fact store of a name with the key of its ledger, for passes over all of it.

    Raises:
        ConfigurationError: The key cannot be read.
        NoInputError: There is no such database yet.
    """
    # What is held is let go of page by page, and holds nothing of itself: there is nothing to find.
    collected = gc.isenabled()
    gc.disable()
    try:
        async with _there(settings, store, key=key_of(settings)) as facts:
            yield facts
    finally:
        if collected:
            gc.enable()


@asynccontextmanager
async def reading_facts(settings: Settings, channel: str | None) -> AsyncIterator[SQLiteFactStore]:
    """Open the fact store of a channel; None is the one of all that have none of their own.

    Raises:
        NoInputError: There is no such database yet.
    """
    async with _there(settings, settings.store_of(channel or FACTS)) as facts:
        yield facts


@asynccontextmanager
async def _there(
    settings: Settings, store: str, *, key: bytes | None = None
) -> AsyncIterator[SQLiteFactStore]:
    path = settings.facts_paths[store]
    if not path.exists():
        remedy = "no rule has fired yet; `slumberd run` or `slumberd fire --all` does it"
        raise NoInputError(path, remedy)
    async with facts_of(settings, SystemClock(), path, key=key, traceless=True) as facts:
        yield facts


@asynccontextmanager
async def reading_store(settings: Settings, name: str) -> AsyncIterator[SQLiteFactStore | None]:
    """Open the fact store of a name; None when no slumberd has made it yet."""
    path = settings.facts_paths[name]
    if not has_ledger(path):
        yield None
        return
    async with facts_of(settings, SystemClock(), path, traceless=True) as facts:
        yield facts


@asynccontextmanager
async def reading_all_facts(settings: Settings) -> AsyncIterator[dict[str, SQLiteFactStore]]:
    """Open every fact store that is there, by name; the first must be.

    Raises:
        NoInputError: It is not.
    """
    first, *others = settings.facts_paths
    async with AsyncExitStack() as closing:
        stores = {first: await closing.enter_async_context(_there(settings, first))}
        for name in others:
            facts = await closing.enter_async_context(reading_store(settings, name))
            if facts is not None:
                stores[name] = facts
        yield stores


@asynccontextmanager
async def reading_memory(settings: Settings) -> AsyncIterator[SQLiteMemoryStore]:
    """Open the episodes that are there.

    Raises:
        NoInputError: There is no database of episodes yet.
        SchemaError: No slumberd has been here to index it.
    """
    if not settings.memory_path.exists():
        remedy = "there are no episodes yet; `slumberd import` puts some"
        raise NoInputError(settings.memory_path, remedy)
    if not has_episode_log(settings.memory_path):
        problem = "has no episode log yet; `slumberd run` or `slumberd fire --all` installs it"
        raise SchemaError(settings.memory_path, problem)
    memory = memory_of(settings, SystemClock(), traceless=True)
    try:
        yield memory
    finally:
        await memory.close()


def has_episode_log(path: Path) -> bool:
    """Say whether episodes can be read without installing anything."""
    return path.exists() and look(path, logs_episodes)


def has_ledger(path: Path) -> bool:
    """Say whether a database of facts is there and ours."""
    return path.exists() and look(path, partial(has_table, name="slumberd_ledger"))
