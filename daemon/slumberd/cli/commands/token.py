"""`slumberd token`: make tokens for the HTTP interface."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from slumberd.cli.options import Json
from slumberd.cli.output import print_json
from slumberd.cli.registry import examples
from slumberd.model.errors import UsageError
from slumberd.operations.caller import Right
from slumberd.rules.validation import problems
from slumberd.rules.yaml_reader import dotted_path
from slumberd.web.http.access import Token, hash_of, new_token

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Make tokens for the HTTP interface.",
)


@app.callback()
def token() -> None:
    """Make tokens for the HTTP interface."""


def _read_rights(text: str) -> str:
    known = [right.value for right in Right]
    for word in text.split(","):
        if word not in known:
            raise typer.BadParameter(f"{word!r} is not a right; known are {', '.join(known)}")
    return text


@app.command(
    "new",
    epilog=examples(
        "slumberd token new laptop --user alice --agent concierge",
        "slumberd token new monitoring --rights operate",
    ),
)
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the audit calls it.")],
    rights: Annotated[
        str, typer.Option(help="Rights, with commas between.", callback=_read_rights)
    ] = "read,write",
    user: Annotated[str | None, typer.Option(help="The only user that it may name.")] = None,
    agent: Annotated[str | None, typer.Option(help="The only agent that it may name.")] = None,
    json: Json = False,
) -> None:
    """Print a new token, and its line for the file that serve.tokens_file names.

    The line has a hash of the token. slumberd never shows the token again.
    """
    secret = new_token()
    given = {"name": name, "sha256": hash_of(secret), "user": user, "agent": agent}
    entry: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    entry["rights"] = rights.split(",")
    if found := problems(Token, entry, strict=True):
        named = (f"{dotted_path(each.trail)}: {each.text}".removeprefix(": ") for each in found)
        raise UsageError("; ".join(named))
    if json:
        print_json({"token": secret, "entry": entry})
        return
    print(f"token: {secret}\n\nThe line for the list 'tokens' of the file:\n")
    print(f"  - {orjson.dumps(entry).decode()}")
