"""The order of a firing's steps on stores in memory, and where a firing ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from slumberd.consolidation.consolidator import Consolidator, Sizes
from slumberd.consolidation.firing import FireRequest
from slumberd.consolidation.incoming import DeltaBatch
from slumberd.model.errors import FiringTimeoutError, StoreError
from slumberd.model.firing import HeldBatch, Outcome, Position, ReadWindow, Record
from slumberd.model.rule import ConsolidationRule
from tests.support.builders import START, rule
from tests.support.fakes import FakeClock, FakeDeltaLog, FakeEpisodeLog, FakeLedger
from tests.support.stop_events import StopAfter
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

TOO_OFTEN = 50
"""So many calls are an endless loop."""


class OverdueClock(FakeClock):
    """A monotonic clock that jumps past every timeout after `on_time` readings."""

    def __init__(self) -> None:
        super().__init__()
        self.on_time = 1_000

    def monotonic(self) -> float:
        self.on_time -= 1
        return 0.0 if self.on_time >= 0 else 1e9


class Bench:
    """A consolidator and the fakes that it joins."""

    def __init__(
        self,
        episodes: int,
        *,
        batch: int = 5_000,
        ledger: FakeLedger | None = None,
        log: FakeDeltaLog | None = None,
        sizes: Sizes | None = None,
    ) -> None:
        self.episodes = CountedEpisodeLog()
        self.episodes.append_many(episodes)
        self.ledger = ledger or FakeLedger()
        self.log = log or FakeDeltaLog()
        self.clock = OverdueClock()
        self.consolidator = Consolidator(
            self.episodes, self.ledger, self.log, self.clock, batch=batch, sizes=sizes or Sizes()
        )


class CountedEpisodeLog(FakeEpisodeLog):
    """An episode log that fails a test that reads it in an endless loop."""

    async def select(
        self, rule: ConsolidationRule, *, after: Position, limit: int, upto: int | None = None
    ) -> ReadWindow:
        assert len(self.queries) < TOO_OFTEN
        return await super().select(rule, after=after, limit=limit, upto=upto)


class JammedLog(FakeDeltaLog):
    """A log whose reader accepts no line while it is jammed."""

    def __init__(self) -> None:
        super().__init__()
        self.jammed = True
        self.refused = 0

    def applied(self, records: Sequence[Record]) -> None:
        if self.jammed:
            self.refused += 1
            assert self.refused < TOO_OFTEN
            raise TimeoutError
        super().applied(records)


class ExpiringLog(FakeDeltaLog):
    """A log that takes its first lines until the timeout of the rule is over.

    Attributes:
        clock: The clock of the timeout.
    """

    clock: OverdueClock

    def applied(self, records: Sequence[Record]) -> None:
        super().applied(records)
        self.clock.on_time = 0


class StoppingLog(FakeDeltaLog):
    """A log that requests a stop after its first lines.

    Attributes:
        stop: The event that requests it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stop = asyncio.Event()

    def applied(self, records: Sequence[Record]) -> None:
        super().applied(records)
        self.stop.set()


async def test_due_firing_is_recorded_without_a_requester() -> None:
    bench = Bench(1)

    await bench.consolidator.fire(FireRequest(rule("all"), "every", START))

    assert [outcome.firing.by for outcome in bench.ledger.outcomes] == [""]


async def test_firing_on_request_is_recorded_with_the_requester() -> None:
    bench = Bench(1)

    await bench.consolidator.fire(FireRequest(rule("all"), "manual", START, by="uid 7"))

    assert [outcome.firing.by for outcome in bench.ledger.outcomes] == ["uid 7"]


async def test_writing_pending_lines_ends_at_once_while_the_log_accepts_none() -> None:
    jammed = JammedLog()
    bench = Bench(2, batch=1, log=jammed)
    await bench.consolidator.fire(FireRequest(rule("all"), "every", START))
    bench.ledger.queries.clear()

    repeated = await bench.consolidator.log_pending_records()

    assert (repeated, bench.consolidator.behind) == (0, True)
    assert bench.ledger.queries == ["unlogged"]
    assert bench.ledger.logged == 0


