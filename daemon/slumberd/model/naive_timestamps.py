"""Read timestamps that have no offset from UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

NaiveTimestamps = Literal["local", "utc", "refuse"]
"""How a timestamp without an offset is read: in the local zone, as Python does; in UTC; not at all.

The local zone is that of the reading process. When a change of the clock repeats a time, the first
of both counts, unless the ``fold`` of the datetime is 1. A skipped time is read with the offset
from before the change.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_utc(at: datetime, naive: NaiveTimestamps) -> datetime | None:
    """Return a datetime in UTC; None when it has no offset and `naive` is ``refuse``.

    Raises:
        ValueError: It lies outside of the years 1 to 9999 UTC.
    """
    if at.tzinfo is None and naive == "refuse":
        return None
    try:
        return _local_in_utc(at) if naive == "local" and at.tzinfo is None else _in_utc(at)
    except (OverflowError, OSError, ValueError) as error:
        raise ValueError("lies outside of the years 1 to 9999 UTC") from error


def _in_utc(at: datetime) -> datetime:
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def _local_in_utc(at: datetime) -> datetime:
    # By the timestamp, because astimezone shifts a time that the clock skips. In whole seconds,
    # because a float cannot hold the microseconds of a late year.
    seconds = int(at.replace(microsecond=0).timestamp())
    return _EPOCH + timedelta(seconds=seconds, microseconds=at.microsecond)


def with_offset(text: str, naive: NaiveTimestamps) -> str:
    """Return a timestamp's text in UTC when it has no offset; any other text as it is."""
    try:
        at = datetime.fromisoformat(text)
        found = None if at.tzinfo else in_utc(at, naive)
    except ValueError:
        return text
    return found.isoformat() if found else text
