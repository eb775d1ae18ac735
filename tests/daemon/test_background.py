"""The daemon looks for changes by other programs repeatedly, also after a look that failed."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from slumberd.daemon.background import record_external_changes
from slumberd.model.errors import StaleWriterError, StoreBusyError, StoreError, StoreReplacedError

pytestmark = pytest.mark.unit

BUSY = StoreBusyError("facts.db", 5.0)


class Looks:
    """A look with a given result or error at each call; the last call sets `stop`."""

    def __init__(self, *results: int | Exception) -> None:
        self.left = list(results)
        self.stop = asyncio.Event()

    async def look(self) -> int:
        result = self.left.pop(0)
        if not self.left:
            self.stop.set()
        if isinstance(result, Exception):
            raise result
        return result


async def test_daemon_looks_until_stopped_and_logs_recorded_changes() -> None:
    looks = Looks(0, 3, 0)

    with capture_logs() as logged:
        await record_external_changes(looks.look, looks.stop, every_seconds=0)

    assert looks.left == []
    assert [(line["event"], line["rows"]) for line in logged] == [("external.noticed", 3)]


async def test_failing_look_is_logged_once_and_repeated() -> None:
    looks = Looks(BUSY, BUSY, 0, BUSY, 1)

    with capture_logs() as logged:
        await record_external_changes(looks.look, looks.stop, every_seconds=0)

    events = [line["event"] for line in logged]
    assert events == ["external.failed", "external.failed", "external.noticed"]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(StaleWriterError("facts.db", 1, 2), id="by a daemon"),
        pytest.param(StoreReplacedError("facts.db", "is another file"), id="by a file"),
    ],
)
async def test_superseded_daemon_stops_looking(fault: StoreError) -> None:
    looks = Looks(fault, 0)

    with pytest.raises(type(fault)):
        await record_external_changes(looks.look, looks.stop, every_seconds=0)


async def test_stop_between_two_looks_ends_the_task_at_once() -> None:
    looks = Looks(0, 0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            record_external_changes(looks.look, looks.stop, every_seconds=3600)
        )
        await turns_of_the_loop()
        waiting = not task.done()
        looks.stop.set()
        await turns_of_the_loop()
        ended = task.done()
        task.cancel()

    assert (waiting, ended, looks.left) == (True, True, [0])


async def turns_of_the_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