async def test_lines_of_a_jammed_log_are_written_once_when_it_accepts_them_again() -> None:
    jammed = JammedLog()
    bench = Bench(3, batch=1, log=jammed)
    await bench.consolidator.fire(FireRequest(rule("all"), "every", START))
    jammed.jammed = False

    repeated = await bench.consolidator.log_pending_records()

    assert (repeated, bench.consolidator.behind) == (6, False)
    assert [record.fact_id for record in jammed.lines] == ["e1", "e2", "e3"]
    assert bench.ledger.logged == 6
    assert await bench.consolidator.log_pending_records() == 0


async def test_pending_lines_are_written_page_by_page() -> None:
    jammed = JammedLog()
    bench = Bench(5, batch=1, log=jammed, sizes=Sizes(logged=2))
    await bench.consolidator.fire(FireRequest(rule("all"), "every", START))
    jammed.jammed = False

    repeated = await bench.consolidator.log_pending_records()

    assert repeated == 10
    assert [record.fact_id for record in jammed.lines] == ["e1", "e2", "e3", "e4", "e5"]


async def test_preview_counts_the_rows_that_it_does_not_read() -> None:
    bench = Bench(5, sizes=Sizes(previewed=2))

    report = await bench.consolidator.preview(rule("all"), START)

    assert (report.channels["facts"].read, report.unread) == (2, 3)


async def test_dry_backfill_covers_only_the_first_rows() -> None:
    bench = Bench(5, sizes=Sizes(previewed=2))
    await bench.consolidator.fire(FireRequest(rule("all"), "manual", START))

    report = await bench.consolidator.backfill(rule("all"), START, by="me", dry_run=True)

    assert (report.channels["facts"].read, report.unread) == (2, 3)
    assert len(bench.ledger.outcomes) == 1


async def test_backfill_reads_all_versions_that_its_rule_has_read_batch_by_batch() -> None:
    bench = Bench(5, batch=2)
    await bench.consolidator.fire(FireRequest(rule("all"), "manual", START))
    bench.ledger.outcomes.clear()

    report = await bench.consolidator.backfill(rule("all"), START, by="me")

    assert report.channels["facts"].read == 5
    assert [outcome.channels["facts"].read for outcome in bench.ledger.outcomes] == [2, 2, 1]


async def test_backfill_ends_at_the_end_of_a_restored_log() -> None:
    bench = Bench(5, batch=2)
    await bench.consolidator.fire(FireRequest(rule("all"), "manual", START))
    bench.episodes.restore(3)

    report = await bench.consolidator.backfill(rule("all"), START, by="me")

    assert report.channels["facts"].read == 3


async def test_firing_that_is_stopped_while_it_evaluates_commits_nothing() -> None:
    bench = Bench(3)
    bench.episodes.at_once = 1

    report = await bench.consolidator.fire(
        FireRequest(rule("all"), "manual", START, stop=StopAfter(2))
    )

    assert report.cut_short
    assert "apply_deltas" not in bench.ledger.queries
    assert "fsync" not in bench.episodes.queries


@pytest.mark.parametrize(
    ("episodes", "batch", "firings", "checkpoints"),
    [
        pytest.param(2, 1, 1, 0, id="stopped after the first of two batches"),
        pytest.param(2, 2, 1, 1, id="stopped after its only batch"),
        pytest.param(0, 1, 0, 0, id="without a batch"),
    ],
)
async def test_firing_that_has_read_all_checkpoints_the_ledger(
    episodes: int, batch: int, firings: int, checkpoints: int
) -> None:
    log = StoppingLog()
    bench = Bench(episodes, batch=batch, log=log)

    report = await bench.consolidator.fire(FireRequest(rule("all"), "manual", START, stop=log.stop))

    assert len(report.firing_ids) == firings
    assert bench.ledger.queries.count("checkpoint_after_backlog") == checkpoints


