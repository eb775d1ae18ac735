"""The back ends of the tiered memory API: each test of the contract runs on every one."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from slumberd import SQLiteFactStore, SQLiteMemoryStore
from slumberd.integrations.tiers.backends.cache import open_cache
from slumberd.tiers import (
    CacheMemoryBackend,
    DatabaseMemoryBackend,
    DurableFactStore,
    InMemoryMemoryBackend,
    OwnedStoreProtocol,
    VectorMemoryBackend,
)
from tests.support.fakes import FakeClock
from tests.support.redis_server import PROGRAM, running_redis
from tests.support.word_vectors import embed_words

NAMES = ("in_memory", "database", "cache", "vector")


class Backends:
    """Opens back ends on one store, and closes them at the end of the test."""

    def __init__(self, name: str, folder: Path, redis: str, stack: AsyncExitStack) -> None:
        self.name = name
        self.clock = FakeClock()
        self._path = folder / "memory.db"
        self._redis = redis
        self._namespace = uuid.uuid4().hex
        self._stack = stack

    async def open(self, *, ttl_seconds: float = 0) -> OwnedStoreProtocol:
        """Return a back end of the store; those in the process begin empty."""
        match self.name:
            case "in_memory":
                return InMemoryMemoryBackend(ttl_seconds=ttl_seconds, clock=self.clock)
            case "vector":
                kept = InMemoryMemoryBackend(ttl_seconds=ttl_seconds, clock=self.clock)
                return VectorMemoryBackend(kept, embed_words, clock=self.clock)
            case "database":
                store = await self._stack.enter_async_context(SQLiteMemoryStore(self._path))
                return DatabaseMemoryBackend(store, ttl_seconds=ttl_seconds, clock=self.clock)
            case _:
                client = await self._stack.enter_async_context(open_cache(self._redis))
                return CacheMemoryBackend(
                    client, ttl_seconds, namespace=self._namespace, clock=self.clock
                )


@pytest.fixture(scope="session")
def redis_address() -> Iterator[str]:
    """Return the address of a Redis server; skip the test when there is no such program."""
    if PROGRAM is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    pytest.importorskip("redis", reason="the extra redis is not installed")
    with running_redis() as address:
        yield address


@asynccontextmanager
async def _opened(name: str, folder: Path, redis: str) -> AsyncIterator[Backends]:
    async with AsyncExitStack() as stack:
        yield Backends(name, folder, redis, stack)


@pytest.fixture(params=NAMES)
async def backends(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backends]:
    """Return what opens back ends of one kind."""
    redis = request.getfixturevalue("redis_address") if request.param == "cache" else ""
    async with _opened(request.param, tmp_path, redis) as found:
        yield found


@pytest.fixture(params=["database", "cache"])
async def shared_backends(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Backends]:
    """Return what opens back ends of one kind whose entries are outside of the process."""
    redis = request.getfixturevalue("redis_address") if request.param == "cache" else ""
    async with _opened(request.param, tmp_path, redis) as found:
        yield found


@pytest.fixture
async def backend(backends: Backends) -> OwnedStoreProtocol:
    """Return an empty back end without an expiry."""
    return await backends.open()


@pytest.fixture
def clock() -> FakeClock:
    """Return a stopped clock."""
    return FakeClock()


@pytest.fixture
def in_memory(clock: FakeClock) -> InMemoryMemoryBackend:
    """Return an empty back end in the process."""
    return InMemoryMemoryBackend(clock=clock)


@pytest.fixture
async def fact_file(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SQLiteFactStore]:
    """Return slumberd's own store of facts."""
    async with SQLiteFactStore(tmp_path / "facts.db", clock=clock) as found:
        yield found


@pytest.fixture
def facts(fact_file: SQLiteFactStore, clock: FakeClock) -> DurableFactStore:
    """Return the facts of the tiers in that store."""
    return DurableFactStore(fact_file, clock=clock)
