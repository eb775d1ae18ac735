"""The working tier: the context of the next answer, within a budget of tokens."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from slumberd.clock import Clock
from slumberd.integrations.tiers.configs import WorkingMemoryConfig
from slumberd.integrations.tiers.entries import (
    EpisodicMemoryProtocol,
    HealthCheckResult,
    HealthStatus,
    MemoryEntry,
    MemoryQuery,
    SemanticMemoryProtocol,
    copy_of,
)
from slumberd.integrations.tiers.episodic import EpisodicMemoryStore
from slumberd.integrations.tiers.errors import HOST_ERRORS, log_source_failure, raise_if_cancelled
from slumberd.integrations.tiers.events import (
    MemoryRetrievedEvent,
    MemoryRetrievedHook,
    MemoryStoredEvent,
    MemoryWrittenHook,
    Publisher,
    Subscriber,
)
from slumberd.integrations.tiers.facts import mentions
from slumberd.integrations.tiers.pruning import TokenBudgetAllocator, fitting
from slumberd.integrations.tiers.search import newest_first
from slumberd.integrations.tiers.semantic import Facts, SemanticMemoryStore
from slumberd.integrations.tiers.stores import takes
from slumberd.integrations.tiers.strategies import CLOCK
from slumberd.search.context import EstimatedTokens, TokenCounter

T = TypeVar("T")

TIER = "working"

_MOST_CONTEXTS = 1_000
"""The contexts of so many owners stay in memory: those that were assembled last."""

_MOST_NAMES = 16
"""A tier of the host is asked about so many words of a query, and not about shorter ones."""

_SHORTEST_NAME = 3
_MARKS = ".,;:!?\"'()"


class WorkingMemoryManager:
    """Assembles the latest turns, recalled entries and facts within a budget of tokens.

    Args:
        episodic: Recalls entries; None recalls none.
        semantic: Knows facts; None knows none. One without owners has the facts of the empty owner.
        config: How a budget is divided; None takes the defaults.
        token_counter: Counts tokens; None estimates them.
        on_event: Called with each turn that is added, and with each context.
        clock: The time of health checks, of events, and of entries that are facts.
    """

    def __init__(  # one for each part
        self,
        episodic: EpisodicMemoryProtocol | None = None,
        semantic: SemanticMemoryProtocol | None = None,
        config: WorkingMemoryConfig | None = None,
        *,
        token_counter: TokenCounter | None = None,
        on_event: Subscriber | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._episodic = episodic
        self._semantic = semantic
        self._config = config or WorkingMemoryConfig()
        self._allocator = TokenBudgetAllocator(self._config)
        self._counter = token_counter or EstimatedTokens()
        self._publisher = Publisher(on_event)
        self._clock = clock
        new_stream = partial(deque[MemoryEntry], maxlen=self._config.max_recent_turns)
        self._streams: defaultdict[str, deque[MemoryEntry]] = defaultdict(new_stream)
        self._contexts: OrderedDict[str, deque[MemoryEntry]] = OrderedDict()

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
            session_id: The session of the turns and of the recalled entries; None for all. Facts
                have no session.
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
        wanted = self._usual_query(query, owner_id)
        found = [e for e in await self._recall(wanted, session_id) if e.id not in chosen]
        left += left_of_facts + budget["episodic"]
        recalled, _ = fitting(found, left, self._counter)
        context = [*facts, *newest_first(recalled)[::-1], *newest_first(turns)[::-1]]
        self._contexts.pop(owner_id, None)
        most = len(context) + self._config.max_recent_turns
        self._contexts[owner_id] = deque(context, maxlen=most)
        if len(self._contexts) > _MOST_CONTEXTS:
            self._contexts.popitem(last=False)
        event = MemoryRetrievedEvent(
            query_id=uuid.uuid4().hex, results_count=len(context), occurred_at=self._clock.now()
        )
        self._publisher.publish(event, MemoryRetrievedHook(tier=TIER, result_count=len(context)))
        return context

    async def _latest_turns(self, session_id: str | None, owner_id: str) -> list[MemoryEntry]:
        """Return the latest turns of an owner, newest first, without summaries."""
        found = {
            entry.id: entry
            for entry in self._streams.get(owner_id, ())
            if session_id in (None, entry.session_id)
        }
        latest = MemoryQuery(
            "",
            top_k=self._config.max_recent_turns,
            recency_weight=1,
            importance_weight=0,
            relevance_weight=0,
            owner_id=owner_id,
        )
        found |= {entry.id: entry for entry in await self._recall(latest, session_id)}
        turns = [entry for entry in found.values() if entry.metadata.get("type") != "summary"]
        return newest_first(turns)[: self._config.max_recent_turns]

    def _usual_query(self, text: str, owner_id: str) -> MemoryQuery:
        if isinstance(self._episodic, EpisodicMemoryStore):
            return self._episodic.usual_query(text, owner_id=owner_id)
        return MemoryQuery(text, owner_id=owner_id)

    async def _recall(self, query: MemoryQuery, session_id: str | None) -> list[MemoryEntry]:
        """Return the entries that a query finds in a session; all with the owner of the query."""
        if self._episodic is None:
            return []
        if session_id is not None:
            query = replace(query, filters={"session_id": session_id})
        found = await _or_nothing(_entries_of(self._episodic, query), ())
        # A tier of the host need not know filters and owners, and may find an entry twice.
        entries = {
            entry.id: entry
            for entry in reversed(found)
            if entry.owner_id == query.owner_id and session_id in (None, entry.session_id)
        }
        return [*entries.values()][::-1]

    async def _facts(self, query: str, owner_id: str) -> list[MemoryEntry]:
        tier = self._semantic
        if tier is None:
            return []
        if isinstance(tier, SemanticMemoryStore):
            found = await _or_nothing(tier.facts_in(query, owner_id=owner_id), ())
        elif takes(tier.query_facts, "owner_id"):
            found = await _or_nothing(_facts_in(partial(_ask_of, tier, owner_id), query), ())
        else:
            found = () if owner_id else await _or_nothing(_facts_in(tier.query_facts, query), ())
        entries = []
        for fact in found:
            try:
                entries.append(self._entry_of(fact, owner_id))
            except (KeyError, TypeError, ValueError) as error:  # a fact of the host is malformed
                log_source_failure(error)
        return entries

    def _entry_of(self, fact: dict[str, Any], owner_id: str) -> MemoryEntry:
        """Return a fact as an entry."""
        return MemoryEntry(
            id=f"fact:{fact['id']}",
            content=f"{fact['subject']} {fact['predicate']} {fact['object_']}",
            role="system",
            timestamp=self._clock.now(),
            importance=fact.get("confidence", 1.0),
            metadata={"type": "fact", "fact_id": fact["id"]},
            owner_id=owner_id,
        )

    async def add(self, entry: MemoryEntry) -> None:
        """Add a turn as the newest, and record it in the episodic tier.

        Raises:
            MemoryStoreError: The episodic tier failed; the turn is in the context all the same.
        """
        entry = copy_of(entry)  # the caller may use its metadata for the next turn
        _put_last(self._streams[entry.owner_id], entry)
        if (context := self._contexts.get(entry.owner_id)) is not None:
            _put_last(context, entry)
        now = self._clock.now()
        self._publisher.publish(
            MemoryStoredEvent(memory_id=entry.id, memory_type=TIER, occurred_at=now),
            MemoryWrittenHook(tier=TIER, backend="in_process"),
        )
        if self._episodic is not None:
            await self._episodic.record(entry)

    async def get_context_entries(self, *, owner_id: str = "") -> list[MemoryEntry]:
        """Return what `assemble` returned last for an owner, and the turns that were added since.

        Before that, it is the turns that were added last. The order is that of the context.
        """
        if (context := self._contexts.get(owner_id)) is not None:
            return [*context]
        return [*self._streams.get(owner_id, ())]

    async def flush(self, *, owner_id: str = "") -> None:
        """Remove the context of an owner with its turns; the episodic tier keeps them."""
        self._streams.pop(owner_id, None)
        self._contexts.pop(owner_id, None)

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


def _put_last(entries: deque[MemoryEntry], entry: MemoryEntry) -> None:
    for known in [known for known in entries if known.id == entry.id]:
        entries.remove(known)
    entries.append(entry)


def _combined(result: HealthCheckResult, found: Sequence[HealthCheckResult]) -> HealthCheckResult:
    details = {part.component: str(part.status) for part in found}
    if all(part.is_healthy() for part in found):
        return replace(result, details=details)
    problems = [f"{part.component}: {part.error}" for part in found if not part.is_healthy()]
    message = "; ".join(problems)
    return replace(
        result, status=HealthStatus.DEGRADED, message=message, error=message, details=details
    )


async def _entries_of(tier: EpisodicMemoryProtocol, query: MemoryQuery) -> list[MemoryEntry]:
    """Return the entries that a tier finds, best first."""
    return [result.entry for result in await tier.recall(query)]


async def _facts_in(
    query_facts: Callable[[str], Awaitable[Facts]], text: str
) -> list[dict[str, Any]]:
    """Return the facts whose subject or object a text names, from a tier that knows subjects."""
    words = dict.fromkeys(word for word in text.split() if len(word) >= _SHORTEST_NAME)
    found: dict[str, dict[str, Any]] = {}
    for start in [text, *(word.strip(_MARKS) for word in [*words][:_MOST_NAMES])]:
        if start:
            found |= {str(fact["id"]): fact for fact in await query_facts(start)}
    return [
        fact
        for fact in found.values()
        if mentions(text, str(fact["subject"])) or mentions(text, str(fact["object_"]))
    ]


async def _ask_of(tier: Any, owner_id: str, subject: str) -> Facts:  # noqa: ANN401 # of a host
    found: Facts = await tier.query_facts(subject, owner_id=owner_id)
    return found


async def _or_nothing(answer: Awaitable[Sequence[T]], nothing: Sequence[T]) -> Sequence[T]:
    """Return an answer; log its error, and return nothing then."""
    try:
        return await answer
    except HOST_ERRORS as error:  # the other tiers still answer
        raise_if_cancelled(error)
        log_source_failure(error)
        return nothing
