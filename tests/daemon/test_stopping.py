"""A firing that is stopped, or reaches its time limit, commits a whole batch or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.consolidation.firing import FireRequest
from slumberd.model.errors import FiringTimeoutError
from slumberd.model.firing import START as LOG_START
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores, stream
from tests.support.stop_events import StopAfter

pytestmark = pytest.mark.integration

MOST_CHECKS = 200
"""A firing of three episodes checks fewer times whether it must end."""


class LateAfter(FakeClock):
    """A monotonic clock that reaches the time limit after it was read `left` times."""

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


async def test_stopped_firing_writes_nothing_at_whichever_check_it_stops(
    tmp_path: Path,
) -> None:
    async with open_stores(tmp_path) as home:
        await home.put(*stream(3))
        for check in range(MOST_CHECKS):
            stop = StopAfter(check)
            report = await home.consolidator.fire(
                FireRequest(rule("all"), "manual", START, stop=stop)
            )
            if report.firing_ids:
                break
            assert report.cut_short
            assert await is_untouched(home), f"check {check}"

        assert check > 5, "it checks at every step"
        assert len(await home.objects()) == 3


async def test_late_firing_writes_nothing_at_whichever_check_its_time_ends(tmp_path: Path) -> None:
    clock = LateAfter()
    async with open_stores(tmp_path, clock=clock) as home:
        await home.put(*stream(3))
        for check in range(1, MOST_CHECKS):
            clock.left = check
            try:
                await home.fire(rule("all", timeout=60))
            except FiringTimeoutError:
                clock.left = 10**9
                if not await is_untouched(home):
                    break
            else:
                break

        clock.left = 10**9
        assert check > 5, "it checks at every step"
        assert len(await home.objects()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 120])
async def test_each_part_of_a_batch_checks_whether_it_must_end(tmp_path: Path, rows: int) -> None:
    checks = 0
    async with open_stores(tmp_path) as home:
        await home.put(*stream(rows))
        while True:
            checks += 1
            stop = StopAfter(checks)
            report = await home.consolidator.fire(
                FireRequest(rule("all"), "manual", START, stop=stop)
            )
            if report.firing_ids:
                break

        assert checks >= 3 * (rows // 50 + 1), "decisions, rows and facts, some at a time"
