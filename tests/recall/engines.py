"""Open the engines that a run measures: the baseline, and slumberd by its public classes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from slumberd.model.episode import Episode
from slumberd.model.fact import Fact
from slumberd.model.scope import ScopeFilter
from slumberd.search.hits import Kind
from slumberd.search.searcher import Searcher
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.recall.engine import Engine, Ledger, Line, Named, Opener, Prompt
from tests.recall.figures import BASELINE, STARTED, WITHOUT_LANGUAGE
from tests.recall.plain_bm25 import PlainBM25
from tests.recall.prompts_of_hits import lines_of, prompt_of
from tests.recall.started import open_started

_LANGUAGE = "english"
_EPISODES: tuple[Kind, ...] = ("episode",)
_MOST_NAMED = 1_000
_AT = datetime(2026, 1, 1, tzinfo=UTC)


class Slumberd:
    """A memory store with its searcher.

    Args:
        name: The column of the table.
        memory: The episodes.
        facts: The facts.
        language: The language of the texts; None for none.
        vectors: Whether meanings count.
    """

    def __init__(
        self,
        name: str,
        memory: SQLiteMemoryStore,
        facts: SQLiteFactStore,
        *,
        language: str | None = _LANGUAGE,
        vectors: bool = False,
    ) -> None:
        self.name = name
        self._memory, self._facts = memory, facts
        self._searcher = Searcher(memory, facts, language=language, vectors=vectors)

    async def put(self, episodes: Sequence[Episode]) -> None:
        await self._memory.put_many(episodes)

    async def forget(self, user: str, session: str) -> None:
        # Only this session is refused from now on, so the moment may be any.
        await self._memory.forget(ScopeFilter.of(user, session, None), (), moment=0)

    async def search(self, user: str, query: str, limit: int) -> list[str]:
        found = await self._searcher.search(query, user=user, kinds=_EPISODES, limit=limit)
        return [hit.id for hit in found]

    async def declare(self, named: Sequence[Named]) -> None:
        for one in named:
            await self._facts.pin(_fact(one))

    async def search_names(self, user: str, scope: str, query: str) -> list[str]:
        hits = await self._searcher.facts_about(query, user=user, agent=scope, limit=_MOST_NAMED)
        return [hit.id for hit in hits]

    async def context(self, user: str, question: str, budget: int) -> Prompt:
        context = await self._searcher.context(question, user=user, budget=budget)
        return prompt_of(context.text, context.items)

    async def ranked(self, user: str, question: str, limit: int) -> list[Line]:
        hits = await self._searcher.search(question, user=user, kinds=_EPISODES, limit=limit)
        return lines_of(hits)

    async def ledger(self, user: str) -> Ledger | None:
        """Return nothing: no rule runs here."""
        return None


def _fact(named: Named) -> Fact:
    """Return the fact that states the names; an agent stands for a scope."""
    main, *others = named.names
    return Fact(
        id=named.id,
        user=named.user,
        agent=named.scope,
        payload={"subject": main, "predicate": "aliases", "object": others},
        lineage=[{"rule_id": "host", "source_episode_ids": []}],
        confidence=1.0,
        pinned_at=_AT,
    )


@asynccontextmanager
async def _plain_bm25() -> AsyncIterator[Engine]:
    yield PlainBM25()


def _opener(name: str, **how: Any) -> Opener:
    @asynccontextmanager
    async def open_slumberd() -> AsyncIterator[Engine]:
        with TemporaryDirectory(prefix="slumberd-recall-") as folder:
            async with (
                SQLiteMemoryStore(Path(folder) / "memory.db") as memory,
                SQLiteFactStore(Path(folder) / "facts.db") as facts,
            ):
                await memory.bootstrap()
                await facts.bootstrap()
                yield Slumberd(name, memory, facts, **how)

    return open_slumberd


OPENERS: dict[str, Opener] = {
    STARTED: open_started,
    BASELINE: _plain_bm25,
    WITHOUT_LANGUAGE: _opener(WITHOUT_LANGUAGE, language=None),
    "lexical": _opener("lexical"),
    "vectors": _opener("vectors", vectors=True),
}
