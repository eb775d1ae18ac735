"""Read the instants that a person writes on the command line."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import typer

from slumberd.clock import SystemClock
from slumberd.model.duration import seconds_of


def instant_of(text: str) -> datetime:
    """Return the instant that a text names.

    Args:
        text: ISO 8601 with an offset, a date alone (its first moment in UTC), or ``now``.

    Raises:
        typer.BadParameter: The text is in none of these forms.
    """
    if text == "now":
        return SystemClock().now()
    try:
        at = _parse(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        problem = "is not an instant; write 2026-03-01T12:00:00Z, 2026-03-01 or now"
        raise typer.BadParameter(f"{text!r} {problem}") from error
    return at


def moment_of(text: str) -> datetime:
    """Return an instant, or the instant that lies a duration before now.

    Raises:
        typer.BadParameter: The text is neither.
    """
    try:
        return SystemClock().now() - timedelta(seconds=seconds_of(text))
    except ValueError:
        return instant_of(text)


def _parse(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no offset; write {text}Z when it is in UTC")
    return at
