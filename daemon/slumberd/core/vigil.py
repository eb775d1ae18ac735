"""Since when the wall clock has been watched without a gap. Reads no clock."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

JUMP_SECONDS = 2.0
"""Wall and monotonic clock drifting apart faster than this between two looks is a jump."""


class Reading(NamedTuple):
    """Both clocks, read together."""

    wall: datetime
    monotonic: float


def jump_between(before: Reading, after: Reading) -> float:
    """Return by how many seconds the wall clock has jumped; 0 when it has not."""
    jump = (after.wall - before.wall).total_seconds() - (after.monotonic - before.monotonic)
    return jump if abs(jump) > JUMP_SECONDS else 0.0


class Vigil:
    """Knows which instants somebody was there for.

    Attributes:
        since: The instant from which on the clock was watched, and did not jump.
    """

    def __init__(self, now: Reading) -> None:
        self._last = now
        self.since = now.wall

    def look(self, now: Reading) -> datetime:
        """Take note of the time; return `since`, which a jump either way moves to now."""
        if jump_between(self._last, now):
            self.since = now.wall
        self._last = now
        return self.since
