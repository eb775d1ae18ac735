"""Run the stages of a rule over all episodes, and delete what they archived long ago."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

import structlog

from slumberd.consolidation.changed_episodes import (
    PURGED,
    StageRun,
    current_facts,
    facts_about,
    find_wrong,
    marked_of,
    warn_of_notes,
)
from slumberd.consolidation.incoming import Bounds, Candidate, DeltaBatch
from slumberd.consolidation.marks import is_of_rule, mark_in
from slumberd.consolidation.protocols import EpisodeLog, FactTarget, Owner, StageIndex, StageNotes
from slumberd.consolidation.stages.decay import ArchivedEntry, expired_upto, find_expired
from slumberd.consolidation.stages.similar_texts import forget_wordings
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.errors import StageNotesError, StoppedError, StoreError
from slumberd.model.extraction import SummaryQuestion
from slumberd.model.fact import Fact
from slumberd.model.firing import START, Position, Window
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import episode_id_of
from slumberd.model.stages import MARKS

_MOST_NAMED = 20
"""Episodes that a log line names; it counts all of them."""

_AT_ONCE = 1_000
"""Episodes that one transaction deletes at most."""

_log = structlog.get_logger("slumberd")

Consolidate = Callable[[Window], Awaitable[DeltaBatch]]
"""Returns the batch of a window, for one rule."""


class Marking:
    """Finds what the stages of a rule change about the marks and weights of all episodes.

    With an index, it looks only at the episodes that are new, changed or due, and at those that
    depend on them. The result is the same.

    Attributes:
        index: Where it keeps what it needs to know of past episodes; None looks at all each time.

    Args:
        facts: The store of facts, with the marks.
        at_once: At most this many candidates are in one batch, and marks on a page; 1 or more.
    """

    def __init__(self, episodes: EpisodeLog, facts: FactTarget, at_once: int) -> None:
        self._episodes = episodes
        self._facts = facts
        self._at_once = at_once
        self.index: StageIndex | None = None

    async def batches(
        self,
        rule: ConsolidationRule,
        consolidate: Consolidate,
        window: Window,
        *,
        anew: bool,
        questions: list[SummaryQuestion],
    ) -> AsyncGenerator[DeltaBatch]:
        """Yield batches that change marks; none without a change.

        The stages see all episodes up to the end of the window, however old they are. The caller
        applies each batch before it asks for the next one, and closes the generator. A firing looks
        at all of them when its notes turn out to be damaged.

        Args:
            rule: The rule, with stages.
            consolidate: Returns the batch of a window.
            window: Begins and ends at the rule's watermark, and has an instant.
            anew: Whether the rule decides about its own marks again.
            questions: Gets the summaries that the rule's language model is to write.

        Raises:
            StageNotesError: The notes are damaged, in a dry run.
        """
        notes = await self._open(rule, writes=not window.dry_run)
        is_done = False
        while not is_done:
            run = StageRun(self._episodes, self._facts, rule, window, notes, anew=anew)
            found = self._run(run, rule, consolidate, window, questions)
            try:
                async with aclosing(found):
                    async for batch in found:
                        yield batch
                is_done = True
            except StageNotesError as error:
                if window.dry_run:  # what it yielded is not applied, and would be counted twice
                    raise
                warn_of_notes(rule.id, error)
            finally:
                forget_wordings()
                if notes is not None:
                    await asyncio.to_thread(notes.close)
            notes = None

    async def _run(
        self,
        run: StageRun,
        rule: ConsolidationRule,
        consolidate: Consolidate,
        window: Window,
        questions: list[SummaryQuestion],
    ) -> AsyncGenerator[DeltaBatch]:
        waiting: DeltaBatch | None = None
        async for part in run.parts(self._at_once):
            asked = window._replace(episodes=sorted(part.ids), marks=part.known)
            found = await consolidate(asked)
            questions += found.summary_questions
            if not window.dry_run:
                _log_unsummarised(rule, found)
            await run.save(part, found.staged)
            waiting = found if waiting is None else _join(waiting, found)
            while waiting.size > self._at_once:
                first, waiting = _split(waiting, self._at_once)
                yield first
        if waiting is not None and waiting.size:
            yield waiting
        await run.finish()

    async def _open(self, rule: ConsolidationRule, *, writes: bool) -> StageNotes | None:
        """Open the notes of a rule; None where they cannot help.

        A rule that asks a language model looks at all, since an answer may come at any time.
        """
        if self.index is None or rule.asks_model:
            return None
        try:
            return await asyncio.to_thread(self.index.open, rule.id, writes=writes)
        except StoreError as error:
            if writes:
                warn_of_notes(rule.id, error)
            return None

    async def find_wrong_note(self, rule: ConsolidationRule, window: Window, bounds: Bounds) -> str:
        """Return which note is not what a look at all episodes would keep; empty for none.

        It leaves out the episodes that the next firing looks at anyway, and writes nothing.

        Args:
            rule: The rule, with stages.
            window: Of a dry run; begins and ends at the rule's watermark, and has an instant.

        Raises:
            StoppedError: The bounds ended it.
        """
        notes = await self._open(rule, writes=False)
        if notes is None:
            return ""
        run = StageRun(self._episodes, self._facts, rule, window, notes, anew=False)
        wrong: dict[tuple[Owner, str], str] = {}
        try:
            before = await run.find_changed()
            if before is None:
                return ""
            async for part in run.parts(self._at_once, everything=True):
                asked = window._replace(episodes=sorted(part.ids), marks=part.known)
                batch = await self._episodes.consolidate(rule, window=asked, bounds=bounds)
                found = await asyncio.to_thread(find_wrong, notes, part, batch.staged)
                wrong |= {(part.owner, eid): problem for eid, problem in found.items()}
                if bounds.cancelled():
                    raise StoppedError
            # Another process may have changed the stores meanwhile.
            after = await run.find_changed()
        finally:
            forget_wordings()
            await asyncio.to_thread(notes.close)
        named = [] if after is None else sorted(wrong.keys() - before - after)
        return f"the note of {named[0][1]!r} {wrong[named[0]]}" if named else ""

    async def note_erasure(self, user: str, number: int) -> None:
        """Let the next firings look at one user only, after an erasure.

        Args:
            number: The ledger row of the erasure.
        """
        if self.index is None:
            return
        chains = await self._facts.erasures_after(number - 1)
        is_left = await self._episodes.ids_of_user(user) or await marked_of(self._facts, user)
        note = self.index.note_erasure
        try:
            await asyncio.to_thread(note, number, chains[number], user if is_left else None)
        except StoreError as error:
            warn_of_notes("@erasure", error)

    async def uncited(self, rule: ConsolidationRule, place: StageEnd, upto: int) -> dict[str, Fact]:
        """Return the marks by which a rule has archived episodes that no fact cites, by episode.

        Most archived episodes that are still there are cited, so their marks are not read.

        Args:
            rule: The rule, whose stages have just run.
            place: Where they ended.
            upto: Marks after this instant may be left out; microseconds since 1970 UTC.
        """
        old = await self._noted(rule, place, upto)
        if old is None:
            found = [one async for one in current_facts(self._facts, MARKS)]
            cited = await self._facts.cited_episodes([episode_id_of(one.id) for one in found])
        else:
            eids = {*old, *place.marked}
            cited = await self._facts.cited_episodes(sorted(eids)) if eids else set()
            found = await facts_about(self._facts, [MARKS], eids - cited)
        own = [
            fact
            for fact in found
            if is_of_rule(fact, rule.id) and episode_id_of(fact.id) not in cited
        ]
        return {episode_id_of(one.id): one for one in own if mark_in(one).kind in PURGED}

    async def _noted(self, rule: ConsolidationRule, end: StageEnd, upto: int) -> list[str] | None:
        """Return the episodes that the notes say are archived; None when they do not say."""
        notes = await self._open(rule, writes=True)  # so that damaged ones are deleted
        if notes is None:
            return None
        try:
            place = notes.place()
            if place is None or (place.position, place.at) != (end.mark, microseconds(end.at)):
                return None
            return await asyncio.to_thread(notes.archived, upto)
        except StageNotesError as error:
            warn_of_notes(rule.id, error)
            return None
        finally:
            await asyncio.to_thread(notes.close)


class StageEnd(NamedTuple):
    """Where a run of the stages of a rule ended.

    Attributes:
        mark: The rule's watermark.
        at: The instant of the firing.
        marked: The episodes whose marks the run changed.
    """

    mark: Position
    at: datetime
    marked: Collection[str] = ()


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


EndMarks = Callable[[Sequence[EpisodeVersion]], Awaitable[object]]
"""Commits the end of a rule's marks of some episodes."""


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


