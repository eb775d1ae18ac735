"""Decide whether a rule is due, in which order, and when a failed one may try again.

Reads no clock and no store: the caller says what time it is and what the stores hold.

Since when the wall clock has been watched without a gap. Reads no clock.

Rules whose firings fail, and since when. Reads no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple
from zlib import crc32

from slumberd.model.cadence import Cadence, Every
from slumberd.model.firing import UNTIMED, Timing, Trigger
from slumberd.model.health import DEGRADED_AFTER
from slumberd.model.rule import OnMissed

LATE = timedelta(seconds=60)
"""A cron instant served later than this was missed: its firing is a ``catchup``."""

BACKOFF_SECONDS = (1.0, 5.0, 25.0)
"""The pauses after the first, second and third failure in a row."""

LASTING_SECONDS = 60.0
"""The pause after each further failure, where what failed is none of the rule's."""

_JITTER = 0.2
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Missed:
    """Cron instants that have passed and are not served.

    Attributes:
        first: The oldest.
        latest: The newest.
        count: How many; counting may have ended early.
    """

    first: datetime
    latest: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Due:
    """One rule that is to fire, and why.

    Attributes:
        rule_id: The rule.
        trigger: ``every``, ``cron`` or ``catchup``.
        since: When it became due; for ``every``, when that was noticed.
        missed: How many cron instants the firing serves; 0 for ``every``.
        upto: The last instant it serves; None for ``every``.
        after: The watermark it was seen at; 0 for cron.
        newest: The end of the log it was seen at; 0 for cron.
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
        """What made it due; a moment is worth one firing, whatever that came to."""
        return self.upto, self.after, self.newest

    def timing(self, at: datetime) -> Timing:
        """Return how a firing that begins at an instant stands to those that it serves."""
        if self.upto is None:
            return UNTIMED
        missed = self.missed if self.trigger == "catchup" else 0
        return Timing(missed, round((at - self.upto) / _MILLISECOND))


@dataclass(frozen=True, slots=True)
class Setback:
    """A firing that failed.

    Attributes:
        due: What was to fire.
        failures: How many failed in a row.
        retry_at: On the monotonic clock; None waits for the rule's next due moment.
    """

    due: Due
    failures: int
    retry_at: float | None


def is_cut_short(due: Due) -> bool:
    """Say whether the log ends below the watermark: memory.db was restored from a backup."""
    return due.newest < due.after


def may_be_due(due: Due, cadence: Every) -> bool:
    """Say whether counting what is pending is worth a query."""
    return due.newest - due.after >= cadence.count


def due_every(cadence: Every, pending: int) -> bool:
    """Say whether so many pending versions make a rule due."""
    return pending >= cadence.count


def due_cron(rule_id: str, missed: Missed | None, *, served: datetime, now: datetime) -> Due | None:
    """Make of all that a rule has missed one firing; None when there is nothing to serve.

    An instant at or before `served` never fires again, also when the wall clock steps back.
    """
    if missed is None or not served < missed.latest <= now:
        return None
    late = missed.count > 1 or now - missed.latest > LATE
    trigger: Trigger = "catchup" if late else "cron"
    return Due(rule_id, trigger, missed.first, missed=missed.count, upto=missed.latest)


def why_skipped(
    due: Due, on_missed: OnMissed, window: timedelta, *, now: datetime, since: datetime
) -> Literal["", "on_missed", "catchup_window"]:
    """Return the key of its rule by which a firing is left out; nothing when it is not.

    Only what was missed is ever left out: the newest instant passed before anybody watched, and
    not a moment ago. What is late because others took their time runs, however late.

    Args:
        due: What is to fire.
        on_missed: What the rule says of missed instants.
        window: How old one may be to be caught up.
        now: The wall clock.
        since: From when on the clock was watched.
    """
    if due.upto is None or due.upto >= since or now - due.upto <= LATE:
        return ""
    if on_missed == "skip":
        return "on_missed"
    return "catchup_window" if now - due.upto > window else ""


def in_due_order(dues: Iterable[Due]) -> list[Due]:
    """Return what is due first first, then by rule id."""
    return sorted(dues, key=lambda due: (due.since, due.rule_id))


def set_back(due: Due, earlier: Setback | None, *, now: float, may_pass: bool = False) -> Setback:
    """Return what follows a failure: the next pause, or none when all pauses are used up.

    Args:
        due: What failed.
        earlier: What the failure before it left, if no firing of the rule has succeeded since.
        now: On the monotonic clock.
        may_pass: Whether what failed may be well again at any moment, as a full disk: then
            there is always a next pause.
    """
    afresh = earlier is None or earlier.retry_at is None
    failures = 1 if earlier is None or afresh else earlier.failures + 1
    if failures <= len(BACKOFF_SECONDS):
        pause = BACKOFF_SECONDS[failures - 1]
    elif may_pass:
        pause = LASTING_SECONDS
    else:
        return Setback(due, failures, None)
    return Setback(due, failures, now + pause * _jitter(due, failures))


def _jitter(due: Due, failures: int) -> float:
    # From the rule's id, so that rules that failed together try again apart, and predictably.
    spread = crc32(f"{due.rule_id}:{failures}".encode()) / 2**32
    return 1 + _JITTER * (2 * spread - 1)


def is_held_back(due: Due, setback: Setback, cadence: Cadence, *, now: float) -> bool:
    """Say whether a rule that failed must wait still, at a moment of the monotonic clock."""
    if setback.retry_at is not None:
        return now < setback.retry_at
    return not _is_next_moment(due, setback.due, cadence)


def _is_next_moment(due: Due, failed: Due, cadence: Cadence) -> bool:
    if isinstance(cadence, Every):
        return due.newest < failed.newest or due.newest - failed.newest >= cadence.count
    return due.upto != failed.upto


class Held:
    """Rules that must not fire although they are due: it was in vain, or it failed."""

    def __init__(self) -> None:
        self._spent: dict[str, Due] = {}
        self._setbacks: dict[str, Setback] = {}

    def allows(self, due: Due, cadence: Cadence, *, monotonic: float) -> bool:
        """Say whether a rule that is due may fire, at a moment of the monotonic clock."""
        spent, setback = self._spent.get(due.rule_id), self._setbacks.get(due.rule_id)
        if spent and spent.moment == due.moment:
            return False
        return not (setback and is_held_back(due, setback, cadence, now=monotonic))

    def succeeded(self, due: Due) -> None:
        """Let the rule fire again as soon as anything else makes it due."""
        self._spent[due.rule_id] = due
        self._setbacks.pop(due.rule_id, None)

    def failed(self, due: Due, *, monotonic: float, may_pass: bool = False) -> Setback:
        """Let the rule wait, and return for how long; see `set_back`."""
        earlier = self._setbacks.get(due.rule_id)
        setback = set_back(due, earlier, now=monotonic, may_pass=may_pass)
        self._setbacks[due.rule_id] = setback
        return setback

    def forget(self, rule_id: str) -> None:
        """Hold nothing against a rule that is no longer due."""
        self._spent.pop(rule_id, None)
        self._setbacks.pop(rule_id, None)

    def ripe(self, monotonic: float) -> set[str]:
        """Return the rules whose pause is over."""
        return {
            rule_id
            for rule_id, setback in self._setbacks.items()
            if setback.retry_at is not None and setback.retry_at <= monotonic
        }


JUMP_SECONDS = 2.0
"""Wall and monotonic clock drifting apart faster than this between two looks is a jump."""


class Reading(NamedTuple):
    """Both clocks, read together."""

    wall: datetime
    monotonic: float


def jump_between(before: Reading, after: Reading) -> float:
    """Return by how many seconds the wall clock has jumped; 0 when it has not."""
    jump = (after.wall - before.wall).total_seconds() - (after.monotonic - before.monotonic)
    return jump if abs(jump) > JUMP_SECONDS else 0.0


class Vigil:
    """Knows which instants somebody was there for.

    Attributes:
        since: The instant from which on the clock was watched, and did not jump.
    """

    def __init__(self, now: Reading) -> None:
        self._last = now
        self.since = now.wall

    def look(self, now: Reading) -> datetime:
        """Take note of the time; return `since`, which a jump either way moves to now."""
        if jump_between(self._last, now):
            self.since = now.wall
        self._last = now
        return self.since


@dataclass(frozen=True, slots=True)
class Trouble:
    """The failures of one rule since its last success.

    Attributes:
        since: When the first of them was.
        failures: How many there are, in a row.
        error: The kind of the last.
    """

    since: datetime
    failures: int
    error: str

    @property
    def degraded(self) -> bool:
        """Whether it has failed so often that somebody should look."""
        return self.failures >= DEGRADED_AFTER


class Troubles:
    """The troubles of all rules."""

    def __init__(self) -> None:
        self._by_rule: dict[str, Trouble] = {}
        self._failed: Counter[str] = Counter()

    @property
    def by_rule(self) -> Mapping[str, Trouble]:
        """The rules whose last firing failed."""
        return dict(sorted(self._by_rule.items()))

    @property
    def totals(self) -> Mapping[str, int]:
        """How often each rule has failed, ever."""
        return self._failed

    def failed(self, rule_id: str, at: datetime, error: str) -> Trouble:
        """Count one more failure, and return what that makes."""
        self._failed[rule_id] += 1
        before = self._by_rule.get(rule_id)
        since, failures = (before.since, before.failures) if before else (at, 0)
        self._by_rule[rule_id] = trouble = Trouble(since, failures + 1, error)
        return trouble

    def succeeded(self, rule_id: str) -> Trouble | None:
        """Forget a rule's trouble, and return it; None when it had none."""
        return self._by_rule.pop(rule_id, None)

    def keep(self, rule_ids: Iterable[str]) -> None:
        """Forget the rules that are no longer there."""
        self._by_rule = {name: self._by_rule[name] for name in rule_ids if name in self._by_rule}
