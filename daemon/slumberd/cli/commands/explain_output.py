"""How explanations are printed: as JSON for programs, as tables and sentences for people.

What is told to a person of how a fact went, and of what would change a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from slumberd.cli.commands.facts import document as fact_document
from slumberd.cli.output import cell, print_table
from slumberd.consolidation.explanation import Decision, Explanation, Line, Saying, Source
from slumberd.consolidation.precedence import EXTERNAL, GRAPH, HANDS
from slumberd.consolidation.resolution import ID_TAKEN
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.firing import Held
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import printable, timestamp

LATER = "say it again with a later timestamp"
NOTHING = "nothing need change"

_HANDS = {HANDS: "a hand", EXTERNAL: "another program"}
_RULES = {
    "@channels": "its predicate holds several objects, or one, where it did not before",
    "@erasure": "another took its place when a scope was forgotten",
}
_NOOPS = {
    "stale": "what it takes back is newer, or went before; {again}",
    "retracted": "a newer retraction reaches it; {again}",
    "unresolved": "it takes back nothing that is known; what arrives later and is older goes then",
    "noop": "its intent is noop; put it with another",
}


def went(line: Line, fact_id: str) -> str:
    """Return how a fact went, from the row that took it out."""
    if line.rule_id in _RULES:
        return _RULES[line.rule_id]
    if line.fact_id == fact_id:
        return _went_by_itself(line)
    other = printable(line.fact_id)
    if line.undoes:
        return f"{other} came back when {line.undoes} was undone"
    hand = _hand(line.rule_id)
    if line.kind == "delete":
        return f"{hand or other} took it out{_because(line)}"
    return f"{other} replaced it" + (f": {hand} said so{_because(line)}" if hand else "")


def _hand(rule_id: str) -> str | None:
    if rule_id.startswith(GRAPH):
        return f"a graph's rule {rule_id.removeprefix(GRAPH)}"
    return _HANDS.get(rule_id)


def _because(line: Line) -> str:
    by = f" ({line.by})" if line.by and line.rule_id in _HANDS else ""
    return by + (f", because: {printable(line.because)}" if line.because else "")


def _went_by_itself(line: Line) -> str:
    if line.undoes:
        return f"{line.undoes} was undone"
    match line.what:
        case "withdrawal" if line.rule_id in _HANDS:
            return "its program removed it"
        case "withdrawal":
            return f"{line.rule_id} does not select its episode any more"
        case "quarantine":
            return f"a newer version of its episode cannot be read ({line.reason})"
        case _:
            return "a newer version of its episode does not say it"


def would_change(
    decision: Decision,
    rule: ConsolidationRule | None,
    *,
    in_memory: bool = True,
    held: Held | None = None,
    latest: int | None = None,
) -> str:
    """Return what would change a decision, in one sentence.

    Args:
        decision: What became of an episode.
        rule: Under which rule; None when it is not loaded any more.
        in_memory: Whether the episode is still there.
        held: The rule's batch that waits for a person, or may go on; None when there is none.
        latest: The latest instant that is not in the future, microseconds since 1970 UTC; None
            when no claim is called future.
    """
    match decision.became:
        case "pending":
            return _pending(decision.rule_id, rule, held)
        case "filtered":
            return _filtered(decision.rule_id, rule)
        case "forgotten":
            return "its scope was forgotten; only what it says as of a later time counts"
        case "skipped":
            return _skipped(decision.rule_id, in_memory=in_memory)
        case "undone":
            return f"`slumberd backfill {decision.rule_id}`"
        case "quarantined":
            return _quarantined(decision)
        case _:
            return _settled(decision, rule, _again(decision, latest))


def _again(decision: Decision, latest: int | None) -> str:
    """Return what a person does about a newer claim; one of the future is to be mended itself."""
    rival = decision.rival
    if rival is None or latest is None or rival.at <= latest:
        return LATER
    dated = f"{printable(rival.id)} is dated {instant(rival.at):%Y-%m-%d %H:%M:%S}Z, in the future"
    return f"{dated}: put that one again with its real timestamp"


def _pending(rule_id: str, rule: ConsolidationRule | None, held: Held | None) -> str:
    if held is not None and not held.approved:
        return f"{rule_id} is held ({held.problem}): `slumberd approve {held.firing_id}`"
    told = "" if rule is None or rule.enabled else f"{rule_id} is disabled, but: "
    return f"{told}`slumberd fire {rule_id}`"


def _filtered(rule_id: str, rule: ConsolidationRule | None) -> str:
    if rule is None:
        return f"{rule_id} is not loaded any more; when it was, its filter did not select it"
    return f"the filter of {rule_id} does not select it: {printable(rule.when_filter)}"


def _skipped(rule_id: str, *, in_memory: bool) -> str:
    if not in_memory:
        return f"{rule_id} never met it, and it is no longer in memory.db; put it again"
    passed = "it began later, was edited since, or its row was erased or dropped"
    return f"{rule_id} has no row about it ({passed}): `slumberd backfill {rule_id}`"


def _quarantined(decision: Decision) -> str:
    if decision.reason == ID_TAKEN:
        return "another user, agent or channel holds its id; put it under one of its own"
    retry = f"`slumberd quarantine retry {printable(episode_id_of(decision.fact_id))}`"
    return f"repair the episode; or repair the rule or the settings, then {retry}"


def _settled(decision: Decision, rule: ConsolidationRule | None, again: str) -> str:
    """Return what would change what the law made of an episode."""
    line = decision.line
    if decision.stands:
        return f"{NOTHING}: its fact stands"
    if line and line.what == "gated":
        return _gated(line)
    if line and line.what == "withdrawal":
        return _filtered(decision.rule_id, rule)
    if decision.became == "delete":
        gone = ", ".join(map(printable, line.replaces)) if line else ""
        return f"{NOTHING}: it took out {gone}"
    if decision.taken_out:
        return _gone(decision.taken_out, decision, again)
    if decision.holder:
        return f"a newer episode holds the key: {printable(decision.holder)}; {again}"
    return _NOOPS.get(decision.reason, again).format(again=again)


def _gated(line: Line) -> str:
    told = line.document
    short = f"its salience was {told['salience']:.4f}, and {line.rule_id} asks for {told['min']:g}"
    return f"{short}; it is looked at again when it is read"


def _gone(line: Line, decision: Decision, again: str) -> str:
    told = went(line, decision.fact_id)
    if line.undoes and line.fact_id == decision.fact_id:
        return f"{told}: `slumberd undo {line.firing_id}`"
    return f"{told}; {again}"


SOURCE_COLUMNS = ("episode", "session", "at", "source node", "in memory")
SAYING_COLUMNS = (
    "row", "at", "firing", "rule hash", "trigger", "by", "did", "replaces", "counts",
)  # fmt: skip
REPLACING_COLUMNS = ("row", "at", "firing", "did", "how")
DECISION_COLUMNS = (
    "rule", "channel", "became", "firing", "fact", "stands", "what would change that",
)  # fmt: skip

Versions = dict[str, EpisodeVersion]
"""Newest versions by the id of their episode."""


class Told:
    """An explanation, as it is printed; content only when it is asked for."""

    def __init__(self, explanation: Explanation, versions: Versions, *, content: bool) -> None:
        self._explanation = explanation
        self._versions = versions
        self._content = content

    def document(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        one = self._explanation
        fact = one.fact and {**fact_document(one.fact), "payload": self._shown(one.fact.payload)}
        return {
            "id": one.fact_id,
            "stands": one.fact is not None,
            "went": self._went(),
            "fact": fact,
            "declared": one.declared,
            "sources": [self._source_document(source) for source in one.sources],
            "promoted": [
                {**_line_document(saying.line), "counts": saying.counts} for saying in one.sayings
            ],
            "replaced": one.replaced,
            "near": [near._asdict() for near in one.near],
            "replaced_by": [
                {**_line_document(line), "how": went(line, one.fact_id)} for line in one.replacing
            ],
        }

    def print(self) -> None:
        """Print it for people."""
        one = self._explanation
        self._print_fact()
        if one.sources:
            self._print_sources()
        if one.sayings:
            print("\npromoted by")
            print_table(SAYING_COLUMNS, map(_saying_row, one.sayings))
        if one.replacing:
            print("\nreplaced by, or taken out by")
            print_table(REPLACING_COLUMNS, (self._replacing_row(line) for line in one.replacing))

    def _shown(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value for name, value in payload.items() if self._content or name != "content"
        }

    def _went(self) -> str | None:
        """Return why the fact does not stand; None when it does."""
        one = self._explanation
        if one.fact:
            return None
        if one.taken_out:
            return went(one.taken_out, one.fact_id)
        if any(saying.line.kind in ("add", "update") for saying in one.sayings):
            return "what took it out was erased"
        id = printable(episode_id_of(one.fact_id))
        return f"it never stood; `slumberd why-not {id}` tells what became of the episode"

    def _print_fact(self) -> None:
        one = self._explanation
        print(f"fact        {cell(one.fact_id)}")
        print(f"stands      {'yes' if one.fact else f'no: {self._went()}'}")
        if one.fact:
            print(f"whose       user {cell(one.fact.user)}, agent {cell(one.fact.agent)}")
            print(f"says        {self._says(one.fact.payload)}")
            print(f"confidence  {cell(one.fact.confidence)}")
            print(f"said at     {cell(one.fact.said_at)}")
            print(f"pinned at   {cell(one.fact.pinned_at)}")
            if one.declared:
                print("declared    by its program; it competes with no other fact")
            for entry in one.fact.lineage:
                print(f"lineage     {cell(entry)}")
        if one.replaced:
            print(f"replaced    {', '.join(map(printable, one.replaced))}")
        for near in one.near:
            print(f"near to     {printable(near.fact_id)}, {near.cosine}: possible duplicate")

    def _says(self, payload: Mapping[str, Any]) -> str:
        """Return a fact's triple; of one without, its text when content is asked for."""
        parts = ("subject", "predicate", "object")
        triple = " ".join(cell(payload[part]) for part in parts if part in payload)
        return triple or (cell(payload.get("content")) if self._content else "(see --content)")

    def _print_sources(self) -> None:
        print("\nfrom")
        columns = (*SOURCE_COLUMNS, "content") if self._content else SOURCE_COLUMNS
        print_table(columns, map(self._source_row, self._explanation.sources))

    def _source_row(self, source: Source) -> tuple[object, ...]:
        shown = self._source_document(source) | {"at": self._said_at(source)}
        if not shown["in_memory"]:
            shown["in_memory"] = "no longer in memory.db"
        return tuple(shown.values())

    def _source_document(self, source: Source) -> dict[str, Any]:
        version = self._versions.get(source.id)
        at = self._said_at(source)
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

    def _said_at(self, source: Source) -> datetime | None:
        version = self._versions.get(source.id)
        return source.at or (instant(version.at) if version else None)

    def _replacing_row(self, line: Line) -> tuple[object, ...]:
        how = went(line, self._explanation.fact_id)
        return line.seq, line.at, line.firing_id, line.kind, how


