"""The answers of several shards become the answer of one store that holds everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.episode import microseconds
from slumberd.model.fact import FactPattern, place_after
from slumberd.model.recalled import BEGIN
from slumberd.model.record import FiringPlace
from slumberd.model.shard_firing import firing_of_shard, split_firing
from slumberd.operations.firing_forms import NEWEST, FiringCursor
from slumberd.operations.handlers import Answer
from slumberd.operations.shards.answers import MERGES, combine_plans, merge_answers
from slumberd.operations.shards.firings import NAMES, name_firings
from slumberd.operations.table import OPERATIONS
from tests.support.lists import of_each

pytestmark = pytest.mark.unit

EVERY = of_each(lambda: OPERATIONS)
SHARDS = 3
AT = "2026-03-01T12:00:{:02}Z"


def test_every_operation_has_a_merge_and_a_naming() -> None:
    assert MERGES.keys() == NAMES.keys() == OPERATIONS.keys()


@EVERY
def test_answer_of_one_shard_is_left_as_it_is(name: str) -> None:
    answer = {**OPERATIONS[name].example.answer}

    assert merge_answers(name, [answer], OPERATIONS[name].example.request) is answer


@EVERY
def test_merged_answer_has_the_form_of_the_operation(name: str) -> None:
    operation = OPERATIONS[name]
    answers = [name_firings(name, {**operation.example.answer}, k) for k in range(SHARDS)]

    merged = merge_answers(name, answers, operation.example.request)

    operation.result.model_validate(merged)
    assert merged.keys() >= operation.example.answer.keys()


@EVERY
def test_every_id_of_a_firing_names_the_shard(name: str) -> None:
    answer = {**OPERATIONS[name].example.answer}

    named = name_firings(name, answer, 2)

    ids = [*map(split_firing, firings_in(named))]
    assert ids == [(2, id) for id in firings_in(answer)]


def firings_in(value: Any) -> list[str]:
    """Return all ids of firings in an answer."""
    found: list[str] = []
    if isinstance(value, dict):
        for key, one in value.items():
            if key in {"firing_id", "firing_ids", "undone"}:
                found += one if isinstance(one, list) else [one]
            else:
                found += firings_in(one)
    elif isinstance(value, list):
        for one in value:
            found += firings_in(one)
    return found


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("3~morning@17", (3, "morning@17"), id="shard"),
        pytest.param("morning@17", (None, "morning@17"), id="no shard"),
        pytest.param("3:morning@17", (None, "3:morning@17"), id="rule with a colon"),
        pytest.param("a~morning@17", (None, "a~morning@17"), id="no number"),
        pytest.param("~morning@17", (None, "~morning@17"), id="empty"),
        pytest.param("\u0663~a@1", (None, "\u0663~a@1"), id="other digits"),
    ],
)
def test_firing_is_split_from_its_shard(text: str, parts: tuple[int | None, str]) -> None:
    assert split_firing(text) == parts


@pytest.mark.slow
@given(st.integers(0, 1_023), st.text())
def test_name_of_a_firing_is_read_again(shard: int, firing_id: str) -> None:
    assert split_firing(firing_of_shard(shard, firing_id)) == (shard, firing_id)


def fact(number: int) -> Answer:
    known = OPERATIONS["facts"].example.answer["facts"][0]
    return {**known, "id": f"e{number:02}"}


def episode(number: int) -> Answer:
    known = OPERATIONS["episodes"].example.answer["episodes"][0]
    return {**known, "id": f"e{number:02}", "timestamp": AT.format(number)}


def hit(number: int) -> Answer:
    known = OPERATIONS["recall"].example.answer["hits"][0]
    return {**known, "id": f"e{number:02}", "score": number / 100, "at": AT.format(number)}


def facts_of(numbers: Sequence[int], limit: int) -> Answer:
    """Return the first page of facts of a store."""
    found = [fact(number) for number in sorted(numbers)][:limit]
    following = "more" if len(found) == limit else None
    return {"facts": found, "next": following}


def episodes_of(numbers: Sequence[int], limit: int) -> Answer:
    return {"episodes": [episode(number) for number in sorted(numbers, reverse=True)][:limit]}


def hits_of(numbers: Sequence[int], limit: int) -> Answer:
    return {"hits": [hit(number) for number in sorted(numbers, reverse=True)][:limit]}


@pytest.mark.parametrize(
    ("name", "answer_of"),
    [
        pytest.param("facts", facts_of, id="facts"),
        pytest.param("episodes", episodes_of, id="episodes"),
        pytest.param("recall", hits_of, id="recall"),
    ],
)
@given(
    shards=st.dictionaries(st.integers(0, 59), st.integers(0, SHARDS - 1)),
    limit=st.integers(1, 20),
)
def test_merged_page_is_that_of_one_store(
    name: str,
    answer_of: Callable[[Sequence[int], int], Answer],
    shards: dict[int, int],
    limit: int,
) -> None:
    parts = [[n for n, shard in shards.items() if shard == k] for k in range(SHARDS)]

    merged = merge_answers(name, [answer_of(part, limit) for part in parts], {"limit": limit})
    whole = answer_of([*shards], limit)

    if name == "facts":
        last = merged["facts"][-1]["id"] if merged["next"] else None
        after = merged["next"] and place_after(FactPattern(after=merged["next"]))
        assert after == (last and (0, last))
        merged, whole = {**merged, "next": bool(after)}, {**whole, "next": bool(whole["next"])}
    assert merged == whole


def test_page_does_not_end_between_facts_of_one_id() -> None:
    pinned = {"facts": [fact(1), fact(2)], "next": None}

    merged = merge_answers("facts", [pinned, pinned], {"limit": 3})

    assert [one["id"] for one in merged["facts"]] == ["e01", "e01", "e02", "e02"]


def test_page_of_episodes_skips_the_latest_of_all_shards() -> None:
    answers = [episodes_of([1, 4, 5], 3), episodes_of([2, 3, 6], 3)]

    merged = merge_answers("episodes", answers, {"limit": 2, "skip": 1})

    assert [one["id"] for one in merged["episodes"]] == ["e05", "e04"]


def report(rule_id: str, *firing_ids: str, added: int = 1, **further: Any) -> Answer:
    counts = {"read": 2, "added": added}
    return {
        "rule_id": rule_id,
        "firing_ids": [*firing_ids],
        "channels": {"facts": counts},
        **further,
    }


def test_reports_of_one_rule_are_added() -> None:
    answers: list[Answer] = [
        {"run": None, "reports": [report("a", added=3), report("b", purged=2)]},
        {"run": "r1", "reports": [report("a", "1~a@5"), report("b", purged=1, unrecorded=True)]},
    ]

    merged = merge_answers("fire", answers, {})

    assert merged == {
        "run": "r1",
        "reports": [
            {
                "rule_id": "a",
                "firing_ids": ["1~a@5"],
                "channels": {"facts": {"read": 4, "added": 4}},
            },
            {
                "rule_id": "b",
                "firing_ids": [],
                "channels": {"facts": {"read": 4, "added": 2}},
                "purged": 3,
                "unrecorded": True,
            },
        ],
    }


def test_batches_that_await_approval_in_several_shards_are_all_listed() -> None:
    batches = [{"firing_id": f"{k}~a@3", "problem": "too many"} for k in range(3)]
    answers = [{"run": None, "reports": [report("a", held_batch=batch)]} for batch in batches]

    merged = merge_answers("fire", answers, {})

    assert [one["held_batch"] for one in merged["reports"]] == batches
    assert [one["channels"] for one in merged["reports"][1:]] == [{}, {}]


def test_deltas_of_a_dry_run_are_cut_at_the_limit_of_all_shards() -> None:
    deltas: Answer = {
        "deltas": [{"fact_id": "f"}] * 2,
        "deltas_total": 5,
        "deltas_cut": True,
        "unread": 4,
    }
    answers = [{"run": None, "reports": [report("a", **deltas)]}] * 2

    (merged,) = merge_answers("fire", answers, {"limit": 3})["reports"]

    assert len(merged["deltas"]) == 3
    assert (merged["deltas_total"], merged["deltas_cut"], merged["unread"]) == (10, True, 8)


def test_context_keeps_its_budget() -> None:
    answers = [
        {
            "text": "x",
            "items": [hit(10 * k + n) for n in range(10)],
            "tokens": 90,
            "budget": 100,
        }
        for k in range(1, 4)
    ]

    merged = merge_answers("context", answers, {})
    profile = merge_answers("profile", answers, {})

    for found in (merged, profile):
        assert found["text"].startswith(BEGIN)
        assert 0 < found["tokens"] <= found["budget"] == 100
        assert found["items"]
    assert max(one["id"] for one in profile["items"]) == "e39"


def test_merged_context_has_facts_first_and_keeps_what_episodes_say_about_themselves() -> None:
    gone = {
        "subject": "ana", "predicate": "lives_in", "object": "Porto", "kind": "replaced",
        "by": "Lisbon", "at": AT.format(2), "fact_id": "e02", "text": "ana lives in Lisbon",
    }  # fmt: skip
    known = {"kind": "fact", "speaker": "", "session": "", "trust": "derived"}
    items = [
        [{**hit(30), "superseded": [gone]}, hit(10)],
        [{**hit(20), **known}, {**hit(40), **known}],
    ]
    answers = [{"text": "x", "items": some, "tokens": 9, "budget": 1_000} for some in items]

    merged = merge_answers("context", answers, {})

    assert [one["id"] for one in merged["items"]] == ["e40", "e20", "e10", "e30"]
    assert merged["items"][-1]["superseded"] == [gone]
    assert "replaced on " in merged["text"].splitlines()[5]


def test_context_of_one_shard_with_items_is_left_as_it_is() -> None:
    empty = {"text": "", "items": [], "tokens": 0, "budget": 100}
    filled = {"text": "x", "items": [hit(1)], "tokens": 9, "budget": 100}

    assert merge_answers("context", [empty, filled, empty], {}) is filled


def test_report_adds_the_counts_of_each_rule() -> None:
    counts = dict.fromkeys(
        ("learned", "changed", "forgotten", "quarantined", "marked", "unmarked"), 1
    )
    one = OPERATIONS["report"].example.answer
    answers = [
        {**one, "since": AT.format(2), "changes": counts, "rules": {"b": counts}},
        {**one, "since": AT.format(1), "changes": counts, "rules": {"a": counts, "b": counts}},
    ]

    merged = merge_answers("report", answers, {})

    assert merged["since"] == AT.format(1)
    assert merged["changes"]["learned"] == 2
    assert [*merged["rules"]] == ["a", "b"]
    assert (merged["rules"]["a"]["learned"], merged["rules"]["b"]["learned"]) == (1, 2)


CHANGES = dict.fromkeys(OPERATIONS["report"].example.answer["changes"], 0)


def test_report_adds_users_and_days_and_names_the_most_changed() -> None:
    def answer(learned: dict[str, int], day: str, other_users: int) -> Answer:
        return {
            **OPERATIONS["report"].example.answer,
            "batches": len(learned),
            "users": {user: {**CHANGES, "learned": count} for user, count in learned.items()},
            "other_users": other_users,
            "largest": [
                {"firing_id": f"{user}@1", "rule_id": "a", "at": AT, **CHANGES, "learned": count}
                for user, count in learned.items()
            ],
            "days": [{"day": day, **CHANGES, "learned": sum(learned.values())}],
        }

    answers = [
        answer({"ana": 3, "bo": 4}, "2026-03-02", 0), answer({"ana": 2, "cy": 1}, "2026-03-02", 5),
        answer({}, "2026-03-01", 0),
    ]  # fmt: skip

    merged = merge_answers("report", answers, {"limit": 2})

    assert [(name, one["learned"]) for name, one in merged["users"].items()] == [
        ("ana", 5), ("bo", 4),
    ]  # fmt: skip
    assert (merged["other_users"], merged["batches"]) == (6, 4)
    assert [batch["firing_id"] for batch in merged["largest"]] == ["bo@1", "ana@1"]
    assert [(day["day"], day["learned"]) for day in merged["days"]] == [
        ("2026-03-01", 0), ("2026-03-02", 10),
    ]  # fmt: skip


def test_largest_batches_of_all_shards_are_those_with_the_most_of_what_was_asked_for() -> None:
    def answer(**counts: int) -> Answer:
        batch = {"firing_id": "a@1", "rule_id": "a", "at": AT.format(1), **CHANGES, **counts}
        return {**OPERATIONS["report"].example.answer, "largest": [batch]}

    answers = [answer(quarantined=1, learned=9), answer(quarantined=2)]

    merged = merge_answers("report", answers, {"largest_by": "quarantined"})

    assert [batch["quarantined"] for batch in merged["largest"]] == [2, 1]


def firings_of(numbers: Sequence[int], place: FiringPlace, limit: int) -> Answer:
    """Return a page of the firings of a shard, several of which have one instant."""
    example = OPERATIONS["firings"].example.answer["firings"][0]
    found = [
        {**example, "seq": seq, "firing_id": f"a@{seq}", "at": AT.format(number)}
        for seq, number in enumerate(sorted(numbers), 1)
        if seq < place.number and instant_of(number) <= place.at
    ][::-1]
    page = found[:limit]
    following = None
    if len(found) > limit:
        at = datetime.fromisoformat(page[-1]["at"])
        following = str(FiringCursor.after(at, 0, page[-1]["seq"]))
    return {"firings": page, "next": following}


def instant_of(number: int) -> int:
    return microseconds(datetime.fromisoformat(AT.format(number)))


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=2, max_size=4), st.integers(1, 5))
def test_pages_of_firings_hold_each_firing_of_all_shards_once(
    shards: list[list[int]], limit: int
) -> None:
    seen: list[Answer] = []
    before: str | None = None
    for _ in range(sum(map(len, shards)) + 1):
        answers = []
        for shard, numbers in enumerate(shards):
            place = NEWEST if before is None else FiringCursor.read(before).in_shard(shard).place
            found = firings_of(numbers, place, limit)
            answers.append(name_firings("firings", found, shard))
        merged = merge_answers("firings", answers, {"limit": limit})
        seen += merged["firings"]
        before = merged["next"]
        if before is None:
            break
        assert len(merged["firings"]) == limit

    assert before is None
    assert len({firing["firing_id"] for firing in seen}) == len(seen) == sum(map(len, shards))
    assert [firing["at"] for firing in seen] == sorted((one["at"] for one in seen), reverse=True)


def test_undo_of_a_firing_names_the_shard() -> None:
    (example,) = OPERATIONS["firings"].example.answer["firings"]
    answer = {"firings": [example, {**example, "undone_by": None, "undoes": "a@1"}], "next": None}

    named = name_firings("firings", answer, 3)["firings"]

    assert [(one["undone_by"], one["undoes"]) for one in named] == [
        ("3~@undo@4", None), (None, "3~a@1"),
    ]  # fmt: skip


def test_rule_that_fails_in_several_shards_is_listed_once() -> None:
    def status(since: int, failures: int, uptime: float) -> Answer:
        failing = {
            "rule_id": "a",
            "since": AT.format(since),
            "failures": failures,
            "error": f"error {failures}",
            "degraded": failures > 2,
        }
        return {**OPERATIONS["status"].example.answer, "uptime_seconds": uptime} | {
            "failing": [failing]
        }

    merged = merge_answers("status", [status(3, 1, 50.0), status(5, 4, 20.0)], {})

    assert merged["uptime_seconds"] == 20.0
    assert merged["failing"] == [
        {
            "rule_id": "a",
            "since": AT.format(3),
            "failures": 4,
            "error": "error 4",
            "degraded": True,
        }
    ]


def test_shards_add_what_their_language_models_cost() -> None:
    def status(calls: int, problem: str) -> Answer:
        model = {
            "day": "2026-03-01",
            "calls": calls,
            "tokens": 10 * calls,
            "cost": 0.5,
            "budget": {"calls": 200, "tokens": 1_000, "cost": None},
            "problem": problem,
        }
        return {**OPERATIONS["status"].example.answer, "language_model": model}

    merged = merge_answers("status", [status(2, ""), status(3, "no answer")], {})
    without = merge_answers("status", [dict(OPERATIONS["status"].example.answer)] * 2, {})

    assert merged["language_model"] == {
        "day": "2026-03-01",
        "calls": 5,
        "tokens": 50,
        "cost": 1.0,
        "budget": {"calls": 400, "tokens": 2_000, "cost": None},
        "problem": "no answer",
    }
    assert without["language_model"] is None


def test_rule_that_one_shard_pauses_counts_as_paused() -> None:
    def cadences(paused_by: str | None) -> Answer:
        rule = {"id": "a", "enabled": True, "cadence": {"every": 5}, "paused_by": paused_by}
        return {"timezone": "UTC", "rules": [rule]}

    merged = merge_answers("next", [cadences(None), cadences("uid 0"), cadences(None)], {})

    assert [rule["paused_by"] for rule in merged["rules"]] == ["uid 0"]


def test_remedy_of_an_explanation_names_the_shard() -> None:
    (rule,) = OPERATIONS["outcome"].example.answer["rules"]
    remedy = "nobody knows: `slumberd undo all@4`; `slumberd why-not e1` shows more"
    answer = {"id": "e1", "settled": True, "rules": [{**rule, "would_change": remedy}]}

    (named,) = name_firings("outcome", answer, 2)["rules"]

    assert named["would_change"] == remedy.replace("all@4", "2~all@4")


def test_plan_changes_with_the_plan_of_any_shard() -> None:
    plan = combine_plans({0: "a", 2: "b"})

    assert plan == combine_plans({2: "b", 0: "a"})
    assert len({plan, combine_plans({0: "a", 1: "b"}), combine_plans({0: "a"})}) == 3


def rule_of_shard(**overrides: Any) -> Answer:
    answer = OPERATIONS["rules"].example.answer
    known = answer["rules"][0]
    state = {**known["state"], **overrides.pop("state", {})}
    return {**answer, "rules": [{**known, "state": state, **overrides}]}


def test_rule_of_several_shards_is_as_late_and_as_full_as_all_together() -> None:
    early, late = AT.format(1), AT.format(2)
    first = rule_of_shard(
        state={"pending": 2, "fired_at": early, "oldest_pending": late, "quarantined": 1},
        due_at=late,
        late_seconds=3.0,
        coverage={"episodes": 5, "selected": 2, "failed": 0, "problem": ""},
    )
    second = rule_of_shard(
        state={"pending": 3, "fired_at": late, "oldest_pending": early, "last_outcome": None},
        due_at=early,
        late_seconds=4.0,
        coverage={"episodes": 7, "selected": 1, "failed": 1, "problem": "no JSON"},
    )
    idle = rule_of_shard(
        state={"pending": None, "fired_at": None, "oldest_pending": None, "readings": None},
        coverage=None,
    )

    merged = merge_answers("rules", [idle, first, second], {})

    (rule,) = merged["rules"]
    state = rule["state"]
    assert merged["share"] == {"episodes": 300, "learned": 93}
    assert (state["readings"]["read"], state["readings"]["learned"]) == (200, 62)
    assert (state["watermark"], state["pending"], state["quarantined"]) == (None, 5, 3)
    assert (state["fired_at"], state["last_outcome"]) == (late, None)
    assert state["oldest_pending"] == rule["due_at"] == early
    assert rule["late_seconds"] == 4.0
    assert rule["coverage"] == {"episodes": 12, "selected": 3, "failed": 1, "problem": "no JSON"}


def test_rule_that_one_shard_pauses_or_holds_counts_as_paused_or_held() -> None:
    outlook = OPERATIONS["rules"].example.answer["rules"][0]["outlook"]
    paused = rule_of_shard(
        state={"paused": True, "held_firing_id": "home@3"},
        outlook={**outlook, "paused": True, "paused_by": "uid 0"},
    )
    answers = [name_firings("rules", each, k) for k, each in enumerate([rule_of_shard(), paused])]

    (rule,) = merge_answers("rules", answers, {})["rules"]

    assert rule["state"]["paused"]
    assert rule["outlook"]["paused_by"] == "uid 0"
    assert rule["state"]["held_firing_id"] == "1~home@3"


def test_user_of_several_shards_has_the_facts_and_agents_of_all() -> None:
    def page(*users: tuple[str, str, int]) -> Answer:
        listed = [{"user": user, "agents": [agent], "facts": facts} for user, agent, facts in users]
        return {"users": listed, "next": "more"}

    merged = merge_answers(
        "users", [page(("ana", "desk", 2), ("eve", "a", 1)), page(("ana", "b", 3))], {"limit": 3}
    )

    assert merged == {
        "users": [
            {"user": "ana", "agents": ["b", "desk"], "facts": 5},
            {"user": "eve", "agents": ["a"], "facts": 1},
        ],
        "next": None,
    }


def test_quarantine_of_one_place_in_two_shards_comes_on_one_page() -> None:
    def page(*ids: str) -> Answer:
        known = OPERATIONS["quarantined"].example.answer["entries"][0]
        entries = [{**known, "episode_id": id} for id in ids]
        return {"entries": entries, "next": None, "totals": {"home": len(ids)}}

    merged = merge_answers("quarantined", [page("e1", "e2"), page("e2", "e3")], {"limit": 2})

    assert [entry["episode_id"] for entry in merged["entries"]] == ["e1", "e2", "e2"]
    assert merged["next"] is not None
    assert merged["totals"] == {"home": 4}
