"""The working tier: the context of the next answer, within a budget of tokens."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from slumberd.clock import Clock
from slumberd.integrations.tiers.configs import WorkingMemoryConfig
from slumberd.integrations.tiers.entries import (
    HealthCheckResult,
    HealthStatus,
    MemoryEntry,
    MemoryQuery,
)
from slumberd.integrations.tiers.episodic import EpisodicMemoryStore
from slumberd.integrations.tiers.errors import log_source_failure
from slumberd.integrations.tiers.pruning import TokenBudgetAllocator, fitting
from slumberd.integrations.tiers.search import newest_first
from slumberd.integrations.tiers.semantic import SemanticMemoryStore
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.search.context import EstimatedTokens, TokenCounter

T = TypeVar("T")


class WorkingMemoryManager:
    """Assembles the latest turns, recalled entries and facts within a budget of tokens.

    Args:
        episodic: Recalls entries; None recalls none.
        semantic: Knows facts; None knows none.
        config: How a budget is divided; None takes the defaults.
        token_counter: Counts tokens; None estimates them.
        clock: The time of health checks, and of entries that are facts.
    """

    def __init__(
        self,
        episodic: EpisodicMemoryStore | None = None,
        semantic: SemanticMemoryStore | None = None,
        config: WorkingMemoryConfig | None = None,
        *,
        token_counter: TokenCounter | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._episodic = episodic
        self._semantic = semantic
        self._config = config or WorkingMemoryConfig()
        self._allocator = TokenBudgetAllocator(self._config)
        self._counter = token_counter or EstimatedTokens()
        self._clock = clock
        new_stream = partial(deque[MemoryEntry], maxlen=self._config.max_recent_turns)
        self._streams: defaultdict[str, deque[MemoryEntry]] = defaultdict(new_stream)

    async def assemble(
        self, query: str, token_budget: int, session_id: str | None = None, *, owner_id: str = ""
    ) -> list[MemoryEntry]:
        """Return the context of an answer: facts, recalled entries, then the latest turns.

        Together they have at most the tokens of their sections of the budget. The sections of the
        system prompt and of the tools stay free. What the turns and the facts leave of theirs goes
        to recalled entries. Each entry appears once. A tier that fails is logged and left out.

        Args:
            query: What the answer is about.
            token_budget: The tokens of the whole context, 0 or more.
            session_id: The session of the latest turns; None for all.
            owner_id: Whose memories.

        Raises:
            ValueError: The budget is negative.
        """
        budget = self._allocator.allocate(token_budget)
        latest = await self._latest_turns(session_id, owner_id)
        turns, left = fitting(latest, budget["recent"], self._counter)
        known = await self._facts(query, owner_id)
        facts, left_of_facts = fitting(known, budget["semantic"], self._counter)
        chosen = {turn.id for turn in turns}
        found = [entry for entry in await self._recall(query, owner_id) if entry.id not in chosen]
        left += left_of_facts + budget["episodic"]
        recalled, _ = fitting(found, left, self._counter)
        return [*facts, *newest_first(recalled)[::-1], *newest_first(turns)[::-1]]

    async def _latest_turns(self, session_id: str | None, owner_id: str) -> list[MemoryEntry]:
        """Return the latest turns of an owner, newest first, without summaries."""
        found = {entry.id: entry for entry in self._streams.get(owner_id, ())}
        if self._episodic is not None:
            latest = MemoryQuery(
                "",
                top_k=self._config.max_recent_turns,
                recency_weight=1,
                importance_weight=0,
                relevance_weight=0,
                filters={} if session_id is None else {"session_id": session_id},
                owner_id=owner_id,
            )
            results = await _or_nothing(self._episodic.recall(latest), ())
            found |= {result.entry.id: result.entry for result in results}
        turns = [
            entry
            for entry in found.values()
            if entry.metadata.get("type") != "summary" and session_id in (None, entry.session_id)
        ]
        return newest_first(turns)[: self._config.max_recent_turns]

    async def _recall(self, query: str, owner_id: str) -> list[MemoryEntry]:
        if self._episodic is None:
            return []
        found = await _or_nothing(self._episodic.recall(query, owner_id=owner_id), ())
        return [result.entry for result in found]

    async def _facts(self, query: str, owner_id: str) -> list[MemoryEntry]:
        if self._semantic is None:
            return []
        found = await _or_nothing(self._semantic.facts_in(query, owner_id=owner_id), ())
        return [self._entry_of(fact, owner_id) for fact in found]

    def _entry_of(self, fact: dict[str, Any], owner_id: str) -> MemoryEntry:
        """Return a fact as an entry."""
        return MemoryEntry(
            id=f"fact:{fact['id']}",
            content=f"{fact['subject']} {fact['predicate']} {fact['object_']}",
            role="system",
            timestamp=self._clock.now(),
            importance=fact["confidence"],
            metadata={"type": "fact", "fact_id": fact["id"]},
            owner_id=owner_id,
        )

    async def add(self, entry: MemoryEntry) -> None:
        """Add a turn as the newest, and record it in the episodic tier.

        Raises:
            MemoryStoreError: The episodic tier failed; the turn is in the context all the same.
        """
        stream = self._streams[entry.owner_id]
        for known in [known for known in stream if known.id == entry.id]:
            stream.remove(known)
        stream.append(entry)
        if self._episodic is not None:
            await self._episodic.record(entry)

    async def get_context_entries(self, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return the turns of an owner that were added last, the oldest first."""
        return [*self._streams.get(owner_id, ())]

    async def flush(self, *, owner_id: str = "") -> None:
        """Remove the turns of an owner from the context; the episodic tier keeps them."""
        self._streams.pop(owner_id, None)

    async def health_check(self, timeout: float = 5.0) -> HealthCheckResult:  # noqa: ASYNC109 # specified
        """Return degraded when a tier is not healthy, and unhealthy when one raises."""
        began = self._clock.monotonic()
        tiers = [tier for tier in (self._episodic, self._semantic) if tier is not None]
        result = HealthCheckResult("working_memory", checked_at=self._clock.now())
        try:
            async with asyncio.timeout(timeout):
                found = [await tier.health_check(timeout) for tier in tiers]
        except Exception as error:  # noqa: BLE001 # whatever a tier raises is its state
            problem = f"{type(error).__name__}: {error}"
            result = replace(result, status=HealthStatus.UNHEALTHY, message=problem, error=problem)
        else:
            result = _combined(result, found)
        return replace(result, duration_ms=1_000 * (self._clock.monotonic() - began))


def _combined(result: HealthCheckResult, found: Sequence[HealthCheckResult]) -> HealthCheckResult:
    details = {part.component: str(part.status) for part in found}
    if all(part.is_healthy() for part in found):
        return replace(result, details=details)
    problems = [f"{part.component}: {part.error}" for part in found if not part.is_healthy()]
    message = "; ".join(problems)
    return replace(
        result, status=HealthStatus.DEGRADED, message=message, error=message, details=details
    )


async def _or_nothing(answer: Awaitable[Sequence[T]], nothing: Sequence[T]) -> Sequence[T]:
    """Return an answer; log its error, and return nothing then."""
    try:
        return await answer
    except Exception as error:  # noqa: BLE001 # the other tiers still answer
        log_source_failure(error)
        return nothing
