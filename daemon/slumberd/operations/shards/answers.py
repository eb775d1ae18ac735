"""Merge the answers of several shards of a database into one answer of the same operation.

The answers are those of `name_firings`, in the order of the shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from heapq import nsmallest
from typing import Any

import orjson

from slumberd.model.fact import Fact, cursor
from slumberd.model.shard_firing import split_firing
from slumberd.operations.firing_forms import FiringCursor, FiringsForm
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import Answer
from slumberd.operations.memory_forms import (
    ContextText,
    EpisodesForm,
    FactPage,
    FactsForm,
    RecallForm,
)
from slumberd.operations.overview_forms import ReportForm
from slumberd.operations.responses import LISTED
from slumberd.operations.shards.reads import merge_quarantined, merge_rules, merge_users
from slumberd.retrieval.context import Context, ContextBuilder, ContextParts
from slumberd.retrieval.hits import Hit
from slumberd.retrieval.token_counter import EstimatedTokens

Request = Mapping[str, Any]
Answers = Sequence[Answer]
Merge = Callable[[Answers, Request], Answer]

SEPARATOR = ", "
"""Between the values of several shards, where an answer has one text."""

_PLAN_CHARACTERS = 32


def merge_answers(operation: str, answers: Answers, request: Request) -> Answer:
    """Return one answer for those of several shards.

    Args:
        operation: The operation's name.
        answers: At least one answer, in the order of the shards.
        request: The fields of the request.
    """
    return answers[0] if len(answers) == 1 else MERGES[operation](answers, request)


def combine_plans(plans: Mapping[int, str]) -> str:
    """Return the hash of the plans of several shards to erase a scope."""
    document = orjson.dumps(sorted(plans.items()))
    return hashlib.sha256(document).hexdigest()[:_PLAN_CHARACTERS]


# Values of several answers


def _concatenate(answers: Answers, field: str) -> list[Any]:
    return [item for answer in answers for item in answer[field]]


def _unite(answers: Answers, field: str) -> list[Any]:
    return sorted({*_concatenate(answers, field)})


def _total(answers: Answers, field: str) -> Any:  # noqa: ANN401 # a whole number
    return sum(answer[field] for answer in answers)


def _add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add numbers by name; the names keep their order."""
    added: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            added[name] = added.get(name, 0) + count
    return added


def _first_known(values: Iterable[Any]) -> Any:  # noqa: ANN401 # what the values are
    return next((value for value in values if value is not None), None)


def _join(texts: Iterable[str | None]) -> str | None:
    return SEPARATOR.join(text for text in texts if text) or None


def _limit(request: Request, default: int) -> int:
    limit = request.get("limit")
    return default if limit is None else int(limit)


def _default_limit(form: type[RequestForm]) -> int:
    return int(form.model_fields["limit"].default)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


# What is read of one user


def _merge_recall(answers: Answers, request: Request) -> Answer:
    hits = _concatenate(answers, "hits")
    hits.sort(key=lambda hit: (-hit["score"], hit["kind"] != "fact", hit["id"]))
    return {"hits": hits[: _limit(request, _default_limit(RecallForm))]}


def _merge_context(answers: Answers, _: Request) -> Answer:
    """Choose again from what each shard chose; a score is of its own shard."""
    hits = _hits_of(answers)
    best = sorted(hits, key=lambda hit: (-hit.score, hit.kind != "fact", hit.id))
    episodes = [hit for hit in best if hit.kind == "episode"]
    parts = ContextParts(
        facts=[hit for hit in best if hit.kind == "fact"],
        recalled=[hit for hit in episodes if hit.score > 0],
        recent=sorted(episodes, key=lambda hit: hit.at, reverse=True),
    )
    return _build(parts, answers)


def _merge_profile(answers: Answers, _: Request) -> Answer:
    best = sorted(_hits_of(answers), key=lambda hit: (hit.score, hit.at), reverse=True)
    return _build(ContextParts(facts=best), answers)