def _saying_row(saying: Saying) -> tuple[object, ...]:
    line = saying.line
    return (
        line.seq, line.at, line.firing_id, line.rule_hash or None, line.trigger, line.by or None,
        _with_reason(line.kind, line.reason), ", ".join(line.replaces), saying.counts,
    )  # fmt: skip


def _line_document(line: Line) -> dict[str, Any]:
    return {
        "seq": line.seq,
        "at": timestamp(line.at),
        "firing_id": line.firing_id,
        "rule_id": line.rule_id,
        "rule_hash": line.rule_hash,
        "trigger": line.trigger,
        "by": line.by,
        "kind": line.kind,
        "reason": line.reason,
        "fact_id": line.fact_id,
        "replaces": line.replaces,
    }


def print_episode(episode_id: str, version: EpisodeVersion | None) -> None:
    """Print which episode is meant, for people."""
    print(f"episode     {cell(episode_id)}")
    if version is None:
        print("in memory   no longer in memory.db\n")
        return
    print(f"whose       user {cell(version.user)}, agent {cell(version.agent)}")
    print(f"in memory   session {cell(version.session)}, at {cell(instant(version.at))}")
    print()


def decision_row(decision: Decision, remedy: str) -> tuple[object, ...]:
    """Return a decision as the table shows it."""
    line = decision.line
    reason = ": ".join(filter(None, (decision.reason, decision.detail)))
    return (
        decision.rule_id, decision.channel, _with_reason(decision.became, reason),
        line.firing_id if line else None, decision.fact_id, decision.stands, remedy,
    )  # fmt: skip


def _with_reason(word: str, reason: str) -> str:
    return f"{word} ({reason})" if reason else word


def decision_document(decision: Decision, remedy: str) -> dict[str, Any]:
    """Return a decision as JSON takes it."""
    gone = decision.taken_out
    return {
        "rule_id": decision.rule_id,
        "channel": decision.channel,
        "became": decision.became,
        "reason": decision.reason,
        "detail": decision.detail,
        "fact_id": decision.fact_id,
        "stands": decision.stands,
        "went": went(gone, decision.fact_id) if gone else None,
        "row": _line_document(decision.line) if decision.line else None,
        "would_change": remedy,
    }
