"""The next batch of a rule is read while the last one is written, or when it is asked for."""

from __future__ import annotations

import pytest

from slumberd.consolidation.firing import ReadingAhead
from slumberd.model.firing import START, Position

pytestmark = pytest.mark.unit


async def test_batch_that_was_not_read_ahead_is_read_when_it_is_asked_for() -> None:
    reads: list[Position] = []

    async def read(after: Position) -> str:
        reads.append(after)
        return f"after {after.seq}"

    async with ReadingAhead(read) as windows:
        assert await windows.read(START) == "after 0"

    assert reads == [START]
