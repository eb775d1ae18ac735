"""The engines that the contract suites run on. Another engine joins by an entry in `ENGINES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

import pytest

from slumberd.clock import Clock
from slumberd.storage.engine import EpisodeEngine, FactEngine
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.sqlite.connection import Pragmas
from slumberd.storage.sqlite.engine import SQLiteEpisodeEngine, SQLiteFactEngine
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore


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


ENGINES: Mapping[str, Callable[[Path], AbstractContextManager[Provider]]] = {
    "sqlite": lambda folder: nullcontext(SQLiteProvider(folder)),
}
"""By the name of an engine, how a test gets new and empty stores of it."""


@pytest.fixture(params=ENGINES)
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """Provide new and empty stores of each engine in turn."""
    with ENGINES[request.param](tmp_path) as opened:
        yield opened