def _hits_of(answers: Answers) -> list[Hit]:
    return [hit for answer in answers for hit in ContextText.model_validate(answer).items]


def _build(parts: ContextParts, answers: Answers) -> Answer:
    if len(filled := [answer for answer in answers if answer["items"]]) == 1:
        return filled[0]
    found: Context = ContextBuilder(EstimatedTokens()).build(parts, answers[0]["budget"])
    return ContextText(
        text=found.text, items=[*found.items], tokens=found.tokens, budget=found.budget
    ).document()


def _merge_episodes(answers: Answers, request: Request) -> Answer:
    """Merge the latest episodes of each shard; `request` is what the caller asked."""
    skip, limit = request.get("skip") or 0, _limit(request, _default_limit(EpisodesForm))
    found = _concatenate(answers, "episodes")
    found.sort(key=lambda episode: _instant(episode["timestamp"]), reverse=True)
    return {"episodes": found[skip : skip + limit]}


def _merge_facts(answers: Answers, request: Request) -> Answer:
    limit = _limit(request, _default_limit(FactsForm))
    found = sorted(_concatenate(answers, "facts"), key=lambda fact: fact["id"])
    if len(found) < limit:
        return {"facts": found, "next": None}
    # A person may have pinned one id in two shards: the cursor names an id, so both come together.
    last = found[limit - 1]
    page = found[:limit] + [fact for fact in found[limit:] if fact["id"] == last["id"]]
    return {"facts": page, "next": _cursor_after(last)}


def _cursor_after(document: Mapping[str, Any]) -> str:
    (known,) = FactPage.model_validate({"facts": [document], "next": None}).facts
    return cursor("id", Fact(**known.model_dump(exclude={"said_at", "version"})))


def _merge_corrections(answers: Answers, _: Request) -> Answer:
    return {
        "fact_ids": _concatenate(answers, "fact_ids"),
        "firing_id": _join(answer["firing_id"] for answer in answers),
        "counts": _add_counts(answer["counts"] for answer in answers),
    }


def _choose_explanation(answers: Answers, _: Request) -> Answer:
    """Return that of a fact, else that of an episode: an id of an episode is in one shard only."""
    return next((answer for answer in answers if answer["kind"] == "fact"), answers[0])


def _choose_first(answers: Answers, _: Request) -> Answer:
    """Return the answer of the lowest shard; only one shard holds what the request names."""
    return answers[0]


def _merge_reports(answers: Answers, request: Request) -> Answer:
    limit = _limit(request, _default_limit(ReportForm))
    users = _add_named([answer["users"] for answer in answers])
    shown = nsmallest(limit, users.items(), key=lambda one: (-_fact_changes(one[1]), one[0]))
    largest = _concatenate(answers, "largest")
    largest_by = request.get("largest_by", "facts")
    largest.sort(key=lambda batch: (_size_by(largest_by, batch), batch["firing_id"]), reverse=True)
    return {
        "since": min((answer["since"] for answer in answers), key=_instant),
        "batches": _total(answers, "batches"),
        "changes": _add_counts(answer["changes"] for answer in answers),
        "rules": dict(sorted(_add_named([answer["rules"] for answer in answers]).items())),
        "users": dict(shown),
        "other_users": len(users) - len(shown) + _total(answers, "other_users"),
        "largest": largest[:limit],
        "days": _merge_days(answers),
    }


