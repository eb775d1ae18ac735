"""Values that the examples of several operations share."""

from __future__ import annotations

from typing import Any

AT = "2026-03-01T12:00:00Z"

HASH = "0f343b0931126a20"

RUN, FIRING = "k3m7qx2a9bcd", "home:0-1"


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
