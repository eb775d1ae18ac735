"""Run the stages of a rule over all episodes: one batch of marks for each user and agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import chain, islice

from slumberd.consolidation.delta_batch import DeltaBatch
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.marks import Owner, known_marks
from slumberd.consolidation.protocols import EpisodeLog, FactTarget
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Window
from slumberd.model.rule import ConsolidationRule
from slumberd.model.stages import MARKS, SUMMARIES, KnownMarks

Consolidate = Callable[[Window], Awaitable[DeltaBatch]]
"""Returns the batch of a window, for one rule."""

_READ_AT_ONCE = 5_000
"""Marks that are read at once from the store of facts."""


class Marking:
    """Finds what the stages of a rule change about the marks of all episodes.

    Args:
        episodes: The episode log.
        facts: The store of facts, with the marks.
        at_once: At most this many candidates are in one batch.
    """

    def __init__(self, episodes: EpisodeLog, facts: FactTarget, at_once: int) -> None:
        self._episodes = episodes
        self._facts = facts
        self._at_once = at_once

    async def batches(
        self, rule: ConsolidationRule, consolidate: Consolidate, window: Window, *, anew: bool
    ) -> AsyncIterator[DeltaBatch]:
        """Yield batches that change marks; none without a change.

        The stages see all episodes up to the end of the window, however old they are.

        Args:
            rule: The rule, with stages.
            consolidate: Returns the batch of a window.
            window: Begins and ends at the rule's watermark.
            anew: Whether the rule decides about its own marks again.
        """
        selected = await self._episodes.ids_by_owner(rule)
        known = await self._known_marks(rule, anew=anew)
        for owner in sorted(selected.keys() | known.keys()):
            marks = known.get(owner, KnownMarks(anew=anew))
            ids = sorted({*selected.get(owner, ()), *marks.marks})
            batch = await consolidate(window._replace(episodes=ids, marks=marks))
            for part in _divide(batch, self._at_once):
                yield part

    async def _known_marks(
        self, rule: ConsolidationRule, *, anew: bool
    ) -> Mapping[Owner, KnownMarks]:
        marks = await self._current(MARKS)
        return known_marks(marks, await self._current(SUMMARIES), rule.id, anew=anew)

    async def _current(self, channel: str) -> list[Fact]:
        pattern = FactPattern(channel=channel, limit=_READ_AT_ONCE)
        found = page = await self._facts.query(pattern)
        while len(page) == _READ_AT_ONCE:
            page = await self._facts.query(pattern.following(page[-1]))
            found += page
        return found


def _divide(batch: DeltaBatch, at_once: int) -> list[DeltaBatch]:
    """Return a batch in parts of at most so many candidates; none when it has no candidates."""
    every = chain.from_iterable(
        ((channel, candidate) for candidate in found) for channel, found in batch.candidates.items()
    )
    parts: list[DeltaBatch] = []
    while some := [*islice(every, at_once)]:
        candidates: dict[str, list[Candidate]] = {channel: [] for channel in batch.candidates}
        for channel, candidate in some:
            candidates[channel].append(candidate)
        parts.append(replace(batch, candidates=candidates))
    return parts
