"""Run the stages of a rule that mark and weight episodes: known marks in, changes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from typing import NamedTuple, assert_never

from slumberd.consolidation.stages.decay import find_decayed, find_halved, find_unimportant
from slumberd.consolidation.stages.duplicates import find_duplicates, no_vectors
from slumberd.consolidation.stages.entries import Archive, Entry, Summary, SummaryFailure, in_order
from slumberd.consolidation.stages.neighbours import (
    comparable_of,
    compared_texts,
    group_traces,
    kept_trace,
    named_episode,
    next_change,
    traces_of,
)
from slumberd.consolidation.stages.similar_texts import Embed
from slumberd.consolidation.stages.summary import Division, plan_groups, summarise
from slumberd.model.episode import microseconds
from slumberd.model.scope import fact_id_of
from slumberd.model.stages import (
    ALWAYS_DUE,
    SUMMARIES,
    Decay,
    Dedup,
    Importance,
    KnownMarks,
    Mark,
    Stage,
    StagedEntry,
    Summarise,
    Weight,
)

Summariser = Callable[[Sequence[Entry], int], Summary | SummaryFailure]
"""Summarises entries, oldest first, in so many tokens at most; returns why if it cannot."""


def summarise_by_sentences(entries: Sequence[Entry], max_tokens: int) -> Summary:
    """Return the most telling sentences of entries."""
    return summarise(entries, max_tokens=max_tokens)


class MarkChanges(NamedTuple):
    """How the marks of one user and agent change.

    Attributes:
        marks: New and changed marks, oldest episode first.
        unmarked: The episodes whose mark of this rule is withdrawn, in order of id.
        summaries: New and changed summaries, by fact id.
        dropped: The fact ids of the summaries that are withdrawn, in order.
        weights: New and changed weights, oldest episode first.
        unweighted: The episodes whose weight of this rule is withdrawn, in order of id.
        unsummarised: The groups that could not be summarised; they have no marks.
        staged: What is kept of each entry, if the known marks ask for it; in order of id.
    """

    marks: Sequence[Mark]
    unmarked: Sequence[str]
    summaries: Mapping[str, Summary]
    dropped: Sequence[str]
    weights: Sequence[Weight]
    unweighted: Sequence[str]
    unsummarised: Sequence[SummaryFailure] = ()
    staged: Sequence[StagedEntry] = ()


def decide_marks(  # noqa: PLR0913 # one for each thing that it depends on
    entries: Iterable[Entry],
    stages: Iterable[Stage],
    known: KnownMarks,
    at: datetime,
    *,
    unselected: Set[str] = frozenset(),
    summariser: Summariser = summarise_by_sentences,
    division: Division = "even",
    embed: Embed = no_vectors,
) -> MarkChanges:
    """Return what a rule's stages change about the marks of one user and agent.

    Each stage sees the entries that have no mark. A mark of another rule or of a person always
    counts. A mark of this rule counts as long as the content of its entry is the same. That of a
    duplicate also needs the content of the kept entry, and that of a summarised entry needs the
    content of all entries of the summary. A kept entry has the importance of its duplicates.

    A weight hides nothing, and is decided anew each time. An entry has at most one: the rule leaves
    an entry alone that another rule has weighted. An entry with a mark has none.

    Args:
        entries: All entries that the rule selects, of one user and agent, in any order.
        stages: In the order in which they run.
        known: The marks in force.
        at: Now, for all stages; aware.
        unselected: The ids of episodes that have a mark, and that the rule does not select now.
        summariser: Writes the summaries.
        division: How the entries of a session become groups.
        embed: Returns the vectors of texts, for a stage that compares them.

    Raises:
        ValueError: An entry is out of bounds.
        ExtraMissingError: A stage needs an extra that is not installed.
    """
    plan = _SummaryPlan(summariser, division)
    run = _Run(in_order(entries), known, at, unselected, plan, embed)
    # Weights come last: a duplicate passes its importance on, which may protect the kept entry.
    in_turn = sorted(stages, key=_weighs)
    for stage in in_turn:
        run.apply(stage)
    changes = run.changes()
    return (
        changes._replace(staged=run.staged(in_turn, changes)) if known.stages_entries else changes
    )


def staged_entry(
    id: str, due: int | None, known: KnownMarks, traces: Sequence[int] = ()
) -> StagedEntry:
    """Return what is kept of an episode; a trace leads to the episode that its mark names."""
    kept = named_episode(known.marks[id].mark) if id in known.marks else ""
    return StagedEntry(id, due, kept, (*traces, kept_trace(kept)) if kept else (*traces,))


def _weighs(stage: Stage) -> bool:
    return isinstance(stage, Decay) and stage.action == "reweight"


class _SummaryPlan(NamedTuple):
    """What writes the summaries, and how entries become groups."""

    summariser: Summariser
    division: Division


class _Run:
    """One run of the stages."""

    def __init__(
        self,
        entries: Sequence[Entry],
        known: KnownMarks,
        at: datetime,
        unselected: Set[str],
        plan: _SummaryPlan,
        embed: Embed,
    ) -> None:
        self._embed = embed
        self._entries = {entry.id: entry for entry in entries}
        self._unselected = unselected
        self._known = known
        self._at = at
        self._plan = plan
        self._valid_summaries = {
            fact_id for fact_id, ids in known.summaries.items() if self._is_unchanged(fact_id, ids)
        }
        self._hidden = {id for id in known.marks if self._is_hidden(id)}
        self._marks: dict[str, Mark] = {}
        self._summaries: dict[str, Summary] = {}
        self._unsummarised: list[SummaryFailure] = []
        self._factors: dict[str, float] = {}
        for id in sorted(self._hidden & self._entries.keys()):
            self._pass_importance_on(id)

    def _is_unchanged(self, fact_id: str, ids: Iterable[str]) -> bool:
        """Return whether every remaining episode of a summary has its mark, and its content."""
        remaining = [id for id in ids if id in self._entries or id in self._unselected]
        if self._known.anew and remaining:
            return False
        return all(
            self._has_same_content(id) and self._known.marks[id].mark.object == fact_id
            for id in remaining
        )

    def _has_same_content(self, id: str) -> bool:
        found = self._known.marks.get(id)
        return found is not None and found.mark.digest == self._digest_for(found.mark)

    def _is_hidden(self, id: str) -> bool:
        mark, own = self._known.marks[id]
        if not own:
            return True
        if self._known.anew or not self._has_same_content(id):
            return False
        return mark.kind != "summarised_into" or mark.object in self._valid_summaries

    def _digest_for(self, mark: Mark) -> str | None:
        """Return the digest of what a mark depends on now; None when an entry is gone."""
        ids = (mark.id, mark.object) if mark.kind == "duplicate_of" else (mark.id,)
        entries = [self._entries.get(id) for id in ids]
        return "".join(entry.digest for entry in entries if entry) if all(entries) else None

    def _pass_importance_on(self, id: str) -> None:
        """Give the kept entry of a duplicate at least the importance of the duplicate."""
        importance = self._entries[id].importance
        while (mark := self._mark_of(id)) is not None and mark.kind == "duplicate_of":
            id = mark.object
            if id not in self._entries or self._entries[id].importance >= importance:
                return
            self._entries[id] = self._entries[id]._replace(importance=importance)

    def _mark_of(self, id: str) -> Mark | None:
        """Return the mark that hides an entry, of this run or before; None when it has none."""
        if id in self._marks:
            return self._marks[id]
        return self._known.marks[id].mark if id in self._hidden else None

    def apply(self, stage: Stage) -> None:
        """Mark what one stage marks."""
        match stage:
            case Dedup():
                self._mark_duplicates(stage)
            case Decay():
                self._decay(stage)
            case Importance():
                self._archive(find_unimportant(self._live(), stage.below))
            case Summarise():
                self._summarise(stage)
            case _:
                assert_never(stage)

    def _live(self) -> list[Entry]:
        """Return the entries that have no mark yet, and may have one."""
        return [entry for entry in self._visible() if entry.id not in self._known.unmarkable]

    def _visible(self) -> list[Entry]:
        """Return the entries that have no mark yet."""
        return [
            entry
            for id, entry in self._entries.items()
            if id not in self._hidden and id not in self._marks
        ]

    def _mark_duplicates(self, stage: Dedup) -> None:
        found = find_duplicates(
            self._live(),
            stage.method,
            similarity=stage.similarity,
            keep=stage.keep,
            embed=self._embed,
        )
        for id, of, similarity in found:
            mark = Mark(id, "duplicate_of", of, "", similarity)
            self._add(mark._replace(digest=self._digest_for(mark) or ""))
            self._pass_importance_on(id)

    def _decay(self, stage: Decay) -> None:
        archives = stage.action == "archive"
        find = find_decayed if archives else find_halved
        found = find(
            self._live() if archives else self._weightable(),
            self._at,
            half_life_seconds=stage.half_life,
            threshold=stage.threshold,
            protect_importance=stage.protect_importance,
        )
        for one in found:
            if isinstance(one, Archive):
                self._archive([one])
            else:
                self._factors[one.id] = one.factor

    def _weightable(self) -> list[Entry]:
        """Return the entries that have no mark, and may have a weight."""
        return [entry for entry in self._visible() if entry.id not in self._known.unweightable]

    def _archive(self, found: Iterable[Archive]) -> None:
        for archive in found:
            digest = self._entries[archive.id].digest
            self._add(Mark(archive.id, "archived", archive.reason, digest))

    def _summarise(self, stage: Summarise) -> None:
        groups = plan_groups(
            self._live(),
            stage.group_by,
            when_more_than=stage.when_more_than,
            division=self._plan.division,
        )
        for group in groups:
            if fact_id_of(SUMMARIES, group[0].id) in self._known.unsummarisable:
                continue
            summary = self._plan.summariser(group, stage.max_tokens)
            if isinstance(summary, SummaryFailure):
                self._unsummarised.append(summary)
                continue
            if not summary.text:
                continue
            fact_id = fact_id_of(SUMMARIES, summary.ids[0])
            self._summaries[fact_id] = summary
            for id in summary.ids:
                self._add(Mark(id, "summarised_into", fact_id, self._entries[id].digest))

    def _add(self, mark: Mark) -> None:
        self._marks[mark.id] = mark

    def changes(self) -> MarkChanges:
        """Return what changed."""
        known = self._known.marks
        marks = [
            mark
            for id, mark in self._marks.items()
            if id not in known or not known[id].own or known[id].mark != mark
        ]
        unmarked = [
            id
            for id, found in known.items()
            if found.own and id not in self._hidden and id not in self._marks
            if id in self._entries or id in self._unselected
        ]
        dropped = self._known.summaries.keys() - self._valid_summaries - self._summaries.keys()
        return MarkChanges(
            sorted(marks, key=lambda mark: (self._entries[mark.id].at, mark.id)),
            sorted(unmarked),
            self._summaries,
            sorted(dropped),
            *self._changed_weights(),
            tuple(self._unsummarised),
        )

    def staged(self, stages: Sequence[Stage], changes: MarkChanges) -> list[StagedEntry]:
        """Return what is kept of the entries, and of the other episodes that have a mark.

        An episode is always due whose mark or weight changes, or which could not be summarised.
        """
        changed = {mark.id for mark in changes.marks}.union(
            (weight.id for weight in changes.weights), changes.unmarked, changes.unweighted
        )
        if changes.summaries or changes.dropped or changes.unsummarised:
            changed.update(self._entries)
        others = self._unselected & (self._known.marks.keys() | self._known.weights.keys())
        # A mark hides an entry from the others, which need not find it as long as it has the mark.
        unmarked = [id for id in sorted(self._entries) if self._mark_of(id) is None]
        comparable = {id: comparable_of(self._entries[id]) for id in unmarked}
        texts = compared_texts([*comparable.values()], stages, self._embed)
        compared = dict(zip(comparable, texts, strict=True))
        found: list[StagedEntry] = []
        for id in sorted(self._entries.keys() | others):
            entry = self._entries.get(id)
            due = ALWAYS_DUE if id in changed else self._next_change(entry, stages)
            traces: tuple[int, ...] = ()
            if entry is not None and id in comparable:
                traces = (*traces_of(comparable[id], stages), *group_traces(entry, stages))
            staged = staged_entry(id, due, self._known, traces)
            found.append(staged._replace(compared=compared.get(id)))
        return found

    def _next_change(self, entry: Entry | None, stages: Sequence[Stage]) -> int | None:
        if entry is None or self._mark_of(entry.id) is not None:
            return None
        return next_change(
            entry,
            stages,
            microseconds(self._at),
            archivable=entry.id not in self._known.unmarkable,
            weightable=entry.id not in self._known.unweightable,
        )

    def _changed_weights(self) -> tuple[Sequence[Weight], Sequence[str]]:
        """Return the new and changed weights, and the episodes whose weight is withdrawn."""
        known = self._known.weights
        wanted = {
            id: Weight(id, factor, self._entries[id].digest)
            for id, factor in self._factors.items()
            if id not in self._marks
        }
        changed = [
            weight
            for id, weight in wanted.items()
            if id not in known or (known[id].own and known[id].weight != weight)
        ]
        withdrawn = [
            id
            for id, found in known.items()
            if found.own and id not in wanted and (id in self._entries or id in self._unselected)
        ]
        return changed, sorted(withdrawn)
