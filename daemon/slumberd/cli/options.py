"""The options that commands share, and how they take what was given before the command's name.

Instants as people write them on the command line.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Annotated, Any

import typer

from slumberd.clock import SystemClock


def inherited(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:  # noqa: ANN401 # any option's value
    """Return an option's value; when it is not given here, the one given before the command."""
    given = context.ensure_object(dict)
    if value is not None:
        given[parameter.name] = value
    return given.get(parameter.name)


MOST = 10**9
"""The largest number that an option takes; more is a slip of the hand."""

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        callback=inherited,
        help="The configuration. [else: $SLUMBERD_CONFIG, /etc/slumberd/slumberd.yaml, defaults]",
    ),
]

StateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        callback=inherited,
        help="Where everything is kept; overrules the configuration.",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="On a terminal, show the log line of each delta, and no bar."),
]

Listed = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=0,
        max=MOST,
        metavar="N",
        show_default=False,
        help="List at most so many deltas of each rule; all are counted. "
        "[default: 50, with --json 10,000]",
    ),
]


def instant_of(text: str) -> datetime:
    """Return the instant that a text means.

    Args:
        text: ISO 8601 with an offset, a date alone (its first moment in UTC), or ``now``.

    Raises:
        typer.BadParameter: It is none of these.
    """
    if text == "now":
        return SystemClock().now()
    try:
        at = _parsed(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        problem = "is no instant; write 2026-03-01T12:00:00Z, 2026-03-01 or now"
        raise typer.BadParameter(f"{text!r} {problem}") from error
    return at


def _parsed(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no offset; write {text}Z when it is in UTC")
    return at
