"""The JSON of reading commands: the values of one example; further keys are allowed."""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from typing import Any

import pytest

from tests.support.builders import at, triple
from tests.support.trial_installation import TrialInstallation, rule, rules

pytestmark = pytest.mark.integration

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
NIGHT = """\
  - id: night
    cadence: {cron: "0 3 * * *", timezone: Europe/Berlin}
    when_filter: "0"
    then_emits: [facts]
    start: now
"""
LIKES = rule("likes", "predicate = 'likes'", "notes", "facts")
CAUTIOUS = rule("cautious", "", limits="{max_deletes: 0}")
REMOVED = rule("removed", "predicate = 'likes'")
GONE = {"intent": "delete"}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> TrialInstallation:
    """Return a site with a held batch, a removed rule, and two pending episodes."""
    found = TrialInstallation(
        tmp_path_factory.mktemp("site"), rules(LIKES, CAUTIOUS, REMOVED, NIGHT)
    )
    found.put(
        triple("e1", "ada", "likes", "tea", timestamp=at(1)),
        triple("odd", "ada", "likes", "ink", timestamp=at(2), metadata={"intent": "shout"}),
        triple("x", "bob", "is", "here", timestamp=at(3)),
    )
    found.fire()
    found.rules.write_text(rules(LIKES, CAUTIOUS, NIGHT))
    found.put(
        triple("e2", "ada", "likes", "rum", timestamp=at(4)),
        triple("e3", "bob", "is", "here", timestamp=at(5), metadata=GONE),
    )
    found.call("fire", "cautious")
    return found


def includes(found: Any, expected: Any) -> bool:
    """Return whether a document has all expected values; objects may have more keys."""
    match expected:
        case dict():
            return isinstance(found, dict) and all(
                key in found and includes(found[key], value) for key, value in expected.items()
            )
        case list():
            return len(found) == len(expected) and all(map(includes, found, expected))
        case re.Pattern():
            return isinstance(found, str) and bool(expected.fullmatch(found))
        case _:
            return bool(found == expected) and type(found) is type(expected)


