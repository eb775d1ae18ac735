"""Print explanations of facts and of the outcomes of episodes for people."""

from __future__ import annotations

from collections.abc import Sequence

from slumberd.cli.output import cell, print_table
from slumberd.consolidation.explanation import (
    AssertingRow,
    Decision,
    DetailedRecord,
    Source,
)
from slumberd.logs.lines import printable
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.fact import Fact
from slumberd.operations.reads.episode_results import ResultOfRule
from slumberd.operations.reads.explanations import (
    ExplainedFact,
    describe_extraction,
    describe_removal,
)

SOURCE_COLUMNS = ("episode", "session", "at", "speaker", "source node", "in memory")
ASSERTION_COLUMNS = (
    "row", "at", "firing", "rule hash", "trigger", "by", "did", "replaces", "counts",
)  # fmt: skip
REPLACING_COLUMNS = ("row", "at", "firing", "did", "how")
RESULT_COLUMNS = ("rule", "channel", "what became of it")
DECISION_COLUMNS = (
    "rule", "channel", "outcome", "firing", "fact", "current", "what would change that",
)  # fmt: skip


class FactExplanation:
    """Prints an explanation of a fact for people.

    Args:
        explained: The explanation.
    """

    def __init__(self, explained: ExplainedFact) -> None:
        self._explained = explained
        self._explanation = explained.explanation
        self._content = explained.content

    def print(self) -> None:
        """Print it for people."""
        explanation = self._explanation
        self._print_fact()
        if explanation.sources:
            self._print_sources()
        if explanation.assertions:
            print("\npromoted by")
            print_table(ASSERTION_COLUMNS, map(_assertion_row, explanation.assertions))
        if explanation.replacing:
            print("\nreplaced or deleted by")
            print_table(REPLACING_COLUMNS, map(self._replacing_row, explanation.replacing))

    def _print_fact(self) -> None:
        explanation = self._explanation
        fact = explanation.fact
        print(f"fact        {cell(explanation.fact_id)}")
        print(f"current     {'yes' if fact else f'no: {self._explained.removal()}'}")
        if fact:
            print(f"scope       user {cell(fact.user)}, agent {cell(fact.agent)}")
            print(f"says        {self._triple_of(fact)}")
            print(f"confidence  {cell(fact.confidence)}")
            if found := describe_extraction(fact.payload, content=self._content):
                print(f"extracted   by {found}")
            print(f"said at     {cell(fact.said_at)}")
            print(f"pinned at   {cell(fact.pinned_at)}")
            if explanation.declared:
                print("declared    by its program; it competes with no other fact")
            for entry in fact.lineage:
                print(f"lineage     {cell(entry)}")
        if explanation.replaced:
            print(f"replaced    {', '.join(map(printable, explanation.replaced))}")
        for near in explanation.near:
            print(f"near to     {printable(near.fact_id)}, {near.cosine}: possible duplicate")

    def _triple_of(self, fact: Fact) -> str:
        """Return a fact's triple; without a triple, its text when --content is given."""
        parts = ("subject", "predicate", "object")
        triple = " ".join(cell(fact.payload[part]) for part in parts if part in fact.payload)
        return triple or (cell(fact.payload.get("content")) if self._content else "(see --content)")

    def _print_sources(self) -> None:
        print("\nfrom")
        columns = (*SOURCE_COLUMNS, "content") if self._content else SOURCE_COLUMNS
        print_table(columns, map(self._source_row, self._explanation.sources))

    def _source_row(self, source: Source) -> tuple[object, ...]:
        cells = self._explained.source_document(source)
        cells["at"] = self._explained.timestamp_of(source)
        if not cells["in_memory"]:
            cells["in_memory"] = "no longer among the episodes"
        return tuple(cells.values())

    def _replacing_row(self, row: DetailedRecord) -> tuple[object, ...]:
        how = describe_removal(row, self._explanation.fact_id)
        return row.record.seq, row.record.at, row.record.firing_id, row.record.kind, how


def _assertion_row(asserting: AssertingRow) -> tuple[object, ...]:
    row, record = asserting.row, asserting.row.record
    return (
        record.seq, record.at, record.firing_id, row.rule_hash or None, row.trigger,
        _with_reason(row.by, row.firing_reason) or None,
        _with_reason(record.kind, record.reason), ", ".join(record.replaces), asserting.counts,
    )  # fmt: skip


def print_episode(episode_id: str, version: EpisodeVersion | None) -> None:
    """Print an episode for people.

    Args:
        version: Its newest version; None when it is no longer stored.
    """
    print(f"episode     {cell(episode_id)}")
    if version is None:
        print("in memory   no longer among the episodes\n")
        return
    print(f"scope       user {cell(version.user)}, agent {cell(version.agent)}")
    print(f"speaker     {cell(version.speaker)}")
    print(f"in memory   session {cell(version.session)}, at {cell(instant(version.at))}")
    print()


def print_results(results: Sequence[ResultOfRule]) -> None:
    """Print what became of an episode, in a sentence for each rule and channel."""
    if results:
        rows = ((result.rule_id, result.channel, result.sentence) for result in results)
        print_table(RESULT_COLUMNS, rows)
        print()


def decision_row(decision: Decision, remedy: str) -> tuple[object, ...]:
    """Return the row of a decision in the table; `remedy` is what would change it."""
    row = decision.row
    reason = ": ".join(filter(None, (decision.reason, decision.detail)))
    return (
        decision.rule_id, decision.channel, _with_reason(decision.outcome, reason),
        row.record.firing_id if row else None, decision.fact_id, decision.is_current, remedy,
    )  # fmt: skip


def _with_reason(word: str, reason: str) -> str:
    return f"{word} ({reason})" if reason else word
