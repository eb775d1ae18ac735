"""Build all tiers from one configuration, and run them; a disabled memory keeps nothing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from slumberd.clock import Clock
from slumberd.integrations.tiers.backends.cache import CacheMemoryBackend, open_cache
from slumberd.integrations.tiers.backends.database import DatabaseMemoryBackend
from slumberd.integrations.tiers.backends.in_memory import (
    DisabledFactStore,
    DisabledMemoryBackend,
    InMemoryMemoryBackend,
)
from slumberd.integrations.tiers.backends.vector import EmbedFn, VectorMemoryBackend, word_embed_fn
from slumberd.integrations.tiers.configs import MemoryConfig
from slumberd.integrations.tiers.consolidation import MemoryConsolidator
from slumberd.integrations.tiers.entries import (
    EpisodicMemoryProtocol,
    HealthCheckResult,
    MemoryConsolidatorProtocol,
    MemoryEntry,
    MemoryStoreProtocol,
    OwnedStoreProtocol,
    SemanticMemoryProtocol,
    Triple,
    WorkingMemoryProtocol,
    check_health,
)
from slumberd.integrations.tiers.episodic import EpisodicMemoryStore
from slumberd.integrations.tiers.errors import MemoryStoreError, MemorySystemError
from slumberd.integrations.tiers.events import Subscriber
from slumberd.integrations.tiers.extraction import EntityExtractor, ExtractFn, SummariseFn
from slumberd.integrations.tiers.facts import DurableFactStore, FactStore
from slumberd.integrations.tiers.scheduling import ConsolidationScheduler
from slumberd.integrations.tiers.search import MemoryRetriever, RelevanceRanker
from slumberd.integrations.tiers.semantic import (
    INGEST_CONFIDENCE,
    FactStoreProtocol,
    SemanticMemoryStore,
)
from slumberd.integrations.tiers.stores import owned_store
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.integrations.tiers.working import WorkingMemoryManager
from slumberd.search.context import TokenCounter
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore


@dataclass(frozen=True, kw_only=True)
class MemoryParts:
    """What a program may bring instead of the built-in parts.

    Attributes:
        backend: Keeps the entries, whatever ``default_backend`` says; the program closes it.
        embed_fn: Returns the vector of a text, for ``vector``; None takes the extra ``vectors``.
        summarise_fn: Returns one entry for several; None summarises none.
        extract_fn: Returns the triples of a text; None takes plain English sentences.
        token_counter: Counts tokens; None estimates them.
        on_event: Called with each write, each search and each strategy of a consolidation.
        clock: The time.
    """

    backend: MemoryStoreProtocol | None = None
    embed_fn: EmbedFn | None = None
    summarise_fn: SummariseFn | None = None
    extract_fn: ExtractFn | None = None
    token_counter: TokenCounter | None = None
    on_event: Subscriber | None = None
    clock: Clock = field(default=CLOCK)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """All tiers of one memory, on one store of entries and one of facts.

    Attributes:
        config: What they were built from.
        backend: Keeps the entries.
        episodic: Records and recalls entries.
        semantic: Keeps facts.
        working: Assembles the context of an answer.
        retriever: Searches the entries; more stores can be added.
        consolidator: Decides what a consolidation changes.
        scheduler: Consolidates at intervals.
    """

    config: MemoryConfig
    backend: OwnedStoreProtocol
    episodic: EpisodicMemoryStore
    semantic: SemanticMemoryStore
    working: WorkingMemoryManager
    retriever: MemoryRetriever
    consolidator: MemoryConsolidator
    scheduler: ConsolidationScheduler


class MemoryProvider:
    """Opens the stores of a memory, builds its tiers, and closes the stores at the end.

    Args:
        config: The configuration; None takes the defaults.
        enable_consolidation: Whether `boot` starts the scheduler, if the configuration does, too.
        parts: What the program brings.
    """

    def __init__(
        self,
        config: MemoryConfig | None = None,
        enable_consolidation: bool = True,  # specified
        *,
        parts: MemoryParts | None = None,
    ) -> None:
        self.config = config or MemoryConfig()
        self._consolidates = enable_consolidation
        self._parts = parts or MemoryParts()
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._memory: Memory | None = None
        self._facts: FactStoreProtocol = FactStore()
        self._put: Callable[[type, object], object] | None = None

    @property
    def memory(self) -> Memory:
        """The tiers.

        Raises:
            MemoryStoreError: The memory is not open.
        """
        if self._memory is None:
            raise MemoryStoreError(f"memory {self.config.name!r} is not open; call register first")
        return self._memory

    async def register(self, container: Any = None) -> Memory:  # noqa: ANN401 # any container
        """Open the stores and build the tiers; a second call returns the same ones.

        Args:
            container: Gets the store, the tiers and the consolidation, each under its protocol or
                class: a mapping, or an object with `singleton(key, value)` or
                `register(key, value)`, which may be async. None for no container.

        Raises:
            MemorySystemError: The container is of another kind.
        """
        put = None if container is None else _putting(container)
        async with self._opening:
            if self._memory is None:
                async with AsyncExitStack() as stack:
                    self._memory = self._build_on(
                        await self._open_backend(stack), await self._open_facts(stack)
                    )
                    self._stack = stack.pop_all()
            memory = self._memory
        if put is not None:
            self._put = put
            await self._register_in(put, memory)
        return memory

    async def _register_in(self, put: Callable[[type, object], object], memory: Memory) -> None:
        for key, value in (
            (MemoryStoreProtocol, memory.backend),
            (EpisodicMemoryProtocol, memory.episodic),
            (SemanticMemoryProtocol, memory.semantic),
            (WorkingMemoryProtocol, memory.working),
            (MemoryConsolidatorProtocol, memory.consolidator),
            (MemoryRetriever, memory.retriever),
            (ConsolidationScheduler, memory.scheduler),
        ):
            if inspect.isawaitable(registered := put(key, value)):
                await registered

    async def boot(self, container: Any = None) -> Memory:  # noqa: ANN401 # any container
        """Do what `register` does, and start the scheduler of consolidations.

        Args:
            container: If it has another `MemoryStoreProtocol` than `register` gave it, all tiers
                are built anew on that one: a mapping, or an object with `resolve(key)` or
                `get(key)`, which may be async. None for no container.

        Raises:
            MemorySystemError: The container is of another kind.
        """
        memory = await self.register()
        if container is not None:
            store = await _taken(container, MemoryStoreProtocol)
            known = memory.backend, getattr(memory.backend, "host", None)
            if store is not None and not any(store is one for one in known):
                await memory.scheduler.stop()
                memory = self._memory = self._build_on(owned_store(store), self._facts)
                await self._register_in(self._put or _putting(container), memory)
        if self._consolidates and self.config.enabled:
            await memory.scheduler.start()
        return memory

    async def shutdown(self) -> None:
        """Stop the scheduler and close the stores; nothing when the memory is not open."""
        memory, self._memory = self._memory, None
        if memory is not None:
            async with self._stack:
                await memory.scheduler.stop()

    async def __aenter__(self) -> Memory:
        return await self.boot()

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return the health of all tiers; degraded when one is, or when the memory is not open."""
        return await check_health(self.config.name, self._probe, timeout, self._parts.clock)

    async def _probe(self) -> Mapping[str, Any]:
        memory = self.memory
        found = await asyncio.gather(
            memory.episodic.health_check(),
            memory.semantic.health_check(),
            memory.consolidator.health_check(),
        )
        problems = [f"{part.component}: {part.error}" for part in found if not part.is_healthy()]
        if problems:
            raise MemoryStoreError("; ".join(problems))
        return {part.component: str(part.status) for part in found}

    def _build_on(self, backend: OwnedStoreProtocol, facts: FactStoreProtocol) -> Memory:
        config, parts = self.config, self._parts
        self._facts = facts
        episodic = EpisodicMemoryStore(
            backend, config.episodic, on_event=parts.on_event, clock=parts.clock
        )
        semantic = self._semantic(facts)
        working = WorkingMemoryManager(
            episodic,
            semantic,
            config.working,
            token_counter=parts.token_counter,
            on_event=parts.on_event,
            clock=parts.clock,
        )
        consolidator = self._consolidator()
        return Memory(
            config=config,
            backend=backend,
            episodic=episodic,
            semantic=semantic,
            working=working,
            retriever=MemoryRetriever([backend], RelevanceRanker(clock=parts.clock)),
            consolidator=consolidator,
            scheduler=self._scheduler(backend, consolidator, semantic),
        )

    def _semantic(self, facts: FactStoreProtocol) -> SemanticMemoryStore:
        return SemanticMemoryStore(
            facts,
            EntityExtractor(self._parts.extract_fn),
            self.config.semantic.min_confidence,
            self.config.semantic.max_facts_per_entity,
            on_event=self._parts.on_event,
            clock=self._parts.clock,
        )

    def _consolidator(self) -> MemoryConsolidator:
        return MemoryConsolidator(
            self.config.consolidation,
            self._parts.summarise_fn,
            extractor=EntityExtractor(self._parts.extract_fn),
            on_strategy=self._parts.on_event,
            clock=self._parts.clock,
        )

    def _scheduler(
        self,
        backend: MemoryStoreProtocol,
        consolidator: MemoryConsolidator,
        semantic: SemanticMemoryStore,
    ) -> ConsolidationScheduler:
        async def store_triple(triple: Triple, entry: MemoryEntry) -> None:
            # Each pass reads an old entry again: what was corrected since must stay.
            if not await semantic.knows(triple, owner_id=entry.owner_id):
                await semantic.store_fact(
                    *triple, INGEST_CONFIDENCE, owner_id=entry.owner_id, sources=[entry.id]
                )

        return ConsolidationScheduler(
            backend, consolidator, store_triple=store_triple, clock=self._parts.clock
        )

    async def _open_facts(self, stack: AsyncExitStack) -> FactStoreProtocol:
        if not self.config.enabled:
            return DisabledFactStore()
        if self.config.directory is None and self.config.default_backend == "in_memory":
            return FactStore()
        path = self._directory / "facts.db"
        store = await stack.enter_async_context(SQLiteFactStore(path, clock=self._parts.clock))
        return DurableFactStore(store, agent=self.config.agent, clock=self._parts.clock)

    @property
    def _directory(self) -> Path:
        return self.config.directory or Path("memory")

    async def _open_backend(self, stack: AsyncExitStack) -> OwnedStoreProtocol:
        config, clock = self.config, self._parts.clock
        if not config.enabled:
            return DisabledMemoryBackend()
        if self._parts.backend is not None:
            return owned_store(self._parts.backend)
        match config.default_backend:
            case "in_memory":
                return InMemoryMemoryBackend(
                    ttl_seconds=config.ttl_seconds,
                    max_entries=config.max_entries,
                    language=config.language,
                    clock=clock,
                )
            case "cache":
                client = await stack.enter_async_context(open_cache(config.cache_url))
                return CacheMemoryBackend(
                    client,
                    config.ttl_seconds,
                    namespace=config.agent,
                    language=config.language,
                    clock=clock,
                )
            case "database":
                return await self._open_database(stack)
            case "vector":
                embed_fn = self._parts.embed_fn or word_embed_fn()
                return VectorMemoryBackend(await self._open_database(stack), embed_fn, clock=clock)

    async def _open_database(self, stack: AsyncExitStack) -> DatabaseMemoryBackend:
        config, clock = self.config, self._parts.clock
        path = self._directory / "memory.db"
        store = await stack.enter_async_context(SQLiteMemoryStore(path, clock=clock))
        return DatabaseMemoryBackend(
            store,
            agent=config.agent,
            ttl_seconds=config.ttl_seconds,
            language=config.language,
            clock=clock,
        )


