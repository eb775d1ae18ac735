"""The options that commands share."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer


def inherit(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:  # noqa: ANN401 # any option's value
    """Return the value of an option; when it is absent, the one before the command's name."""
    given = context.ensure_object(dict)
    if value is not None:
        given[parameter.name] = value
    return given.get(parameter.name)


chosen_shard: ContextVar[int | None] = ContextVar("chosen_shard", default=None)
"""The shard that ``--shard`` names, or that a command reads now; None without one."""

all_shards: ContextVar[bool] = ContextVar("all_shards", default=False)
"""Whether ``--all-shards`` is given: the command runs once for each shard."""

MOST = 10**9
"""The largest number that an option takes; a larger one is a typing mistake."""

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        callback=inherit,
        help="The configuration file. "
        "[else: $SLUMBERD_CONFIG, /etc/slumberd/slumberd.yaml, defaults]",
    ),
]

StateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        callback=inherit,
        help="The directory of the databases; overrides the configuration.",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="Show the log line of each delta, and no bar."),
]

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")
]


def unicode_of(text: str) -> str:
    """Return an argument as it is.

    Raises:
        typer.BadParameter: Its bytes are not valid Unicode.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter(f"{text!r} is not valid Unicode") from error
    return text


ReasonOrNone = Annotated[
    str | None,
    typer.Option(
        "--reason",
        parser=unicode_of,
        metavar="TEXT",
        help="Why, without personal data; the ledger keeps it for good.",
    ),
]

Listed = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=0,
        max=MOST,
        metavar="N",
        show_default=False,
        help="List at most N deltas of each rule; all are counted. "
        "[default: 50, with --json 10,000]",
    ),
]