async def _hang(*_: object, **__: object) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("hanging", "on_time", "is_held"),
    [
        pytest.param("newest", 1, False, id="the end of the log"),
        pytest.param("select", 2, False, id="a window"),
        pytest.param("select", 2, True, id="the window of an approved batch"),
    ],
)
async def test_read_that_hangs_ends_at_the_timeout_of_its_rule(
    monkeypatch: pytest.MonkeyPatch, hanging: str, on_time: int, *, is_held: bool
) -> None:
    bench = Bench(3)
    if is_held:
        bench.ledger.holds["all"] = HeldBatch("all", "all@1", (2, "e2"), "too many", approved=True)
    monkeypatch.setattr(bench.episodes, hanging, _hang)
    bench.clock.on_time = on_time

    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(FiringTimeoutError, match="timeout of 60"):
            await bench.consolidator.fire(FireRequest(rule("all", timeout=60), "manual", START))

    assert bench.ledger.outcomes == []


async def test_timeout_of_a_store_is_not_reported_as_a_timeout_of_the_rule() -> None:
    bench = Bench(3)
    bench.episodes.fault = TimeoutError("the store gave up")

    with pytest.raises(TimeoutError, match="the store gave up"):
        await bench.consolidator.fire(FireRequest(rule("all", timeout=60), "manual", START))


async def test_lines_that_the_timeout_of_a_rule_interrupts_are_written_later_once() -> None:
    log = ExpiringLog()
    bench = Bench(6, log=log, sizes=Sizes(logged=2))
    log.clock = bench.clock

    await bench.consolidator.fire(FireRequest(rule("all", timeout=60), "manual", START))

    # The first two ledger rows are those of the firing and of e1.
    assert [record.fact_id for record in log.lines] == ["e1"]
    assert (bench.ledger.logged, bench.consolidator.behind) == (2, True)
    assert await bench.consolidator.log_pending_records() == 5
    assert [record.fact_id for record in log.lines] == ["e1", "e2", "e3", "e4", "e5", "e6"]
    assert not bench.consolidator.behind


class SlowLedger(FakeLedger):
    """A ledger that decides at once, and commits a batch only when the next batch was read.

    Attributes:
        was_read: Set by the test's reads.
        decide: What starts the next read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.was_read = asyncio.Event()
        self.decide: Callable[[], None] = lambda: None

    async def apply_deltas(
        self,
        batch: DeltaBatch,
        *,
        dry_run: bool = False,
        on_decided: Callable[[], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Outcome:
        if on_decided is not None:
            self.decide = on_decided
            on_decided()
            await self.was_read.wait()
        return await super().apply_deltas(batch, dry_run=dry_run, cancelled=cancelled)


async def test_failed_read_of_the_next_batch_does_not_stop_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = SlowLedger()
    bench = Bench(2, batch=1, ledger=ledger)
    select = bench.episodes.select

    async def fail_second(rule: ConsolidationRule, *, after: Position, **limits: Any) -> ReadWindow:
        if after.seq == 0:
            return await select(rule, after=after, **limits)
        ledger.was_read.set()
        raise StoreError("the disk failed")

    monkeypatch.setattr(bench.episodes, "select", fail_second)

    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(StoreError, match="the disk failed"):
            await bench.consolidator.fire(FireRequest(rule("all"), "manual", START))

    assert [outcome.firing.upto.seq for outcome in ledger.outcomes] == [1]


async def test_commit_that_decides_after_the_firing_has_ended_starts_no_read() -> None:
    ledger = SlowLedger()
    bench = Bench(2, batch=1, ledger=ledger)
    ledger.was_read.set()
    await bench.consolidator.fire(FireRequest(rule("all"), "manual", START))
    bench.episodes.queries.clear()

    ledger.decide()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert bench.episodes.queries == []
