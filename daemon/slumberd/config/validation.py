"""Hold documents against models, and say in our own words what is wrong with them."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from reprlib import Repr
from types import NoneType, UnionType
from typing import Annotated, Literal, NamedTuple, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Tag, ValidationError
from pydantic_core import ErrorDetails

from slumberd.config.file_access import Place
from slumberd.config.yaml_reader import Document, Trail
from slumberd.errors import Mistake

NAME = r"^[a-z0-9._:-]{1,64}$"
"""Of rules and channels. It holds no '@' and no '/', which end it in firing and fact ids."""

TEMPLATE = r"^[a-z0-9._-]{1,64}$"
"""Of a Fathom template, where a colon would end the name of a module."""


class Form(BaseModel):
    """A model of what a person writes: frozen, and without keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(NamedTuple):
    """One thing that a model refuses.

    Attributes:
        trail: Where.
        need: What is wrong, or what is needed there.
        but: What is there instead, and what to do about it; may be empty.
        at: Whether the key or the value there is meant.
        key: The known key that is missing, or that an unknown one is probably to be.
    """

    trail: Trail
    need: str
    but: str = ""
    at: Literal["key", "value"] = "value"
    key: str = ""

    @property
    def text(self) -> str:
        """What is wrong, and what to write instead."""
        return self.need + self.but


def mistakes_of(document: Document, form: type[BaseModel]) -> list[Mistake]:
    """Return everything that is wrong with a document, YAML's mistakes and the form's.

    An empty document counts as one that sets nothing.
    """
    if not document.readable:
        return list(document.mistakes)
    value = {} if document.value is None else document.value
    known = {(mistake.line, mistake.column) for mistake in document.mistakes}
    found: list[Mistake] = []
    needs: dict[tuple[int, int], str] = {}
    for problem in problems(form, value, strict=True):
        mistake = document.mistake(problem.trail, problem.text, at=problem.at)
        if problem.at == "key" or problem.trail in document.spans:
            needs.setdefault((mistake.line, mistake.column), problem.need)
        if (mistake.line, mistake.column) not in known:
            found.append(mistake)
    return [*(_with_need(mistake, document, needs) for mistake in document.mistakes), *found]


def _with_need(
    mistake: Mistake, document: Document, needs: Mapping[tuple[int, int], str]
) -> Mistake:
    """Return a mistake with a trap of YAML; where quotes would not help, with what is needed."""
    place = (mistake.line, mistake.column)
    trap = document.traps.get(Place(*place))
    if trap is None or place not in needs:
        return mistake
    return replace(mistake, problem=f"{trap}; {needs[place]}")


def problems(form: type[BaseModel], value: object, *, strict: bool) -> list[Problem]:
    """Return what a form refuses of a value; a strict one takes no text for a number."""
    try:
        form.model_validate(value, strict=strict)
    except ValidationError as error:
        found = [_problem(form, details) for details in error.errors(include_url=False)]
        return list(_without_echoes(found))
    return []


def _without_echoes(found: Sequence[Problem]) -> Iterator[Problem]:
    """Leave out that a key is missing where another is probably meant to be it."""
    meant = {(*problem.trail[:-1], problem.key) for problem in found if problem.at == "key"}
    return (
        problem
        for problem in found
        if problem.at == "key" or (*problem.trail, problem.key) not in meant
    )


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean ...?`` when a known word is like the given one, else list all."""
    words = list(known)
    close = nearest(word, words)
    return f"did you mean {close!r}?" if close else f"known are {', '.join(words)}"


def nearest(word: str, known: Sequence[str]) -> str:
    """Return the known word that is most like a given one; nothing when none is."""
    word = word[:_LONGEST_WORD]
    within = [one for one in known if len(word) >= _TELLING and word in one]
    close = within or get_close_matches(word, known, n=1)
    return close[0] if close else ""


_LONGEST_WORD = 64
_TELLING = 4
"""Letters from which on a part of a word tells the whole."""


def shown(value: object) -> str:
    """Return a value as a message shows it: short, and with the words of YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if value and isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "keys with values"
    return _SHORT.repr(value)


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def tag(name: str) -> str:
    """Return what stands for one of several forms in the places that a model tells of."""
    return f"<{name}>"


def _is_tag(step: object) -> bool:
    return isinstance(step, str) and step.startswith("<") and step.endswith(">")


def _untagged(trail: Trail) -> Trail:
    """Return a trail as the document has it."""
    return tuple(step for step in trail if not _is_tag(step))


def _problem(form: type[BaseModel], details: ErrorDetails) -> Problem:
    found = _found(form, details)
    return found._replace(trail=_untagged(found.trail))


def _found(form: type[BaseModel], details: ErrorDetails) -> Problem:
    trail, kind = details["loc"], details["type"]
    if kind == "missing":
        key = str(trail[-1])
        return Problem(trail[:-1], f"key {key!r} is missing", key=key)
    if kind == "extra_forbidden":
        return _unknown_key(form, trail, details["input"])
    if trail and trail[-1] == "[key]":
        return Problem(trail[:-1], _words(details), at="key")
    return Problem(trail, _words(details), _instead(details))


