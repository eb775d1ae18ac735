"""The engines that the contract suites run on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pytest

from slumberd.clock import Clock
from slumberd.file_modes import make_directory
from slumberd.model.episode import PERSON
from slumberd.search.vectors import TextComparer
from slumberd.storage.engine import EpisodeEngine, FactEngine
from slumberd.storage.episodes.salience_gate import Embedding, no_embedder
from slumberd.storage.facts.apply import BACKLOG_ROWS, LINEAGE_DEPTH
from slumberd.storage.postgres.engine import PostgresEpisodeEngine, PostgresFactEngine
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.sqlite.engine import CheckpointPolicy, SQLiteEpisodeEngine, SQLiteFactEngine
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.storage.sqlite.session import BUSY_SECONDS, Pragmas, Synchronous
from tests.support.postgres_server import PostgresServer

AnyMemoryStore = SQLiteMemoryStore | PostgresMemoryStore
"""A store of episodes of any engine."""

AnyFactStore = SQLiteFactStore | PostgresFactStore
"""A store of facts of any engine."""


def path_of(store: AnyMemoryStore | AnyFactStore) -> Path:
    """Return the file of a store that has one."""
    assert isinstance(store, SQLiteMemoryStore | SQLiteFactStore)
    return store.path


class Provider(Protocol):
    """Opens one store of episodes and one store of facts; each call opens the same two again."""

    def memory(
        self,
        *,
        clock: Clock | None = None,
        embedding: Embedding = no_embedder,
        person: Collection[str] = PERSON,
        future_tolerance_seconds: float = math.inf,
    ) -> AnyMemoryStore:
        """Return a store of the episodes; by default no instant of an episode is still to come."""
        ...

    def facts(
        self,
        *,
        clock: Clock | None = None,
        lineage_depth: int = LINEAGE_DEPTH,
        comparer: Callable[[], TextComparer] | None = None,
        backlog_rows: int = BACKLOG_ROWS,
    ) -> AnyFactStore:
        """Return a store of the facts."""
        ...

    def episode_engine(self) -> EpisodeEngine:
        """Return an engine of the episodes."""
        ...

    def fact_engine(self, *, key: bytes | None = None) -> FactEngine:
        """Return an engine of the facts."""
        ...


EPISODES_FILE = "memory.db"
FACTS_FILE = "facts.db"


@cache
def empty_files() -> dict[str, bytes]:
    """Return the bytes of two new files by their names, as the stores make them.

    Each process of the tests makes them once. They hold nothing that a store draws at random: it
    draws the keys of scopes and erasures, its epoch and its salts later, when it needs each.
    """

    async def make(folder: Path) -> None:
        files = SQLiteProvider(folder)
        async with files.memory() as memory, files.facts() as facts:
            await memory.bootstrap()
            await facts.bootstrap()

    with TemporaryDirectory() as name, ThreadPoolExecutor(1) as thread:
        folder = Path(name)
        thread.submit(asyncio.run, make(folder)).result()  # a loop may run in this thread
        return {file: (folder / file).read_bytes() for file in (EPISODES_FILE, FACTS_FILE)}


def copy_empty_files(folder: Path) -> None:
    """Put a copy of the two new files into a folder, beside those that it has already.

    This takes a tenth of the time in which the stores make them.
    """
    make_directory(folder)
    for name, content in empty_files().items():
        file = folder / name
        if not file.exists():
            file.touch(mode=0o600)
            file.write_bytes(content)


class SQLiteProvider:
    """Two files in a folder.

    Args:
        folder: Where they are; they need not exist.
        busy_seconds: How long a transaction of the episodes waits for another.
        checkpoints: When the facts are written from their log into their file.
        synchronous: What a commit survives. A test can end a process, but not cut the power.
    """

    def __init__(
        self,
        folder: Path,
        *,
        busy_seconds: float = BUSY_SECONDS,
        checkpoints: CheckpointPolicy = CheckpointPolicy(),  # noqa: B008 # immutable
        synchronous: Synchronous = "off",
    ) -> None:
        self._episodes = folder / EPISODES_FILE
        self._facts = folder / FACTS_FILE
        self._busy_seconds = busy_seconds
        self._checkpoints = checkpoints
        self._synchronous: Synchronous = synchronous

    def memory(
        self,
        *,
        clock: Clock | None = None,
        embedding: Embedding = no_embedder,
        person: Collection[str] = PERSON,
        future_tolerance_seconds: float = math.inf,
    ) -> SQLiteMemoryStore:
        return SQLiteMemoryStore(
            self._episodes,
            synchronous=self._synchronous,
            clock=clock,
            busy_seconds=self._busy_seconds,
            embedding=embedding,
            person=person,
            future_tolerance_seconds=future_tolerance_seconds,
        )

    def facts(
        self,
        *,
        clock: Clock | None = None,
        lineage_depth: int = LINEAGE_DEPTH,
        comparer: Callable[[], TextComparer] | None = None,
        backlog_rows: int = BACKLOG_ROWS,
    ) -> SQLiteFactStore:
        return SQLiteFactStore(
            self._facts,
            synchronous=self._synchronous,
            clock=clock,
            checkpoints=self._checkpoints,
            lineage_depth=lineage_depth,
            comparer=comparer,
            backlog_rows=backlog_rows,
        )

    def episode_engine(self) -> EpisodeEngine:
        return SQLiteEpisodeEngine(self._episodes, Pragmas(self._synchronous))

    def fact_engine(self, *, key: bytes | None = None) -> FactEngine:
        return SQLiteFactEngine(self._facts, Pragmas(self._synchronous), key=key)


class PostgresProvider:
    """One shard of a database.

    Args:
        address: The address of the database.
        shard: The shard.
    """

    def __init__(self, address: str, shard: int = 0) -> None:
        self._address = address
        self._shard = shard

    def memory(
        self,
        *,
        clock: Clock | None = None,
        embedding: Embedding = no_embedder,
        person: Collection[str] = PERSON,
        future_tolerance_seconds: float = math.inf,
    ) -> PostgresMemoryStore:
        return PostgresMemoryStore(
            self._address,
            shard=self._shard,
            clock=clock,
            embedding=embedding,
            person=person,
            future_tolerance_seconds=future_tolerance_seconds,
        )

    def facts(
        self,
        *,
        clock: Clock | None = None,
        lineage_depth: int = LINEAGE_DEPTH,
        comparer: Callable[[], TextComparer] | None = None,
        backlog_rows: int = BACKLOG_ROWS,
    ) -> PostgresFactStore:
        return PostgresFactStore(
            self._address,
            shard=self._shard,
            clock=clock,
            lineage_depth=lineage_depth,
            comparer=comparer,
            backlog_rows=backlog_rows,
        )

    def episode_engine(self) -> EpisodeEngine:
        return PostgresEpisodeEngine(Shard(self._shard, self._address))

    def fact_engine(self, *, key: bytes | None = None) -> FactEngine:
        return PostgresFactEngine(Shard(self._shard, self._address), key=key)


ON_FILES = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
"""Marks a test that reads or writes a file of its stores, or whose call is refused before them."""


NewStores = Callable[[], AbstractContextManager[Provider]]
"""Makes new and empty stores of one engine; they end with the block."""


def maker_of(engine: str, request: pytest.FixtureRequest) -> NewStores:
    """Return what makes new and empty stores of an engine.

    Args:
        engine: One of `tests.support.selection.ENGINES`.
        request: Of the test.
    """
    if engine == "sqlite":
        return new_files
    server: PostgresServer = request.getfixturevalue("postgres")
    return partial(_new_database, server)


@contextmanager
def new_files() -> Iterator[Provider]:
    """Yield new and empty stores in files; they end with the block."""
    with TemporaryDirectory() as folder:
        copy_empty_files(Path(folder))
        yield SQLiteProvider(Path(folder))


@contextmanager
def _new_database(server: PostgresServer) -> Iterator[Provider]:
    with server.database() as name:
        yield PostgresProvider(server.address_of(name))


@pytest.fixture
def new_stores(request: pytest.FixtureRequest) -> NewStores:
    """Provide what makes new and empty stores, of each engine in turn."""
    return maker_of(request.param, request)


@pytest.fixture
def new_databases(postgres: PostgresServer) -> NewStores:
    """Provide what makes new and empty stores in a database."""
    return partial(_new_database, postgres)


@pytest.fixture
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """Provide new and empty stores of each engine in turn."""
    if request.param == "sqlite":
        copy_empty_files(tmp_path)
        yield SQLiteProvider(tmp_path)
        return
    with maker_of(request.param, request)() as found:
        yield found


@pytest.fixture
def missing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """Provide stores of each engine in turn that do not exist."""
    if request.param == "sqlite":
        yield SQLiteProvider(tmp_path / "missing")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.empty_database() as name:
        yield PostgresProvider(server.address_of(name))
