"""Merge what several shards of a database answer to the reads of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from slumberd.model.store_status import MOST_AGENTS
from slumberd.operations.handlers import Answer
from slumberd.operations.operator_forms import QuarantinedForm, QuarantineEntry, UsersForm
from slumberd.operations.page_cursors import write_cursor
from slumberd.operations.reads.operator_reads import cursor_after

Request = Mapping[str, Any]
Answers = Sequence[Answer]


def merge_users(answers: Answers, request: Request) -> Answer:
    """Merge pages of users: the facts of one user may lie in several shards."""
    users: dict[str, Answer] = {}
    for user in (user for answer in answers for user in answer["users"]):
        known = users.setdefault(user["user"], {"user": user["user"], "agents": [], "facts": 0})
        known["agents"] = sorted({*known["agents"], *user["agents"]})[:MOST_AGENTS]
        known["facts"] += user["facts"]
    limit = request.get("limit") or UsersForm.model_fields["limit"].default
    page = [users[name] for name in sorted(users)][:limit]
    full = len(page) == limit
    return {"users": page, "next": write_cursor(page[-1]["user"]) if full else None}


def merge_quarantined(answers: Answers, request: Request) -> Answer:
    """Merge pages of the quarantine."""
    limit = request.get("limit") or QuarantinedForm.model_fields["limit"].default
    found = sorted((entry for answer in answers for entry in answer["entries"]), key=_place)
    totals: dict[str, int] = {}
    for rule, count in (pair for answer in answers for pair in answer["totals"].items()):
        totals[rule] = totals.get(rule, 0) + count
    if len(found) < limit:
        return {"entries": found, "next": None, "totals": totals}
    # The cursor names a place: entries of one place in several shards come together.
    last = found[limit - 1]
    page = found[:limit] + [entry for entry in found[limit:] if _place(entry) == _place(last)]
    following = cursor_after(QuarantineEntry.model_validate(last))
    return {"entries": page, "next": following, "totals": totals}


def _place(entry: Answer) -> tuple[str, str, str]:
    return entry["rule_id"], entry["channel"], entry["episode_id"]


def merge_rules(answers: Answers, _: Request) -> Answer:
    """Merge the rules of all shards, by id."""
    rules: dict[str, list[Answer]] = {}
    for rule in (rule for answer in answers for rule in answer["rules"]):
        rules.setdefault(rule["id"], []).append(rule)
    return {
        "timezone": answers[0]["timezone"],
        "rules": [_merge_rule(found) for found in rules.values()],
        "share": _add([answer["share"] for answer in answers]),
    }


def _merge_rule(found: Answers) -> Answer:
    covered = [rule["coverage"] for rule in found if rule["coverage"] is not None]
    return {
        **found[0],
        "state": _merge_states([rule["state"] for rule in found]),
        "outlook": _merge_outlooks([rule["outlook"] for rule in found]),
        "due_at": _choose(min, (rule["due_at"] for rule in found)),
        "late_seconds": max(rule["late_seconds"] for rule in found),
        "coverage": _merge_coverage(covered) if covered else None,
    }


def _merge_states(states: Answers) -> Answer:
    fired_at = _choose(max, (state["fired_at"] for state in states))
    latest = next(state for state in states if state["fired_at"] == fired_at)
    pending = [state["pending"] for state in states if state["pending"] is not None]
    readings = [state["readings"] for state in states if state["readings"] is not None]
    return {
        **latest,
        "watermark": None,  # each shard numbers its own log
        "pending": sum(pending) if pending else None,
        "last_success": _choose(max, (state["last_success"] for state in states)),
        "quarantined": sum(state["quarantined"] for state in states),
        "held_firing_id": ", ".join(filter(None, (state["held_firing_id"] for state in states)))
        or None,
        "oldest_pending": _choose(min, (state["oldest_pending"] for state in states)),
        "readings": _add(readings) if readings else None,
        "paused": any(state["paused"] for state in states),
    }


def _add(counts: Answers) -> Answer:
    """Return the sums of counts, by name."""
    return {name: sum(one[name] for one in counts) for name in counts[0]}


def _merge_outlooks(outlooks: Answers) -> Answer:
    """Return the first outlook; a rule that one shard pauses counts as paused."""
    return next((outlook for outlook in outlooks if outlook["paused"]), outlooks[0])


def _merge_coverage(covered: Answers) -> Answer:
    return {
        **{name: sum(one[name] for one in covered) for name in ("episodes", "selected", "failed")},
        "problem": next((one["problem"] for one in covered if one["problem"]), ""),
    }


def _choose(best: Callable[..., str], instants: Iterable[str | None]) -> str | None:
    """Return the first or the last of some instants, as text; None without any."""
    known = [instant for instant in instants if instant is not None]
    return best(known, key=datetime.fromisoformat) if known else None