def _add_named(counts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Add the counts of each name."""
    by_name: dict[str, list[Mapping[str, int]]] = {}
    for each in counts:
        for name, found in each.items():
            by_name.setdefault(name, []).append(found)
    return {name: _add_counts(found) for name, found in by_name.items()}


def _fact_changes(counts: Mapping[str, Any]) -> int:
    changes: int = counts["learned"] + counts["changed"] + counts["forgotten"]
    return changes


def _size_by(largest_by: str, counts: Mapping[str, Any]) -> int:
    size: int = _fact_changes(counts) if largest_by == "facts" else counts[largest_by]
    return size


def _merge_days(answers: Answers) -> list[Answer]:
    """Add the counts of each day; the shards may have answered before and after midnight."""
    by_day = [
        {day["day"]: {name: one for name, one in day.items() if name != "day"} for day in each}
        for each in (answer["days"] for answer in answers)
    ]
    return [{"day": day, **counts} for day, counts in sorted(_add_named(by_day).items())]


# Firings


def _merge_firing_pages(answers: Answers, request: Request) -> Answer:
    """Merge pages, newest first; firings of one instant are in the order of their shards."""
    limit = _limit(request, _default_limit(FiringsForm))
    found = sorted(_concatenate(answers, "firings"), key=_cursor_of, reverse=True)
    page = found[:limit]
    is_last = len(found) <= limit and all(answer["next"] is None for answer in answers)
    return {"firings": page, "next": None if is_last else str(_cursor_of(page[-1]))}


def _cursor_of(firing: Mapping[str, Any]) -> FiringCursor:
    shard, _ = split_firing(firing["firing_id"])
    return FiringCursor.after(_instant(firing["at"]), shard or 0, firing["seq"])


# What changes facts


def _merge_deltas(answers: Answers, request: Request) -> Answer:
    listed = _concatenate(answers, "deltas")[: _limit(request, LISTED)]
    total = _total(answers, "deltas_total")
    return {"deltas": listed, "deltas_total": total, "deltas_cut": total > len(listed)}


def _merge_edits(answers: Answers, request: Request) -> Answer:
    return {
        "firing_id": _join(answer["firing_id"] for answer in answers),
        "counts": _add_counts(answer["counts"] for answer in answers),
        **_merge_deltas(answers, request),
    }


def _merge_unpins(answers: Answers, request: Request) -> Answer:
    not_current = {*_concatenate(answers, "not_current")}
    named = [fact_id for fact_id in dict.fromkeys(request["facts"]) if fact_id in not_current]
    return {**_merge_edits(answers, request), "not_current": named}


def _merge_pins(answers: Answers, request: Request) -> Answer:
    return {**_merge_edits(answers, request), "fact_id": answers[0]["fact_id"]}


def _merge_undos(answers: Answers, request: Request) -> Answer:
    counts = _add_counts(answer["counts"] for answer in answers)
    return {
        "run": _first_known(answer["run"] for answer in answers),
        "undone": _concatenate(answers, "undone"),
        "firing_ids": _concatenate(answers, "firing_ids"),
        "counts": dict(sorted(counts.items())),
        **_merge_deltas(answers, request),
    }


def _merge_firings(answers: Answers, request: Request) -> Answer:
    by_rule: dict[str, list[Answer]] = {}
    for report in _concatenate(answers, "reports"):
        by_rule.setdefault(report["rule_id"], []).append(report)
    return {
        "run": _first_known(answer["run"] for answer in answers),
        "reports": [
            merged for rule in by_rule.values() for merged in _merge_rule_reports(rule, request)
        ],
    }


def _merge_rule_reports(reports: Answers, request: Request) -> list[Answer]:
    """Merge the reports of one rule; each further batch that awaits approval has its own report."""
    held = [report["held_batch"] for report in reports if "held_batch" in report]
    merged: Answer = {
        "rule_id": reports[0]["rule_id"],
        "firing_ids": _concatenate(reports, "firing_ids"),
        "channels": _add_channels(reports),
    }
    if purged := sum(report.get("purged", 0) for report in reports):
        merged["purged"] = purged
    if any(report.get("unrecorded") for report in reports):
        merged["unrecorded"] = True
    if rejected := sum(report.get("rejected", 0) for report in reports):
        merged["rejected"] = rejected
    if held:
        merged["held_batch"] = held[0]
    no_deltas: Answer = {}
    if "deltas" in reports[0]:
        merged |= _merge_deltas(reports, request) | {"unread": _total(reports, "unread")}
        no_deltas = {"deltas": [], "deltas_total": 0, "deltas_cut": False, "unread": 0}
    empty = {"rule_id": merged["rule_id"], "firing_ids": [], "channels": {}, **no_deltas}
    return [merged, *({**empty, "held_batch": batch} for batch in held[1:])]


def _add_channels(reports: Answers) -> dict[str, dict[str, int]]:
    names = dict.fromkeys(name for report in reports for name in report["channels"])
    return {
        name: _add_counts(
            report["channels"][name] for report in reports if name in report["channels"]
        )
        for name in names
    }


def _merge_retries(answers: Answers, request: Request) -> Answer:
    still = _concatenate(answers, "still_quarantined")
    still.sort(key=lambda entry: (entry["rule_id"], entry["channel"], entry["episode_id"]))
    return {
        **_merge_firings(answers, request),
        "still_quarantined": still[: _limit(request, LISTED)],
        "still_quarantined_total": _total(answers, "still_quarantined_total"),
    }


def _merge_drops(answers: Answers, _: Request) -> Answer:
    return {"dropped": _total(answers, "dropped")}


def _merge_accepted(answers: Answers, _: Request) -> Answer:
    """Return the answer of the shard with the latest recorded instant."""
    return max(answers, key=lambda answer: answer["recorded"] or "")


def _merge_withdrawn(answers: Answers, _: Request) -> Answer:
    firing_ids = [firing_id for answer in answers for firing_id in answer["firing_ids"]]
    return {"withdrawn": _total(answers, "withdrawn"), "firing_ids": firing_ids}


def _merge_extractions(answers: Answers, _: Request) -> Answer:
    counts = [
        {name: count for name, count in answer.items() if name != "rule_id"} for answer in answers
    ]
    return {"rule_id": answers[0]["rule_id"], **_add_counts(counts)}


def _merge_certificates(answers: Answers, _: Request) -> Answer:
    """Return one certificate; its plan is missing, since `combine_plans` needs the shards."""
    first = answers[0]
    merged: Answer = {
        **first,
        "at": max((answer["at"] for answer in answers), key=_instant),
        "forgotten_up_to": max(
            (answer["forgotten_up_to"] for answer in answers if answer["forgotten_up_to"]),
            key=_instant,
            default=None,
        ),
        "rows": {
            store: _add_counts(answer["rows"][store] for answer in answers)
            for store in first["rows"]
        },
        "stand_again": _concatenate(answers, "stand_again"),
        "foreign_blank": _concatenate(answers, "foreign_blank"),
        "foreign_blank_total": _total(answers, "foreign_blank_total"),
        "head_before": _join(answer["head_before"] for answer in answers) or "",
        "out_of_reach": [*dict.fromkeys(_concatenate(answers, "out_of_reach"))],
    }
    for field in ("episodes", "facts", "statements"):
        if listed := [answer for answer in answers if field in answer]:
            merged[field] = [*dict.fromkeys(_concatenate(listed, field))]
    for field in ("firing_id", "head_after"):
        if field in first:
            merged[field] = _join(answer[field] for answer in answers)
    for field in ("write_ahead_log_emptied", "rewritten", "pending"):
        if field in first:
            merged[field] = {key: one for answer in answers for key, one in answer[field].items()}
    if "bytes_gone_at" in first:
        ends = [answer["bytes_gone_at"] for answer in answers]
        merged["bytes_gone_at"] = None if None in ends else max(ends, key=_instant)
    return merged


# Batches, rules and daemons


def _merge_held(answers: Answers, _: Request) -> Answer:
    return {"held": sorted(_concatenate(answers, "held"), key=lambda batch: str(batch["rule_id"]))}


def _merge_pauses(answers: Answers, _: Request) -> Answer:
    return {"changed": _unite(answers, "changed"), "paused": _unite(answers, "paused")}


def _merge_statuses(answers: Answers, _: Request) -> Answer:
    """Return the process of the lowest shard, since when all shards run, and all that fails."""
    failing: dict[str, list[Answer]] = {}
    for trouble in _concatenate(answers, "failing"):
        failing.setdefault(trouble["rule_id"], []).append(trouble)
    return {
        **answers[0],
        "uptime_seconds": min(answer["uptime_seconds"] for answer in answers),
        "generation": max(answer["generation"] for answer in answers),
        "failing": [_worst_trouble(troubles) for troubles in failing.values()],
        "language_model": _merge_model_states(
            [one for answer in answers if (one := answer["language_model"])]
        ),
    }


def _merge_model_states(states: Answers) -> Answer | None:
    """Add what the shards spent, and what they may spend: each has a budget of its own."""
    if not states:
        return None
    budgets = [state["budget"] for state in states]
    return {
        **states[0],
        **{name: sum(state[name] for state in states) for name in ("calls", "tokens", "cost")},
        "budget": {
            name: None if limit is None else sum(budget[name] for budget in budgets)
            for name, limit in budgets[0].items()
        },
        "problem": next((state["problem"] for state in states if state["problem"]), ""),
    }


def _worst_trouble(troubles: Answers) -> Answer:
    worst = max(troubles, key=lambda trouble: (trouble["degraded"], trouble["failures"]))
    return {**worst, "since": min((trouble["since"] for trouble in troubles), key=_instant)}


def _merge_cadences(answers: Answers, _: Request) -> Answer:
    """Return the rules of all shards; a rule that one shard pauses counts as paused."""
    rules: dict[str, Answer] = {}
    for rule in _concatenate(answers, "rules"):
        known = rules.setdefault(rule["id"], rule)
        if known["paused_by"] is None:
            rules[rule["id"]] = {**known, "paused_by": rule["paused_by"]}
    return {"timezone": answers[0]["timezone"], "rules": [*rules.values()]}


def _merge_reloads(answers: Answers, _: Request) -> Answer:
    lists = ("added", "removed", "changed", "restart_needed")
    return {
        **answers[0],
        "generation": max(answer["generation"] for answer in answers),
        **{field: _unite(answers, field) for field in lists},
        **{field: sum(answer[field] for answer in answers) for field in _CHANGED_FACTS},
        **{
            field: next(filter(None, (one[field] for one in answers)), None) for field in _DECISIONS
        },
    }


_CHANGED_FACTS = ("facts_appear", "facts_go")
_DECISIONS = ("held_firing_id", "rejected_firing_id")


def _merge_outdated(answers: Answers, _: Request) -> Answer:
    return {field: _unite(answers, field) for field in ("reload", "restart")}


MERGES: dict[str, Merge] = {
    "remember": _choose_first,
    "transcript": _choose_first,
    "put_many": _choose_first,
    "recall": _merge_recall,
    "context": _merge_context,
    "episodes": _merge_episodes,
    "facts": _merge_facts,
    "correct": _merge_corrections,
    "explain": _choose_explanation,
    "history": _choose_first,
    "outcome": _choose_first,
    "changes": _choose_first,
    "firings": _merge_firing_pages,
    "deltas": _choose_first,
    "profile": _merge_profile,
    "report": _merge_reports,
    "forget": _merge_certificates,
    "held": _merge_held,
    "quarantined": merge_quarantined,
    "users": merge_users,
    "rules": merge_rules,
    "decide": _merge_firings,
    "fire": _merge_firings,
    "undo": _merge_undos,
    "pin": _merge_pins,
    "unpin": _merge_unpins,
    "backfill": _merge_firings,
    "retry": _merge_retries,
    "drop": _merge_drops,
    "withdraw_future": _merge_withdrawn,
    "accept_clock": _merge_accepted,
    "extract": _merge_extractions,
    "pause": _merge_pauses,
    "resume": _merge_pauses,
    "status": _merge_statuses,
    "next": _merge_cadences,
    "reload": _merge_reloads,
    "outdated": _merge_outdated,
}
"""How the answers of several shards become one, by the operation's name.

`remember`, `put_many`, `transcript`, `pin`, `decide`, `outcome`, `changes` and `deltas` concern one
shard only.
"""
