"""The clock watch distinguishes a clock jump from time that passes."""

from __future__ import annotations

import pytest

from slumberd.workers.scheduling.due import ClockWatch, Reading, jump_between
from tests.support.builders import at

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("wall", "monotonic", "jump"),
    [
        pytest.param(3_600, 0, 3_600, id="forward"),
        pytest.param(-3_600, 0, -3_600, id="back"),
        pytest.param(3_600, 3_600, 0, id="time that passed"),
        pytest.param(7, 5, 0, id="a little drift"),
        pytest.param(7.001, 5, 2.001, id="a little more"),
    ],
)
def test_jump_is_the_difference_of_the_two_clocks(
    wall: float, monotonic: float, jump: float
) -> None:
    found = jump_between(Reading(at(0), 100), Reading(at(wall), 100 + monotonic))

    assert found == pytest.approx(jump)


@pytest.mark.parametrize("jump", [3_600, -3_600], ids=["forward", "back"])
def test_clock_watch_restarts_after_a_jump(jump: float) -> None:
    watch = ClockWatch(Reading(at(0), 100))
    assert watch.observe(Reading(at(50), 150)) == at(0)

    assert watch.observe(Reading(at(51 + jump), 151)) == at(51 + jump)
    assert watch.observe(Reading(at(52 + jump), 152)) == at(51 + jump)
