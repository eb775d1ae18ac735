"""`slumberd init`: make a state directory with a configuration, a rule and its test."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from slumberd.observability.line_format import printable
from slumberd.service.new_state_directory import FILES, make_state_directory

NEXT = """\
Next:
  export SLUMBERD_CONFIG={config}
  slumberd test                  # the test of the rule
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
) -> None:
    """Make a state directory with a configuration, one rule, and a test of it.

    Only its owner can read the directory (0700) and its files (0600). The directory must be new or
    empty: the command overwrites nothing, and ends with exit code 73 instead.
    """
    make_state_directory(directory)
    config = (directory / "slumberd.yaml").absolute()
    print(f"made {printable(str(directory))}: {', '.join(FILES)}\n")
    print(NEXT.format(config=shlex.quote(str(config))), end="")
