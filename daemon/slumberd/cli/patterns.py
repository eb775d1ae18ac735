"""How a command line says which facts are meant, and in what order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast, get_args

import orjson
import typer

from slumberd.cli.options import MOST
from slumberd.errors import UsageError
from slumberd.model.fact import SLOTS, FactPattern, Order
from slumberd.model.pattern import Equals, Glob, Matches, OneOf, Prefix

_FORMS = {"prefix": Prefix, "glob": Glob, "regex": Matches}
_SLOT = f"{', '.join(SLOTS[:-1])} or {SLOTS[-1]}"


def _order_of(text: str) -> str:
    if text not in get_args(Order):
        raise typer.BadParameter(f"{text!r} is none of {', '.join(get_args(Order))}")
    return text


Texts = list[str] | None
Users = Annotated[Texts, typer.Option("--user", metavar="TEXT", help="Only of this user.")]
Agents = Annotated[
    Texts, typer.Option("--agent", metavar="TEXT", help="Only what this agent learnt.")
]
Subjects = Annotated[
    Texts, typer.Option("--subject", metavar="TEXT", help="Only with this subject.")
]
Predicates = Annotated[
    Texts, typer.Option("--predicate", metavar="TEXT", help="Only with this predicate.")
]
Objects = Annotated[
    Texts, typer.Option("--object", metavar="TEXT", help="Only with this object, a text.")
]
ObjectsJson = Annotated[
    Texts,
    typer.Option("--object-json", metavar="JSON", help="Only with this object, any JSON value."),
]
Ids = Annotated[Texts, typer.Option("--id", metavar="TEXT", help="Only with this id.")]
Prefixes = Annotated[
    Texts, typer.Option("--prefix", metavar="SLOT=TEXT", help="Only where SLOT begins with TEXT.")
]
Globs = Annotated[
    Texts,
    typer.Option("--glob", metavar="SLOT=GLOB", help="Only where it is like GLOB: * ? [a-z] [!a]."),
]
Regexes = Annotated[
    Texts,
    typer.Option("--regex", metavar="SLOT=RE2", help="Only where all of SLOT matches RE2."),
]
Least = Annotated[
    float | None, typer.Option(min=0, max=1, metavar="X", help="Only with X or more, 0 to 1.")
]
Most = Annotated[float | None, typer.Option(min=0, max=1, metavar="X", help="Only with X or less.")]
By = Annotated[
    str,
    typer.Option(
        "--order", parser=_order_of, metavar="id|said_at|pinned_at|confidence", help="By what."
    ),
]
Descending = Annotated[bool, typer.Option("--descending", help="The last one first.")]
Limit = Annotated[int | None, typer.Option(min=1, max=MOST, metavar="N", help="At most N.")]
After = Annotated[
    str | None,
    typer.Option(metavar="CURSOR", help="Only what follows; the page before told CURSOR."),
]


def pattern_of(
    texts: Mapping[str, Sequence[str] | None],
    objects_json: Sequence[str] | None,
    forms: Mapping[str, Sequence[str] | None],
    **bounds: Any,
) -> FactPattern:
    """Return the pattern that options mean.

    Args:
        texts: By slot, what was given for it; any of them will do.
        objects_json: Values for the object, likewise.
        forms: ``SLOT=...`` by the name of the option.
        bounds: The other fields of the pattern.

    Raises:
        UsageError: A slot is none, or has two forms, or a value is no JSON.
    """
    slots: dict[str, Any] = {slot: _any_of(given) for slot, given in texts.items() if given}
    if objects_json:
        values = [*(texts.get("object") or ()), *map(_json, objects_json)]
        slots["object"] = OneOf(*values) if len(values) > 1 else Equals(values[0])
    for name, given in forms.items():
        for one in given or ():
            _add(slots, name, one)
    return FactPattern(**slots, **bounds)


def _any_of(texts: Sequence[str]) -> str | OneOf:
    return OneOf(*texts) if len(texts) > 1 else texts[0]


def _json(text: str) -> object:
    try:
        return cast("object", orjson.loads(text))
    except orjson.JSONDecodeError as error:
        problem = f"is no JSON: {error}; a text takes double quotes, or --object"
        raise UsageError(f"--object-json {text!r} {problem}") from error


def _add(slots: dict[str, Any], name: str, given: str) -> None:
    slot, equals, text = given.partition("=")
    if not equals or slot not in SLOTS:
        raise UsageError(f"--{name} {given!r}: write SLOT=..., where SLOT is {_SLOT}")
    if slot in slots:
        raise UsageError(f"--{name} {given!r}: {slot} is given in another way already")
    slots[slot] = _FORMS[name](text)
