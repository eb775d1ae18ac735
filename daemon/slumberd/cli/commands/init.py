"""`slumberd init`: make a state directory with a configuration, rules and their test."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from slumberd.observability.line_format import printable
from slumberd.service.new_state_directory import Purpose, files_for, make_state_directory

NEXT = """\
Next:
  export SLUMBERD_CONFIG={config}
  slumberd test                  # the test of the rules
  slumberd import FILE.jsonl     # episodes, a JSON object a line
  slumberd fire --all            # fire now; `slumberd run` is the daemon
  slumberd facts
"""


def init(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", show_default=False, help="The new directory. [default: slumberd]"
        ),
    ] = Path("slumberd"),
    purpose: Annotated[
        Purpose,
        typer.Option(
            "--for", help="What the rules are for: what people say, or what agents log of tasks."
        ),
    ] = Purpose.CONVERSATION,
) -> None:
    """Make a state directory with a configuration, a file of rules, and a test of them.

    The rules for conversations learn what a program states, and what the person says in plain
    English. Those for tasks learn what a program states, and archive episodes after a month.

    Only its owner can read the directory (0700) and its files (0600). The directory must be new or
    empty: the command overwrites nothing, and ends with exit code 73 instead.
    """
    make_state_directory(directory, purpose)
    config = (directory / "slumberd.yaml").absolute()
    print(f"made {printable(str(directory))}: {', '.join(files_for(purpose))}\n")
    print(NEXT.format(config=shlex.quote(str(config))), end="")