def _putting(container: Any) -> Callable[[type, object], object]:  # noqa: ANN401 # of a host
    """Return what puts a value into a container under a type.

    Raises:
        MemorySystemError: The container is of an unknown kind.
    """
    for name in ("singleton", "register", "__setitem__"):
        if callable(method := getattr(container, name, None)):
            return cast("Callable[[type, object], object]", method)
    kind = type(container).__name__
    raise MemorySystemError(
        f"container {kind!r} is no mapping and has no method singleton or register;"
        " call register() without it, and give it the parts of the memory that it returns"
    )


async def _taken(container: Any, key: type) -> Any:  # noqa: ANN401 # of a host
    """Return what a container has under a type.

    Raises:
        MemorySystemError: The container is of an unknown kind.
    """
    for name in ("resolve", "get"):
        if callable(method := getattr(container, name, None)):
            found = method(key)
            return await found if inspect.isawaitable(found) else found
    kind = type(container).__name__
    raise MemorySystemError(f"container {kind!r} is no mapping and has no method resolve or get")


class MemoryModule:
    """Makes memories, for use and for tests."""

    @classmethod
    def configure(
        cls,
        config: MemoryConfig | None = None,
        enable_consolidation: bool = True,  # specified
        *,
        parts: MemoryParts | None = None,
    ) -> MemoryProvider:
        """Return a memory that `async with` opens.

        Args:
            config: The configuration; None takes the defaults.
            enable_consolidation: Whether it consolidates at intervals.
            parts: What the program brings.
        """
        return MemoryProvider(config, enable_consolidation, parts=parts)

    @classmethod
    def stub(
        cls, config: MemoryConfig | None = None, *, parts: MemoryParts | None = None
    ) -> MemoryProvider:
        """Return a memory for tests: it leaves no files, and consolidates only when it is told."""
        changes = {"default_backend": "in_memory", "directory": None}
        trial = (config or MemoryConfig()).model_copy(update=changes)
        return MemoryProvider(trial, enable_consolidation=False, parts=parts)


def open_memory(
    config: MemoryConfig | None = None,
    *,
    scheduler: bool = False,
    parts: MemoryParts | None = None,
) -> MemoryProvider:
    """Return a memory, which `async with` opens and closes.

    Args:
        config: The configuration; None takes the defaults.
        scheduler: Whether it consolidates at intervals. A pass deletes old entries.
        parts: What the program brings.
    """
    return MemoryModule.configure(config, scheduler, parts=parts)
