"""Hold documents against models, and say in our own words what is wrong with them."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Iterable
from reprlib import Repr
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from slumberd.documents import Document, Trail
from slumberd.errors import Mistake

NAME = r"^[a-z0-9._-]{1,64}$"


class Form(BaseModel):
    """A model of what a person writes: frozen, and without keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(NamedTuple):
    """One thing that a model refuses.

    Attributes:
        trail: Where.
        text: What is wrong, and what to write instead.
        at: Whether the key or the value there is meant.
    """

    trail: Trail
    text: str
    at: Literal["key", "value"]


def mistakes_of(document: Document, form: type[BaseModel]) -> list[Mistake]:
    """Return everything that is wrong with a document, YAML's mistakes and the form's.

    An empty document counts as one that sets nothing.
    """
    if not document.readable:
        return list(document.mistakes)
    known = {(mistake.line, mistake.column) for mistake in document.mistakes}
    found = (
        document.mistake(problem.trail, problem.text, at=problem.at)
        for problem in problems(form, {} if document.value is None else document.value, strict=True)
    )
    return [*document.mistakes, *(m for m in found if (m.line, m.column) not in known)]


def problems(form: type[BaseModel], value: object, *, strict: bool) -> list[Problem]:
    """Return what a form refuses of a value; a strict one takes no text for a number."""
    try:
        form.model_validate(value, strict=strict)
    except ValidationError as error:
        return [_problem(form, details) for details in error.errors(include_url=False)]
    return []


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean ...?`` when a known word is like the given one, else list all."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(words)}"


def shown(value: object) -> str:
    """Return a value as a message shows it: short, and with the words of YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _SHORT.repr(value)


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def _problem(form: type[BaseModel], details: ErrorDetails) -> Problem:
    trail, kind = details["loc"], details["type"]
    if kind == "missing":
        return Problem(trail[:-1], f"key {trail[-1]!r} is missing", "value")
    if kind == "extra_forbidden":
        known = suggestion(str(trail[-1]), _keys_at(form, trail[:-1]))
        return Problem(trail, f"unknown key {trail[-1]!r}; {known}", "key")
    if trail and trail[-1] == "[key]":
        return Problem(trail[:-1], _words(details), "key")
    return Problem(trail, _words(details), "value")


_TEXTS = {
    "bool": "true or false is needed, not {value}",
    "dict": "keys with values are needed, not {value}",
    "finite": "a number is needed, not {value}",
    "float": "a number is needed, not {value}",
    "greater_than": "more than {gt} is needed, not {value}",
    "greater_than_equal": "at least {ge} is needed, not {value}",
    "int": "a whole number is needed, not {value}",
    "less_than_equal": "at most {le} is needed, not {value}",
    "list": "a list is needed, not {value}",
    "literal": "{expected} is needed, not {value}",
    "model": "keys with values are needed, not {value}",
    "string_too_short": "text is needed, not {value}",
    "string": "text is needed, not {value}; quote it if that is meant",
    "too": "at least one entry is needed, not {value}",
    "value": "{error}",
}


def _words(details: ErrorDetails) -> str:
    kind = details["type"]
    text = _TEXTS.get(kind) or _TEXTS.get(kind.split("_")[0], details["msg"] + ", not {value}")
    bounds = {key: _unfloated(value) for key, value in details.get("ctx", {}).items()}
    return text.format(**bounds, value=shown(details["input"]))


def _unfloated(bound: object) -> object:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _keys_at(form: type[BaseModel], trail: Trail) -> list[str]:
    kind: object = form
    for step in trail:
        fields = getattr(kind, "model_fields", None)
        kind = fields[step].annotation if fields else get_args(kind)[-1]
    return list(getattr(kind, "model_fields", ()))


def _checked_name(value: str) -> str:
    if not re.fullmatch(NAME, value):
        raise ValueError(f"{shown(value)} is no name: use 1 to 64 of a-z, 0-9, '.', '_' and '-'")
    return value


def _checked_zone(value: str) -> str:
    try:
        zoneinfo.ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:
        known = difflib.get_close_matches(value, zoneinfo.available_timezones(), n=1)
        remedy = f"did you mean {known[0]!r}?" if known else "write a name as 'Europe/Berlin'"
        raise ValueError(f"time zone {shown(value)} is not known; {remedy}") from error
    return value


Name = Annotated[str, AfterValidator(_checked_name), Field(json_schema_extra={"pattern": NAME})]
"""Of a rule or a channel."""

TimeZone = Annotated[str, AfterValidator(_checked_zone)]
"""An IANA name that this machine knows."""
