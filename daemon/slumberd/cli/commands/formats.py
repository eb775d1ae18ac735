"""Commands about formats: `slumberd schema` and `slumberd events`."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from slumberd.cli.json_schemas import SHIPPED, schema_text
from slumberd.cli.options import Json
from slumberd.cli.output import print_json, print_table
from slumberd.logs.event_catalogue import CATALOGUE
from slumberd.rules.validation import suggestion


def _check_schema(name: str) -> str:
    if name not in SHIPPED:
        raise typer.BadParameter(f"{name!r} has no schema; {suggestion(name, SHIPPED)}")
    return name


def schema(
    name: Annotated[
        str,
        typer.Argument(
            callback=_check_schema, metavar="|".join(SHIPPED), help="Which schema to print."
        ),
    ] = "rules",
    json: Json = False,
) -> None:
    """Print the JSON Schema of rule files, the configuration, pattern files, or tests of either.

    With the schema, an editor checks a file, completes its keys and explains them. The first line
    of the file names the schema: `# yaml-language-server: $schema=` and its path.
    """
    if json:
        print_json(orjson.loads(schema_text(name)))
    else:
        print(schema_text(name), end="")


def _check_event(name: str | None) -> str | None:
    if name is not None and name not in CATALOGUE:
        raise typer.BadParameter(f"{name!r} is not an event; {suggestion(name, CATALOGUE)}")
    return name


def events(
    name: Annotated[
        str | None,
        typer.Argument(callback=_check_event, metavar="[NAME]", help="List only this event."),
    ] = None,
    json: Json = False,
) -> None:
    """List the events of the log: name, level, meaning and fields.

    With --json, the JSON Schema of each event is printed on a line.
    """
    kinds = [kind for kind in CATALOGUE.values() if name in (None, kind.name)]
    if json:
        for kind in kinds:
            print_json(kind.schema)
    else:
        columns = ("EVENT", "LEVEL", "MEANING", "FIELDS")
        print_table(
            columns,
            ((k.name, " or ".join(k.levels), k.meaning, ", ".join(k.fields)) for k in kinds),
        )
