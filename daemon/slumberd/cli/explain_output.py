"""Print explanations of facts and episodes: JSON for programs, tables and sentences for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from slumberd.cli.output import cell, fact_document, print_table
from slumberd.consolidation.explanation import (
    AssertingRow,
    Decision,
    DetailedRecord,
    Explanation,
    Source,
)
from slumberd.consolidation.incoming import ID_TAKEN, UNSAID
from slumberd.consolidation.precedence import EXTERNAL, GRAPH, MANUAL_RULE_ID
from slumberd.consolidation.state import NOTHING_SAID
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.fact import Fact
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.firing import HeldBatch
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import printable, timestamp

LATER = "say it again with a later timestamp"
NOTHING = "nothing needs to change"

_AUTHORS = {MANUAL_RULE_ID: "a person", EXTERNAL: "another program"}
"""Who writes the rows of a rule id that no rule has."""

_REMOVALS = {
    "@channels": "its predicate holds several objects, or one, where it did not before",
    "@erasure": "another fact replaced it when a scope was erased",
}
_NOOPS = {
    "stale": "what it retracts is newer, or was not current any more; {again}",
    "retracted": "a newer retraction covers it; {again}",
    "unresolved": "it retracts nothing known yet; it will retract what arrives later and is older",
    "noop": "its intent is noop; put it with another intent",
    "in_triples": "nothing: its triples have facts of their own",
    "nothing_said": "the rule finds no triple in it; put it with a triple, or add a pattern",
}
_UNANSWERED = ("answer_invalid", "answer_refused")
"""Why an episode is in quarantine whose language model gave no answer that can be read."""

_NOTHING_ANSWERED = (
    "the language model finds no triple in it that counts; put it with a triple, or change the "
    "prompt"
)


def describe_removal(row: DetailedRecord, fact_id: str) -> str:
    """Return why a fact is not current, from the row that removed it."""
    if row.record.rule_id in _REMOVALS:
        return _REMOVALS[row.record.rule_id]
    if row.record.fact_id == fact_id:
        return _describe_own_removal(row)
    other = printable(row.record.fact_id)
    if row.undoes:
        return f"{other} is current again since {row.undoes} was undone"
    author = _author_of(row.record.rule_id)
    if row.record.kind == "delete":
        return f"{author or other} retracted it{_reason_of(row)}"
    return f"{other} replaced it" + (f": {author} pinned it{_reason_of(row)}" if author else "")


def _author_of(rule_id: str) -> str | None:
    """Return the author of a row that no rule over episodes wrote; None for such a rule."""
    if rule_id.startswith(GRAPH):
        return f"the graph rule {rule_id.removeprefix(GRAPH)}"
    return _AUTHORS.get(rule_id)


def _reason_of(row: DetailedRecord) -> str:
    by = f" ({row.by})" if row.by and row.record.rule_id in _AUTHORS else ""
    return by + (f", because: {printable(row.stated_reason)}" if row.stated_reason else "")


def _describe_own_removal(row: DetailedRecord) -> str:
    """Return why a fact is not current, from a row about its own id."""
    if row.undoes:
        return f"{row.undoes} was undone"
    match row.event:
        case "withdrawal" if row.record.rule_id in _AUTHORS:
            return "its program removed it"
        case "withdrawal":
            return f"{row.record.rule_id} no longer selects its episode"
        case "quarantine":
            return f"a newer version of its episode cannot be read ({row.record.reason})"
        case _:
            return "a newer version of its episode does not assert it"


def would_change(
    decision: Decision,
    rule: ConsolidationRule | None,
    *,
    in_memory: bool = True,
    held: HeldBatch | None = None,
    latest: int | None = None,
) -> str:
    """Return what would change a decision, in one sentence.

    Args:
        decision: The outcome of an episode under a rule.
        rule: The rule; None when it is no longer loaded.
        in_memory: Whether the episode is still stored.
        held: The rule's batch that awaits approval, or was approved; None without one.
        latest: The latest instant that is not in the future, microseconds since 1970 UTC; None
            to take no claim as one of the future.
    """
    match decision.outcome:
        case "pending":
            return _remedy_if_pending(decision, rule, held)
        case "filtered":
            return _remedy_if_filtered(decision.rule_id, rule)
        case "erased":
            return "its scope was erased; only episodes that are newer than the erasure count"
        case "skipped":
            return _remedy_if_skipped(decision.rule_id, in_memory=in_memory)
        case "undone":
            return f"`slumberd backfill {decision.rule_id}`"
        case "quarantined":
            return _remedy_if_quarantined(decision)
        case _:
            return _remedy_if_resolved(decision, rule, _remedy_for_rival(decision, latest))


def _remedy_for_rival(decision: Decision, latest: int | None) -> str:
    """Return the remedy for a newer claim; a claim dated in the future must itself be repaired."""
    rival = decision.rival
    if rival is None or latest is None or rival.at <= latest:
        return LATER
    dated = f"{printable(rival.id)} is dated {instant(rival.at):%Y-%m-%d %H:%M:%S}Z, in the future"
    return f"{dated}: put that one again with its real timestamp"


def _remedy_if_pending(
    decision: Decision, rule: ConsolidationRule | None, held: HeldBatch | None
) -> str:
    rule_id = decision.rule_id
    if held is not None and not held.approved:
        remedy = f"`slumberd approve {held.firing_id}` applies it"
        return f"{rule_id} awaits approval: {held.problem}; {remedy}"
    disabled = "" if rule is None or rule.enabled else f"{rule_id} is disabled, but: "
    if decision.unrecorded:
        waits = "it waits for the answer of the language model"
        return f"{disabled}{waits}; `slumberd extract {rule_id}` asks now"
    return f"{disabled}`slumberd fire {rule_id}`"


def _remedy_if_filtered(rule_id: str, rule: ConsolidationRule | None) -> str:
    if rule is None:
        return f"{rule_id} is no longer loaded; its filter did not select the episode"
    return f"the filter of {rule_id} does not select it: {printable(rule.when_filter)}"


def _remedy_if_skipped(rule_id: str, *, in_memory: bool) -> str:
    if not in_memory:
        return f"{rule_id} never evaluated it, and it is no longer among the episodes; put it again"
    causes = "the rule began later or was edited since, or the row was erased or dropped"
    return f"{rule_id} has no row about it ({causes}): `slumberd backfill {rule_id}`"


def _remedy_if_quarantined(decision: Decision) -> str:
    if decision.reason == ID_TAKEN:
        return "another user, agent or channel holds its id; put it under one of its own"
    sources = decision.row.record.source_episode_ids if decision.row else ()
    id = next(iter(sources), episode_id_of(decision.fact_id))
    retry = f"`slumberd quarantine retry {printable(id)}`"
    if decision.reason in _UNANSWERED:
        again = f"`slumberd extract {decision.rule_id} --again` asks again"
        return f"{again}, then {retry}; or repair the episode or the rule"
    return f"repair the episode; or repair the rule or the settings, then {retry}"


def _remedy_if_resolved(decision: Decision, rule: ConsolidationRule | None, again: str) -> str:
    """Return what would change the outcome of an episode that the precedence rule resolved."""
    row = decision.row
    if decision.is_current:
        return f"{NOTHING}: its fact is current"
    if row and row.event == "gated":
        return _remedy_if_gated(row)
    if row and row.event == "withdrawal" and row.document.get("detail") == UNSAID:
        return f"{NOTHING}: the newest version of the episode does not say it"
    if row and row.event == "withdrawal":
        return _remedy_if_filtered(decision.rule_id, rule)
    if decision.outcome == "delete":
        gone = ", ".join(map(printable, row.record.replaces)) if row else ""
        return f"{NOTHING}: it deleted {gone}"
    if decision.removed_by:
        return _remedy_if_removed(decision.removed_by, decision, again)
    if decision.holder:
        return f"a newer episode holds the key: {printable(decision.holder)}; {again}"
    return _remedy_if_noop(decision.reason, rule, again)


def _remedy_if_noop(reason: str, rule: ConsolidationRule | None, again: str) -> str:
    if reason == NOTHING_SAID and _asks_model(rule):
        return _NOTHING_ANSWERED
    return _NOOPS.get(reason, again).format(again=again)


def _asks_model(rule: ConsolidationRule | None) -> bool:
    return rule is not None and rule.extract is not None and rule.extract.asks_model


def _remedy_if_gated(row: DetailedRecord) -> str:
    salience, least = row.document["salience"], row.document["min"]
    below = f"its salience was {salience:.4f}, and {row.record.rule_id} requires {least:g}"
    return f"{below}; the rule scores it again when it is read"


def _remedy_if_removed(row: DetailedRecord, decision: Decision, again: str) -> str:
    removal = describe_removal(row, decision.fact_id)
    if row.undoes and row.record.fact_id == decision.fact_id:
        return f"{removal}: `slumberd undo {row.record.firing_id}`"
    return f"{removal}; {again}"


SOURCE_COLUMNS = ("episode", "session", "at", "source node", "in memory")
ASSERTION_COLUMNS = (
    "row", "at", "firing", "rule hash", "trigger", "by", "did", "replaces", "counts",
)  # fmt: skip
REPLACING_COLUMNS = ("row", "at", "firing", "did", "how")
DECISION_COLUMNS = (
    "rule", "channel", "outcome", "firing", "fact", "current", "what would change that",
)  # fmt: skip

Versions = dict[str, EpisodeVersion]
"""The newest version of each episode, by the episode's id."""


