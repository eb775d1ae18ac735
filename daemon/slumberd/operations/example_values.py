"""Values that the examples of several operations share."""

from __future__ import annotations

AT = "2026-03-01T12:00:00Z"

HASH = "0f343b0931126a20"

RUN, FIRING = "k3m7qx2a9bcd", "home:0-1"


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
