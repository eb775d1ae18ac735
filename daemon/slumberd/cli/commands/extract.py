"""`slumberd extract`: ask the language model of a rule what its episodes state."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer

from slumberd.cli.client import perform_request
from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import number


def extract(
    rule: Annotated[str, typer.Argument(help="The id of a rule that asks a language model.")],
    again: Annotated[
        bool,
        typer.Option("--again", help="Ask again about episodes without an answer in quarantine."),
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Ask the language model of a rule about all its episodes that have no recorded answer.

    The daemon asks about new episodes by itself. This command also asks about those that the rule
    has passed, for example after you changed its prompt. Then `slumberd backfill RULE` promotes
    what the answers state. With `--again`, `slumberd quarantine retry` does.

    The budget of the day applies. A command that it ends has recorded what it asked before.
    """
    answer = perform_request(settings_of(config, state_dir), "extract", rule=rule, again=again)
    if json:
        print(orjson.dumps(answer).decode())
    else:
        print(_describe(answer))


def _describe(answer: dict[str, Any]) -> str:
    if not answer["calls"]:
        return f"{answer['rule_id']}: every episode has its answer"
    statuses = ", ".join(f"{number(answer[name])} {name}" for name in ("ok", "refused", "invalid"))
    return (
        f"{answer['rule_id']}: {number(answer['calls'])} calls; answers: {statuses}; "
        f"{number(answer['triples'])} triples, {number(answer['dropped'])} dropped"
    )
