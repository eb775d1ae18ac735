"""An example of a request and of its answer, for each operation."""

from __future__ import annotations

from typing import Any

from slumberd.operations.operation import Example

_AT = "2026-03-01T12:00:00Z"
_HASH = "0f343b0931126a20"
_RUN, _FIRING = "k3m7qx2a9bcd", "home:0-1"

_FACT: dict[str, Any] = {
    "id": "e1",
    "user": "ana",
    "agent": "desk",
    "payload": {"subject": "ana", "predicate": "lives_in", "object": "Lisbon"},
    "lineage": [{"kind": "episode", "rule_id": "home", "source_episode_ids": ["e1"]}],
    "confidence": 1.0,
    "said_at": _AT,
    "pinned_at": _AT,
    "metadata": {},
    "version": _HASH,
}

_PERIOD: dict[str, Any] = {
    "fact_id": "e1",
    "payload": _FACT["payload"],
    "begins_at": _AT,
    "ends_at": None,
}

_HIT: dict[str, Any] = {
    "id": "e1",
    "kind": "episode",
    "score": 0.71,
    "lexical": 0.71,
    "vector": None,
    "text": "I moved to Lisbon",
    "at": _AT,
    "user": "ana",
    "agent": "desk",
    "session": "s1",
    "speaker": "user",
    "trust": "said",
    "confidence": None,
    "sources": [],
    "superseded": [],
    "similar_later": [],
}

_DELTA: dict[str, Any] = {
    "kind": "add",
    "rule_id": "home",
    "fact_id": "e1",
    "replaces": [],
    "source_episode_ids": ["e1"],
    "reason": "",
    "user": "ana",
    "agent": "desk",
}

_CHANGE: dict[str, Any] = {
    "seq": 2,
    "at": _AT,
    "kind": "add",
    "firing_id": _FIRING,
    "rule_id": "home",
    "fact_id": "e1",
    "replaces": [],
    "episode_ids": ["e1"],
    "reason": "",
    "confidence": 1.0,
    "user": "ana",
    "agent": "desk",
}

_CHANGES = {
    "learned": 1,
    "changed": 0,
    "forgotten": 0,
    "quarantined": 0,
    "marked": 0,
    "unmarked": 0,
}

_COUNTS = {
    "read": 1,
    "filtered": 0,
    "added": 1,
    "updated": 0,
    "deleted": 0,
    "noop": 0,
    "quarantined": 0,
    "restored": 0,
}

_FIRED: dict[str, Any] = {
    "run": _RUN,
    "reports": [{"rule_id": "home", "firing_ids": [_FIRING], "channels": {"facts": _COUNTS}}],
}

_DELTAS: dict[str, Any] = {"deltas": [_DELTA], "deltas_total": 1, "deltas_cut": False}

_OUTCOME: dict[str, Any] = {
    "rule_id": "home",
    "channel": "facts",
    "outcome": "add",
    "reason": "",
    "fact_id": "e1",
    "current": True,
    "would_change": "",
}

_RESULT: dict[str, Any] = {
    "became": "learned",
    "sentence": "learned: ana lives_in Lisbon",
    "results": [
        {
            "rule_id": "home",
            "channel": "facts",
            "became": "learned",
            "sentence": "learned: ana lives_in Lisbon",
            "facts": [
                {
                    "id": "e1",
                    "subject": "ana",
                    "predicate": "lives_in",
                    "object": "Lisbon",
                    "became": "learned",
                    "current": True,
                }
            ],
        }
    ],
}

_WAITING = {
    "became": "waiting",
    "sentence": "waiting: no rule has read it yet; wait for its outcome to know what became of it",
}

_LOADED_RULE: dict[str, Any] = {
    "id": "home",
    "state": {
        "id": "home",
        "cadence": {"cron": "0 3 * * *"},
        "enabled": True,
        "then_emits": ["facts"],
        "file": "rules/home.yaml",
        "watermark": 17,
        "pending": 3,
        "fired_at": _AT,
        "last_success": _AT,
        "quarantined": 1,
        "held_firing_id": None,
        "oldest_pending": _AT,
        "last_outcome": _COUNTS,
        "readings": {
            "read": 100,
            "learned": 31,
            "said_nothing": 60,
            "filtered": 8,
            "quarantined": 1,
            "unchanged": 0,
        },
        "next_at": "2026-03-02T03:00:00Z",
        "paused": False,
    },
    "outlook": {
        "rule": "home",
        "enabled": True,
        "paused": False,
        "paused_by": None,
        "every": None,
        "cron": "0 3 * * *",
        "timezone": "UTC",
        "words": "at 03:00, every day",
        "next": [{"local": "2026-03-02T03:00:00+00:00", "utc": "2026-03-02T03:00:00Z"}],
        "notes": [],
    },
    "due_at": None,
    "late_seconds": 0.0,
    "coverage": {"episodes": 120, "selected": 31, "failed": 0, "problem": ""},
}

_EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "remember": (
        {
            "text": "I moved to Lisbon",
            "key": "turn 1",
            "triples": [{"subject": "ana", "predicate": "lives_in", "object": "Lisbon"}],
        },
        {"id": "key:ana/desk/turn 1", "state": "new", **_WAITING},
    ),
    "put_many": (
        {
            "session": "s1",
            "episodes": [
                {"text": "I moved to Lisbon", "key": "turn 1", "when": _AT},
                {"text": "Noted.", "key": "turn 2", "when": _AT, "speaker": "assistant"},
            ],
        },
        {
            "episodes": [
                {"id": "key:ana/desk/turn 1", "state": "new"},
                {"id": "key:ana/desk/turn 2", "state": "new"},
            ]
        },
    ),
    "transcript": (
        {
            "session": "s1",
            "coding_agent": "codex",
            "transcript": "/home/ana/.codex/sessions/s1.jsonl",
            "agent_version": "0.153.0",
            "lines": 12,
            "person": 1,
            "assistant": 1,
            "unknown": {"event_msg weather": 1},
            "turn": {"id": "t1", "text": "I moved to Lisbon", "session": "s1", "speaker": "user"},
        },
        {"id": "t1", "state": "new", **_WAITING},
    ),
    "recall": ({"query": "Where does ana live?", "limit": 5}, {"hits": [_HIT]}),
    "context": (
        {"question": "Where does ana live?", "budget": 500},
        {"text": "> I moved to Lisbon", "items": [_HIT], "tokens": 6, "budget": 500},
    ),
    "episodes": (
        {"limit": 1},
        {
            "episodes": [
                {
                    "id": "e1",
                    "content": "I moved to Lisbon",
                    "timestamp": _AT,
                    "source_node": "remember",
                    "speaker": "user",
                    "user": "ana",
                    "agent": "desk",
                    "session": "s1",
                    "metadata": {"speaker": "user"},
                }
            ]
        },
    ),
    "facts": ({"predicate": "lives_in", "limit": 10}, {"facts": [_FACT], "next": None}),
    "correct": (
        {"fact": "e1", "object": "Porto", "reason": "it was Porto", "if_version": _HASH},
        {"fact_ids": ["e1"], "firing_id": "@hand:3", "counts": {"update": 1}},
    ),
    "explain": (
        {"id": "e1"},
        {"id": "e1", "kind": "fact", "explanation": {"id": "e1", "current": True}},
    ),
    "history": (
        {"id": "e1"},
        {
            "id": "e1",
            "user": "ana",
            "agent": "desk",
            "payload": _FACT["payload"],
            "valid": [_PERIOD],
            "believed": [_PERIOD],
            "cut": False,
        },
    ),
    "outcome": (
        {"id": "e1", "seconds": 5.0},
        {"id": "e1", "settled": True, "rules": [_OUTCOME], **_RESULT},
    ),
    "changes": (
        {"after": 0, "limit": 1},
        {
            "changes": [_CHANGE],
            "last": 2,
            "more": False,
        },
    ),
    "firings": (
        {"rule": "home", "limit": 1},
        {
            "firings": [
                {
                    "seq": 1,
                    "firing_id": _FIRING,
                    "rule_id": "home",
                    "at": _AT,
                    "trigger": "manual",
                    "by": "uid 1000",
                    "reason": "after the import",
                    "counts": _COUNTS,
                    "run": _RUN,
                    "undone_by": "@undo@4",
                    "undoes": None,
                }
            ],
            "next": "1772366400000000.0.1",
        },
    ),
    "deltas": (
        {"firing": _FIRING, "limit": 1},
        {"changes": [_CHANGE], "last": 2, "more": True},
    ),
    "profile": (
        {"budget": 500},
        {"text": "> ana lives in Lisbon", "items": [_HIT], "tokens": 7, "budget": 500},
    ),
    "report": (
        {"days": 7},
        {
            "since": _AT,
            "batches": 1,
            "changes": _CHANGES,
            "rules": {"home": _CHANGES},
            "users": {"ana": _CHANGES},
            "other_users": 0,
            "largest": [{"firing_id": _FIRING, "rule_id": "home", "at": _AT, **_CHANGES}],
            "days": [{"day": "2026-03-01", **_CHANGES}],
        },
    ),
    "forget": (
        {"session": "s1", "dry_run": True},
        {
            "certificate": "slumberd.forget",
            "version": 1,
            "scope": {"user": "ana", "session": "s1", "agent": None},
            "at": _AT,
            "forgotten_up_to": _AT,
            "rows": {"facts": {"facts": 1, "ledger": 2}, "episodes": {"episodes": 1}},
            "stand_again": [],
            "foreign_blank": [],
            "foreign_blank_total": 0,
            "head_before": _HASH,
            "out_of_reach": ["backups and exports of the state directory, made before"],
            "dry_run": True,
            "plan": "9c1185a5c5e9fc54612808977ee8f548",
        },
    ),
    "held": (
        {},
        {
            "held": [
                {
                    "firing_id": _FIRING,
                    "rule_id": "home",
                    "problem": "this batch would delete 399 of 516 facts",
                    "approved": False,
                }
            ]
        },
    ),
    "quarantined": (
        {"rule": "home", "limit": 10},
        {
            "entries": [
                {
                    "rule_id": "home",
                    "channel": "facts",
                    "episode_id": "e7",
                    "reason": "intent_unknown",
                    "detail": "intent is 'shout'; write one of add, update, delete, noop",
                    "seq": 12,
                    "user": "ana",
                    "agent": "desk",
                }
            ],
            "next": None,
            "totals": {"home": 1},
        },
    ),
    "users": (
        {"prefix": "a", "limit": 10},
        {"users": [{"user": "ana", "agents": ["desk"], "facts": 1}], "next": None},
    ),
    "rules": (
        {"rules": ["home"], "instants": 1, "coverage": True},
        {
            "timezone": "UTC",
            "rules": [_LOADED_RULE],
            "share": {"episodes": 100, "learned": 31},
        },
    ),
    "decide": ({"firing": _FIRING, "approve": True}, _FIRED),
    "fire": ({"rules": ["home"]}, _FIRED),
    "undo": (
        {"run": _RUN},
        {
            "run": "b2c4d6f8a0xy",
            "undone": [_FIRING],
            "firing_ids": ["@undo:4"],
            "counts": {"delete": 1},
            **_DELTAS,
        },
    ),
    "pin": (
        {
            "user": "ana",
            "agent": "desk",
            "subject": "ana",
            "predicate": "lives_in",
            "object": "Porto",
            "reason": "ana said so",
        },
        {"firing_id": "@hand:3", "fact_id": "f1", "counts": {"add": 1}, **_DELTAS},
    ),
    "unpin": (
        {"facts": ["e1"], "reason": "it is wrong"},
        {"firing_id": "@hand:5", "counts": {"add": 1}, "not_current": [], **_DELTAS},
    ),
    "backfill": ({"rule": "home"}, _FIRED),
    "retry": (
        {"rules": ["home"]},
        {**_FIRED, "still_quarantined": [], "still_quarantined_total": 0},
    ),
    "drop": ({"episodes": ["e7"]}, {"dropped": 1}),
    "accept_clock": (
        {},
        {"at": _AT, "recorded": "2098-01-01T00:01:00Z", "firing_id": "@clock@121"},
    ),
    "withdraw_future": ({}, {"withdrawn": 2, "firing_ids": ["@undo@120"]}),
    "extract": (
        {"rule": "home"},
        {
            "rule_id": "home",
            "calls": 2,
            "ok": 2,
            "refused": 0,
            "invalid": 0,
            "triples": 3,
            "dropped": 0,
            "tokens_in": 812,
            "tokens_out": 96,
        },
    ),
    "move": (
        {"user": "alice", "to": 3},
        {
            "user": "alice",
            "source": 0,
            "target": 3,
            "episodes": 812,
            "facts": 97,
            "rows": 1204,
            "dry_run": False,
        },
    ),
    "pause": ({"rules": ["home"]}, {"changed": ["home"], "paused": ["home"]}),
    "resume": ({"rules": ["home"]}, {"changed": ["home"], "paused": []}),
    "status": (
        {},
        {
            "pid": 4321,
            "uptime_seconds": 86.4,
            "generation": 1,
            "rules_hash": _HASH,
            "failing": [],
            "language_model": None,
        },
    ),
    "shards": (
        {},
        {
            "shards": [
                {
                    "shard": 0,
                    "holder": "host-1/4321/5f3a9c",
                    "episodes": 1200,
                    "facts": 310,
                    "pending": 4,
                    "oldest_pending": "2026-03-01T12:00:00+00:00",
                    "fired_at": "2026-03-01T11:55:00Z",
                }
            ]
        },
    ),
    "next": (
        {},
        {
            "timezone": "UTC",
            "rules": [
                {
                    "id": "home",
                    "enabled": True,
                    "cadence": {"every": "5m"},
                    "paused_by": None,
                    "served": None,
                }
            ],
        },
    ),
    "reload": (
        {},
        {
            "generation": 2,
            "rules_hash": _HASH,
            "rules": 1,
            "added": [],
            "removed": [],
            "changed": ["home"],
            "restart_needed": [],
            "facts_appear": 2,
            "facts_go": 0,
            "held_firing_id": None,
            "rejected_firing_id": None,
        },
    ),
    "outdated": ({}, {"reload": ["timezone"], "restart": []}),
}


def example_of(name: str) -> Example:
    """Return the example of an operation, by its name."""
    return Example(*_EXAMPLES[name])
