"""Find the episodes that the stages of a rule must look at again, and those that depend on them.

An episode that is not found has the same content, marks and neighbours as when the stages last
looked at it and changed nothing. No instant has come since at which time changes something. So the
stages would say the same of it again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from slumberd.consolidation.marks import entry_of, is_of_rule, known_marks, mark_in
from slumberd.consolidation.owner_texts import OwnerTexts
from slumberd.consolidation.protocols import (
    EpisodeLog,
    FactTarget,
    Owner,
    StageNotes,
    StagePlace,
)
from slumberd.consolidation.stages.neighbours import (
    Comparable,
    are_near,
    comparable_of,
    group_traces,
    kept_trace,
    named_episode,
    traces_of,
)
from slumberd.model.episode import EpisodeVersion, microseconds
from slumberd.model.errors import StoreError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.feed import EpisodeChanges, FeedPlace
from slumberd.model.firing import Window
from slumberd.model.pattern import OneOf
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import channel_of, episode_id_of, fact_id_of
from slumberd.model.stages import (
    MARKS,
    SUMMARIES,
    SUMMARISES,
    WEIGHTS,
    KnownMarks,
    StagedEntry,
)

_log = structlog.get_logger("slumberd")

_AT_ONCE = 500
"""Facts that one search finds by their ids."""

_EVERY_ROW = 2**63 - 1
"""In place of the number of a log row: none is too new."""


PURGED = ("archived", "duplicate_of")
"""Marks after which an episode may be deleted; a summary keeps the episodes that it cites."""


class Part(NamedTuple):
    """Episodes of one owner that the stages look at together.

    Attributes:
        ids: The episodes.
        known: The marks in force.
        archived: When the rule archived episodes, microseconds since 1970 UTC, by episode.
    """

    owner: Owner
    ids: Set[str]
    known: KnownMarks
    archived: Mapping[str, int]


class StageRun:
    """One run of the stages of a rule: over all episodes, or over those that changed.

    Args:
        facts: The store of facts, with the marks.
        window: Begins and ends at the rule's watermark, and has an instant.
        notes: What is kept of past episodes; None looks at all.
        anew: Whether the rule decides about its own marks again.
    """

    def __init__(  # what a run depends on
        self,
        episodes: EpisodeLog,
        facts: FactTarget,
        rule: ConsolidationRule,
        window: Window,
        notes: StageNotes | None,
        *,
        anew: bool,
    ) -> None:
        self._episodes = episodes
        self._facts = facts
        self._rule = rule
        self._window = window
        self._notes = notes
        self._anew = anew
        self._at = 0 if window.at is None else microseconds(window.at)
        self._changes: EpisodeChanges | None = None
        self._pending: Set[str] = frozenset()
        """The episodes of which the rule has not read the newest version."""
        self._place: StagePlace | None = None
        self._dropped: set[str] = set()
        self._is_broken = False

    async def parts(self, at_once: int, *, everything: bool = False) -> AsyncIterator[Part]:
        """Yield what the stages look at; owners are sorted.

        Args:
            at_once: So many marks are read at once.
            everything: Whether they look at all, whatever the notes say.
        """
        found = None if everything else await self._find_changed()
        async for part in self._every_part(at_once) if found is None else found:
            yield part._replace(known=await self._with_ended(part))

    async def _with_ended(self, part: Part) -> KnownMarks:
        """Return what is known to the stages of a part, with what a person has ended of it."""
        known = part.known
        marks, weights, summaries = [
            await self._ended(channel, part.ids) for channel in (MARKS, WEIGHTS, SUMMARIES)
        ]
        return known._replace(
            unmarkable={*map(episode_id_of, marks)} - known.marks.keys(),
            unweightable={*map(episode_id_of, weights)} - known.weights.keys(),
            unsummarisable=summaries - known.summaries.keys(),
            stages_entries=self._notes is not None,
        )

    async def _ended(self, channel: str, eids: Set[str]) -> set[str]:
        """Return the ids of the facts of a channel about some episodes that a person ended."""
        ids = [fact_id_of(channel, eid) for eid in eids]
        some = [ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE)]
        found = [await self._facts.retracted_by_people(each) for each in some]
        return set().union(*found)

    async def _every_part(self, at_once: int) -> AsyncIterator[Part]:
        """Yield all episodes that the rule selects, or that have a mark or a weight, by owner."""
        selected = await self._episodes.ids_by_owner(self._rule)
        facts = [
            fact
            for channel in (MARKS, SUMMARIES, WEIGHTS)
            async for fact in current_facts(self._facts, channel, at_once)
        ]
        every = known_marks(facts, self._rule.id, anew=self._anew)
        archived: defaultdict[Owner, dict[str, int]] = defaultdict(dict)
        for fact in facts if self._notes is not None else ():
            archived[fact.user, fact.agent].update(_archived_in([fact], self._rule.id))
        for owner in sorted(selected.keys() | every.keys()):
            known = every.get(owner, KnownMarks(anew=self._anew))
            ids = {*selected.get(owner, ()), *known.marks, *known.weights}
            yield Part(owner, ids, known, archived[owner])

    async def _find_changed(self) -> AsyncIterator[Part] | None:
        """Return what changed since the notes were made; None when they cannot say."""
        notes, window = self._notes, self._window
        if notes is None:
            return None
        former, users = await self._noted_place(notes)
        ledger = await self._facts.stage_changes(None if former is None else former.ledger)
        fingerprint = (
            f"{self._rule.content_hash} {window.future} {ledger.generation} {notes.reading}"
        )
        if former is not None and not (
            former.fingerprint == fingerprint
            and former.at <= self._at
            and former.position.seq <= window.after.seq
            and ledger.known
        ):
            former = None
        place = None if former is None else FeedPlace(former.position, former.deletion)
        changes = await self._episodes.changed_ids(place)
        if not changes.known or await self._lacks_owners(changes.deleted):
            former = None
        if former is None and not window.dry_run:
            await self._write(notes.clear)
        self._changes = changes
        self._pending = {eid for eid, seq in changes.written.items() if seq > window.after.seq}
        self._place = StagePlace(
            fingerprint,
            window.after,
            changes.place.deletion,
            ledger.place,
            self._at,
        )
        if former is None:
            return None
        search = ChangedEpisodes(self._episodes, self._facts, self._rule, notes)
        return search.find(changes, ledger.fact_ids, self._at, users)

    async def _noted_place(self, notes: StageNotes) -> tuple[StagePlace | None, Set[str]]:
        """Return up to where the notes know the stores, and of which users episodes were erased.

        An erasure may have ended before the notes follow it; then they know no place.
        """
        former = None if self._anew else notes.place()
        if former is None:
            return None, frozenset()
        chains = await self._facts.erasures_after(former.ledger.rows)
        noted = notes.erasures()
        if any(number not in noted or noted[number][0] != chains[number] for number in chains):
            return None, frozenset()
        users = (noted[number][1] for number in chains)
        return former, {user for user in users if user is not None}

    async def _lacks_owners(self, deleted: Set[str]) -> bool:
        """Return whether nobody knows whose turns were deleted, on which other texts depend."""
        if self._notes is None or self._rule.extract is None or not deleted:
            return False
        found = await asyncio.to_thread(self._notes.owners_of, deleted)
        return not deleted <= {eid for eid, _ in found}

    async def save(self, part: Part, staged: Sequence[StagedEntry]) -> None:
        """Keep what the stages need to know of the episodes of a part.

        Args:
            staged: What is kept of each of them; of the others nothing is kept.
        """
        if self._notes is None or self._window.dry_run:
            return
        entries = _entries_of(part, staged)
        gone = part.ids - {one.id for one in entries} - self._pending
        self._dropped |= gone
        await self._write(partial(self._notes.save, part.owner, entries, gone))

    async def find_changed(self) -> set[tuple[Owner, str]] | None:
        """Return the episodes that the stages look at; None when they look at all."""
        found = await self._find_changed()
        return None if found is None else {(one.owner, id) async for one in found for id in one.ids}

    async def finish(self) -> None:
        """Commit what was saved, unless an episode changed meanwhile that the stages missed."""
        notes, place, changes = self._notes, self._place, self._changes
        if notes is None or place is None or changes is None or self._window.dry_run:
            return
        late = await self._episodes.changed_ids(changes.place)
        if late.known and self._dropped.isdisjoint({*late.written, *late.deleted}):
            await self._write(partial(notes.finish, place))

    async def _write(self, work: Callable[[], None]) -> None:
        """Write to the notes; after an error nothing more is kept, and the firing goes on."""
        if self._is_broken:
            return
        try:
            await asyncio.to_thread(work)
        except StoreError as error:
            self._is_broken = True
            warn_of_notes(self._rule.id, error)


def _entries_of(part: Part, staged: Sequence[StagedEntry]) -> list[StagedEntry]:
    """Return what is kept of the episodes of a part, with the instants of their marks."""
    return [one._replace(archived_at=part.archived.get(one.id)) for one in staged]


def find_wrong(notes: StageNotes, part: Part, staged: Sequence[StagedEntry]) -> dict[str, str]:
    """Return the episodes of an owner about which the notes say something else, and what.

    Args:
        part: All episodes of the owner.
        staged: What must be kept of them.
    """
    wanted = {one.id: one for one in _entries_of(part, staged)}
    eids = wanted.keys() | notes.eids(part.owner)
    noted = {one.id: one for one in notes.entries(part.owner, eids)}
    return {
        id: _describe_difference(noted.get(id), wanted.get(id))
        for id in eids
        if noted.get(id) != wanted.get(id)
    }


def _describe_difference(noted: StagedEntry | None, wanted: StagedEntry | None) -> str:
    if noted is None:
        return "is missing"
    if wanted is None:
        return "is of no use: no stage sees the episode"
    pairs = zip(StagedEntry._fields, noted, wanted, strict=True)
    return f"has a wrong {' and '.join(name for name, left, right in pairs if left != right)}"


def warn_of_notes(rule_id: str, error: StoreError) -> None:
    """Log that the notes of a rule cannot be opened or written."""
    _log.warning("stage_notes.failed", rule_id=rule_id, problem=str(error))


def _archived_in(facts: Iterable[Fact], rule_id: str) -> dict[str, int]:
    """Return when a rule archived episodes, by episode."""
    return {
        mark.id: microseconds(fact.pinned_at)
        for fact in facts
        if channel_of(fact.id) == MARKS and is_of_rule(fact, rule_id)
        if (mark := mark_in(fact)).kind in PURGED
    }


@dataclass(slots=True)
class _Seen:
    """What is known of the episodes of one owner while their neighbours are looked for.

    Attributes:
        free: Those that have no mark, or whose mark may end: only they may be duplicates, or be
            summarised.
        asked: Those of them whose neighbours were looked for.
        texts: Finds the texts that may be duplicates by their characters or vectors.
        compared: What is compared of episodes; None of those that the rule does not select.
        groups: The traces of the groups of episodes.
    """

    free: set[str]
    texts: OwnerTexts
    ids: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    facts: list[Fact] = field(default_factory=list)
    compared: dict[str, Comparable | None] = field(default_factory=dict)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)


class ChangedEpisodes:
    """Finds what changed since a rule's stages ran, and what depends on it.

    Args:
        facts: The store of facts, with the marks.
        notes: What is kept of the episodes that the stages have seen.
    """

    def __init__(
        self,
        episodes: EpisodeLog,
        facts: FactTarget,
        rule: ConsolidationRule,
        notes: StageNotes,
    ) -> None:
        self._episodes = episodes
        self._facts = facts
        self._rule = rule
        self._notes = notes
        # What a text says may depend on the turns before.
        self._whole = rule.extract is not None

    async def find(
        self, changes: EpisodeChanges, fact_ids: Iterable[str], at: int, users: Set[str]
    ) -> AsyncIterator[Part]:
        """Yield what the stages must look at, by owner; owners are sorted.

        Args:
            changes: Which episodes were written or deleted.
            fact_ids: Which facts of the channels of stages changed.
            at: Now, in microseconds since 1970 UTC.
            users: Of whom all episodes are looked at.
        """
        rewritten = {*changes.written, *changes.deleted}
        eids = {*rewritten, *map(episode_id_of, fact_ids)}
        for user in users:
            eids |= await self._episodes.ids_of_user(user) | await marked_of(self._facts, user)
        seeds = await self._seeds(eids)
        for owner, eid in await asyncio.to_thread(self._notes.due, at):
            seeds[owner].add(eid)
        for owner in sorted(seeds):
            part = None if self._whole else await self._near(owner, seeds[owner], rewritten)
            yield part or await self._all_of(owner, seeds[owner])

    async def _seeds(self, eids: Set[str]) -> defaultdict[Owner, set[str]]:
        """Return changed episodes by each owner for whom the stages may see them."""
        found: defaultdict[Owner, set[str]] = defaultdict(set)
        for eid, owner in await asyncio.to_thread(self._notes.owners_of, eids):
            found[owner].add(eid)
        for fact in await facts_about(self._facts, (MARKS, WEIGHTS), eids):
            found[fact.user, fact.agent].add(episode_id_of(fact.id))
        for version in await self._read(eids):
            # What a text says may depend on the turn before, which no rule needs to select.
            if not version.fault and (version.matched or self._rule.extract is not None):
                found[version.user, version.agent].add(version.id)
        return found

    async def _read(self, eids: Collection[str]) -> Sequence[EpisodeVersion]:
        if not eids:
            return []
        return await self._episodes.reread(self._rule, sorted(eids), upto=_EVERY_ROW)

    async def _all_of(self, owner: Owner, seeds: Set[str]) -> Part:
        """Return all episodes of an owner that the stages see."""
        user, agent = owner
        ids = seeds | await asyncio.to_thread(self._notes.eids, owner)
        # An episode with a mark that has neither notes nor a change is gone.
        facts = await self._marks_of(owner, ids)
        facts += [
            one async for one in current_facts(self._facts, SUMMARIES, user=user, agent=agent)
        ]
        return self._part(owner, ids, facts)

    async def _marks_of(self, owner: Owner, eids: Set[str]) -> list[Fact]:
        """Return the current marks, weights and summaries of an owner with the ids of episodes."""
        found = await facts_about(self._facts, (MARKS, WEIGHTS, SUMMARIES), eids)
        return [fact for fact in found if (fact.user, fact.agent) == owner]

    def _part(self, owner: Owner, ids: Set[str], facts: Sequence[Fact]) -> Part:
        rule_id = self._rule.id
        known = known_marks(facts, rule_id).get(owner, KnownMarks())
        return Part(owner, ids, known, _archived_in(facts, rule_id))

    async def _near(self, owner: Owner, seeds: Set[str], rewritten: Set[str]) -> Part | None:
        """Return episodes with all those that they reach through duplicates, marks and groups.

        None when a look at all episodes of the owner is faster.
        """
        texts = OwnerTexts(self._notes, owner, self._rule.stages, self._episodes.embed)
        seen = _Seen({*seeds}, texts)
        former = await asyncio.to_thread(self._former, owner, seeds, rewritten, texts)
        reached = {*seeds, *former}
        while reached and not texts.is_exceeded:
            seen.ids |= reached
            facts = await self._marks_of(owner, reached)
            seen.facts += facts
            seen.free |= reached - {episode_id_of(one.id) for one in facts if _is_mark(one)}
            named: set[str] = set()
            for fact in facts:
                names = _named_in(fact)
                named |= names
                # Only a change of what is named, or of the mark itself, can end a mark.
                if not names.isdisjoint(seeds):
                    seen.free |= {episode_id_of(fact.id), *names}
            reached = (named | await self._neighbours(owner, reached, seen)) - seen.ids
        return None if texts.is_exceeded else self._part(owner, seen.ids, seen.facts)

    def _former(
        self, owner: Owner, seeds: Set[str], rewritten: Set[str], texts: OwnerTexts
    ) -> set[str]:
        """Return what changed episodes were near to when the stages last looked at them."""
        before = self._notes.entries(owner, seeds)
        changed = [one for one in before if one.id in rewritten]
        traces = {trace for one in changed for trace in one.traces}
        found = {eid for _, eid in self._notes.traced(owner, traces)}
        found |= texts.near_to_kept(one.compared for one in changed if one.compared is not None)
        return found | {one.kept for one in before if one.kept}

    async def _neighbours(self, owner: Owner, eids: Set[str], seen: _Seen) -> set[str]:
        """Return the episodes whose mark names one of some, or which are near to a free one.

        Near are those that are similar, and those of its group.
        """
        asking = (seen.ids & seen.free) - seen.asked
        seen.asked |= asking
        await self._compare(asking, seen)
        by_trace: defaultdict[int, list[Comparable]] = defaultdict(list)
        compared = [one for eid in asking if (one := seen.compared[eid]) is not None]
        for one in compared:
            for trace in traces_of(one, self._rule.stages):
                by_trace[trace].append(one)
        by_text = await asyncio.to_thread(seen.texts.near_to, compared)
        links = {kept_trace(eid) for eid in eids}
        links |= {trace for eid in asking for trace in seen.groups.get(eid, ())}
        rows = await asyncio.to_thread(self._notes.traced, owner, [*by_trace, *links])
        linked = {eid for trace, eid in rows if trace in links}
        similar = [(trace, eid) for trace, eid in rows if trace not in links]
        await self._compare({eid for _, eid in similar} - seen.compared.keys(), seen)
        near = {
            eid
            for trace, eid in similar
            if (one := seen.compared[eid]) is not None
            if any(are_near(one, other, self._rule.stages) for other in by_trace[trace])
        }
        return linked | near | by_text

    async def _compare(self, eids: Set[str], seen: _Seen) -> None:
        """Read what is compared of episodes; None of those that the rule does not select."""
        wanted = eids - seen.compared.keys()
        seen.compared.update(dict.fromkeys(wanted))
        for version in await self._read(wanted):
            if version.matched and not version.fault:
                entry = entry_of(version)
                seen.compared[version.id] = comparable_of(entry)
                seen.groups[version.id] = group_traces(entry, self._rule.stages)


def _named_in(fact: Fact) -> set[str]:
    """Return the episodes that a mark or a summary names."""
    named = {*fact.payload.get(SUMMARISES, ())}
    return named | {named_episode(mark_in(fact))} - {""} if _is_mark(fact) else named


def _is_mark(fact: Fact) -> bool:
    return channel_of(fact.id) == MARKS


async def marked_of(facts: FactTarget, user: str) -> set[str]:
    """Return the episodes with a current mark or weight of a user."""
    return {
        episode_id_of(fact.id)
        for channel in (MARKS, WEIGHTS)
        async for fact in current_facts(facts, channel, user=user)
    }


async def facts_about(
    facts: FactTarget, channels: Sequence[str], eids: Collection[str]
) -> list[Fact]:
    """Return the current facts of some channels that are about some episodes."""
    ids = [fact_id_of(channel, eid) for channel in channels for eid in sorted(eids)]
    return await _facts_of(facts, ids)


async def _facts_of(facts: FactTarget, ids: Sequence[str]) -> list[Fact]:
    found: list[Fact] = []
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        found += await facts.query(FactPattern(id=OneOf(*some)))
    return found


async def current_facts(
    facts: FactTarget,
    channel: str,
    at_once: int = 5_000,
    *,
    user: str | None = None,
    agent: str | None = None,
) -> AsyncIterator[Fact]:
    """Yield the current facts of a channel, by id; so many are read at once.

    Args:
        user: Only those of this user; None for all.
        agent: Only those of this agent; None for all.
    """
    pattern = FactPattern(channel=channel, user=user, agent=agent, limit=at_once)
    while page := await facts.query(pattern):
        for fact in page:
            yield fact
        pattern = pattern.following(page[-1])
