"""A long dry run ends when a change waits, and answers after the change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from slumberd.consolidation.consolidator import Consolidator, Sizes
from slumberd.consolidation.firing import DryRunBounds
from slumberd.model.errors import StoppedError
from slumberd.model.firing import Limits
from slumberd.model.stages import Dedup
from slumberd.operations.caller import Caller
from slumberd.operations.changes import Operations
from slumberd.operations.edits import PinForm
from tests.support.builders import START, at, episode, rule, triple
from tests.support.fakes import FakeClock
from tests.support.open_stores import OpenStores, open_stores, stream
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

ME = Caller.of_user(7, 7)
PIN = PinForm(user="bob", agent="a", subject="s", predicate="is", object="x", reason="a test")
RULE = rule("all")
STAGED = rule("all", stages=(Dedup(),))

MANY = 300
"""So many episodes take each dry run long enough to notice a change."""

TEA = "Ann likes green tea very much indeed"
HELD = f"all@{MANY + 2}"


async def put(home: OpenStores) -> None:
    await home.put(*stream(MANY))


async def promote(home: OpenStores) -> None:
    await put(home)
    await home.fire()


async def quarantine(home: OpenStores) -> None:
    odd = {"intent": "shout"}
    await home.put(*(triple(f"e{n}", f"s{n}", "is", n, metadata=odd) for n in range(MANY)))
    await home.fire()


async def hold(home: OpenStores) -> None:
    await promote(home)
    ends = {"intent": "delete"}
    await home.put(
        *(
            triple(f"d{n}", f"s{n}", "is", n, timestamp=at(n + 1), metadata=ends)
            for n in range(MANY)
        )
    )
    report = await home.fire()
    assert report.held is not None
    assert report.held.firing_id == HELD


@dataclass(frozen=True)
class Story:
    """One dry run, and what it needs before."""

    operation: str
    request: dict[str, Any]
    prepare: Callable[[OpenStores], Awaitable[None]]


STORIES = [
    pytest.param(Story("fire", {"rules": ["all"]}, put), id="fire"),
    pytest.param(Story("backfill", {"rule": "all"}, promote), id="backfill"),
    pytest.param(Story("retry", {"rules": ["all"]}, quarantine), id="retry"),
    pytest.param(Story("undo", {"firing": "all@1"}, promote), id="undo of a firing"),
    pytest.param(Story("undo", {"rule": "all", "since": 0}, promote), id="undo of a rule"),
    pytest.param(Story("decide", {"firing": HELD, "approve": True}, hold), id="approve"),
    pytest.param(Story("forget", {"user": "alice"}, promote), id="forget"),
]


class ChangeDuringDryRun:
    """Lets a correction wait for its turn while a dry run writes what it will not keep.

    Attributes:
        happened: The names of what has ended, in order.
    """

    def __init__(
        self,
        home: OpenStores,
        operations: Operations,
        tasks: asyncio.TaskGroup,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.happened: list[str] = []
        self._operations = operations
        self._tasks = tasks
        self._began = False
        self._write: Any = home.facts.transactions.engine.write
        monkeypatch.setattr(home.facts.transactions.engine, "write", self.write)

    async def write(self, *args: Any, keep: bool = True, **given: Any) -> Any:
        if not keep and not self._began:
            self._began = True
            self._tasks.create_task(self._change())
            await asyncio.sleep(0)
        return await self._write(*args, keep=keep, **given)

    async def _change(self) -> None:
        await self._operations.pin(PIN, ME)
        self.happened.append("correction")


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
async def test_change_does_not_wait_for_a_dry_run(
    provider: Provider, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(provider, limits=Limits(max_deletes=1)) as home:
        await story.prepare(home)
        operations = home.operations(RULE, clock=FakeClock(at(60)))
        ask = operations.handlers[story.operation]
        async with asyncio.TaskGroup() as tasks:
            during = ChangeDuringDryRun(home, operations, tasks, monkeypatch)

            answer = await ask({**story.request, "dry_run": True}, ME)
            during.happened.append("dry run")

        assert during.happened == ["correction", "dry run"]
        assert answer == await ask({**story.request, "dry_run": True}, ME)


@pytest.mark.parametrize(("part", "read"), [(1, 8), (4, 2), (100, 1)])
async def test_further_attempt_reads_fewer_rows(provider: Provider, part: int, read: int) -> None:
    async with open_stores(provider) as home:
        await home.put(*stream(9))
        consolidator = Consolidator(
            home.memory, home.facts, home.log, FakeClock(), batch=5_000, sizes=Sizes(previewed=8)
        )

        fired = await consolidator.preview(RULE, START, DryRunBounds(part=part))
        await home.fire()
        again = await consolidator.backfill(
            RULE, START, by="me", dry_run=True, bounds=DryRunBounds(part=part)
        )

        assert [report.channels["facts"].read for report in (fired, again)] == [read, read]
        assert [report.unread for report in (fired, again)] == [9 - read, 9 - read]


async def test_dry_run_ends_while_it_reads(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("the dry run wrote what it read")

    stop = asyncio.Event()
    stop.set()
    async with open_stores(provider) as home:
        await promote(home)
        await home.put(triple("later", "s", "is", "x", timestamp=at(99)))
        monkeypatch.setattr(home.facts, "apply_deltas", refuse)

        with pytest.raises(StoppedError):
            await home.consolidator.preview(RULE, START, DryRunBounds(stop))
        with pytest.raises(StoppedError):
            await home.consolidator.backfill(
                RULE, START, by="me", dry_run=True, bounds=DryRunBounds(stop)
            )


async def test_dry_run_of_marks_ends(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = asyncio.Event()
    async with open_stores(provider) as home:
        await home.put(*(episode(f"e{n}", content=TEA, timestamp=at(n)) for n in range(3)))
        apply_deltas: Any = home.facts.apply_deltas

        async def stop_afterwards(*args: Any, **given: Any) -> Any:
            outcome = await apply_deltas(*args, **given)
            stop.set()
            return outcome

        monkeypatch.setattr(home.facts, "apply_deltas", stop_afterwards)

        with pytest.raises(StoppedError):
            await home.consolidator.preview(STAGED, START, DryRunBounds(stop))
