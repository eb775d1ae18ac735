"""Read all episodes, or all facts with their lineage, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from slumberd.consolidation.explanation import Explanation
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.episode import EpisodeVersion
from slumberd.model.errors import NoInputError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import START
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import FACTS
from slumberd.storage.facts.store import EngineFactStore

PAGE = 1_000
"""Episodes, or facts, that are in memory at a time, by default."""

_EVERYTHING = ConsolidationRule(
    id="@export", cadence={"every": 1}, when_filter="", then_emits=[FACTS]
)
"""Selects every episode. It fires never, and no ledger knows it."""


class ExportScope(NamedTuple):
    """Whose episodes and facts are exported; None accepts every value."""

    user: str | None = None
    agent: str | None = None

    def accepts(self, version: EpisodeVersion) -> bool:
        """Return whether an episode is exported."""
        return self.user in (None, version.user) and self.agent in (None, version.agent)


async def read_episodes(
    memory: EpisodeLog, wanted: ExportScope, *, page: int = PAGE
) -> AsyncIterator[list[EpisodeVersion]]:
    """Yield the newest version of every episode, in the order of their commits, page by page.

    A version that cannot be read has a fault. An episode that changes meanwhile may come twice,
    the newer version last. A page may be empty.
    """
    after = START
    while True:
        window = await memory.select(_EVERYTHING, after=after, limit=page)
        if window.upto == after:
            return
        # An episode that was logged again after a read is in the page of its own version.
        yield [
            version
            for version in window.versions
            if wanted.accepts(version) and not (version.reread and version.seq <= after.seq)
        ]
        after = window.upto


async def read_facts(
    facts: EngineFactStore, wanted: ExportScope, *, page: int = PAGE
) -> AsyncIterator[list[tuple[Fact, Explanation]]]:
    """Yield the current facts by id, each with its explanation, page by page.

    Marks and weights, which are about episodes, are left out, and so are facts that an erasure
    removes meanwhile.
    """
    pattern = FactPattern(user=wanted.user, agent=wanted.agent, limit=page)
    while found := await facts.query(pattern):
        yield [pair for fact in found if (pair := await _explain(facts, fact)) is not None]
        pattern = pattern.following(found[-1])


async def _explain(facts: EngineFactStore, fact: Fact) -> tuple[Fact, Explanation] | None:
    try:
        return fact, await facts.why(fact.id)
    except NoInputError:
        return None
