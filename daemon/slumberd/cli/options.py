"""The options that commands share, and how they take what was given before the command's name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


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

Channel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="In the fact store of this channel; for where some have a store of their own.",
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