async def purge(  # noqa: PLR0913 # what retention depends on
    episodes: EpisodeLog,
    facts: FactTarget,
    retention: Retention,
    rule: ConsolidationRule,
    marking: Marking,
    end: StageEnd,
    end_marks: EndMarks,
) -> list[str]:
    """Delete the episodes that a rule archived long ago; return their ids, sorted.

    An episode stays as long as a current fact cites it, other than marks, as long as another rule
    has not read it, and when it changed after a position. Its mark ends, and its ledger rows stay.

    Args:
        facts: The store of facts, with the marks.
        retention: How long archived episodes are kept.
        rule: The rule, whose stages have just run.
        marking: Knows which episodes it archived.
        end: Where its stages ended.
        end_marks: Ends the rule's marks of episodes.
    """
    last = expired_upto(end.at, purge_after_seconds=retention.purge_after)
    archived = await marking.uncited(rule, end, last)
    entries = [ArchivedEntry(id, microseconds(one.pinned_at)) for id, one in archived.items()]
    expired = find_expired(entries, end.at, purge_after_seconds=retention.purge_after)
    upto = min(end.mark.seq, await _read_by_all(facts, retention.rule_ids()))
    own = [
        version
        for version in await episodes.reread(rule, expired, upto=upto)
        if _is_of_owner(version, archived[version.id])
    ]
    if not own:
        return []
    purged: list[str] = []
    # In parts: a writer waits for one transaction at most.
    for first in range(0, len(own), _AT_ONCE):
        some = own[first : first + _AT_ONCE]
        # The marks end first: after a kill, the next firing archives the episodes again. In the
        # other order, nothing would lead to the marks any more.
        await end_marks(some)
        purged += await episodes.purge({version.id: version.seq for version in some})
    users = {version.id: version.user for version in own}
    for user in sorted({users[id] for id in purged}):
        retention.purged(user)
    purged.sort()
    if purged:
        named = purged[:_MOST_NAMED]
        _log.info("episodes.purged", rule_id=rule.id, count=len(purged), episode_ids=named)
    return purged


async def _read_by_all(facts: FactTarget, rule_ids: Iterable[str]) -> int:
    """Return the number of the last log row that each of some rules has read."""
    positions = await facts.watermarks.positions()
    read = [positions[rule_id][0] if rule_id in positions else START for rule_id in rule_ids]
    return min(position.seq for position in read) if read else 0


def _is_of_owner(version: EpisodeVersion, mark: Fact) -> bool:
    return not version.fault and (version.user, version.agent) == (mark.user, mark.agent)
