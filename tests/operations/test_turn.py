"""Changes of facts wait for each other; a dry run gives way to each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from slumberd.consolidation.firing import DryRunBounds
from slumberd.model.errors import StoppedError
from slumberd.operations.writes.rule_runner import GIVES_WAY, PART, Turn

pytestmark = pytest.mark.unit


class Story:
    """What happens at a turn, in order."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.turn = Turn()
        self.happened: list[str] = []
        self._tasks = tasks
        self.changes: list[asyncio.Task[None]] = []

    async def change(self, name: str) -> None:
        async with self.turn:
            self.happened.append(name)

    async def begin_change(self, name: str) -> None:
        """Let a change wait for its turn."""
        self.changes.append(self._tasks.create_task(self.change(name)))
        await asyncio.sleep(0)

    async def work(self, bounds: DryRunBounds, *, changes: int) -> str:
        """Work until the end, or until the stop is set; so many changes come meanwhile."""
        self.happened.append(f"part {bounds.part}")
        if len(self.changes) < changes:
            await self.begin_change(f"change {len(self.changes) + 1}")
        if bounds.stop is not None and bounds.stop.is_set():
            raise StoppedError("stopped")
        return "done"


@pytest.fixture
async def story() -> AsyncIterator[Story]:
    async with asyncio.TaskGroup() as tasks:
        yield Story(tasks)


async def test_dry_run_without_changes_reads_all_rows(story: Story) -> None:
    assert await story.turn.run_dry(lambda bounds: story.work(bounds, changes=0)) == "done"

    assert story.happened == ["part 1"]


async def test_dry_run_gives_way_to_a_change(story: Story) -> None:
    assert await story.turn.run_dry(lambda bounds: story.work(bounds, changes=1)) == "done"

    assert story.happened == ["part 1", "change 1", f"part {PART}"]


async def test_change_waits_for_the_last_attempt(story: Story) -> None:
    endless = GIVES_WAY + 1
    assert await story.turn.run_dry(lambda bounds: story.work(bounds, changes=endless)) == "done"

    assert story.happened == [
        *(what for n in range(GIVES_WAY) for what in (f"part {PART**n}", f"change {n + 1}")),
        f"part {PART**GIVES_WAY}",
    ]
    await asyncio.gather(*story.changes)
    assert story.happened[-1] == f"change {endless}"


async def test_dry_runs_wait_for_each_other(story: Story) -> None:
    async def work(bounds: DryRunBounds) -> None:
        story.happened.append("begin")
        await asyncio.sleep(0)
        assert bounds.stop is not None
        story.happened.append("stopped" if bounds.stop.is_set() else "end")

    await asyncio.gather(story.turn.run_dry(work), story.turn.run_dry(work))

    assert story.happened == ["begin", "end", "begin", "end"]


async def test_change_that_is_cancelled_stops_no_dry_run(story: Story) -> None:
    async with story.turn:
        await story.begin_change("cancelled")
        story.changes[0].cancel()
        await asyncio.wait(story.changes)

    assert await story.turn.run_dry(lambda bounds: story.work(bounds, changes=0)) == "done"
    assert story.happened == ["part 1"]


async def test_dry_run_that_something_else_stops_does_not_begin_anew(story: Story) -> None:
    async def work(_: DryRunBounds) -> None:
        story.happened.append("began")
        raise StoppedError("the daemon ends")

    with pytest.raises(StoppedError, match="the daemon ends"):
        await story.turn.run_dry(work)

    assert story.happened == ["began"]
    await story.change("afterwards")
