"""Decide whether a rule is due, in which order rules fire, and when a failed rule tries again.

Also detect jumps of the wall clock, and count failures. Nothing here reads a clock or a store: the
caller passes the time and the content of the stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple
from zlib import crc32

from slumberd.model.firing import UNTIMED, Position, Timing, Trigger
from slumberd.model.health import DEGRADED_AFTER
from slumberd.model.rule import Cadence, Every, OnMissed

LATE = timedelta(seconds=60)
"""A firing that begins later than this after its cron instant is a ``catchup``."""

BACKOFF_SECONDS = (1.0, 5.0, 25.0)
"""The pause after the first, second and third failure in a row."""

LASTING_SECONDS = 60.0
"""The pause after each further failure whose cause is outside the rule, such as a full disk."""

_JITTER = 0.2
_MILLISECOND = timedelta(milliseconds=1)

Mark = tuple[Position, datetime]
"""A rule's watermark, and the last cron instant that it has served."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Cron instants that have passed and are not served.

    Attributes:
        first: The oldest of them.
        latest: The newest of them.
        count: Their number, or a lower bound when there are very many.
    """

    first: datetime
    latest: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Due:
    """A rule that is due, and the reason.

    Attributes:
        trigger: ``every``, ``cron`` or ``catchup``.
        since: The instant at which it became due; for ``every``, at which this was noticed.
        missed: The number of cron instants that the firing serves; 0 for ``every``.
        upto: The last instant that the firing serves; None for ``every``.
        after: The rule's watermark; 0 for cron.
        newest: The last number of the episode log; 0 for cron.
    """

    rule_id: str
    trigger: Trigger
    since: datetime
    missed: int = 0
    upto: datetime | None = None
    after: int = 0
    newest: int = 0

    @property
    def moment(self) -> tuple[datetime | None, int, int]:
        """What made the rule due. One moment gives one firing, whether it has an effect or not."""
        return self.upto, self.after, self.newest

    def timing(self, at: datetime) -> Timing:
        """Return how many instants a firing serves, and how late it begins."""
        if self.upto is None:
            return UNTIMED
        missed = self.missed if self.trigger == "catchup" else 0
        return Timing(missed, round((at - self.upto) / _MILLISECOND))


@dataclass(frozen=True, slots=True)
class RetryState:
    """The state of a rule after a failed firing.

    Attributes:
        due: Why the rule was due.
        failures: The number of failures in a row.
        retry_at: The rule tries again then, on the monotonic clock. None: it waits until something
            else makes it due.
    """

    due: Due
    failures: int
    retry_at: float | None


def is_cut_short(due: Due) -> bool:
    """Return whether the log ends below the watermark: the episodes were restored from a backup."""
    return due.newest < due.after


def may_be_due(due: Due, cadence: Every) -> bool:
    """Return whether enough log rows are new, so that counting the pending versions pays."""
    return due.newest - due.after >= cadence.count


def due_every(cadence: Every, pending: int) -> bool:
    """Return whether the pending versions make a rule due."""
    return pending >= cadence.count


def is_ahead(recorded: datetime, *, now: datetime, tolerance_seconds: float) -> bool:
    """Return whether a recorded instant lies too far ahead of the clock to be trusted."""
    return (recorded - now).total_seconds() > tolerance_seconds


def due_cron(rule_id: str, missed: Missed | None, *, served: datetime, now: datetime) -> Due | None:
    """Return one firing for all instants that a rule has missed; None when it missed none.

    An instant at or before `served` never fires again, even if the wall clock steps back.
    """
    if missed is None or not served < missed.latest <= now:
        return None
    late = missed.count > 1 or now - missed.latest > LATE
    trigger: Trigger = "catchup" if late else "cron"
    return Due(rule_id, trigger, missed.first, missed=missed.count, upto=missed.latest)


def why_skipped(
    due: Due, on_missed: OnMissed, window: timedelta, *, now: datetime, since: datetime
) -> Literal["", "on_missed", "catchup_window"]:
    """Return the key of the rule that forbids a firing; an empty text when it may run.

    Only a missed firing is skipped: its newest instant passed before the daemon watched the clock,
    and more than `LATE` ago. A firing that is late because other rules took long always runs.

    Args:
        due: The firing.
        on_missed: The rule's setting for missed instants.
        window: The greatest age of an instant that is caught up.
        now: The wall clock.
        since: The daemon has watched the clock from this instant on.
    """
    if due.upto is None or due.upto >= since or now - due.upto <= LATE:
        return ""
    if on_missed == "skip":
        return "on_missed"
    return "catchup_window" if now - due.upto > window else ""


def in_due_order(dues: Iterable[Due]) -> list[Due]:
    """Return due rules by the instant at which they became due, then by rule id."""
    return sorted(dues, key=lambda due: (due.since, due.rule_id))


def next_retry_state(
    due: Due, earlier: RetryState | None, *, now: float, transient: bool = False
) -> RetryState:
    """Return the state after a failure: with a pause, or without one when no pause is left.

    Args:
        due: The firing that failed.
        earlier: The state after the failure before it, unless the rule has succeeded since.
        now: On the monotonic clock.
        transient: Whether the cause may end by itself, such as a full disk. Then there is always
            another pause.
    """
    afresh = earlier is None or earlier.retry_at is None
    failures = 1 if earlier is None or afresh else earlier.failures + 1
    if failures <= len(BACKOFF_SECONDS):
        pause = BACKOFF_SECONDS[failures - 1]
    elif transient:
        pause = LASTING_SECONDS
    else:
        return RetryState(due, failures, None)
    return RetryState(due, failures, now + pause * _jitter(due, failures))


def _jitter(due: Due, failures: int) -> float:
    # Made from the rule id: rules that failed together try again at different, predictable times.
    spread = crc32(f"{due.rule_id}:{failures}".encode()) / 2**32
    return 1 + _JITTER * (2 * spread - 1)


def must_wait(due: Due, state: RetryState, cadence: Cadence, *, now: float) -> bool:
    """Return whether a rule that failed must still wait; `now` is on the monotonic clock."""
    if state.retry_at is not None:
        return now < state.retry_at
    return not _is_next_moment(due, state.due, cadence)


def _is_next_moment(due: Due, failed: Due, cadence: Cadence) -> bool:
    if isinstance(cadence, Every):
        return due.newest < failed.newest or due.newest - failed.newest >= cadence.count
    return due.upto != failed.upto


class RetryTracker:
    """Knows which due rules must not fire yet, because they have just fired or have failed."""

    def __init__(self) -> None:
        self._fired: dict[str, Due] = {}
        self._states: dict[str, RetryState] = {}

    def allows(self, due: Due, cadence: Cadence, *, monotonic: float) -> bool:
        """Return whether a due rule may fire; `monotonic` is on the monotonic clock."""
        fired, state = self._fired.get(due.rule_id), self._states.get(due.rule_id)
        if fired and fired.moment == due.moment:
            return False
        return not (state and must_wait(due, state, cadence, now=monotonic))

    def record_success(self, due: Due) -> None:
        """Record a success: the rule fires again when something else makes it due."""
        self._fired[due.rule_id] = due
        self._states.pop(due.rule_id, None)

    def record_failure(self, due: Due, *, monotonic: float, transient: bool = False) -> RetryState:
        """Record a failure, and return the new state; see `set_back`."""
        earlier = self._states.get(due.rule_id)
        state = next_retry_state(due, earlier, now=monotonic, transient=transient)
        self._states[due.rule_id] = state
        return state

    def allow_again(self, rule_id: str) -> None:
        """Allow a rule to fire once more for what made it due, since it may read more now."""
        self._fired.pop(rule_id, None)

    def remove(self, rule_id: str) -> None:
        """Remove a rule that is no longer due."""
        self._fired.pop(rule_id, None)
        self._states.pop(rule_id, None)

    def ready_to_retry(self, monotonic: float) -> set[str]:
        """Return the ids of the rules whose pause is over."""
        return {
            rule_id
            for rule_id, state in self._states.items()
            if state.retry_at is not None and state.retry_at <= monotonic
        }


JUMP_SECONDS = 2.0
"""A greater difference between the two clocks, from one reading to the next, is a jump."""


class Reading(NamedTuple):
    """A reading of both clocks at the same time."""

    wall: datetime
    monotonic: float


def jump_between(before: Reading, after: Reading) -> float:
    """Return by how many seconds the wall clock jumped between two readings; 0 without a jump."""
    jump = (after.wall - before.wall).total_seconds() - (after.monotonic - before.monotonic)
    return jump if abs(jump) > JUMP_SECONDS else 0.0


class ClockWatch:
    """Watches the wall clock for jumps.

    Attributes:
        since: The daemon has watched the clock from this instant on, without a jump.
    """

    def __init__(self, now: Reading) -> None:
        self._last = now
        self.since = now.wall

    def observe(self, now: Reading) -> datetime:
        """Record a reading, and return `since`; a jump forward or back moves it to now."""
        if jump_between(self._last, now):
            self.since = now.wall
        self._last = now
        return self.since


@dataclass(frozen=True, slots=True)
class FailureStreak:
    """The failures of one rule since its last success.

    Attributes:
        since: The instant of the first failure.
        failures: The number of failures in a row.
        error: The class of the last error.
    """

    since: datetime
    failures: int
    error: str

    @property
    def degraded(self) -> bool:
        """Whether it failed so often that a person should look into it."""
        return self.failures >= DEGRADED_AFTER


class FailureTracker:
    """Counts the failures of all rules."""

    def __init__(self) -> None:
        self._by_rule: dict[str, FailureStreak] = {}
        self._failed: Counter[str] = Counter()

    @property
    def by_rule(self) -> Mapping[str, FailureStreak]:
        """The rules whose last firing failed, by id."""
        return dict(sorted(self._by_rule.items()))

    @property
    def totals(self) -> Mapping[str, int]:
        """The number of failures of each rule since the daemon started."""
        return self._failed

    def record_failure(self, rule_id: str, at: datetime, error: str) -> FailureStreak:
        """Record a failure, and return the failures of its rule."""
        self._failed[rule_id] += 1
        before = self._by_rule.get(rule_id)
        since, failures = (before.since, before.failures) if before else (at, 0)
        self._by_rule[rule_id] = trouble = FailureStreak(since, failures + 1, error)
        return trouble

    def record_success(self, rule_id: str) -> FailureStreak | None:
        """Record a success, and return the failures before it; None when there were none."""
        return self._by_rule.pop(rule_id, None)

    def keep(self, rule_ids: Iterable[str]) -> None:
        """Drop the failures of all other rules."""
        self._by_rule = {name: self._by_rule[name] for name in rule_ids if name in self._by_rule}
