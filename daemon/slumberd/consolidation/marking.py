"""Run the stages of a rule over all episodes, one user and agent after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from slumberd.consolidation.delta_batch import DeltaBatch
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.marks import Owner, known_marks
from slumberd.consolidation.protocols import EpisodeLog, FactTarget
from slumberd.model.extraction import SummaryQuestion
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.firing import Window
from slumberd.model.rule import ConsolidationRule
from slumberd.model.stages import MARKS, SUMMARIES, WEIGHTS, KnownMarks

_log = structlog.get_logger("slumberd")

Consolidate = Callable[[Window], Awaitable[DeltaBatch]]
"""Returns the batch of a window, for one rule."""


class Marking:
    """Finds what the stages of a rule change about the marks and weights of all episodes.

    Args:
        episodes: The episode log.
        facts: The store of facts, with the marks.
        at_once: At most this many candidates are in one batch, and marks on a page; 1 or more.
    """

    def __init__(self, episodes: EpisodeLog, facts: FactTarget, at_once: int) -> None:
        self._episodes = episodes
        self._facts = facts
        self._at_once = at_once

    async def batches(
        self,
        rule: ConsolidationRule,
        consolidate: Consolidate,
        window: Window,
        *,
        anew: bool,
        questions: list[SummaryQuestion],
    ) -> AsyncIterator[DeltaBatch]:
        """Yield batches that change marks; none without a change.

        The stages see all episodes up to the end of the window, however old they are.

        Args:
            rule: The rule, with stages.
            consolidate: Returns the batch of a window.
            window: Begins and ends at the rule's watermark.
            anew: Whether the rule decides about its own marks again.
            questions: Gets the summaries that the rule's language model is to write.
        """
        selected = await self._episodes.ids_by_owner(rule)
        known = await self._known_marks(rule, anew=anew)
        ended = {
            channel: await self._facts.retracted_by_people(channel)
            for channel in (MARKS, WEIGHTS, SUMMARIES)
        }
        waiting: DeltaBatch | None = None
        for owner in sorted(selected.keys() | known.keys()):
            marks = known.get(owner, KnownMarks(anew=anew))
            marks = marks._replace(
                unmarkable=_episodes_of(ended[MARKS]) - marks.marks.keys(),
                unweightable=_episodes_of(ended[WEIGHTS]) - marks.weights.keys(),
                unsummarisable=ended[SUMMARIES] - marks.summaries.keys(),
            )
            ids = sorted({*selected.get(owner, ()), *marks.marks, *marks.weights})
            found = await consolidate(window._replace(episodes=ids, marks=marks))
            questions += found.summary_questions
            if not window.dry_run:
                _log_unsummarised(rule, found)
            waiting = found if waiting is None else _join(waiting, found)
            while waiting.size > self._at_once:
                first, waiting = _split(waiting, self._at_once)
                yield first
        if waiting is not None and waiting.size:
            yield waiting

    async def _known_marks(
        self, rule: ConsolidationRule, *, anew: bool
    ) -> Mapping[Owner, KnownMarks]:
        facts = [
            fact
            for channel in (MARKS, SUMMARIES, WEIGHTS)
            async for fact in current_facts(self._facts, channel, self._at_once)
        ]
        return known_marks(facts, rule.id, anew=anew)


def _episodes_of(fact_ids: Iterable[str]) -> set[str]:
    return {*map(episode_id_of, fact_ids)}


async def current_facts(
    facts: FactTarget, channel: str, at_once: int = 5_000
) -> AsyncIterator[Fact]:
    """Yield the current facts of a channel, by id; so many are read at once."""
    pattern = FactPattern(channel=channel, limit=at_once)
    while page := await facts.query(pattern):
        for fact in page:
            yield fact
        pattern = pattern.following(page[-1])


def _log_unsummarised(rule: ConsolidationRule, batch: DeltaBatch) -> None:
    """Log each group of episodes that the rule's function did not summarise."""
    for failure in batch.unsummarised:
        _log.warning(
            "summary.failed",
            rule_id=rule.id,
            function="" if rule.summariser is None else rule.summariser.name,
            episode_ids=[*failure.ids],
            reason=failure.reason,
        )


def _join(first: DeltaBatch, second: DeltaBatch) -> DeltaBatch:
    """Return one batch of two of the same window."""
    every = {
        channel: [*found, *second.candidates[channel]]
        for channel, found in first.candidates.items()
    }
    return replace(first, candidates=every)


def _split(batch: DeltaBatch, size: int) -> tuple[DeltaBatch, DeltaBatch]:
    """Return the first candidates of a batch, so many, and the others."""
    first: dict[str, Sequence[Candidate]] = {}
    others: dict[str, Sequence[Candidate]] = {}
    for channel, found in batch.candidates.items():
        first[channel], others[channel] = found[:size], found[size:]
        size -= len(first[channel])
    return replace(batch, candidates=first), replace(batch, candidates=others)
