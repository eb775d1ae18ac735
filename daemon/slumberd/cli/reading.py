"""Open what is there for reading: a command that only looks creates nothing and changes nothing."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from slumberd.clock import SystemClock
from slumberd.errors import NoInputError, SchemaError
from slumberd.service import COLLECT_EVERY, key_of, stores_of
from slumberd.settings import Settings
from slumberd.stores import episode_log
from slumberd.stores.facts import SQLiteFactStore
from slumberd.stores.inspection import has_table
from slumberd.stores.memory import SQLiteMemoryStore
from slumberd.stores.sqlite import Pragmas, connect, translated

_PRAGMAS = Pragmas()


@asynccontextmanager
async def auditing(settings: Settings) -> AsyncIterator[SQLiteFactStore]:
    """Open the facts that are there with the key of their ledger, for passes over all of it.

    Raises:
        ConfigurationError: The key cannot be read.
        NoInputError: There is no database of facts yet.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)
    async with reading_facts(settings, key=key_of(settings)) as facts:
        yield facts


@asynccontextmanager
async def reading_facts(
    settings: Settings, *, key: bytes | None = None
) -> AsyncIterator[SQLiteFactStore]:
    """Open the facts that are there.

    Raises:
        NoInputError: There is no database of facts yet.
    """
    if not settings.facts_path.exists():
        remedy = "no rule has fired yet; `slumberd run` or `slumberd fire --all` does it"
        raise NoInputError(settings.facts_path, remedy)
    async with stores_of(settings, SystemClock(), key=key).facts as facts:
        yield facts


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
    memory = stores_of(settings, SystemClock()).memory
    try:
        yield memory
    finally:
        await memory.close()


def has_episode_log(path: Path) -> bool:
    """Say whether episodes can be read without installing anything."""
    if not path.exists():
        return False
    with translated(path, _PRAGMAS), closing(connect(path, _PRAGMAS, access="read")) as connection:
        return episode_log.installed(connection)


def has_ledger(path: Path) -> bool:
    """Say whether a database of facts is there and ours."""
    if not path.exists():
        return False
    with translated(path, _PRAGMAS), closing(connect(path, _PRAGMAS, access="read")) as connection:
        return has_table(connection, "slumberd_ledger")
