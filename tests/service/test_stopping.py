"""A firing that is told to stop, or is late, commits a batch whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.consolidation.fire_request import FireRequest
from slumberd.errors import FiringTimeoutError
from slumberd.model.firing import START as LOG_START
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores, stream
from tests.support.stop_events import StopAfter

pytestmark = pytest.mark.integration

MOST_QUESTIONS = 200
"""A firing of three episodes asks fewer times whether it must end."""


class LateAfter(FakeClock):
    """A monotonic clock whose time is up once it has been asked this many times."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 10**9

    def monotonic(self) -> float:
        self.left -= 1
        return 0.0 if self.left >= 0 else 1e9


async def is_untouched(home: OpenStores) -> bool:
    return (
        await home.facts.watermarks.position("all") in (None, LOG_START)
        and await home.facts.reads.records() == []
        and await home.objects() == {}
    )


async def test_stopped_firing_leaves_nothing_whichever_question_it_is_told_at(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*stream(3))
        for asked in range(MOST_QUESTIONS):
            stop = StopAfter(asked)
            report = await home.consolidator.fire(
                FireRequest(rule("all"), "manual", START, stop=stop)
            )
            if report.firing_ids:
                break
            assert report.cut_short
            assert await is_untouched(home), f"question {asked}"

        assert asked > 5, "it asks at every step"
        assert len(await home.objects()) == 3


async def test_late_firing_leaves_nothing_whichever_question_it_is_late_at(tmp_path: Path) -> None:
    clock = LateAfter()
    async with open_stores(tmp_path, clock=clock) as home:
        await home.put(*stream(3))
        for asked in range(1, MOST_QUESTIONS):
            clock.left = asked
            try:
                await home.fire(rule("all", timeout=60))
            except FiringTimeoutError:
                clock.left = 10**9
                if not await is_untouched(home):
                    break
            else:
                break

        clock.left = 10**9
        assert asked > 5, "it asks at every step"
        assert len(await home.objects()) == 3


@pytest.mark.parametrize("rows", [1, 120])
async def test_each_part_of_a_batch_asks_whether_it_must_end(tmp_path: Path, rows: int) -> None:
    questions = 0
    async with open_stores(tmp_path) as home:
        await home.put(*stream(rows))
        while True:
            questions += 1
            stop = StopAfter(questions)
            report = await home.consolidator.fire(
                FireRequest(rule("all"), "manual", START, stop=stop)
            )
            if report.firing_ids:
                break

        assert questions >= 3 * (rows // 50 + 1), "decisions, rows and facts, some at a time"