def differences(found: list[Any], expected: list[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of a printed and an expected document that differ."""
    pairs = zip_longest(found, expected)
    return [(printed, wanted) for printed, wanted in pairs if not includes(printed, wanted)]


def documents_of(trial: TrialInstallation, *words: str, code: int = 0) -> list[dict[str, Any]]:
    done = trial.look(*words, "--json")
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


NOTHING = {
    "read": 0, "filtered": 0, "added": 0, "updated": 0, "deleted": 0, "noop": 0,
    "quarantined": 0, "restored": 0,
}  # fmt: skip
STATES: list[dict[str, Any]] = [
    {
        "id": "cautious", "cadence": {"every": 1}, "enabled": True, "watermark": 3, "pending": 2,
        "fired_at": INSTANT, "last_success": INSTANT, "quarantined": 1,
        "held_firing_id": "cautious@13",
        "oldest_pending": at(4).isoformat(), "last_outcome": NOTHING, "next_at": None,
        "paused": False,
    },
    {
        "id": "likes", "then_emits": ["notes", "facts"], "watermark": 3, "pending": 2,
        "fired_at": INSTANT, "last_success": INSTANT, "quarantined": 1, "held_firing_id": None,
        "oldest_pending": at(4).isoformat(), "next_at": None,
        "last_outcome": NOTHING | {
            "read": 6, "filtered": 2, "added": 1, "updated": 1, "quarantined": 2
        },
    },
    {
        "id": "night", "watermark": 3, "pending": 2, "fired_at": None, "last_success": None,
        "quarantined": 0, "held_firing_id": None, "last_outcome": None, "next_at": INSTANT,
    },
]  # fmt: skip


@pytest.mark.slow
def test_rules_shows_how_far_each_rule_has_read(trial: TrialInstallation) -> None:
    assert differences(documents_of(trial, "rules"), STATES) == []


def test_status_shows_sizes_and_how_far_each_rule_has_read(trial: TrialInstallation) -> None:
    (status,) = documents_of(trial, "status")

    expected: dict[str, Any] = {
        "running": False, "pid": None, "uptime_seconds": None, "generation": None, "failing": [],
        "state_dir": str(trial.state), "episodes": 5, "facts": 3, "ledger_rows": 13,
        "rules": STATES,
    }  # fmt: skip
    assert differences([status], [expected]) == []
    paths = [trial.state / "memory.db", trial.state / "facts.db"]
    assert [(database["path"], database["bytes"]) for database in status["databases"]] == [
        (str(path), path.stat().st_size) for path in paths
    ]


def test_rules_shows_removed_rules_and_their_quarantined_episodes(trial: TrialInstallation) -> None:
    removed = {
        "id": "removed", "watermark": 3, "fired_at": INSTANT,
        "quarantined": 1, "held_firing_id": None,
    }  # fmt: skip

    found = documents_of(trial, "rules", "--removed")

    assert differences(found, [removed]) == []


def test_next_prints_words_and_instants_in_both_zones(trial: TrialInstallation) -> None:
    every: dict[str, Any] = {
        "enabled": True,
        "paused": False,
        "every": 1,
        "cron": None,
        "next": [],
        "notes": [],
    }
    night: dict[str, Any] = {
        "rule": "night", "every": None, "cron": "0 3 * * *", "timezone": "Europe/Berlin",
        "words": "at 03:00, every day", "notes": [],
    }  # fmt: skip

    found = documents_of(trial, "next", "-n", "3")

    expected = [{"rule": "cautious", **every}, {"rule": "likes", **every}, night]
    assert differences(found, expected) == []
    assert len(found[2]["next"]) == 3
    for instant in found[2]["next"]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT03:00:00\+0[12]:00", instant["local"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT0[12]:00:00Z", instant["utc"])


def promotion(seq: int, firing_id: str, kind: str, *replaces: str) -> dict[str, Any]:
    return {
        "seq": seq, "at": INSTANT, "firing_id": firing_id, "rule_id": firing_id.split("@")[0],
        "trigger": "manual", "kind": kind, "reason": "", "fact_id": "e1",
        "replaces": [*replaces],
    }  # fmt: skip


def test_why_prints_the_fact_its_sources_and_its_promotions(trial: TrialInstallation) -> None:
    explanation: dict[str, Any] = {
        "id": "e1",
        "removal": None,
        "fact": {
            "id": "e1", "user": "alice", "agent": "rag", "confidence": 1.0, "metadata": {},
            "payload": {"subject": "ada", "predicate": "likes", "object": "tea"},
            "lineage": [
                {"rule_id": name, "source_episode_ids": ["e1"]}
                for name in ("cautious", "likes", "removed")
            ],
        },
        "sources": [
            {
                "id": "e1", "session": "s1", "at": "2026-01-01T12:00:01.000000Z",
                "speaker": "chat", "source_node": "chat", "in_memory": True,
            }
        ],
        "promoted": [
            promotion(2, "cautious@1", "add") | {"counts": True},
            promotion(8, "likes@5", "update", "e1") | {"counts": True},
            promotion(11, "removed@10", "update", "e1") | {"counts": True},
        ],
        "replaced": [],
        "near": [],
        "replaced_by": [],
    }  # fmt: skip

    found = documents_of(trial, "why", "e1")

    assert differences(found, [explanation]) == []


def test_why_not_prints_the_outcome_of_an_episode_for_each_rule_and_channel(
    trial: TrialInstallation,
) -> None:
    odd = {
        "outcome": "quarantined", "reason": "intent_unknown", "removal": None,
        "detail": "intent is 'shout'; write one of add, update, delete, noop, set",
        "row": {"kind": "quarantine", "reason": "intent_unknown", "replaces": []},
    }  # fmt: skip

    found = documents_of(trial, "why-not", "odd")

    expected = [
        {"rule_id": "cautious", "channel": "facts", "fact_id": "odd", **odd},
        {"rule_id": "likes", "channel": "facts", "fact_id": "odd", **odd},
        {"rule_id": "likes", "channel": "notes", "fact_id": "@notes/odd", **odd},
        {"rule_id": "night", "channel": "facts", "fact_id": "odd", "outcome": "filtered"},
        {"rule_id": "removed", "channel": "facts", "fact_id": "odd", **odd},
    ]
    assert differences(found, expected) == []
    assert [decision["row"] and decision["row"]["seq"] for decision in found] == [3, 9, 7, None, 12]


def test_why_not_of_a_pending_episode_names_the_remedy(trial: TrialInstallation) -> None:
    found = documents_of(trial, "why-not", "e2")

    assert {(decision["rule_id"], decision["channel"]) for decision in found} == {
        ("cautious", "facts"),
        ("likes", "facts"),
        ("likes", "notes"),
        ("night", "facts"),
    }
    assert {(decision["outcome"], decision["row"]) for decision in found} == {("pending", None)}
    remedies = {decision["rule_id"]: decision["would_change"] for decision in found}
    assert "slumberd approve cautious@13" in remedies["cautious"]
    assert remedies["likes"] == "`slumberd fire likes`"


def test_quarantine_prints_each_rule_channel_and_row(trial: TrialInstallation) -> None:
    found = documents_of(trial, "quarantine", "ls")

    assert [(row["rule_id"], row["channel"], row["seq"]) for row in found] == [
        ("cautious", "facts", 3),
        ("likes", "facts", 9),
        ("likes", "notes", 7),
        ("removed", "facts", 12),
    ]
    assert {(row["episode_id"], row["reason"]) for row in found} == {("odd", "intent_unknown")}


def test_audit_prints_every_row(trial: TrialInstallation) -> None:
    found = documents_of(trial, "audit", "ls")

    assert [(row["seq"], row["firing_id"], row["kind"], row["fact_id"]) for row in found] == [
        (1, "cautious@1", "firing", ""),
        (2, "cautious@1", "add", "e1"),
        (3, "cautious@1", "quarantine", "odd"),
        (4, "cautious@1", "add", "x"),
        (5, "likes@5", "firing", ""),
        (6, "likes@5", "add", "@notes/e1"),
        (7, "likes@5", "quarantine", "@notes/odd"),
        (8, "likes@5", "update", "e1"),
        (9, "likes@5", "quarantine", "odd"),
        (10, "removed@10", "firing", ""),
        (11, "removed@10", "update", "e1"),
        (12, "removed@10", "quarantine", "odd"),
        (13, "cautious@13", "firing", ""),
    ]


def test_doctor_prints_each_problem_with_its_subject(trial: TrialInstallation) -> None:
    (found,) = documents_of(trial, "doctor", code=1)

    assert found.keys() == {"ok", "findings", "unfinished"}
    assert (found["ok"], found["unfinished"]) == (False, [])
    findings = {
        (finding["id"], finding["subject"], finding["severity"]) for finding in found["findings"]
    }
    assert findings >= {
        ("rule.held", "rule cautious", "error"),
        ("episodes.quarantined", "rule cautious", "warning"),
        ("episodes.quarantined", "rule likes", "warning"),
        ("episodes.quarantined", "rule removed", "warning"),
    }


def test_recent_prints_the_newest_episodes_first(trial: TrialInstallation) -> None:
    found = documents_of(trial, "recent", "alice", "--limit", "3")

    assert [episode["id"] for episode in found] == ["e3", "e2", "x"]
    newest = {
        "id": "e3", "content": "content of e3", "timestamp": "2026-01-01T12:00:05.000000Z",
        "source_node": "chat", "agent": "rag", "user": "alice", "session": "s1",
        "metadata": {"subject": "bob", "predicate": "is", "object": "here", **GONE},
    }  # fmt: skip
    assert differences(found[:1], [newest]) == []