def _unknown_key(form: type[BaseModel], trail: Trail, value: object) -> Problem:
    key, here = str(trail[-1]), _form_at(form, trail[:-1])
    known = list(here.model_fields) if here else []
    close = nearest(key, known)
    if value is None and not close and (remedy := _torn(key)):
        pass
    elif value is None and ":" in key:
        remedy = "a space goes after ':'"
    elif home := "" if close or here is None else _home_of(key, here):
        remedy = f"it belongs under {home!r}"
    else:
        remedy = suggestion(key, known)
    return Problem(trail, f"unknown key {shown(key)}; {remedy}", at="key", key=close)


def _torn(key: str) -> str:
    """Say what to do about a key without a value that is a piece of some text with commas."""
    if re.match(r"[\d*'\"]|.* ", key) and ":" not in key:
        return "is it part of a text that holds ','? Quote the whole text"
    return ""


def _home_of(key: str, form: type[BaseModel]) -> str:
    """Return the key, if any, below which another form knows a key."""
    homes = (name for name in form.model_fields if key in _keys_below(form, name))
    return next(homes, "")


def _keys_below(form: type[BaseModel], name: str) -> Iterable[str]:
    below = _form_at(form, (name, 0)) or _form_at(form, (name,))
    return below.model_fields if below else ()


_TEXTS = {
    "bool": "true or false is needed",
    "dict": "keys with values are needed",
    "finite": "a number is needed",
    "float": "a number is needed",
    "greater_than": "more than {gt} is needed",
    "greater_than_equal": "at least {ge} is needed",
    "int": "a whole number is needed",
    "less_than_equal": "at most {le} is needed",
    "list": "a list is needed",
    "literal": "{expected} is needed",
    "model": "keys with values are needed",
    "string": "text is needed",
    "too": "at least one entry is needed",
    "value": "{error}",
}


def _words(details: ErrorDetails) -> str:
    kind = details["type"]
    text = _TEXTS.get(kind) or _TEXTS.get(kind.split("_")[0], details["msg"])
    bounds = {key: _unfloated(value) for key, value in details.get("ctx", {}).items()}
    return text.format(**bounds)


def _instead(details: ErrorDetails) -> str:
    kind, value = details["type"], details["input"]
    if kind == "value_error":
        return ""
    return f", not {shown(value)}{_remedy(kind, value)}"


def _remedy(kind: str, value: object) -> str:
    match kind.split("_")[0], value:
        case "string", bool() | int() | float():
            return "; quote it if that is meant"
        case "string", None:
            return '; write "" for an empty one'
        case "list", str() if re.fullmatch(NAME, value):
            return f"; write [{value}]"
        case "list", dict() | None:
            return "; begin each entry with '- '"
        case (("model" | "dict"), str()) if re.match(r"\w+:\S", value):
            return "; a space goes after ':'"
        case "model", list():
            return "; leave out the '-', or put a key before the list"
        case _:
            return ""


def _unfloated(bound: object) -> object:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _form_at(form: type[BaseModel], trail: Trail) -> type[BaseModel] | None:
    """Return the form that a trail leads to; None when it leads to something else."""
    kind: object = form
    for step in trail:
        fields = getattr(kind, "model_fields", None)
        if fields and step not in fields:
            return None
        arguments = get_args(kind)
        if not fields and not arguments:
            return None
        if fields:
            kind = _given(fields[step].annotation)
        else:
            kind = _tagged(kind, step) if _is_tag(step) else arguments[-1]
    kind = _tagged(kind, "") if get_origin(kind) is Annotated else kind
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _given(annotation: object) -> object:
    """Return what a key holds when it is not null."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0] if isinstance(annotation, UnionType) and len(kinds) == 1 else annotation


def _tagged(kind: object, step: object) -> object:
    """Return the form that a tag stands for among several; the first for any other step."""
    members = [get_args(one) for one in get_args(get_args(kind)[0])]
    named = {one.tag: form for form, *told in members for one in told if isinstance(one, Tag)}
    return named.get(str(step), next(iter(named.values()), None))


def _checked_name(value: str) -> str:
    if not re.fullmatch(NAME, value):
        allowed = "1 to 64 of a-z, 0-9, '.', '_', ':' and '-'"
        raise ValueError(f"{shown(value)} is no name: use {allowed}")
    return value


def _checked_template(value: str) -> str:
    if not re.fullmatch(TEMPLATE, value):
        raise ValueError(f"{shown(value)} is no name: use 1 to 64 of a-z, 0-9, '.', '_' and '-'")
    return value


def _checked_zone(value: str) -> str:
    try:
        zoneinfo.ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:
        close = nearest(value, _zones())
        remedy = f"did you mean {close!r}?" if close else "write a name as 'Europe/Berlin'"
        raise ValueError(f"time zone {shown(value)} is not known; {remedy}") from error
    return value


@cache
def _zones() -> list[str]:
    # Asked of the disk, which takes its time.
    return sorted(zoneinfo.available_timezones())


Name = Annotated[str, AfterValidator(_checked_name), Field(json_schema_extra={"pattern": NAME})]
"""Of a rule or a channel."""

TemplateName = Annotated[
    str, AfterValidator(_checked_template), Field(json_schema_extra={"pattern": TEMPLATE})
]
"""Of a Fathom template."""

TimeZone = Annotated[str, AfterValidator(_checked_zone)]
"""An IANA name that this machine knows."""
