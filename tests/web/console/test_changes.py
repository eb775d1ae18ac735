"""A preview says in words what the answer of a dry run says in names."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.web.console.changes import DryRun, read_dry_run

pytestmark = pytest.mark.unit

NONE = dict.fromkeys(
    ("read", "filtered", "added", "updated", "deleted", "noop", "quarantined", "restored"), 0
)


def delta(fact_id: str) -> dict[str, Any]:
    return {"kind": "add", "fact_id": fact_id, "replaces": [], "source_episode_ids": ["e1"]}


def report(rule: str, *fact_ids: str, total: int | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "rule_id": rule,
        "firing_ids": [],
        "channels": {},
        "deltas": [delta(fact_id) for fact_id in fact_ids],
        "deltas_total": len(fact_ids) if total is None else total,
        "deltas_cut": False,
        "unread": 0,
        **fields,
    }


def words_of(found: DryRun) -> list[str]:
    return [f"{count.number} {count.words}" for count in (*found.changed, *found.unchanged)]


def test_counts_of_an_undo_are_said_in_words() -> None:
    counts = {"add": 2, "delete": 1, "noop": 3, "quarantine": 1, "update": 1}

    found = read_dry_run({"counts": counts}, most=9)

    assert words_of(found) == [
        "2 facts would be added",
        "1 fact would be changed",
        "1 fact would be retracted",
        "1 episode would be quarantined",
        "3 claims would change nothing",
    ]


def test_counts_of_the_channels_of_all_rules_are_added() -> None:
    first = report("a", channels={"facts": {**NONE, "read": 3, "added": 1, "filtered": 2}})
    second = report("b", channels={name: {**NONE, "added": 1} for name in ("facts", "work")})

    found = read_dry_run({"run": None, "reports": [first, second]}, most=9)

    assert words_of(found) == [
        "3 facts would be added",
        "2 versions would not match the filter of the rule",
        "3 versions of episodes would be read",
    ]


def test_restored_facts_are_current_again() -> None:
    found = read_dry_run(
        {"reports": [report("a", channels={"facts": {**NONE, "restored": 1}})]}, most=9
    )

    assert words_of(found) == ["1 fact would be current again"]


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "1 entry would leave the quarantine"), (2, "2 entries would leave the quarantine")],
)
def test_dropped_entries_leave_the_quarantine(number: int, words: str) -> None:
    assert words_of(read_dry_run({"dropped": number}, most=9)) == [words]


def test_answer_without_an_effect_has_no_counts() -> None:
    found = read_dry_run({"run": None, "reports": []}, most=9)

    assert (words_of(found), found.deltas, found.cut) == ([], [], False)


def test_deltas_of_all_rules_are_listed_up_to_a_limit() -> None:
    reports = [report("a", "f1", "f2"), report("b", "f3")]

    found = read_dry_run({"reports": reports}, most=2)

    assert [row["fact_id"] for row in found.deltas] == ["f1", "f2"]
    assert (found.total, found.cut) == (3, True)


def test_list_that_the_operation_cut_is_cut() -> None:
    answer = {"counts": {"add": 7}, "deltas": [delta("f1")], "deltas_total": 7, "deltas_cut": True}

    found = read_dry_run(answer, most=9)

    assert (found.total, found.cut) == (7, True)


def test_list_that_is_whole_is_not_cut() -> None:
    found = read_dry_run({"reports": [report("a", "f1")]}, most=1)

    assert not found.cut


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        pytest.param(
            {"unread": 12_000},
            "The rule a would go on with 12,000 further rows of the episode log.",
            id="unread",
        ),
        pytest.param(
            {"unrecorded": True},
            "Some episodes of the rule a wait for the language model.",
            id="model",
        ),
        pytest.param(
            {"held_batch": {"firing_id": "a@3", "problem": "too many"}},
            "The batch a@3 awaits approval: too many.",
            id="held",
        ),
    ],
)
def test_notes_say_what_the_counts_do_not(fields: dict[str, Any], note: str) -> None:
    found = read_dry_run({"reports": [report("a", **fields), report("b")]}, most=9)

    assert found.notes == [note]


@pytest.mark.parametrize(
    ("total", "note"),
    [
        (1, ["1 entry would stay in quarantine."]),
        (2, ["2 entries would stay in quarantine."]),
        (0, []),
    ],
)
def test_retry_says_how_many_entries_would_stay(total: int, note: list[str]) -> None:
    answer = {"reports": [], "still_quarantined": [], "still_quarantined_total": total}

    assert read_dry_run(answer, most=9).notes == note


def test_plan_of_an_erasure_is_shown_whole() -> None:
    answer = {
        "certificate": "slumberd.forget",
        "version": 1,
        "scope": {"user": "ana", "session": None, "agent": None},
        "at": "2026-01-01T12:00:00Z",
        "dry_run": True,
        "plan": "0123",
    }

    found = read_dry_run(answer, most=9)

    assert found.details == {
        "scope": '{"user":"ana","session":null,"agent":null}',
        "at": "2026-01-01T12:00:00Z",
    }
