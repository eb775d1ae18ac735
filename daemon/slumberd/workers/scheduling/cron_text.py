"""Describe cron expressions: in words, by their next instants, and by the clock changes there.

Reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from slumberd.model.rule import Cadence, Cron
from slumberd.workers.scheduling import cron
from slumberd.workers.scheduling.cron import Fields, fields

_DAY = timedelta(days=1)
_WEEK = timedelta(weeks=1)
_SECOND = timedelta(seconds=1)
_MOST_NAMED = 3


class ClockChange(NamedTuple):
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
    def local_times(self) -> tuple[datetime, datetime]:
        """The local times just before and at the change, labelled as UTC."""
        return self.at + self.before, self.at + self.after


@dataclass(frozen=True, slots=True)
class Note:
    """The effect of a clock change on an expression.

    Attributes:
        times: The skipped or repeated local times that the expression names, labelled as UTC.
        fired: The instants at which the expression fires for them.
    """

    change: ClockChange
    times: Sequence[datetime]
    fired: Sequence[datetime]

    def words(self) -> str:
        """Return the note as a sentence."""
        change = _describe_change(self.change)
        if not self.times:
            return f"{change}; no instant is affected"
        times, single = _list_times(self.times), len(self.times) == 1
        if self.change.skipped:
            verb = "does" if single else "do"
            return f"{change}; {times} {verb} not exist then: {self._describe_skipped()}"
        return (
            f"{change}; {times} {'comes' if single else 'come'} twice: {self._describe_repeated()}"
        )

    def _describe_skipped(self) -> str:
        if not self.fired:
            return "skipped"
        return f"fires once, at {self.change.local_times[1]:%H:%M}"

    def _describe_repeated(self) -> str:
        if len(self.fired) == 2 * len(self.times):
            return "fires both times"
        if len(self.fired) == len(self.times) and self.fired[-1] < self.change.at:
            return "fires the first time only"
        times = "once" if len(self.fired) == 1 else f"{len(self.fired)} times"
        return f"fires {times} in all"


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
    instants = cron.next_instants(expression, timezone, after=after, most=most)
    notes = _notes(expression, timezone, after, instants[-1]) if instants else ()
    return Timetable([instant.astimezone(zone) for instant in instants], list(notes))


def _notes(expression: str, timezone: str, after: datetime, last: datetime) -> Iterator[Note]:
    # The last instant may be repeated, and the clock changes only after it: look one day further.
    for number, change in enumerate(changes(cron.zone_of(timezone), after, last + _DAY)):
        note = note_on(change, expression, timezone)
        if note.times or (number == 0 and change.at <= last):
            yield note


def note_on(change: ClockChange, expression: str, timezone: str) -> Note:
    """Return the effect of a zone's clock change on an expression."""
    start, end = sorted(change.local_times)
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


def changes(zone: tzinfo, after: datetime, until: datetime) -> Iterator[ClockChange]:
    """Yield the clock changes of a zone in ``(after, until]``, oldest first.

    Of several changes within a week it finds at most one; no zone has several.
    """
    start = after.astimezone(UTC).replace(microsecond=0)
    before = _offset(zone, start)
    while start < until:
        end = min(start + _WEEK, until.astimezone(UTC))
        if (offset := _offset(zone, end)) != before:
            yield ClockChange(_first_with_another_offset(zone, start, end), before, offset)
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


def _describe_change(change: ClockChange) -> str:
    old, new = change.local_times
    shown = f"{new:%H:%M}" if new.date() == old.date() else f"{new:%Y-%m-%d %H:%M}"
    way = "forward" if change.skipped else "back"
    return f"{old:%Y-%m-%d %H:%M} the clock goes {way} to {shown}"


def _list_times(times: Sequence[datetime]) -> str:
    names = [f"{time:%H:%M}" for time in times]
    if len(names) > _MOST_NAMED:
        return f"{names[0]} and {len(names) - 1} more up to {names[-1]}"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


