"""`slumberd init`: make a state directory with a configuration, rules and their test."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.environment import variable_named
from slumberd.daemon.new_state_directory import (
    NewModel,
    Purpose,
    check_model,
    files_for,
    files_with_model,
    make_state_directory,
    require_empty,
    require_extra,
)
from slumberd.logs.lines import printable
from slumberd.model.errors import UsageError
from slumberd.rules.file_access import is_token
from slumberd.rules.settings_schema import check_url

NEXT = """\
Next:
  export SLUMBERD_CONFIG={config}
  slumberd test                  # the test of the rules
  slumberd import FILE.jsonl     # episodes, a JSON object a line
  slumberd fire --all            # fire now; `slumberd run` is the daemon
  slumberd facts
"""


def _refuse(**options: object) -> None:
    """Refuse options that only go with --model."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')} goes with --model URL only")


def _secret_in(variable: str) -> str:
    secret = (variable_named(variable) or "").strip()
    if not is_token(secret):
        raise UsageError(f"the variable {variable!r} holds no secret: one line of ASCII is needed")
    return secret


def _model(url: str, name: str | None, secret: str | None, *, check: bool) -> NewModel:
    """Return the language model that the rules will ask.

    Raises:
        UsageError: The address is malformed, or there is no name.
        ExtraMissingError: The extra is not installed.
        ModelNotCheckedError: It does not answer.
    """
    try:
        check_url(url)
    except ValueError as error:
        raise UsageError(f"--model {url!r}: {error}") from error
    require_extra()
    if check:
        return asyncio.run(check_model(url, name, secret))
    if name is None:
        raise UsageError("--no-check needs the name of the language model: --model-name")
    return NewModel(url, name, secret)


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
    model: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            show_default=False,
            help="A server with OpenAI's chat completions, such as http://127.0.0.1:11434/v1. Its"
            " language model reads the texts in which the rules find nothing.",
        ),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="The language model. [default: the only one that the server has]",
        ),
    ] = None,
    model_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE",
            show_default=False,
            help="The environment variable that holds the server's secret. It is written into"
            " model.key.",
        ),
    ] = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not ask the language model before writing.")
    ] = False,
) -> None:
    """Make a state directory with a configuration, a file of rules, and a test of them.

    The rules for conversations learn what a program states, and what the person says in plain
    English. Those for tasks learn what a program states, and archive episodes after a month.

    Only its owner can read the directory (0700) and its files (0600). The directory must be new or
    empty: the command overwrites nothing, and ends with exit code 73 instead.

    With --model it asks the language model one short question first. When there is no answer, it
    writes nothing, and ends with exit code 69.
    """
    require_empty(directory)
    if model is None:
        _refuse(model_name=model_name, model_key_env=model_key_env, no_check=no_check or None)
        files = files_for(purpose)
    elif purpose is not Purpose.CONVERSATION:
        raise UsageError("--model goes with --for conversation: tasks are not read from texts")
    else:
        secret = None if model_key_env is None else _secret_in(model_key_env)
        files = files_with_model(directory, _model(model, model_name, secret, check=not no_check))
    make_state_directory(directory, purpose, files)
    config = (directory / "slumberd.yaml").absolute()
    print(f"made {printable(str(directory))}: {', '.join(files)}\n")
    print(NEXT.format(config=shlex.quote(str(config))), end="")
