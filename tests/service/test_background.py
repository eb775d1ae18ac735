"""The daemon looks for other programs' changes again and again, whatever one look ends with."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slumberd.errors import StaleWriterError, StoreBusyError, StoreError, StoreReplacedError
from slumberd.service.background import keep_noticing

pytestmark = pytest.mark.unit

BUSY = StoreBusyError(Path("facts.db"), 5.0)


class Looks:
    """What each look ends with; the last one stops the looking."""

    def __init__(self, *ends: int | Exception) -> None:
        self.left = list(ends)
        self.stop = asyncio.Event()

    async def look(self) -> int:
        end = self.left.pop(0)
        if not self.left:
            self.stop.set()
        if isinstance(end, Exception):
            raise end
        return end


async def test_it_looks_until_it_is_stopped_and_tells_what_was_recorded() -> None:
    looks = Looks(0, 3, 0)

    with capture_logs() as logged:
        await keep_noticing(looks.look, looks.stop, every_seconds=0)

    assert looks.left == []
    assert [(line["event"], line["rows"]) for line in logged] == [("external.noticed", 3)]


async def test_a_look_that_fails_is_told_once_and_repeated() -> None:
    looks = Looks(BUSY, BUSY, 0, BUSY, 1)

    with capture_logs() as logged:
        await keep_noticing(looks.look, looks.stop, every_seconds=0)

    events = [line["event"] for line in logged]
    assert events == ["external.failed", "external.failed", "external.noticed"]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(StaleWriterError(Path("facts.db"), 1, 2), id="by a daemon"),
        pytest.param(StoreReplacedError(Path("facts.db"), "is another file"), id="by a file"),
    ],
)
async def test_whoever_is_superseded_looks_no_more(fault: StoreError) -> None:
    looks = Looks(fault, 0)

    with pytest.raises(type(fault)):
        await keep_noticing(looks.look, looks.stop, every_seconds=0)


async def test_it_ends_in_a_few_turns_of_the_loop_when_stopped_between_two_looks() -> None:
    looks = Looks(0, 0)

    async with asyncio.TaskGroup() as group:
        noticing = group.create_task(keep_noticing(looks.look, looks.stop, every_seconds=3600))
        await turns_of_the_loop()
        resting = not noticing.done()
        looks.stop.set()
        await turns_of_the_loop()
        ended = noticing.done()
        noticing.cancel()

    assert (resting, ended, looks.left) == (True, True, [0])


async def turns_of_the_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
