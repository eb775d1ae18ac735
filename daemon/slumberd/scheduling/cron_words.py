"""Describe cron expressions in words, by the instants that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from slumberd.model.cadence import Cadence, Cron
from slumberd.scheduling.cron import Fields, fields

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
