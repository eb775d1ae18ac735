"""Read instants in the forms that exports write, and dates in the names and headings of notes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Any
from zoneinfo import ZoneInfo

INSTANT_FROM = "instant_from"
"""The key of metadata that says where an instant comes from, if nobody says when it was said."""

FILE = "file"
"""The instant is that of the last change of the file."""

UPDATE = "update"
"""The instant is that of the last update of the record."""

_LAST = datetime.max.replace(tzinfo=UTC)
_ZONED = re.compile(r"(.*\d(?:[Zz]|[+-]\d\d:?\d\d)?)\s*\[([\w/+-]+)\]")
"""An instant with the name of its zone, as Java and Temporal write it: ``...Z[UTC]``."""

_IN_UTC = re.compile(r"(.*\d)\s*(?:UTC|GMT)", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{9,}(?:\.\d+)?")
_LARGEST = {1e11: 1.0, 1e14: 1e3, 1e17: 1e6, 1e20: 1e9}
"""What a number of seconds, of milliseconds and so on stays below, with its parts of a second."""

_LONGEST = 100
_SMALLEST = 1e8
"""A number below is no instant of a memory: it lies before 1973."""

_MONTHS = {
    name: number
    for number, names in enumerate(
        [
            ("january", "jan"), ("february", "feb"), ("march", "mar"), ("april", "apr"),
            ("may",), ("june", "jun"), ("july", "jul"), ("august", "aug"),
            ("september", "sept", "sep"), ("october", "oct"), ("november", "nov"),
            ("december", "dec"),
        ],
        start=1,
    )
    for name in names
}  # fmt: skip
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_TIME = (
    r"(?:[T _-]+(?P<hour>[01]\d|2[0-3])[:h.-]?(?P<minute>[0-5]\d)(?:[:.-]?(?P<second>[0-5]\d))?"
    r"(?:[.,]\d+)?(?P<zone>Z|[+-]\d\d:?\d\d)?(?![\d]))?"
)
_DATES = (
    re.compile(
        rf"(?<![\d.])(?P<year>(?:19|20)\d\d)(?P<mark>[-_./]?)(?P<month>\d\d)(?P=mark)"
        rf"(?P<day>\d\d)(?!\d){_TIME}"
    ),
    re.compile(
        rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\.?[ _-](?P<month>{_MONTH})\b\.?,?[ _-]"
        rf"(?P<year>(?:19|20)\d\d)(?!\d)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?P<month>{_MONTH})\b\.?[ _-](?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?[ _-]"
        rf"(?P<year>(?:19|20)\d\d)(?!\d)",
        re.IGNORECASE,
    ),
    re.compile(r"(?<![\d.])(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>(?:19|20)\d\d)(?!\d)"),
    # With slashes, only where the day cannot be the month.
    re.compile(r"(?<![\d/])(?P<day>1[3-9]|2\d|3[01])/(?P<month>\d{1,2})/(?P<year>20\d\d)(?![\d/])"),
    re.compile(r"(?<![\d/])(?P<month>\d{1,2})/(?P<day>1[3-9]|2\d|3[01])/(?P<year>20\d\d)(?![\d/])"),
    re.compile(
        r"(?<![\d.])(?P<year>20\d\d)(?P<mark>)(?P<month>\d\d)(?P<day>\d\d)"
        r"(?P<hour>[01]\d|2[0-3])(?P<minute>[0-5]\d)(?P<second>[0-5]\d)?(?!\d)"
    ),
)  # fmt: skip


def read_instant(value: object) -> datetime:
    """Return an instant: ISO 8601, also with the name of its zone; RFC 5322; or a Unix time.

    A Unix time may count seconds, milliseconds, microseconds or nanoseconds. A text without an
    offset gives a datetime without one.

    Raises:
        ValueError: It is something else.
    """
    match value:
        case bool():
            raise ValueError(f"{value} is no instant")
        case int() | float():
            return _of_number(float(value))
        case str():
            return _of_text(value.strip())
        case {"$date": found}:  # how MongoDB exports one
            return read_instant(found)
        case {"$numberLong": str(found)}:
            return read_instant(found)
        case _:
            raise ValueError("it holds no text and no number")


def _of_number(number: float) -> datetime:
    for limit, parts in _LARGEST.items():
        if _SMALLEST <= number < limit:
            return datetime.fromtimestamp(round(number / parts, 6), UTC)
    raise ValueError(f"{number:.15g} is no Unix time")


def _of_text(text: str) -> datetime:
    if len(text) > _LONGEST:
        raise ValueError(f"{text[:40]!r}... is longer than {_LONGEST} characters")
    if _NUMBER.fullmatch(text):
        return _of_number(float(text))
    try:
        return _of_iso(text)
    except (ValueError, OverflowError):
        pass
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        raise ValueError(f"{text[:40]!r} is not ISO 8601") from None


def _of_iso(text: str) -> datetime:
    if zoned := _ZONED.fullmatch(text):
        at = datetime.fromisoformat(zoned[1].upper())
        # The offset decides, as RFC 9557 says; the name only counts without one.
        return at if at.tzinfo else at.replace(tzinfo=_zone(zoned[2])).astimezone(UTC)
    if in_utc := _IN_UTC.fullmatch(text):
        at = datetime.fromisoformat(in_utc[1])
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    return datetime.fromisoformat(text.upper())


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{name!r} is no time zone") from error


def end_of(value: object) -> datetime:
    """Return when something ends; a date without a time is the last day, in UTC.

    Raises:
        ValueError: The value is no instant.
    """
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-?\d\d-?\d\d", value.strip()):
        return read_instant(value)
    day = datetime.fromisoformat(value.strip()).replace(tzinfo=UTC)
    # Programs write the last day of all for what never ends; no instant comes after it.
    return min(day, _LAST - timedelta(days=1)) + timedelta(days=1)


def dates_in(text: str, latest: datetime | None = None) -> Iterator[datetime]:
    """Yield the dates that a name or a heading holds, each with its time if it has one.

    A date without a time is the begin of its day in UTC, and a time without a zone is one of UTC.

    Args:
        text: The name or heading.
        latest: A later date is none on which the text was written; None for no such check.
    """
    for found in chain.from_iterable(pattern.finditer(text) for pattern in _DATES):
        at = _of_match(found.groupdict()) if _stands_alone(found) else None
        if at is not None and (latest is None or at <= latest):
            yield at


def _stands_alone(found: re.Match[str]) -> bool:
    """Return whether digits are a date, and no part of a name such as ``a20240501f``."""
    around = found.string[max(0, found.start() - 1) : found.start()]
    around += found.string[found.end() : found.end() + 1]
    return found.groupdict().get("mark") != "" or not any(map(str.isalpha, around))


def _of_match(parts: dict[str, Any]) -> datetime | None:
    month = parts["month"].lower()
    try:
        return datetime(
            int(parts["year"]),
            _MONTHS.get(month) or int(month),
            int(parts["day"]),
            int(parts.get("hour") or 0),
            int(parts.get("minute") or 0),
            int(parts.get("second") or 0),
            tzinfo=datetime.strptime(parts.get("zone") or "Z", "%z").tzinfo,
        ).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
