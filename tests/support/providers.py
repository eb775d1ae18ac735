"""The engines that the contract suites run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from slumberd.clock import Clock
from slumberd.storage.engine import EpisodeEngine, FactEngine
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.postgres.engine import PostgresEpisodeEngine, PostgresFactEngine
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.sqlite.connection import Pragmas
from slumberd.storage.sqlite.engine import SQLiteEpisodeEngine, SQLiteFactEngine
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.postgres_server import PostgresServer


class Provider(Protocol):
    """Opens one store of episodes and one store of facts; each call opens the same two again."""

    def memory(self, *, clock: Clock | None = None) -> EngineMemoryStore:
        """Return a store of the episodes."""
        ...

    def facts(self, *, clock: Clock | None = None) -> EngineFactStore:
        """Return a store of the facts."""
        ...

    def episode_engine(self) -> EpisodeEngine:
        """Return an engine of the episodes."""
        ...

    def fact_engine(self, *, key: bytes | None = None) -> FactEngine:
        """Return an engine of the facts."""
        ...


class SQLiteProvider:
    """Two files in a folder.

    Args:
        folder: Where they are; they need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._episodes = folder / "memory.db"
        self._facts = folder / "facts.db"

    def memory(self, *, clock: Clock | None = None) -> EngineMemoryStore:
        return SQLiteMemoryStore(self._episodes, clock=clock)

    def facts(self, *, clock: Clock | None = None) -> EngineFactStore:
        return SQLiteFactStore(self._facts, synchronous="normal", clock=clock)

    def episode_engine(self) -> EpisodeEngine:
        return SQLiteEpisodeEngine(self._episodes, Pragmas("normal"))

    def fact_engine(self, *, key: bytes | None = None) -> FactEngine:
        return SQLiteFactEngine(self._facts, Pragmas("normal"), key=key)


class PostgresProvider:
    """One shard of a database.

    Args:
        address: The address of the database.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def memory(self, *, clock: Clock | None = None) -> EngineMemoryStore:
        return PostgresMemoryStore(self._address, clock=clock)

    def facts(self, *, clock: Clock | None = None) -> EngineFactStore:
        return PostgresFactStore(self._address, clock=clock)

    def episode_engine(self) -> EpisodeEngine:
        return PostgresEpisodeEngine(self._address)

    def fact_engine(self, *, key: bytes | None = None) -> FactEngine:
        return PostgresFactEngine(self._address, key=key)


ENGINES = ("sqlite", "postgres")
"""The names of the engines."""


@contextmanager
def new_stores(engine: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Provider]:
    """Yield new and empty stores of an engine; they end with the block.

    Args:
        engine: One of `ENGINES`.
        request: Of the test.
        folder: For the files of the stores.
    """
    if engine == "sqlite":
        yield SQLiteProvider(folder)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as name:
        yield PostgresProvider(server.address_of(name))


@pytest.fixture(params=ENGINES)
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """Provide new and empty stores of each engine in turn."""
    with new_stores(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=ENGINES)
def missing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """Provide stores of each engine in turn that do not exist."""
    if request.param == "sqlite":
        yield SQLiteProvider(tmp_path)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.empty_database() as name:
        yield PostgresProvider(server.address_of(name))
