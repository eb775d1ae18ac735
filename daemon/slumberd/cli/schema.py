"""`slumberd schema`: what editors know about the files that people write."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from slumberd.cli.json_schemas import SHIPPED, schema_text
from slumberd.cli.options import Json
from slumberd.cli.output import print_json
from slumberd.config.validation import suggestion


def _known(name: str) -> str:
    if name not in SHIPPED:
        raise typer.BadParameter(f"{name!r} has no schema; {suggestion(name, SHIPPED)}")
    return name


def schema(
    name: Annotated[
        str, typer.Argument(callback=_known, metavar="|".join(SHIPPED), help="Of what.")
    ] = "rules",
    json: Json = False,
) -> None:
    """Print the JSON Schema of what people write: rules, configuration, or tests of rules.

    An editor that knows it checks a file, completes its keys and explains them. The first line of
    the file names the schema, as the samples do: `# yaml-language-server: $schema=` and its path.
    """
    if json:
        print_json(orjson.loads(schema_text(name)))
    else:
        print(schema_text(name), end="")
