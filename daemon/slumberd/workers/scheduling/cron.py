"""Read cron expressions and compute their instants. Reads no clock.

The library cronsim parses expressions, computes days and handles both changes of daylight-saving
time. This module only walks forward. Walking backward, cronsim misses an instant of the repeated
hour. Started inside that hour, it first returns an instant that has passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from slumberd.workers.scheduling.due import Missed

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MOST_COUNTED = 1_000
"""Missed instants are counted up to this number: any number of them gives one firing."""

_LONGEST = 500
_WEEK = 7
_FIELDS = "minute hour day-of-month month day-of-week"
_BOUNDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L or LW",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 or SUN to SAT (0 and 7 are Sunday)",
}
_MINUTE = timedelta(minutes=1)
_REFERENCE = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of an expression, as numbers.

    Attributes:
        minutes: 0 to 59.
        hours: 0 to 23.
        days: Days of the month, 1 to 31.
        last_day: Whether it contains the last day of the month.
        last_weekday: Whether it contains the last day from Monday to Friday of the month.
        months: 1 to 12.
        weekdays: 0 to 6, from Sunday.
        nth_weekdays: Pairs of a weekday and its number in the month, 1 to 5; 0 is the last.
        either: Whether the day of the month or the weekday must match; otherwise both must.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    last_day: bool
    last_weekday: bool
    months: frozenset[int]
    weekdays: frozenset[int]
    nth_weekdays: frozenset[tuple[int, int]]
    either: bool


def fields(expression: str) -> Fields:
    """Return the fields of an expression, as numbers.

    Raises:
        ValueError: The expression is invalid; the message says what to write instead.
    """
    parsed = _parse(expression, _REFERENCE)
    special = {CronSim.LAST, CronSim.LAST_WEEKDAY}
    nth = [item for item in parsed.weekdays if isinstance(item, tuple)]
    return Fields(
        minutes=frozenset(parsed.minutes),
        hours=frozenset(parsed.hours),
        days=frozenset(parsed.days - special),
        last_day=CronSim.LAST in parsed.days,
        last_weekday=CronSim.LAST_WEEKDAY in parsed.days,
        months=frozenset(parsed.months),
        weekdays=frozenset(i % _WEEK for i in parsed.weekdays if isinstance(i, int)),
        nth_weekdays=frozenset((day % _WEEK, max(number, 0)) for day, number in nth),
        either=not parsed.day_and,
    )


def check(expression: str, timezone: str | None) -> None:
    """Refuse an invalid expression, an expression without instants, and an unknown time zone.

    Raises:
        ValueError: The message says what is wrong, and what to write instead.
    """
    next_instant(expression, timezone, after=_REFERENCE)


def next_instant(expression: str, timezone: str | None, *, after: datetime) -> datetime:
    """Return the first instant strictly after another one; aware, UTC.

    Args:
        expression: Five fields or a macro.
        timezone: An IANA name; None is UTC.
        after: Aware.

    Raises:
        ValueError: The expression or the zone is invalid, or no instant comes within 50 years.
    """
    for instant in _instants(expression, timezone, after):
        return instant
    raise ValueError(f"{expression!r} has no instant within 50 years; check its day and month")


def instants_between(
    expression: str, timezone: str | None, *, after: datetime, until: datetime, most: int
) -> list[datetime]:
    """Return at most the first `most` instants in ``(after, until]``, oldest first."""
    instants = _instants(expression, timezone, after)
    return list(islice(takewhile(lambda instant: instant <= until, instants), most))


def next_instants(
    expression: str, timezone: str | None, *, after: datetime, most: int
) -> list[datetime]:
    """Return the first `most` instants strictly after another one; aware, UTC.

    Raises:
        ValueError: The expression or the zone is invalid.
    """
    return list(islice(_instants(expression, timezone, after), most))


def latest_instant(
    expression: str, timezone: str | None, *, after: datetime, until: datetime
) -> datetime | None:
    """Return the last instant in ``(after, until]`` in some 30 steps; None when there is none."""
    latest = next_instant(expression, timezone, after=after)
    if latest > until:
        return None
    end = until
    # No instant lies in (end, until], and two instants are at least a minute apart.
    while end - latest >= _MINUTE:
        middle = latest + (end - latest) / 2
        instant = next_instant(expression, timezone, after=middle)
        if instant <= end:
            latest = instant
        else:
            end = middle
    return latest


def missed_instants(
    expression: str, timezone: str | None, *, after: datetime, until: datetime
) -> Missed | None:
    """Return a summary of the instants in ``(after, until]``; None when there is none."""
    first = instants_between(expression, timezone, after=after, until=until, most=MOST_COUNTED)
    if not first:
        return None
    latest = latest_instant(expression, timezone, after=first[-1], until=until)
    return Missed(first[0], latest or first[-1], len(first))


def _instants(expression: str, timezone: str | None, after: datetime) -> Iterator[datetime]:
    last = after.astimezone(UTC)
    for local in _parse(expression, after.astimezone(zone_of(timezone))):
        instant = local.astimezone(UTC)
        # Started inside a repeated hour, cronsim first returns an instant that has passed.
        if instant > last:
            yield instant
            last = instant


def _parse(expression: str, start: datetime) -> CronSim:
    five = _fields(expression)
    try:
        return CronSim(" ".join(five), start)
    except CronSimError as error:
        raise ValueError(_problem(expression, five, str(error))) from error


def _fields(expression: str) -> list[str]:
    if len(expression) > _LONGEST:
        raise ValueError(f"a cron expression has at most {_LONGEST} characters")
    text = expression.strip()
    if text.startswith("@"):
        return _macro(text).split()
    five = text.split()
    if len(five) == len(_BOUNDS):
        return five
    count = f"{len(five)} field{'' if len(five) == 1 else 's'}"
    hint = " (there is no field for seconds)" if len(five) == len(_BOUNDS) + 1 else ""
    raise ValueError(f"{expression!r} has {count}; a cron expression has five: {_FIELDS}{hint}")


def _macro(name: str) -> str:
    try:
        return MACROS[name.lower()]
    except KeyError:
        near = get_close_matches(name.lower(), MACROS, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"write one of {' '.join(MACROS)}"
        raise ValueError(f"{name!r} is not a macro; {remedy}") from None


def _problem(expression: str, five: list[str], complaint: str) -> str:
    name = complaint.removeprefix("Bad ")
    if name == "day-of-month" and _is_readable(five[2]):
        return f"{expression!r} never fires: none of its months has such a day"
    value = five[list(_BOUNDS).index(name)]
    return f"{expression!r} has {value!r} as its {name}; write {_BOUNDS[name]}"


def _is_readable(day: str) -> bool:
    try:
        CronSim(f"0 0 {day} * *", _REFERENCE)
    except CronSimError:
        return False
    return True


def zone_of(name: str | None) -> tzinfo:
    """Return a time zone by its IANA name; None is UTC.

    Raises:
        ValueError: The zone is unknown; the message names a similar one.
    """
    # cronsim is exact and faster on the fixed zone; ZoneInfo("UTC") is another object.
    if name is None or name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(_unknown_zone(name)) from None


def _unknown_zone(name: str) -> str:
    zones = {zone.lower(): zone for zone in available_timezones()}
    near = get_close_matches(name.lower().replace(" ", "_"), zones, n=1)
    hint = f"did you mean {zones[near[0]]!r}?" if near else "write a name as 'Europe/Berlin'"
    return f"{name!r} is not a time zone; {hint}"