class FactExplanation:
    """An explanation of a fact in the forms that `slumberd why` prints.

    Args:
        explanation: The explanation.
        versions: The newest versions of the episodes that the fact comes from.
        content: Whether to show what the episodes say, in their own words.
    """

    def __init__(self, explanation: Explanation, versions: Versions, *, content: bool) -> None:
        self._explanation = explanation
        self._versions = versions
        self._content = content

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        explanation = self._explanation
        fact_id, fact = explanation.fact_id, explanation.fact
        return {
            "id": fact_id,
            "current": fact is not None,
            "removal": self._describe_removal(),
            "fact": fact and {**fact_document(fact), "payload": self._payload_of(fact)},
            "declared": explanation.declared,
            "sources": [self._source_document(source) for source in explanation.sources],
            "promoted": [
                {**_row_document(asserting.row), "counts": asserting.counts}
                for asserting in explanation.assertions
            ],
            "replaced": explanation.replaced,
            "near": [near._asdict() for near in explanation.near],
            "replaced_by": [
                {**_row_document(row), "how": describe_removal(row, fact_id)}
                for row in explanation.replacing
            ],
        }

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

    def _payload_of(self, fact: Fact) -> dict[str, Any]:
        return {
            name: value
            for name, value in fact.payload.items()
            if self._content or name != "content"
        }

    def _describe_removal(self) -> str | None:
        """Return why the fact is not current; None when it is."""
        explanation = self._explanation
        if explanation.fact:
            return None
        if explanation.taken_out:
            return describe_removal(explanation.taken_out, explanation.fact_id)
        if any(
            asserting.row.record.kind in ("add", "update") for asserting in explanation.assertions
        ):
            return "the row that took it out was erased"
        rows = [asserting.row.record for asserting in explanation.assertions]
        sources = (source for row in rows for source in row.source_episode_ids)
        id = printable(next(sources, episode_id_of(explanation.fact_id)))
        return f"it never was; `slumberd why-not {id}` shows the outcome of the episode"

    def _print_fact(self) -> None:
        explanation = self._explanation
        fact = explanation.fact
        print(f"fact        {cell(explanation.fact_id)}")
        print(f"current     {'yes' if fact else f'no: {self._describe_removal()}'}")
        if fact:
            print(f"scope       user {cell(fact.user)}, agent {cell(fact.agent)}")
            print(f"says        {self._triple_of(fact)}")
            print(f"confidence  {cell(fact.confidence)}")
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
        cells = self._source_document(source) | {"at": self._timestamp_of(source)}
        if not cells["in_memory"]:
            cells["in_memory"] = "no longer among the episodes"
        return tuple(cells.values())

    def _source_document(self, source: Source) -> dict[str, Any]:
        version = self._versions.get(source.id)
        at = self._timestamp_of(source)
        row: dict[str, Any] = {
            "id": source.id,
            "session": source.session or (version.session if version else None),
            "at": timestamp(at) if at else None,
            "source_node": source.source_node or (version.source_node if version else None),
            "in_memory": version is not None,
        }
        if self._content:
            row["content"] = version.content if version else None
        return row

    def _timestamp_of(self, source: Source) -> datetime | None:
        version = self._versions.get(source.id)
        return source.at or (instant(version.at) if version else None)

    def _replacing_row(self, row: DetailedRecord) -> tuple[object, ...]:
        how = describe_removal(row, self._explanation.fact_id)
        return row.record.seq, row.record.at, row.record.firing_id, row.record.kind, how


