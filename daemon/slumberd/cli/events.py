"""`slumberd events`: what can stand in the log."""

from __future__ import annotations

from typing import Annotated

import typer

from slumberd.cli.options import Json
from slumberd.cli.output import print_json, print_table
from slumberd.config.validation import suggestion
from slumberd.observability.event_catalogue import CATALOGUE


def _known(name: str | None) -> str | None:
    if name is not None and name not in CATALOGUE:
        raise typer.BadParameter(f"{name!r} is no event; {suggestion(name, CATALOGUE)}")
    return name


def events(
    name: Annotated[
        str | None, typer.Argument(callback=_known, metavar="[NAME]", help="Of one event only.")
    ] = None,
    json: Json = False,
) -> None:
    """List the events of the log: name, level, meaning and fields.

    With --json, the JSON Schema of each event's lines, one a line.
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
