"""`slumberd pause` and `slumberd resume`: rules that rest for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from slumberd.cli.client import performed
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.observability.line_format import printable
from slumberd.service.control_socket import Answer

Ids = Annotated[list[str], typer.Argument(metavar="RULE...", help="Ids of rules.")]


def pause(
    rules: Ids, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Let rules be due no more, until `slumberd resume`: over a restart and a reload, too.

    A firing under way goes on to its end. `slumberd fire` fires a paused rule all the same.
    """
    _tell(performed(settings_of(config, state_dir), "pause", rules=rules), "paused", json=json)


def resume(
    rules: Ids, json: Json = False, config: Config = None, state_dir: StateDir = None
) -> None:
    """Let paused rules be due again; what came in the meantime they take up at once."""
    _tell(performed(settings_of(config, state_dir), "resume", rules=rules), "resumed", json=json)


def _tell(answer: Answer, done: str, *, json: bool) -> None:
    if json:
        print_json(answer)
        return
    print(f"{done}: {printable(', '.join(answer['changed'])) or 'nothing new'}")
    print(f"paused now: {printable(', '.join(answer['paused'])) or 'no rule'}")