def _assertion_row(asserting: AssertingRow) -> tuple[object, ...]:
    row, record = asserting.row, asserting.row.record
    return (
        record.seq, record.at, record.firing_id, row.rule_hash or None, row.trigger, row.by or None,
        _with_reason(record.kind, record.reason), ", ".join(record.replaces), asserting.counts,
    )  # fmt: skip


def _row_document(row: DetailedRecord) -> dict[str, Any]:
    return {
        "seq": row.record.seq,
        "at": timestamp(row.record.at),
        "firing_id": row.record.firing_id,
        "rule_id": row.record.rule_id,
        "rule_hash": row.rule_hash,
        "trigger": row.trigger,
        "by": row.by,
        "kind": row.record.kind,
        "reason": row.record.reason,
        "fact_id": row.record.fact_id,
        "replaces": row.record.replaces,
    }


def print_episode(episode_id: str, version: EpisodeVersion | None) -> None:
    """Print an episode for people.

    Args:
        episode_id: Its id.
        version: Its newest version; None when it is no longer stored.
    """
    print(f"episode     {cell(episode_id)}")
    if version is None:
        print("in memory   no longer among the episodes\n")
        return
    print(f"scope       user {cell(version.user)}, agent {cell(version.agent)}")
    print(f"in memory   session {cell(version.session)}, at {cell(instant(version.at))}")
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


def decision_document(decision: Decision, remedy: str) -> dict[str, Any]:
    """Return the JSON form of a decision; `remedy` is what would change it."""
    removal = decision.removed_by
    return {
        "rule_id": decision.rule_id,
        "channel": decision.channel,
        "outcome": decision.outcome,
        "reason": decision.reason,
        "detail": decision.detail,
        "fact_id": decision.fact_id,
        "current": decision.is_current,
        "removal": describe_removal(removal, decision.fact_id) if removal else None,
        "row": _row_document(decision.row) if decision.row else None,
        "unrecorded": decision.unrecorded,
        "would_change": remedy,
    }
