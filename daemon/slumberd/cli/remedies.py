"""What is told to a person of how a fact went, and of what would change a decision."""

from __future__ import annotations

from slumberd.consolidation.explanation import Decision, Line
from slumberd.consolidation.precedence import EXTERNAL, GRAPH, HANDS
from slumberd.consolidation.resolution import ID_TAKEN
from slumberd.model.episode import instant
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.firing import Held
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import printable

LATER = "say it again with a later timestamp"
NOTHING = "nothing need change"

_HANDS = {HANDS: "a hand", EXTERNAL: "another program"}
_RULES = {
    "@channels": "its predicate holds several objects, or one, where it did not before",
    "@forget": "another took its place when a scope was forgotten",
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
