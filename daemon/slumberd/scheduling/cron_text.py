"""Say when a cron expression fires next, and how clock changes affect it. Reads no clock."""

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
    """A change of a zone's offset from UTC, as at the begin of daylight-saving time.

    Attributes:
        at: The instant of the change; aware, UTC.
        before: The offset before the change; positive east of Greenwich.
        after: The offset after the change.
    """

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def skipped(self) -> bool:
        """Whether local times are skipped; otherwise they are repeated."""
        return self.after > self.before

    @property
    def walls(self) -> tuple[datetime, datetime]:
        """The local times just before and at the change, labelled as UTC."""
        return self.at + self.before, self.at + self.after


@dataclass(frozen=True, slots=True)
class Note:
    """The effect of a clock change on an expression.

    Attributes:
        change: The change.
        times: The skipped or repeated local times that the expression names, labelled as UTC.
        fired: The instants at which the expression fires for them.
    """

    change: Change
    times: Sequence[datetime]
    fired: Sequence[datetime]

    def words(self) -> str:
        """Return the note as a sentence."""
        change = _describe_change(self.change)
        if not self.times:
            return f"{change}; no instant is affected"
        times, one = _list_times(self.times), len(self.times) == 1
        if self.change.skipped:
            verb = "does" if one else "do"
            return f"{change}; {times} {verb} not exist then: {self._describe_skipped()}"
        return f"{change}; {times} {'comes' if one else 'come'} twice: {self._describe_repeated()}"

    def _describe_skipped(self) -> str:
        if not self.fired:
            return "skipped"
        return f"fires once, at {self.change.walls[1]:%H:%M}"

    def _describe_repeated(self) -> str:
        if len(self.fired) == 2 * len(self.times):
            return "fires both times"
        if len(self.fired) == len(self.times) and self.fired[-1] < self.change.at:
            return "fires the first time only"
        return f"fires {len(self.fired)} times in all"


@dataclass(frozen=True, slots=True)
class Timetable:
    """The next instants of an expression.

    Attributes:
        instants: Oldest first, in the zone of the expression.
        notes: Notes on clock changes up to the last instant: on the next change, and on each
            change that affects the expression.
    """

    instants: Sequence[datetime]
    notes: Sequence[Note]


def timetable(expression: str, timezone: str, *, after: datetime, most: int) -> Timetable:
    """Return the next instants of an expression, with notes on clock changes.

    Args:
        expression: Five fields or a macro.
        timezone: An IANA name.
        after: The first instant lies strictly after it; aware.
        most: The number of instants.

    Raises:
        ValueError: The expression or the zone is invalid.
    """
    zone = cron.zone_of(timezone)
    instants = cron.upcoming(expression, timezone, after=after, most=most)
    notes = _notes(expression, timezone, after, instants[-1]) if instants else ()
    return Timetable([instant.astimezone(zone) for instant in instants], list(notes))


def _notes(expression: str, timezone: str, after: datetime, last: datetime) -> Iterator[Note]:
    # The last instant may be repeated, and the clock changes only after it: look one day further.
    for number, change in enumerate(changes(cron.zone_of(timezone), after, last + _DAY)):
        note = note_on(change, expression, timezone)
        if note.times or (number == 0 and change.at <= last):
            yield note


def note_on(change: Change, expression: str, timezone: str) -> Note:
    """Return the effect of a zone's clock change on an expression."""
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
    """Yield the clock changes of a zone in ``(after, until]``, oldest first.

    Of several changes within a week it finds at most one; no zone has several.
    """
    start = after.astimezone(UTC).replace(microsecond=0)
    before = _offset(zone, start)
    while start < until:
        end = min(start + _WEEK, until.astimezone(UTC))
        if (offset := _offset(zone, end)) != before:
            yield Change(_first_with_another_offset(zone, start, end), before, offset)
        start, before = end, offset


def _first_with_another_offset(zone: tzinfo, start: datetime, end: datetime) -> datetime:
    """Return the first second in ``(start, end]`` whose offset differs from that of the start."""
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


def _describe_change(change: Change) -> str:
    old, new = change.walls
    shown = f"{new:%H:%M}" if new.date() == old.date() else f"{new:%Y-%m-%d %H:%M}"
    way = "forward" if change.skipped else "back"
    return f"{old:%Y-%m-%d %H:%M} the clock goes {way} to {shown}"


def _list_times(times: Sequence[datetime]) -> str:
    names = [f"{time:%H:%M}" for time in times]
    if len(names) > _MOST_NAMED:
        return f"{names[0]} and {len(names) - 1} more up to {names[-1]}"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