_MOST_TIMES = 6
"""Up to so many times of day are listed; with more, minutes and hours are listed separately."""

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_ORDINALS = ("last", "1st", "2nd", "3rd", "4th", "5th")
_IN_ALL_MONTHS = 28
"""The last day that every month has."""


def in_words(cadence: Cadence) -> str:
    """Return a cadence in words.

    Raises:
        ValueError: Its cron expression is invalid.
    """
    if isinstance(cadence, Cron):
        return cron_in_words(cadence.expression)
    if cadence.count == 1:
        return "when a new episode waits"
    return f"when {cadence.count} new episodes wait"


def cron_in_words(expression: str) -> str:
    """Return an expression in words.

    Raises:
        ValueError: The expression is invalid.
    """
    named = fields(expression)
    parts = [_times(named), _days(named)]
    if len(named.months) < len(_MONTHS):
        months = _runs(sorted(named.months), lambda month: _MONTHS[month - 1])
        parts.append(f"in {_join(months)}")
    return ", ".join(filter(None, parts))


def _times(named: Fields) -> str:
    minutes, hours = sorted(named.minutes), sorted(named.hours)
    if len(minutes) * len(hours) <= _MOST_TIMES:
        return f"at {_join([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    return f"{_minutes(minutes)}{_hours(hours, bare=_step(minutes) > 0)}"


def _minutes(minutes: Sequence[int]) -> str:
    match _step(minutes):
        case 1:
            return "every minute"
        case 0:
            return f"at minute{_plural(minutes)} {_join(_runs(minutes))}"
        case step:
            return f"every {step} minutes"


def _step(minutes: Sequence[int]) -> int:
    """Return the constant interval of minutes, across hours too; 0 when it is not constant."""
    step = minutes[1] - minutes[0] if len(minutes) > 1 else 0
    return step if step and list(minutes) == list(range(0, 60, step)) and 60 % step == 0 else 0


def _hours(hours: Sequence[int], *, bare: bool) -> str:
    if len(hours) == 24:
        return "" if bare else " of every hour"
    return f" of hour{_plural(hours)} {_join(_runs(hours))}"


def _days(named: Fields) -> str:
    by_date, by_weekday = _dates(named), _weekdays(named)
    if named.either and not (by_date and by_weekday):
        by_date = by_weekday = ""  # one of the two matches every day
    if by_date and by_weekday:
        link = ", and also " if named.either else ", but only "
        return f"{by_date}{link}{by_weekday}"
    return by_date or by_weekday or ("every day" if len(named.hours) < 24 else "")


def _dates(named: Fields) -> str:
    """Return the days of the month in words; an empty text when all days match."""
    days = sorted(named.days)
    if len(days) == 31:
        return ""
    parts = []
    if days:
        rare = " if there is one" if days[0] > _IN_ALL_MONTHS else ""
        parts.append(f"day{_plural(days)} {_join(_runs(days))} of the month{rare}")
    if named.last_day:
        parts.append("the last day of the month")
    if named.last_weekday:
        parts.append("the last working day (Monday to Friday) of the month")
    return f"on {_join(parts)}"


def _weekdays(named: Fields) -> str:
    """Return the days of the week in words; an empty text when all days match."""
    if len(named.weekdays) == len(_WEEKDAYS):
        return ""
    days = sorted((day - 1) % 7 for day in named.weekdays)  # the listed week begins on Monday
    runs = _runs(days, lambda day: _WEEKDAYS[(day + 1) % 7])
    nth = sorted(named.nth_weekdays, key=lambda pair: (pair[1] or 9, pair[0]))
    which = [f"the {_ORDINALS[number]} {_WEEKDAYS[day]} of the month" for day, number in nth]
    return f"on {_join([*runs, *which])}"


def _runs(numbers: Sequence[int], name: Callable[[int], str] = str) -> list[str]:
    """Return numbers as texts; three or more consecutive ones become ``1 to 5``."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return [text for row in rows for text in _row(row, name)]


def _row(row: Sequence[int], name: Callable[[int], str]) -> Iterable[str]:
    return [f"{name(row[0])} to {name(row[-1])}"] if len(row) > 2 else map(name, row)


def _join(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _plural(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"
