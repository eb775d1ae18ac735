"""The scheduler decides when a rule is due, in which order, and when to retry."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.firing import Timing
from slumberd.model.rule import Cron, Every, OnMissed
from slumberd.workers.scheduling.due import (
    BACKOFF_SECONDS,
    Due,
    Missed,
    RetryState,
    RetryTracker,
    due_cron,
    due_every,
    in_due_order,
    is_cut_short,
    may_be_due,
    must_wait,
    next_retry_state,
    why_skipped,
)
from tests.support.builders import START, at

pytestmark = pytest.mark.unit

DAILY = Cron("0 3 * * *")
seconds = st.integers(-(10**6), 10**6)


def due_by_count(newest: int, *, after: int = 0, rule_id: str = "r1") -> Due:
    """Return a due counting rule for a log that ends here."""
    return Due(rule_id, "every", START, after=after, newest=newest)


def due_by_cron(seconds: float, *, rule_id: str = "r1") -> Due:
    """Return a due cron rule whose instant has just passed."""
    return Due(rule_id, "cron", at(seconds), missed=1, upto=at(seconds))


def one_missed(seconds: float) -> Missed:
    """Return one missed instant."""
    return Missed(at(seconds), at(seconds), 1)


@pytest.mark.parametrize(("count", "due"), [(9, False), (10, True), (11, True)])
def test_every_ten_is_due_at_ten_pending(count: int, due: bool) -> None:
    assert due_every(Every(10), count) is due


@given(after=st.integers(0, 99), newest=st.integers(0, 99), count=st.integers(1, 99))
def test_cheap_check_never_excludes_a_rule_that_is_due(after: int, newest: int, count: int) -> None:
    at_most_pending = max(newest - after, 0)

    possible = may_be_due(due_by_count(newest, after=after), Every(count))

    assert possible or not due_every(Every(count), at_most_pending)


@pytest.mark.parametrize(("newest", "cut"), [(4, True), (5, False), (6, False)])
def test_log_that_ends_below_the_watermark_is_cut_short(newest: int, cut: bool) -> None:
    assert is_cut_short(due_by_count(newest, after=5)) is cut


def test_rule_is_due_when_an_instant_has_just_passed() -> None:
    due = due_cron("r1", one_missed(10), served=at(0), now=at(11))

    assert due == Due("r1", "cron", at(10), missed=1, upto=at(10))


@pytest.mark.parametrize(
    ("missed", "now"),
    [
        pytest.param(one_missed(10), 10 + 60.001, id="over a minute late"),
        pytest.param(Missed(at(10), at(70), 2), 70, id="the second instant has passed"),
    ],
)
def test_missed_instants_are_caught_up_in_one_firing(missed: Missed, now: float) -> None:
    due = due_cron("r1", missed, served=at(0), now=at(now))

    assert due == Due("r1", "catchup", at(10), missed=missed.count, upto=missed.latest)


@pytest.mark.parametrize(
    ("due", "timing"),
    [
        pytest.param(due_by_cron(10), Timing(0, 2_500), id="on time"),
        pytest.param(
            Due("r1", "catchup", at(1), missed=4, upto=at(10)), Timing(4, 2_500), id="catching up"
        ),
        pytest.param(due_by_count(3), Timing(0, None), id="counting"),
    ],
)
def test_timing_contains_lateness_and_number_of_missed_instants(due: Due, timing: Timing) -> None:
    assert due.timing(at(12.5)) == timing


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("on_missed", "now", "since", "reason"),
    [
        pytest.param("run_once", 1_000, 500, "", id="missed"),
        pytest.param("skip", 1_000, 500, "on_missed", id="missed, and skipped by the rule"),
        pytest.param("skip", 1_000, 0, "", id="late because other rules took long"),
        pytest.param("skip", 160, 150, "", id="a moment ago"),
        pytest.param("skip", 160.001, 150, "on_missed", id="more than a moment ago"),
        pytest.param("run_once", 3_700, 500, "", id="just within the window"),
        pytest.param("run_once", 3_700.001, 500, "catchup_window", id="beyond the window"),
        pytest.param("run_once", 9_999, 0, "", id="beyond the window, but only late"),
    ],
)
def test_only_instants_before_the_daemon_was_running_are_skipped(
    on_missed: OnMissed, now: float, since: float, reason: str
) -> None:
    due = due_by_cron(100)

    assert why_skipped(due, on_missed, HOUR, now=at(now), since=at(since)) == reason


def test_counting_rule_is_never_skipped() -> None:
    assert why_skipped(due_by_count(3), "skip", HOUR, now=at(9_999), since=at(9_999)) == ""


def test_rule_without_missed_instants_is_not_due() -> None:
    assert due_cron("r1", None, served=at(0), now=at(99)) is None


@given(first=seconds, length=st.integers(0, 999), served=seconds, now=seconds)
def test_instant_at_or_before_the_last_one_served_never_fires_again(
    first: int, length: int, served: int, now: int
) -> None:
    missed = Missed(at(first), at(first + length), 2)

    due = due_cron("r1", missed, served=at(served), now=at(now))

    assert (due is not None) == (served < first + length <= now)


def test_due_order_is_by_instant_then_by_rule_id() -> None:
    dues = [due_by_cron(2, rule_id="a"), due_by_cron(1, rule_id="c"), due_by_cron(1, rule_id="b")]

    assert [due.rule_id for due in in_due_order(dues)] == ["b", "c", "a"]


@given(st.permutations([due_by_cron(n % 3, rule_id=f"r{n}") for n in range(7)]))
def test_due_order_does_not_depend_on_the_input_order(dues: list[Due]) -> None:
    assert in_due_order(dues) == in_due_order(reversed(dues))


def test_pauses_grow_until_retries_are_used_up() -> None:
    states = [next_retry_state(due_by_count(1), None, now=0.0)]
    for _ in BACKOFF_SECONDS:
        states.append(next_retry_state(due_by_count(1), states[-1], now=0.0))

    pauses = [state.retry_at for state in states]

    assert [state.failures for state in states] == [1, 2, 3, 4]
    assert pauses == [
        pytest.approx(1, rel=0.2),
        pytest.approx(5, rel=0.2),
        pytest.approx(25, rel=0.2),
        None,
    ]


@pytest.mark.parametrize(
    ("failures", "transient", "seconds"),
    [
        pytest.param(1, False, 1, id="first"),
        pytest.param(2, False, 5, id="second"),
        pytest.param(3, False, 25, id="third"),
        pytest.param(4, True, 60, id="fourth of a transient cause"),
        pytest.param(9, True, 60, id="ninth of a transient cause"),
    ],
)
def test_pauses_of_many_rules_are_spread_over_a_fifth_each_way(
    failures: int, transient: bool, seconds: float
) -> None:
    pauses = [pause_after(failures, f"r{n}", transient=transient) for n in range(5_000)]

    assert sum(pauses) / len(pauses) == pytest.approx(seconds, rel=0.01)
    assert min(pauses) == pytest.approx(0.8 * seconds, rel=0.005)
    assert max(pauses) == pytest.approx(1.2 * seconds, rel=0.005)


def pause_after(failures: int, rule_id: str, *, transient: bool) -> float:
    """Return the pause of a rule after its last failure, in seconds."""
    due = due_by_count(1, rule_id=rule_id)
    earlier = RetryState(due, failures - 1, 0.0) if failures > 1 else None
    retry_at = next_retry_state(due, earlier, now=100.0, transient=transient).retry_at
    assert retry_at is not None
    return retry_at - 100.0


def test_rules_that_fail_together_retry_at_different_times() -> None:
    retries = {
        next_retry_state(due_by_count(1, rule_id=f"r{n}"), None, now=0.0).retry_at
        for n in range(20)
    }

    assert len(retries) == 20


def test_failure_at_the_next_due_instant_restarts_the_pauses() -> None:
    state = next_retry_state(due_by_count(1), None, now=0.0)
    for _ in BACKOFF_SECONDS:
        state = next_retry_state(due_by_count(1), state, now=0.0)

    again = next_retry_state(due_by_count(2), state, now=0.0)

    assert again.failures == 1
    assert again.retry_at is not None


def test_failed_rule_waits_until_its_pause_is_over() -> None:
    state = next_retry_state(due_by_count(10), None, now=100.0)

    assert must_wait(due_by_count(99), state, Every(10), now=100.7)
    assert not must_wait(due_by_count(10), state, Every(10), now=101.3)


@pytest.mark.parametrize(
    ("newest", "held"),
    [
        pytest.param(19, True, id="nine more"),
        pytest.param(20, False, id="ten more"),
        pytest.param(3, False, id="another memory.db"),
    ],
)
def test_counting_rule_without_retries_waits_for_a_full_count(newest: int, held: bool) -> None:
    state = next_retry_state(due_by_count(10), None, now=0.0)
    for _ in BACKOFF_SECONDS:
        state = next_retry_state(due_by_count(10), state, now=0.0)

    assert must_wait(due_by_count(newest), state, Every(10), now=9e9) is held


@pytest.mark.parametrize(("instant", "held"), [(10, True), (70, False)])
def test_cron_rule_without_retries_waits_for_its_next_instant(instant: int, held: bool) -> None:
    state = next_retry_state(due_by_cron(10), None, now=0.0)
    for _ in BACKOFF_SECONDS:
        state = next_retry_state(due_by_cron(10), state, now=0.0)

    assert must_wait(due_by_cron(instant), state, DAILY, now=9e9) is held


def test_rule_does_not_fire_again_for_a_served_instant() -> None:
    retries = RetryTracker()

    retries.record_success(due_by_count(10, after=3))

    assert not retries.allows(due_by_count(10, after=3), Every(1), monotonic=0.0)
    assert retries.allows(due_by_count(11, after=3), Every(1), monotonic=0.0)
    assert retries.allows(due_by_count(10, after=4), Every(1), monotonic=0.0)
    assert retries.allows(due_by_count(10, after=3, rule_id="r2"), Every(1), monotonic=0.0)


def test_failed_rule_is_ready_to_retry_after_its_pause() -> None:
    retries = RetryTracker()

    retries.record_failure(due_by_count(1), monotonic=0.0)

    assert retries.ready_to_retry(0.5) == set()
    assert retries.ready_to_retry(1.5) == {"r1"}
    assert not retries.allows(due_by_count(1), Every(1), monotonic=0.5)
    assert retries.allows(due_by_count(1), Every(1), monotonic=1.5)


def test_rule_without_retries_is_never_ready_to_retry() -> None:
    retries = RetryTracker()

    for _ in range(len(BACKOFF_SECONDS) + 1):
        retries.record_failure(due_by_count(1), monotonic=0.0)

    assert retries.ready_to_retry(9e9) == set()


@pytest.mark.parametrize("how", ["succeeded", "removed"])
def test_recovered_rule_restarts_with_the_shortest_pause(how: str) -> None:
    retries = RetryTracker()
    retries.record_failure(due_by_count(1), monotonic=0.0)
    retries.record_failure(due_by_count(1), monotonic=0.0)

    retries.record_success(due_by_count(1)) if how == "succeeded" else retries.remove("r1")

    assert retries.record_failure(due_by_count(2), monotonic=0.0).failures == 1


def test_firing_one_minute_late_is_on_time() -> None:
    due = due_cron("r1", one_missed(0), served=at(-1), now=at(0) + timedelta(seconds=60))

    assert due is not None
    assert due.trigger == "cron"


def test_removed_rule_may_fire_again_for_the_same_instant() -> None:
    retries, due = RetryTracker(), due_by_cron(10)
    retries.record_success(due)
    assert not retries.allows(due, DAILY, monotonic=0)

    retries.remove(due.rule_id)

    assert retries.allows(due, DAILY, monotonic=0)


def test_failure_after_removal_counts_as_the_first() -> None:
    retries, due = RetryTracker(), due_by_cron(10)
    retries.record_failure(due, monotonic=0)

    retries.remove(due.rule_id)

    assert retries.allows(due, DAILY, monotonic=0)
    assert retries.record_failure(due, monotonic=0).failures == 1
