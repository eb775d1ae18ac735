"""The publisher publishes in order, at least once, with any failure of the sink."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from slumberd.model.errors import ProvenanceError, StaleWriterError, StoreBusyError
from slumberd.model.provenance import ProvenanceBundle
from slumberd.workers.provenance.publisher import (
    FIRST_RETRY_SECONDS,
    PAGE_ROWS,
    POLL_SECONDS,
    DeliveryPolicy,
    ProvenancePublisher,
)
from tests.support.builders import promotion
from tests.support.fakes import FakeClock, FakePromotions, FakeSink
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

FACTS = Path("facts.db")
POLICY = DeliveryPolicy("file", timeout_seconds=60, retry_seconds=8)
IMPATIENT = DeliveryPolicy("file", timeout_seconds=0.001, retry_seconds=8)


class Delivery:
    """A ledger, a sink, and a publisher between them."""

    def __init__(self, *kinds: bool, policy: DeliveryPolicy = POLICY) -> None:
        self.ledger, self.sink, self.clock = FakePromotions(), FakeSink(), FakeClock()
        self.policy = policy
        self.ledger.promote(*kinds)
        self.begin()

    def begin(self) -> None:
        """Start a new publisher, as after a crash."""
        self.publisher = ProvenancePublisher(self.ledger, self.sink, self.clock, self.policy)

    @property
    def position(self) -> tuple[int, int]:
        """The saved position, and the number of refused rows."""
        return self.ledger.positions.get(self.policy.reader, (0, 0))

    def recover(self) -> None:
        """End all failures."""
        self.sink.fault, self.sink.hangs, self.ledger.fault = None, False, None

    async def publish_all(self) -> None:
        """Let time pass until everything is published."""
        while (pause := await self.publisher.publish_page()) != POLL_SECONDS:
            self.clock.advance(pause)


async def test_publisher_publishes_every_promotion_in_order_and_saves_its_position() -> None:
    setup = Delivery(False, True, False, True, True)

    pause = await setup.publisher.publish_page()

    assert pause == 0.0
    assert setup.sink.seqs == [2, 4, 5]
    assert setup.position == (5, 0)
    assert await setup.publisher.publish_page() == POLL_SECONDS


async def test_assertion_of_a_promotion_has_its_slots_and_its_provenance() -> None:
    setup = Delivery(policy=DeliveryPolicy("file", template="evidence"))
    setup.ledger.rows = [
        promotion(1, rule_id="9.lives", firing_id="9.lives@1", confidence=0.1, replaces=("e0",))
    ]
    await setup.publisher.publish_page()
    [(template, slots)] = setup.sink.assertions
    assert template == "evidence"
    assert slots == {
        "seq": 1, "kind": "add", "fact_id": "e1", "user": "alice",
        "agent": "rag", "channel": "facts", "subject": "alice", "predicate": "drinks",
        "object": '"tea"', "replaces": '["e0"]', "rule": "9.lives", "firing": "9.lives@1",
        "_origin": "consolidation", "_source": "rule-9X2eXlives", "_run_id": "9.lives@1",
        "_step": 1, "_confidence": "0.1", "_timestamp": "2026-01-01T12:00:00Z",
    }  # fmt: skip


async def test_new_publisher_continues_at_the_saved_position() -> None:
    setup = Delivery(True, True)
    await setup.publish_all()
    setup.ledger.promote(True)
    setup.begin()
    await setup.publish_all()
    assert setup.sink.seqs == [1, 2, 3]


@pytest.mark.slow
async def test_pages_are_bounded_and_follow_without_a_pause() -> None:
    setup = Delivery(*[True] * (2 * PAGE_ROWS + 1))
    assert [await setup.publisher.publish_page() for _ in range(4)] == [0.0, 0.0, 0.0, POLL_SECONDS]
    assert setup.sink.seqs == list(range(1, 2 * PAGE_ROWS + 2))
    assert setup.ledger.longest == PAGE_ROWS


async def test_publisher_retries_a_failing_sink_after_growing_pauses() -> None:
    setup = Delivery(True, True)
    setup.sink.fault = OSError("down")
    pauses = []
    with capture_logs() as logs:
        for _ in range(6):
            pauses.append(await setup.publisher.publish_page())
            assert await setup.publisher.publish_page() == pauses[-1]  # too early
            setup.clock.advance(pauses[-1])
        setup.sink.fault = None
        await setup.publish_all()
    assert pauses == [1, 2, 4, 8, 8, 8]
    assert setup.sink.seqs == [1, 2]
    assert [line["event"] for line in logs] == ["provenance.failed", "provenance.resumed"]
    failure = [logs[0][key] for key in ("rows", "seconds", "error", "message")]
    assert failure == [2, 0.0, "OSError", "down"]


async def test_progress_of_the_sink_resets_the_pause() -> None:
    class FailsEverySecondCall(FakeSink):
        """Fails at every second call, so that each turn publishes a row."""

        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        async def assert_with_provenance(
            self, template: str, slots: Any, provenance: ProvenanceBundle
        ) -> None:
            self.calls += 1
            if self.calls % 2 == 0:
                raise OSError("again")
            await super().assert_with_provenance(template, slots, provenance)

    setup = Delivery(*[True] * 5)
    setup.sink = FailsEverySecondCall()
    setup.begin()
    with capture_logs() as logs:
        for _ in range(4):
            assert await setup.publisher.publish_page() == FIRST_RETRY_SECONDS
            setup.clock.advance(FIRST_RETRY_SECONDS)
        await setup.publish_all()
    assert setup.sink.seqs == [1, 2, 3, 4, 5]
    assert [line["event"] for line in logs] == ["provenance.failed", "provenance.resumed"]


async def test_assertions_before_a_failure_are_not_repeated() -> None:
    setup = Delivery(True, True, True)
    setup.sink.fault = None
    await setup.publisher.publish_page()
    setup.ledger.promote(True, True)
    setup.sink.hangs = True
    setup.publisher = ProvenancePublisher(setup.ledger, setup.sink, setup.clock, IMPATIENT)
    await setup.publisher.publish_page()
    assert setup.position == (3, 0)


async def test_logged_failure_has_the_first_500_characters_of_its_message() -> None:
    setup = Delivery(True)
    setup.sink.fault = OSError("m" * 501)

    with capture_logs() as logs:
        await setup.publisher.publish_page()

    assert [line["message"] for line in logs] == ["m" * 500]


async def test_publisher_abandons_a_sink_after_its_time_limit() -> None:
    setup = Delivery(True, policy=IMPATIENT)
    setup.sink.hangs = True
    with capture_logs() as logs:
        await setup.publisher.publish_page()
        setup.sink.hangs = False
        await setup.publish_all()
    assert setup.sink.seqs == [1]
    assert logs[0]["error"] == "TimeoutError"
    assert logs[0]["message"] == "no answer within 0.001 s"


async def test_sink_that_cancels_itself_does_not_end_the_publisher() -> None:
    setup = Delivery(True)
    setup.sink.fault = asyncio.CancelledError()
    with capture_logs() as logs:
        assert await setup.publisher.publish_page() == FIRST_RETRY_SECONDS
    assert "cancelled" in logs[0]["message"]


async def test_refused_row_is_skipped_and_counted() -> None:
    setup = Delivery(True, True, True)
    setup.ledger.rows[1] = promotion(2, subject="a\0b")
    with capture_logs() as logs:
        await setup.publish_all()
    assert setup.sink.seqs == [1, 3]
    assert setup.position == (3, 1)
    assert [(line["event"], line["seq"], line["slot"]) for line in logs] == [
        ("provenance.refused", 2, "subject")
    ]
    setup.ledger.promote(True)
    setup.sink.fault = ProvenanceError("object", "is not for us")
    setup.begin()
    await setup.publisher.publish_page()
    assert setup.position == (4, 2)


async def test_row_that_is_erased_during_its_page_is_not_published() -> None:
    class ErasingSink(FakeSink):
        """Erases the second row during the first assertion."""

        async def assert_with_provenance(
            self, template: str, slots: Any, provenance: ProvenanceBundle
        ) -> None:
            await super().assert_with_provenance(template, slots, provenance)
            setup.ledger.erased.add(2)

    setup = Delivery(True, True, True)
    setup.sink = ErasingSink()
    setup.begin()
    await setup.publish_all()
    assert setup.sink.seqs == [1, 3]


async def test_sink_that_starts_empty_gets_current_facts_and_then_every_promotion() -> None:
    setup = Delivery(*[True] * 5, policy=DeliveryPolicy("fathom", starts_empty=True))
    await setup.publish_all()
    setup.ledger.current = {2, 5}
    setup.begin()
    setup.sink.assertions.clear()
    await setup.publisher.publish_page()
    setup.ledger.promote(True, True)
    await setup.publish_all()
    assert setup.sink.seqs == [2, 5, 6, 7]
    assert setup.position == (7, 0)


async def test_sink_that_starts_empty_gets_later_promotions_even_of_removed_facts() -> None:
    setup = Delivery(policy=DeliveryPolicy("fathom", starts_empty=True))
    setup.ledger.promote(True, True)
    setup.ledger.current = {1}
    setup.sink.fault = OSError("not yet")
    await setup.publisher.publish_page()
    setup.ledger.promote(True)  # row 3 is no longer current when it is read
    setup.sink.fault = None
    await setup.publish_all()
    assert setup.sink.seqs == [1, 3]


async def test_publisher_retries_a_ledger_that_cannot_be_read() -> None:
    setup = Delivery(True)
    setup.ledger.fault = StoreBusyError(str(FACTS), 5)
    with capture_logs() as logs:
        setup.clock.advance(await setup.publisher.publish_page())
        setup.ledger.fault = None
        await setup.publish_all()
    assert setup.sink.seqs == [1]
    assert (logs[0]["event"], logs[0]["rows"], logs[0]["seconds"]) == (
        "provenance.failed", None, None,
    )  # fmt: skip


async def test_superseded_publisher_ends() -> None:
    setup = Delivery(True)
    setup.ledger.fault = StaleWriterError(str(FACTS), 1, 2)
    with pytest.raises(StaleWriterError):
        await setup.publisher.run(asyncio.Event())


async def test_stop_abandons_a_sink_at_once() -> None:
    setup, stop = Delivery(True, True, policy=POLICY), asyncio.Event()
    setup.sink.hangs = True
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        running = group.create_task(setup.publisher.run(stop))
        await setup.sink.called.wait()
        stop.set()
    assert running.result() is None
    assert setup.position == (0, 0)


async def test_run_publishes_until_it_is_stopped() -> None:
    setup, stop = Delivery(True), asyncio.Event()
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(setup.publisher.run(stop))
        await setup.sink.called.wait()
        stop.set()
    assert setup.sink.seqs == [1]
    assert setup.position[0] in (0, 1)


STEP = st.one_of(
    st.tuples(st.just("promote"), st.lists(st.booleans(), min_size=1, max_size=4)),
    st.tuples(st.just("answers"), st.just([])),
    st.tuples(st.just("fails"), st.booleans()),
    st.tuples(st.just("hangs"), st.booleans()),
    st.tuples(st.just("ledger fails"), st.just([])),
    st.tuples(st.just("kill"), st.integers(0, 3)),
    st.tuples(st.just("time"), st.integers(0, 20)),
    st.tuples(st.just("turn"), st.just([])),
)


async def run_steps(steps: list[tuple[str, Any]]) -> Delivery:
    setup = Delivery(policy=IMPATIENT)
    for action, argument in steps:
        if action == "turn":
            await setup.publisher.publish_page()
        elif action == "kill":
            await kill(setup, argument)
        else:
            change(setup, action, argument)
    return setup


def change(setup: Delivery, action: str, argument: Any) -> None:
    match action:
        case "promote":
            setup.ledger.promote(*argument)
        case "answers":
            setup.recover()
        case "fails":
            setup.sink.fault, setup.sink.deaf = OSError("down"), argument
        case "hangs":
            setup.sink.hangs, setup.sink.deaf = True, argument
        case "ledger fails":
            setup.ledger.fault = StoreBusyError(str(FACTS), 5)
        case _:
            setup.clock.advance(argument)


async def kill(setup: Delivery, awaits: int) -> None:
    """End a turn after some steps without saving its position, and start a new publisher."""
    before = {**setup.ledger.positions}
    turn = asyncio.ensure_future(setup.publisher.publish_page())
    for _ in range(awaits):
        await asyncio.sleep(0)
    done = turn.done()
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn
    if not done:
        setup.ledger.positions = before  # a kill prevents saving
    setup.begin()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_every_promotion_arrives_in_order_after_any_failures(
    steps: list[tuple[str, Any]],
) -> None:
    async def main() -> None:
        with capture_logs():
            setup = await run_steps(steps)
            setup.recover()
            await setup.publish_all()
        promoted = [row.seq for row in setup.ledger.rows if row]
        first = list(dict.fromkeys(setup.sink.seqs))
        assert first == promoted
        assert setup.position == (len(setup.ledger.rows), 0)

    asyncio.run(main())
