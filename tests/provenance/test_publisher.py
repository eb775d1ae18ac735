"""The publisher: in order, at least once, whatever a sink does; and it holds up nobody."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from slumberd.errors import ProvenanceError, StaleWriterError, StoreBusyError
from slumberd.model.provenance import ProvenanceBundle
from slumberd.provenance.publisher import (
    FIRST_RETRY_SECONDS,
    PAGE_ROWS,
    POLL_SECONDS,
    DeliveryPolicy,
    ProvenancePublisher,
)
from tests.support.builders import promotion
from tests.support.fakes import FakeClock, FakePromotions, FakeSink
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

FACTS = Path("facts.db")
POLICY = DeliveryPolicy("file", timeout_seconds=60, retry_seconds=8)
IMPATIENT = DeliveryPolicy("file", timeout_seconds=0.001, retry_seconds=8)


class Round:
    """A ledger, a sink, and a publisher between them."""

    def __init__(self, *kinds: bool, policy: DeliveryPolicy = POLICY) -> None:
        self.ledger, self.sink, self.clock = FakePromotions(), FakeSink(), FakeClock()
        self.policy = policy
        self.ledger.promote(*kinds)
        self.begin()

    def begin(self) -> None:
        """Start anew, as after a crash."""
        self.publisher = ProvenancePublisher(self.ledger, self.sink, self.clock, self.policy)

    @property
    def place(self) -> tuple[int, int]:
        """How far the publisher has come, and what was refused."""
        return self.ledger.places.get(self.policy.reader, (0, 0))

    def recover(self) -> None:
        """Let nothing fail any more."""
        self.sink.fault, self.sink.hangs, self.ledger.fault = None, False, None

    async def to_the_end(self) -> None:
        """Let time pass until there is nothing to tell."""
        while (rest := await self.publisher.publish_page()) != POLL_SECONDS:
            self.clock.advance(rest)


async def test_every_promotion_is_published_in_order_and_the_position_saved() -> None:
    one = Round(False, True, False, True, True)

    rest = await one.publisher.publish_page()

    assert rest == 0.0
    assert one.sink.seqs == [2, 4, 5]
    assert one.place == (5, 0)
    assert await one.publisher.publish_page() == POLL_SECONDS


async def test_promotion_carries_where_it_comes_from() -> None:
    one = Round(policy=DeliveryPolicy("file", template="evidence"))
    one.ledger.rows = [
        promotion(1, rule_id="9.lives", firing_id="9.lives@1", confidence=0.1, replaces=("e0",))
    ]
    await one.publisher.publish_page()
    [(template, told)] = one.sink.told
    assert template == "evidence"
    assert told == {
        "seq": 1, "kind": "add", "fact_id": "e1", "user": "alice",
        "agent": "rag", "channel": "facts", "subject": "alice", "predicate": "drinks",
        "object": '"tea"', "replaces": '["e0"]', "rule": "9.lives", "firing": "9.lives@1",
        "_origin": "consolidation", "_source": "rule-9X2eXlives", "_run_id": "9.lives@1",
        "_step": 1, "_confidence": "0.1", "_timestamp": "2026-01-01T12:00:00Z",
    }  # fmt: skip


async def test_a_new_publisher_continues_at_the_saved_position() -> None:
    one = Round(True, True)
    await one.to_the_end()
    one.ledger.promote(True)
    one.begin()
    await one.to_the_end()
    assert one.sink.seqs == [1, 2, 3]


async def test_pages_are_bounded_and_follow_at_once() -> None:
    one = Round(*[True] * (2 * PAGE_ROWS + 1))
    assert [await one.publisher.publish_page() for _ in range(4)] == [0.0, 0.0, 0.0, POLL_SECONDS]
    assert one.sink.seqs == list(range(1, 2 * PAGE_ROWS + 2))
    assert one.ledger.longest == PAGE_ROWS


async def test_failing_sink_is_told_later_and_longer_each_time() -> None:
    one = Round(True, True)
    one.sink.fault = OSError("down")
    pauses = []
    with capture_logs() as logs:
        for _ in range(6):
            pauses.append(await one.publisher.publish_page())
            assert await one.publisher.publish_page() == pauses[-1]  # too early
            one.clock.advance(pauses[-1])
        one.sink.fault = None
        await one.to_the_end()
    assert pauses == [1, 2, 4, 8, 8, 8]
    assert one.sink.seqs == [1, 2]
    assert [line["event"] for line in logs] == ["provenance.failed", "provenance.resumed"]
    told = [logs[0][key] for key in ("rows", "seconds", "error", "message")]
    assert told == [2, 0.0, "OSError", "down"]


async def test_failures_end_where_the_sink_gets_on() -> None:
    class Every(FakeSink):
        """Fails at every second call, so that each turn gets on by one row."""

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

    one = Round(*[True] * 5)
    one.sink = Every()
    one.begin()
    with capture_logs() as logs:
        for _ in range(4):
            assert await one.publisher.publish_page() == FIRST_RETRY_SECONDS
            one.clock.advance(FIRST_RETRY_SECONDS)
        await one.to_the_end()
    assert one.sink.seqs == [1, 2, 3, 4, 5]
    assert [line["event"] for line in logs] == ["provenance.failed", "provenance.resumed"]


async def test_what_was_told_before_a_failure_is_not_told_again() -> None:
    one = Round(True, True, True)
    one.sink.fault = None
    await one.publisher.publish_page()
    one.ledger.promote(True, True)
    one.sink.hangs = True
    one.publisher = ProvenancePublisher(one.ledger, one.sink, one.clock, IMPATIENT)
    await one.publisher.publish_page()
    assert one.place == (3, 0)


async def test_sink_that_never_answers_is_let_go_in_time() -> None:
    one = Round(True, policy=IMPATIENT)
    one.sink.hangs = True
    with capture_logs() as logs:
        await one.publisher.publish_page()
        one.sink.hangs = False
        await one.to_the_end()
    assert one.sink.seqs == [1]
    assert logs[0]["error"] == "TimeoutError"
    assert logs[0]["message"] == "no answer within 0.001 s"


async def test_a_sink_that_cancels_itself_does_not_end_the_publisher() -> None:
    one = Round(True)
    one.sink.fault = asyncio.CancelledError()
    with capture_logs() as logs:
        assert await one.publisher.publish_page() == FIRST_RETRY_SECONDS
    assert "cancelled" in logs[0]["message"]


async def test_refused_row_is_passed_over_and_counted() -> None:
    one = Round(True, True, True)
    one.ledger.rows[1] = promotion(2, subject="a\0b")
    with capture_logs() as logs:
        await one.to_the_end()
    assert one.sink.seqs == [1, 3]
    assert one.place == (3, 1)
    assert [(line["event"], line["seq"], line["slot"]) for line in logs] == [
        ("provenance.refused", 2, "subject")
    ]
    one.ledger.promote(True)
    one.sink.fault = ProvenanceError("object", "is not for us")
    one.begin()
    await one.publisher.publish_page()
    assert one.place == (4, 2)


async def test_a_row_that_is_erased_meanwhile_is_not_published() -> None:
    class Forgetting(FakeSink):
        """While it takes the first row, the second is forgotten."""

        async def assert_with_provenance(
            self, template: str, slots: Any, provenance: ProvenanceBundle
        ) -> None:
            await super().assert_with_provenance(template, slots, provenance)
            one.ledger.erased.add(2)

    one = Round(True, True, True)
    one.sink = Forgetting()
    one.begin()
    await one.to_the_end()
    assert one.sink.seqs == [1, 3]


async def test_a_sink_that_starts_empty_gets_current_facts_and_then_every_promotion() -> None:
    one = Round(*[True] * 5, policy=DeliveryPolicy("fathom", starts_empty=True))
    await one.to_the_end()
    one.ledger.standing = {2, 5}
    one.begin()
    one.sink.told.clear()
    await one.publisher.publish_page()
    one.ledger.promote(True, True)
    await one.to_the_end()
    assert one.sink.seqs == [2, 5, 6, 7]
    assert one.place == (7, 0)


async def test_a_sink_that_starts_empty_gets_later_promotions_even_of_facts_that_went() -> None:
    one = Round(policy=DeliveryPolicy("fathom", starts_empty=True))
    one.ledger.promote(True, True)
    one.ledger.standing = {1}
    one.sink.fault = OSError("not yet")
    await one.publisher.publish_page()
    one.ledger.promote(True)  # row 3 stands no more when it is read
    one.sink.fault = None
    await one.to_the_end()
    assert one.sink.seqs == [1, 3]


async def test_ledger_that_cannot_be_read_is_read_later() -> None:
    one = Round(True)
    one.ledger.fault = StoreBusyError(FACTS, 5)
    with capture_logs() as logs:
        one.clock.advance(await one.publisher.publish_page())
        one.ledger.fault = None
        await one.to_the_end()
    assert one.sink.seqs == [1]
    assert (logs[0]["event"], logs[0]["rows"], logs[0]["seconds"]) == (
        "provenance.failed", None, None,
    )  # fmt: skip


async def test_a_superseded_publisher_ends() -> None:
    one = Round(True)
    one.ledger.fault = StaleWriterError(FACTS, 1, 2)
    with pytest.raises(StaleWriterError):
        await one.publisher.run(asyncio.Event())


async def test_stop_lets_a_sink_go_at_once() -> None:
    one, stop = Round(True, True, policy=POLICY), asyncio.Event()
    one.sink.hangs = True
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        kept = group.create_task(one.publisher.run(stop))
        await one.sink.asked.wait()
        stop.set()
    assert kept.result() is None
    assert one.place == (0, 0)


async def test_run_publishes_until_it_is_stopped() -> None:
    one, stop = Round(True), asyncio.Event()
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(one.publisher.run(stop))
        await one.sink.asked.wait()
        stop.set()
    assert one.sink.seqs == [1]
    assert one.place[0] in (0, 1)


STEP = st.one_of(
    st.tuples(st.just("promote"), st.lists(st.booleans(), min_size=1, max_size=4)),
    st.tuples(st.just("answers"), st.just([])),
    st.tuples(st.just("fails"), st.booleans()),
    st.tuples(st.just("hangs"), st.booleans()),
    st.tuples(st.just("ledger fails"), st.just([])),
    st.tuples(st.just("killed"), st.integers(0, 3)),
    st.tuples(st.just("time"), st.integers(0, 20)),
    st.tuples(st.just("turn"), st.just([])),
)


async def play(steps: list[tuple[str, Any]]) -> Round:
    one = Round(policy=IMPATIENT)
    for what, how in steps:
        if what == "turn":
            await one.publisher.publish_page()
        elif what == "killed":
            await killed(one, how)
        else:
            change(one, what, how)
    return one


def change(one: Round, what: str, how: Any) -> None:
    match what:
        case "promote":
            one.ledger.promote(*how)
        case "answers":
            one.recover()
        case "fails":
            one.sink.fault, one.sink.deaf = OSError("down"), how
        case "hangs":
            one.sink.hangs, one.sink.deaf = True, how
        case "ledger fails":
            one.ledger.fault = StoreBusyError(FACTS, 5)
        case _:
            one.clock.advance(how)


async def killed(one: Round, awaits: int) -> None:
    """End a turn after so many steps of it, keeping nothing, and begin again."""
    before = {**one.ledger.places}
    turn = asyncio.ensure_future(one.publisher.publish_page())
    for _ in range(awaits):
        await asyncio.sleep(0)
    done = turn.done()
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn
    if not done:
        one.ledger.places = before  # a kill leaves no time to keep it
    one.begin()


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_whatever_fails_whenever_every_promotion_arrives_in_order(
    steps: list[tuple[str, Any]],
) -> None:
    async def main() -> None:
        with capture_logs():
            one = await play(steps)
            one.recover()
            await one.to_the_end()
        promoted = [row.seq for row in one.ledger.rows if row]
        first = list(dict.fromkeys(one.sink.seqs))
        assert first == promoted
        assert one.place == (len(one.ledger.rows), 0)

    asyncio.run(main())
