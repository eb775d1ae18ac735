"""Explain facts and the outcomes of episodes, as JSON and in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from slumberd.consolidation.explanation import (
    Decision,
    DetailedRecord,
    Explanation,
    KeyChange,
    Source,
)
from slumberd.consolidation.incoming import FUTURE, ID_TAKEN, UNSAID
from slumberd.consolidation.precedence import EXTERNAL, GRAPH, MANUAL_RULE_ID
from slumberd.consolidation.state import NOTHING_SAID
from slumberd.logs.lines import printable, timestamp
from slumberd.model.episode import instant
from slumberd.model.fact import Fact
from slumberd.model.firing import HeldBatch
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import episode_id_of
from slumberd.operations.episodes import Versions
from slumberd.operations.responses import fact_document

LATER = "say it again with a later timestamp"
NOTHING = "nothing needs to change"

_AUTHORS = {MANUAL_RULE_ID: "a person", EXTERNAL: "another program"}
"""Who writes the rows of a rule id that no rule has."""

_REMOVALS = {
    "@channels": "its predicate holds several objects, or one, where it did not before",
    "@law": "a new law of slumberd makes another fact current",
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
_TRIPLE = ("subject", "predicate", "object")
"""The parts of a claim that a history of its key shows."""

_UNANSWERED = ("answer_invalid", "answer_refused")
"""Why an episode is in quarantine whose language model gave no answer that can be read."""

_NOTHING_ANSWERED = (
    "the language model finds no triple in it that counts; put it with a triple, or change the "
    "prompt"
)


def describe_extraction(payload: Mapping[str, Any], *, content: bool) -> str:
    """Return what found a fact in a text, and where; empty when a program stated it.

    Args:
        payload: The body of the fact.
        content: Whether to show the words.
    """
    match payload.get("extracted"):
        case {"by": str(by), "span": [int(start), int(end)]}:
            where = f"{printable(by)}, in characters {start} to {end} of the text"
        case _:
            return ""
    text = payload.get("content")
    return f"{where}: {printable(text[start:end])}" if content and isinstance(text, str) else where


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
        case "claim" if row.record.rule_id in _AUTHORS:
            return f"{_author_of(row.record.rule_id)} retracted it{_reason_of(row)}"
        case "withdrawal":
            return f"{row.record.rule_id} no longer selects its episode"
        case "quarantine":
            return f"a newer version of its episode cannot be read ({row.record.reason})"
        case _:
            return "a newer version of its episode does not assert it"


def describe_withdrawn(reason: str) -> str:
    """Return what would change the outcome of an episode that its speaker took back."""
    if reason == "rewound":
        return "the turn was rewound; it counts again when the conversation goes back to it"
    if reason == "forgotten":
        return "the person asked to forget it, so its text is gone; say it again in a new episode"
    return f"its speaker took it back ({printable(reason)}); put it again without `withdrawn`"


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
    if decision.reason == FUTURE:
        at = printable(decision.detail)[:19].replace("T", " ")
        return f"{decision.rule_id} evaluates it at {at}Z; or put it again with its real timestamp"
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


def row_document(row: DetailedRecord) -> dict[str, Any]:
    """Return the JSON form of a row of the ledger."""
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
        "row": row_document(decision.row) if decision.row else None,
        "unrecorded": decision.unrecorded,
        "would_change": remedy,
    }


class ExplainedFact:
    """An explanation of a fact, with what its episodes say now.

    Attributes:
        content: Whether to show what the episodes say, in their own words.

    Args:
        versions: The newest versions of the episodes that the fact comes from.
        content: Whether to show what the episodes say, in their own words.
    """

    def __init__(self, explanation: Explanation, versions: Versions, *, content: bool) -> None:
        self.explanation = explanation
        self.content = content
        self._versions = versions

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        explanation = self.explanation
        fact_id, fact = explanation.fact_id, explanation.fact
        return {
            "id": fact_id,
            "current": fact is not None,
            "removal": self.removal(),
            "fact": fact and {**fact_document(fact), "payload": self.payload(fact)},
            "declared": explanation.declared,
            "sources": [self.source_document(source) for source in explanation.sources],
            "promoted": [
                {**row_document(asserting.row), "counts": asserting.counts}
                for asserting in explanation.assertions
            ],
            "replaced": explanation.replaced,
            "near": [near._asdict() for near in explanation.near],
            "replaced_by": [
                {**row_document(row), "how": describe_removal(row, fact_id)}
                for row in explanation.replacing
            ],
            "history": [self.change_document(change) for change in explanation.history],
            "history_total": explanation.changes,
        }

    def change_document(self, change: KeyChange) -> dict[str, Any]:
        """Return the JSON form of a change of the fact's key, with what it says and both clocks."""
        said = {name: change.payload[name] for name in _TRIPLE if name in change.payload}
        if not said and self.content and "content" in change.payload:
            said = {"content": change.payload["content"]}
        said_at = None if change.said_at is None else timestamp(instant(change.said_at))
        return {
            **row_document(change.row),
            "event": change.row.event,
            "said_at": said_at,
            "said": said,
        }

    def payload(self, fact: Fact) -> dict[str, Any]:
        """Return a fact's body, without its text unless that is to be shown."""
        return {
            name: value for name, value in fact.payload.items() if self.content or name != "content"
        }

    def removal(self) -> str | None:
        """Return why the fact is not current; None when it is."""
        explanation = self.explanation
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

    def source_document(self, source: Source) -> dict[str, Any]:
        """Return the JSON form of an episode that the fact comes from.

        Its speaker is that of its newest version; None when nobody is known to have spoken.
        """
        version = self._versions.get(source.id)
        at = self.timestamp_of(source)
        row: dict[str, Any] = {
            "id": source.id,
            "session": source.session or (version.session if version else None),
            "at": timestamp(at) if at else None,
            "speaker": version.speaker if version else None,
            "source_node": source.source_node or (version.source_node if version else None),
            "in_memory": version is not None,
        }
        if self.content:
            row["content"] = version.content if version else None
        return row

    def timestamp_of(self, source: Source) -> datetime | None:
        """Return the instant of an episode; None when nothing knows it any more."""
        version = self._versions.get(source.id)
        return source.at or (instant(version.at) if version else None)
