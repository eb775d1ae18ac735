"""Read the instants that people write in forms, or choose by the place of a slider."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from slumberd.model.episode import microseconds
from slumberd.model.errors import UsageError
from slumberd.web.console.rendering import Fields

STEPS = 1_000
"""How many steps a slider has."""

_LAST_YEAR = 9998
_DAY = timedelta(days=1)
_EXAMPLE = "write 2026-03-01 or 2026-03-01T12:00:00Z"


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The instants that a slider goes over, as seconds since 1970 UTC.

    Attributes:
        low: The first instant.
        high: The last instant, which means now.
        step: The seconds of one step; `high` is a whole number of steps after `low`.
    """

    low: int
    high: int
    step: int

    @classmethod
    def between(cls, start: datetime, now: datetime) -> TimeRange:
        """Return a range that begins on the day of an instant, or before it.

        Args:
            start: The earliest instant of interest; an instant after yesterday counts as yesterday.
            now: The last instant.
        """
        day = datetime.combine(min(start, now - _DAY).astimezone(UTC), time(), UTC)
        high = int(now.timestamp())
        step = -(-(high - int(day.timestamp())) // STEPS)
        return cls(high - STEPS * step, high, step)

    def place_of(self, at: datetime | None) -> int:
        """Return the place of an instant that is nearest to it; None means now."""
        if at is None:
            return self.high
        steps = round((self.high - at.timestamp()) / self.step)
        return self.high - self.step * min(max(steps, 0), STEPS)


def instant_at(place: int, high: int) -> datetime | None:
    """Return the instant at a place of a slider; None at its end, which means now.

    Raises:
        UsageError: The place is no instant.
    """
    if place >= high:
        return None
    try:
        return datetime.fromtimestamp(place, UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"the slider: {place} is no instant") from None


def read_instant(name: str, text: str | None) -> datetime | None:
    """Return the instant that a person wrote; None when the field is empty.

    Args:
        name: The field.
        text: ISO 8601; without an offset it is in UTC, and a date alone is its first moment.

    Raises:
        UsageError: The text is no instant.
    """
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise _no_instant(name, text) from None
    if at.year > _LAST_YEAR:
        raise _no_instant(name, text)
    return at


def _no_instant(name: str, text: str) -> UsageError:
    return UsageError(f"{name}: {text[:40]!r} is not an instant; {_EXAMPLE}")


def write_instant(at: datetime | None) -> str:
    """Return the text of an instant in UTC; empty for None."""
    return "" if at is None else at.isoformat().replace("+00:00", "Z")


_BEFORE_ALL, _AFTER_ALL = -(2**62), 2**62
"""Microseconds around 1970 that no episode reaches."""

NEED = "an instant with an offset is needed, such as 2026-03-01T00:00:00Z"
"""What to write in a field for an instant."""


def read_microseconds(fields: Fields, name: str) -> int:
    """Return the instant in a field as microseconds since 1970 UTC.

    A date alone is its first moment in UTC, as on the command line.

    Raises:
        KeyError: The form has no such field.
        UsageError: The text is no instant, or has no offset.
    """
    text = fields[name]
    try:
        at = _parse(text)
        if at.tzinfo is not None:
            return microseconds(at)
    except (ValueError, OverflowError):
        pass
    raise UsageError(f"{name}: {NEED}, not {text[:40]!r}")


def _parse(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        return datetime.fromisoformat(text)


def read_period(fields: Fields) -> list[int] | None:
    """Return the instants in ``from``, inclusive, and ``to``, exclusive; None without any.

    Raises:
        UsageError: One of them is no instant with an offset, or the first is not before the second.
    """
    if "from" not in fields and "to" not in fields:
        return None
    begin = read_microseconds(fields, "from") if "from" in fields else _BEFORE_ALL
    end = read_microseconds(fields, "to") if "to" in fields else _AFTER_ALL
    if begin >= end:
        raise UsageError("to: an instant after the first one is needed")
    return [begin, end]
