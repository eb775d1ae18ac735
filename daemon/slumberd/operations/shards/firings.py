"""Name the firings in the answer of one shard as the whole database names them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from slumberd.model.shard_firing import MARK, firing_of_shard
from slumberd.operations.firing_forms import FiringCursor
from slumberd.operations.handlers import Answer

_COMMANDS = re.compile("(`slumberd (?:undo|approve|reject) )")

Name = Callable[[Answer, int], Answer]


def name_firings(operation: str, answer: Answer, shard: int) -> Answer:
    """Return the answer of a shard with the shard in the id of each firing.

    Args:
        operation: The operation's name.
        answer: The answer, as the daemon of the shard gives it.
        shard: The shard.
    """
    name = NAMES[operation]
    return answer if name is None else name(answer, shard)


def _name(fields: tuple[str, ...], answer: Answer, shard: int) -> Answer:
    """Name the shard in some fields: a text, or a list of texts."""
    return {
        field: _named(value, shard) if field in fields else value for field, value in answer.items()
    }


def _named(value: Any, shard: int) -> Any:  # noqa: ANN401 # a text, a list of them, or None
    if isinstance(value, list):
        return [firing_of_shard(shard, text) for text in value]
    return value if value is None else firing_of_shard(shard, value)


_of_row = partial(_name, ("firing_id",))
_of_undo = partial(_name, ("firing_id", "firing_ids", "undone"))


def _of_rows(list_name: str, answer: Answer, shard: int) -> Answer:
    return {**answer, list_name: [_of_row(row, shard) for row in answer[list_name]]}


def _of_firing_page(answer: Answer, shard: int) -> Answer:
    fields = ("firing_id", "undone_by", "undoes")
    cursor = answer["next"]
    return {
        "firings": [_name(fields, firing, shard) for firing in answer["firings"]],
        "next": None if cursor is None else str(FiringCursor.read(cursor)._replace(shard=shard)),
    }


def _of_firings(answer: Answer, shard: int) -> Answer:
    return {**answer, "reports": [_of_report(report, shard) for report in answer["reports"]]}


def _of_report(report: Answer, shard: int) -> Answer:
    named = _name(("firing_ids",), report, shard)
    if "held_batch" in report:
        named["held_batch"] = _of_row(report["held_batch"], shard)
    return named


def _of_withdrawn(answer: Answer, shard: int) -> Answer:
    return _name(("firing_ids",), answer, shard)


def _of_certificate(answer: Answer, shard: int) -> Answer:
    named = _name(("firing_id", "head_before", "head_after"), answer, shard)
    for field in ("write_ahead_log_emptied", "rewritten", "pending"):
        if field in answer:
            files = answer[field].items()
            named[field] = {firing_of_shard(shard, file): done for file, done in files}
    return named


def _of_explanation(answer: Answer, shard: int) -> Answer:
    explanation = {**answer["explanation"]}
    for rows in ("promoted", "replaced_by", "history"):
        if rows in explanation:
            explanation = _of_rows(rows, explanation, shard)
    if "rules" in explanation:
        explanation["rules"] = [_of_decision(rule, shard) for rule in explanation["rules"]]
    return {**answer, "explanation": explanation}


def _of_decision(decision: Mapping[str, Any], shard: int) -> Answer:
    named = {
        **decision,
        "would_change": _COMMANDS.sub(rf"\g<1>{shard}{MARK}", decision["would_change"]),
    }
    if named.get("row") is not None:
        named["row"] = _of_row(named["row"], shard)
    return named


def _of_outcome(answer: Answer, shard: int) -> Answer:
    return {**answer, "rules": [_of_decision(rule, shard) for rule in answer["rules"]]}


def _of_rules(answer: Answer, shard: int) -> Answer:
    return {**answer, "rules": [_of_rule(rule, shard) for rule in answer["rules"]]}


def _of_rule(rule: Answer, shard: int) -> Answer:
    return {**rule, "state": _name(("held_firing_id",), rule["state"], shard)}


NAMES: dict[str, Name | None] = {
    "remember": None,
    "transcript": None,
    "put_many": None,
    "recall": None,
    "context": None,
    "episodes": None,
    "facts": None,
    "correct": _of_row,
    "explain": _of_explanation,
    "history": None,
    "outcome": _of_outcome,
    "changes": partial(_of_rows, "changes"),
    "firings": _of_firing_page,
    "deltas": partial(_of_rows, "changes"),
    "profile": None,
    "report": partial(_of_rows, "largest"),
    "forget": _of_certificate,
    "held": partial(_of_rows, "held"),
    "quarantined": None,
    "users": None,
    "rules": _of_rules,
    "decide": _of_firings,
    "fire": _of_firings,
    "undo": _of_undo,
    "pin": _of_row,
    "unpin": _of_row,
    "backfill": _of_firings,
    "retry": _of_firings,
    "drop": None,
    "withdraw_future": _of_withdrawn,
    "accept_clock": _of_row,
    "extract": None,
    "pause": None,
    "resume": None,
    "status": None,
    "next": None,
    "reload": None,
    "outdated": None,
}
"""How the firings of an answer are named, by the operation's name; None for none."""
