"""Run the stages of a rule over all episodes, and delete what they archived long ago."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

import structlog

from slumberd.consolidation.incoming import Candidate, DeltaBatch
from slumberd.consolidation.marks import Owner, is_of_rule, known_marks, mark_in
from slumberd.consolidation.protocols import EpisodeLog, FactTarget
from slumberd.consolidation.stages.decay import ArchivedEntry, find_expired
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.extraction import SummaryQuestion
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import START, Position, Window
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import episode_id_of
from slumberd.model.stages import MARKS, SUMMARIES, WEIGHTS, KnownMarks

_MOST_NAMED = 20
"""Episodes that a log line names; it counts all of them."""

_AT_ONCE = 1_000
"""Episodes that one transaction deletes at most."""

_PURGED = ("archived", "duplicate_of")
"""Marks after which an episode may be deleted; a summary keeps the episodes that it cites."""

_log = structlog.get_logger("slumberd")

Consolidate = Callable[[Window], Awaitable[DeltaBatch]]
"""Returns the batch of a window, for one rule."""


class Marking:
    """Finds what the stages of a rule change about the marks and weights of all episodes.

    Args:
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


def _no_copies(_: str) -> None:
    """Do nothing: there are no other copies."""


class Retention(NamedTuple):
    """How long archived episodes are kept.

    Attributes:
        purge_after: In seconds, from their mark on; 0 or more.
        rule_ids: Returns the ids of all rules that must have read an episode before.
        purged: Called with each user whose episodes were deleted, to remove other copies.
    """

    purge_after: float
    rule_ids: Callable[[], Iterable[str]]
    purged: Callable[[str], object] = _no_copies


async def purge(
    episodes: EpisodeLog,
    facts: FactTarget,
    retention: Retention,
    rule: ConsolidationRule,
    mark: Position,
    at: datetime,
) -> list[str]:
    """Delete the episodes that a rule archived long ago; return their ids, sorted.

    An episode stays as long as a current fact cites it, other than marks, as long as another rule
    has not read it, and when it changed after a position. Its mark and its ledger rows stay.

    Args:
        facts: The store of facts, with the marks.
        retention: How long archived episodes are kept.
        rule: The rule, whose stages have just run.
        mark: The rule's watermark.
        at: Now.
    """
    archived = await _archived_by(facts, rule.id)
    entries = [ArchivedEntry(id, microseconds(one.pinned_at)) for id, one in archived.items()]
    expired = find_expired(entries, at, purge_after_seconds=retention.purge_after)
    upto = min(mark.seq, await _read_by_all(facts, retention.rule_ids()))
    versions = [
        version
        for version in await episodes.reread(rule, expired, upto=upto)
        if _is_of_owner(version, archived[version.id])
    ]
    if not versions:
        return []
    cited = await facts.cited_episodes([version.id for version in versions])
    own = {version.id: version.seq for version in versions if version.id not in cited}
    purged: list[str] = []
    # In parts: a writer waits for one transaction at most.
    ids = [*own]
    for first in range(0, len(own), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        purged += await episodes.purge({id: own[id] for id in some})
    users = {version.id: version.user for version in versions}
    for user in sorted({users[id] for id in purged}):
        retention.purged(user)
    purged.sort()
    if purged:
        named = purged[:_MOST_NAMED]
        _log.info("episodes.purged", rule_id=rule.id, count=len(purged), episode_ids=named)
    return purged


async def _archived_by(facts: FactTarget, rule_id: str) -> dict[str, Fact]:
    """Return the marks by which a rule archived episodes, by episode."""
    own = [fact async for fact in current_facts(facts, MARKS) if is_of_rule(fact, rule_id)]
    marked = ((mark_in(fact), fact) for fact in own)
    return {mark.id: fact for mark, fact in marked if mark.kind in _PURGED}


async def _read_by_all(facts: FactTarget, rule_ids: Iterable[str]) -> int:
    """Return the number of the last log row that each of some rules has read."""
    positions = await facts.watermarks.positions()
    read = [positions[rule_id][0] if rule_id in positions else START for rule_id in rule_ids]
    return min(position.seq for position in read) if read else 0


def _is_of_owner(version: EpisodeVersion, mark: Fact) -> bool:
    return not version.fault and (version.user, version.agent) == (mark.user, mark.agent)
