"""Values that the examples of several operations share."""

from __future__ import annotations

from typing import Any

AT = "2026-03-01T12:00:00Z"

HASH = "0f343b0931126a20"

RUN, FIRING = "k3m7qx2a9bcd", "home:0-1"

FACT: dict[str, Any] = {
    "id": "e1",
    "user": "ana",
    "agent": "desk",
    "payload": {"subject": "ana", "predicate": "lives_in", "object": "Lisbon"},
    "lineage": [{"kind": "episode", "rule_id": "home", "source_episode_ids": ["e1"]}],
    "confidence": 1.0,
    "said_at": AT,
    "pinned_at": AT,
    "metadata": {},
    "version": HASH,
}

PERIOD: dict[str, Any] = {
    "fact_id": "e1",
    "payload": FACT["payload"],
    "begins_at": AT,
    "ends_at": None,
}

HIT: dict[str, Any] = {
    "id": "e1",
    "kind": "episode",
    "score": 0.71,
    "lexical": 0.71,
    "vector": None,
    "text": "I moved to Lisbon",
    "at": AT,
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

DELTA: dict[str, Any] = {
    "kind": "add",
    "rule_id": "home",
    "fact_id": "e1",
    "replaces": [],
    "source_episode_ids": ["e1"],
    "reason": "",
    "user": "ana",
    "agent": "desk",
}


COUNTS = {
    "read": 1,
    "filtered": 0,
    "added": 1,
    "updated": 0,
    "deleted": 0,
    "noop": 0,
    "quarantined": 0,
    "restored": 0,
}

FIRED: dict[str, Any] = {
    "run": RUN,
    "reports": [{"rule_id": "home", "firing_ids": [FIRING], "channels": {"facts": COUNTS}}],
}

DELTAS: dict[str, Any] = {"deltas": [DELTA], "deltas_total": 1, "deltas_cut": False}

OUTCOME: dict[str, Any] = {
    "rule_id": "home",
    "channel": "facts",
    "outcome": "add",
    "reason": "",
    "fact_id": "e1",
    "current": True,
    "would_change": "",
}

RESULT: dict[str, Any] = {
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

WAITING = {
    "became": "waiting",
    "sentence": "waiting: no rule has read it yet; wait for its outcome to know what became of it",
}
