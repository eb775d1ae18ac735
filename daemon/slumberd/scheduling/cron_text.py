"""What comes next of a cron expression, and what changes of the clock do to it. Reads no clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from slumberd.scheduling import cron

_DAY = timedelta(days=1)
_WEEK = timedelta(weeks=1)
_SECOND = timedelta(seconds=1)
_MOST_NAMED = 3


class Change(NamedTuple):
    """A change of the clock on the wall.

    Attributes:
        at: The instant; aware, UTC.
        before: How far the wall's clock was ahead of UTC.
        after: How far it is then.
    """

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def skipped(self) -> bool:
        """Whether times of the wall's clock are left out; else they come twice."""
        return self.after > self.before

    @property
    def walls(self) -> tuple[datetime, datetime]:
        """What the wall's clock shows just before and at the change, as if it were UTC."""
        return self.at + self.before, self.at + self.after


@dataclass(frozen=True, slots=True)
class Note:
    """What a change of the clock does to an expression.

    Attributes:
        change: The change.
        times: What the expression names among the times that are left out or come twice; on the
            wall's clock, as if it were UTC.
        fired: The instants that come of them.
    """

    change: Change
    times: Sequence[datetime]
    fired: Sequence[datetime]

    def words(self) -> str:
        """Return it as a person says it."""
        said = _moved(self.change)
        if not self.times:
            return f"{said}; nothing falls into it"
        names = _names(self.times)
        one = len(self.times) == 1
        if self.change.skipped:
            return f"{said}; {names} {'does' if one else 'do'} not exist then: {self._instead()}"
        return f"{said}; {names} {'comes' if one else 'come'} twice: {self._how_often()}"

    def _instead(self) -> str:
        if not self.fired:
            return "left out"
        return f"fires once, at {self.change.walls[1]:%H:%M}"

    def _how_often(self) -> str:
        if len(self.fired) == 2 * len(self.times):
            return "fires both times"
        if len(self.fired) == len(self.times) and self.fired[-1] < self.change.at:
            return "fires the first time only"
        return f"fires {len(self.fired)} times in all"


@dataclass(frozen=True, slots=True)
class Timetable:
    """What comes next of an expression.

    Attributes:
        instants: Oldest first, in the zone of the expression.
        notes: On changes of the clock up to the last of them: the next change, and whatever
            touches the expression.
    """

    instants: Sequence[datetime]
    notes: Sequence[Note]


def timetable(expression: str, timezone: str, *, after: datetime, most: int) -> Timetable:
    """Return the next instants of an expression, and notes on the changes of the clock near them.

    Args:
        expression: Five fields or a macro.
        timezone: An IANA name.
        after: The first instant lies strictly after it; aware.
        most: So many instants.

    Raises:
        ValueError: The expression or the zone cannot be read.
    """
    zone = cron.zone_of(timezone)
    instants = cron.upcoming(expression, timezone, after=after, most=most)
    notes = _notes(expression, timezone, after, instants[-1]) if instants else ()
    return Timetable([instant.astimezone(zone) for instant in instants], list(notes))


def _notes(expression: str, timezone: str, after: datetime, last: datetime) -> Iterator[Note]:
    # The last instant shown may come twice, and the clock change only then.
    for number, change in enumerate(changes(cron.zone_of(timezone), after, last + _DAY)):
        note = note_on(change, expression, timezone)
        if note.times or (number == 0 and change.at <= last):
            yield note


def note_on(change: Change, expression: str, timezone: str) -> Note:
    """Return what a change of the clock of a zone does to an expression."""
    start, end = sorted(change.walls)
    times = _between(expression, "UTC", start, end)
    if not times:
        return Note(change, [], [])
    if change.skipped:
        fired = _between(expression, timezone, change.at, change.at + _SECOND)
    else:
        length = change.before - change.after
        fired = _between(expression, timezone, change.at - length, change.at + length)
    return Note(change, times, fired)


def _between(expression: str, timezone: str, start: datetime, end: datetime) -> list[datetime]:
    """Return the instants in ``[start, end)``."""
    return cron.instants_between(
        expression, timezone, after=start - _SECOND, until=end - _SECOND, most=10_000
    )


def changes(zone: tzinfo, after: datetime, until: datetime) -> Iterator[Change]:
    """Yield the changes of a zone's clock in ``(after, until]``, oldest first.

    Of several within a week, one is seen at most; no zone does that.
    """
    start = after.astimezone(UTC).replace(microsecond=0)
    before = _offset(zone, start)
    while start < until:
        end = min(start + _WEEK, until.astimezone(UTC))
        if (offset := _offset(zone, end)) != before:
            yield Change(_first_with_another_offset(zone, start, end), before, offset)
        start, before = end, offset


def _first_with_another_offset(zone: tzinfo, start: datetime, end: datetime) -> datetime:
    """Return the first second in ``(start, end]`` that has another offset than the start."""
    before = _offset(zone, start)
    while end - start > _SECOND:
        middle = start + (end - start) // _SECOND // 2 * _SECOND
        if _offset(zone, middle) == before:
            start = middle
        else:
            end = middle
    return end


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _moved(change: Change) -> str:
    old, new = change.walls
    shown = f"{new:%H:%M}" if new.date() == old.date() else f"{new:%Y-%m-%d %H:%M}"
    way = "forward" if change.skipped else "back"
    return f"{old:%Y-%m-%d %H:%M} the clock goes {way} to {shown}"


def _names(times: Sequence[datetime]) -> str:
    names = [f"{time:%H:%M}" for time in times]
    if len(names) > _MOST_NAMED:
        return f"{names[0]} and {len(names) - 1} more up to {names[-1]}"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
