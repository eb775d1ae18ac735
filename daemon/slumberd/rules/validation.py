"""Validate documents against models, and describe each mistake with its remedy."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from reprlib import Repr
from types import NoneType, UnionType
from typing import Annotated, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Tag,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails

from slumberd.model.errors import Mistake
from slumberd.model.texts import AUTO, LANGUAGES
from slumberd.rules.file_access import Place
from slumberd.rules.yaml_reader import Document, Trail

NAME = r"^[a-z0-9._:-]{1,64}$"
"""The pattern of rule and channel names. They contain no '@' or '/', which end a name in ids."""

TEMPLATE = r"^[a-z0-9._-]{1,64}$"
"""The pattern of a Fathom template; a colon would end the name of a module there."""


class Form(BaseModel):
    """A frozen model of a document; it refuses unknown keys.

    Its first document builds its validator: a command validates few of the forms that it imports.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Problem(NamedTuple):
    """One problem that a model finds.

    Attributes:
        trail: The path of the value.
        need: What is wrong, or what the form needs there.
        but: What the document has instead, and the remedy; may be empty.
        at: Whether the problem is at the key or at the value.
        key: The known key that is missing, or that an unknown key probably means.
    """

    trail: Trail
    need: str
    but: str = ""
    at: Literal["key", "value"] = "value"
    key: str = ""

    @property
    def text(self) -> str:
        """The problem and its remedy."""
        return self.need + self.but


def mistakes_of(document: Document, form: type[BaseModel]) -> list[Mistake]:
    """Return all mistakes of a document: those of its YAML and those against the form.

    An empty document sets no key.
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
    return [*(_add_need(mistake, document, needs) for mistake in document.mistakes), *found]


def _add_need(
    mistake: Mistake, document: Document, needs: Mapping[tuple[int, int], str]
) -> Mistake:
    """Return the mistake; if quotes would not help, with what the form needs."""
    place = (mistake.line, mistake.column)
    trap = document.traps.get(Place(*place))
    if trap is None or place not in needs:
        return mistake
    return replace(mistake, problem=f"{trap}; {needs[place]}")


def problems(
    form: type[BaseModel],
    value: object,
    *,
    strict: bool,
    is_yaml: bool = True,
    most: int | None = None,
) -> list[Problem]:
    """Return the problems of a value.

    Args:
        form: What it must be.
        strict: Whether text is not read as a number.
        is_yaml: Whether a person wrote it in YAML, whose remedies are then of use.
        most: How many are described, the first ones; None for all.
    """
    try:
        form.model_validate(value, strict=strict)
    except ValidationError as error:
        errors = error.errors(include_url=False)[:most]
        found = [_describe(form, details) for details in errors]
        listed = list(_drop_echoes(found))
        return listed if is_yaml else [_without_yaml(one) for one in listed]
    return []


def _without_yaml(problem: Problem) -> Problem:
    """Return a problem without a remedy that only YAML needs."""
    for remedy in _OF_YAML:
        problem = problem._replace(but=problem.but.removesuffix(remedy))
    return problem


def _drop_echoes(found: Sequence[Problem]) -> Iterator[Problem]:
    """Yield the problems, without a missing key that an unknown key probably means."""
    meant = {(*problem.trail[:-1], problem.key) for problem in found if problem.at == "key"}
    return (
        problem
        for problem in found
        if problem.at == "key" or (*problem.trail, problem.key) not in meant
    )


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean ...?`` with the nearest known word, else a list of all known words."""
    words = list(known)
    close = nearest(word, words)
    return f"did you mean {close!r}?" if close else f"known are {', '.join(words)}"


def nearest(word: str, known: Sequence[str]) -> str:
    """Return the known word that is nearest to a word; empty when none is near."""
    word = word[:_LONGEST_WORD]
    within = [name for name in known if len(word) >= _LEAST_PART and word in name]
    close = within or get_close_matches(word, known, n=1, cutoff=_CLOSE)
    return close[0] if close else ""


_CLOSE = 0.75
"""The least share of equal letters of two close words: two of four letters may be exchanged."""
_LONGEST_WORD = 64
_LEAST_PART = 4
"""The fewest letters of a part of a word that identify the word."""


def format_value(value: object) -> str:
    """Return a value as messages show it: short, with the words of YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if value and isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "keys with values"
    return _SHORT.repr(value)


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def _check_path(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError(f"a path is needed, not {format_value(value)}")
    if str(value).startswith("~"):
        raise ValueError(f"'~' is not expanded in {format_value(value)}; write the path out")
    return Path(value)


FilePath = Annotated[
    Path, BeforeValidator(_check_path), WithJsonSchema({"type": "string", "pattern": "^[^~]"})
]
"""A path in a document, written out."""


def tag(name: str) -> str:
    """Return the marker of one of several forms in the locations that pydantic reports."""
    return f"<{name}>"


def _is_tag(step: object) -> bool:
    return isinstance(step, str) and step.startswith("<") and step.endswith(">")


def _drop_tags(trail: Trail) -> Trail:
    """Return a trail without markers of forms."""
    return tuple(step for step in trail if not _is_tag(step))


def _describe(form: type[BaseModel], details: ErrorDetails) -> Problem:
    found = _locate_problem(form, details)
    return found._replace(trail=_drop_tags(found.trail))


def _locate_problem(form: type[BaseModel], details: ErrorDetails) -> Problem:
    trail, kind = details["loc"], details["type"]
    if kind == "missing":
        key = str(trail[-1])
        return Problem(trail[:-1], f"key {key!r} is missing", key=key)
    if kind == "extra_forbidden":
        return _unknown_key(form, trail, details["input"])
    if trail and trail[-1] == "[key]":
        return Problem(trail[:-1], _describe_need(details), at="key")
    return Problem(trail, _describe_need(details), _describe_value(details))


def _unknown_key(form: type[BaseModel], trail: Trail, value: object) -> Problem:
    key, here = str(trail[-1]), _form_at(form, trail[:-1])
    # A field without `repr` belongs to the protocol, and no person writes it.
    known = [name for name, field in here.model_fields.items() if field.repr] if here else []
    close = nearest(key, known)
    if value is None and not close and (remedy := _remedy_for_part(key)):
        pass
    elif value is None and ":" in key:
        remedy = "a space goes after ':'"
    elif home := "" if close or here is None else _find_home(key, here):
        remedy = f"it belongs under {home!r}"
    else:
        remedy = suggestion(key, known)
    return Problem(trail, f"unknown key {format_value(key)}; {remedy}", at="key", key=close)


def _remedy_for_part(key: str) -> str:
    """Return the remedy for a key that is really a part of an unquoted text with commas."""
    if re.match(r"[\d*'\"]|.* ", key) and ":" not in key:
        return "is it part of a text that contains ','? Quote the whole text"
    return ""


def _find_home(key: str, form: type[BaseModel]) -> str:
    """Return the key of the form whose own form has a given key; empty when there is none."""
    homes = (name for name in form.model_fields if key in _keys_below(form, name))
    return next(homes, "")


def _keys_below(form: type[BaseModel], name: str) -> Iterable[str]:
    below = _form_at(form, (name, 0)) or _form_at(form, (name,))
    return below.model_fields if below else ()


_INSTANT_NEEDED = "an instant with an offset is needed, such as '2026-01-01T12:00:00+01:00'"
_TEXTS = {
    "bool": "true or false is needed",
    "datetime": _INSTANT_NEEDED,
    "dict": "keys with values are needed",
    "finite": "a number is needed",
    "float": "a number is needed",
    "greater_than": "more than {gt} is needed",
    "greater_than_equal": "at least {ge} is needed",
    "int": "a whole number is needed",
    "less_than": "less than {lt} is needed",
    "less_than_equal": "at most {le} is needed",
    "list": "a list is needed",
    "literal": "{expected} is needed",
    "model": "keys with values are needed",
    "string": "text is needed",
    "timezone": _INSTANT_NEEDED,
    "too": "at least one entry is needed",
    "value": "{error}",
}


def _describe_need(details: ErrorDetails) -> str:
    kind = details["type"]
    if length := _describe_size(details):
        return length
    text = _TEXTS.get(kind) or _TEXTS.get(kind.split("_")[0], details["msg"])
    bounds = {key: _without_fraction(value) for key, value in details.get("ctx", {}).items()}
    return text.format(**bounds)


def _describe_size(details: ErrorDetails) -> str:
    """Return the whole problem of a text or list of a wrong length or form; empty for others."""
    value, bounds = details["input"], details.get("ctx", {})
    if not value:
        return ""
    match details["type"]:
        case "string_too_long":
            return too_long(len(value), bounds["max_length"])
        case "string_too_short":
            return (
                f"too short: {_count(len(value), 'character')}, at least {bounds['min_length']:,}"
            )
        case "too_long":
            return too_long(len(value), bounds["max_length"], "entry", "entries")
        case "string_pattern_mismatch" if value.strip():
            return f"text of the form {bounds['pattern']!r} is needed, not {format_value(value)}"
        case "too_short":
            entries = _count(len(value), "entry", "entries")
            return f"too few: {entries}, at least {bounds['min_length']:,}"
        case _:
            return ""


def too_long(length: int, most: int, one: str = "character", many: str = "characters") -> str:
    """Return the problem of a text or a list that is longer than allowed.

    Args:
        length: How long it is.
        most: How long it may be.
        one: The word for one part of it.
        many: The word for several.
    """
    word = "long" if one == "character" else "many"
    return f"too {word}: {_count(length, one, many)}, at most {most:,}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _describe_value(details: ErrorDetails) -> str:
    kind, value = details["type"], details["input"]
    if kind == "value_error" or _describe_size(details):
        return ""
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", details["ctx"]["expected"])
        close = nearest(value, known) if isinstance(value, str) else ""
        return f", not {format_value(value)}" + (f"; did you mean {close!r}?" if close else "")
    return f", not {format_value(value)}{_remedy(kind, value)}"


_DASHES = "; begin each entry with '- '"
_NO_DASH = "; leave out the '-', or put a key before the list"
_SPACE = "; a space goes after ':'"
_OF_YAML = (_DASHES, _NO_DASH, _SPACE)


def _remedy(kind: str, value: object) -> str:
    match kind.split("_")[0], value:
        case "string", bool() | int() | float():
            return "; quote it if that is meant"
        case "string", None:
            return '; write "" for an empty one'
        case "list", str() if re.fullmatch(NAME, value):
            return f"; write [{value}]"
        case "list", dict() | None:
            return _DASHES
        case (("model" | "dict"), str()) if re.match(r"\w+:\S", value):
            return _SPACE
        case "model", list():
            return _NO_DASH
        case _:
            return ""


def _without_fraction(bound: object) -> object:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _form_at(form: type[BaseModel], trail: Trail) -> type[BaseModel] | None:
    """Return the form at a trail; None when there is no form."""
    kind: object = form
    for step in trail:
        fields = getattr(kind, "model_fields", None)
        if fields and step not in fields:
            return None
        arguments = get_args(kind)
        if not fields and not arguments:
            return None
        if fields:
            kind = _without_null(fields[step].annotation)
        else:
            kind = _form_with_tag(kind, step) if _is_tag(step) else arguments[-1]
    kind = _form_with_tag(kind, "") if get_origin(kind) is Annotated else kind
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _without_null(annotation: object) -> object:
    """Return the type of a key without null."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    is_union = get_origin(annotation) in (Union, UnionType)
    return kinds[0] if is_union and len(kinds) == 1 else annotation


def _form_with_tag(kind: object, step: object) -> object:
    """Return the form with a tag among several; the first form for any other step."""
    members = [get_args(member) for member in get_args(get_args(kind)[0])]
    named = {mark.tag: form for form, *marks in members for mark in marks if isinstance(mark, Tag)}
    return named.get(str(step), next(iter(named.values()), None))


def _check_name(value: str) -> str:
    if not re.fullmatch(NAME, value):
        allowed = "1 to 64 of a-z, 0-9, '.', '_', ':' and '-'"
        meant = re.sub(r"[^a-z0-9._:-]+", "-", value.lower()).strip("-")
        is_near = value.isascii() and re.fullmatch(NAME, meant)
        remedy = f"; did you mean {meant!r}?" if is_near else ""
        raise ValueError(f"{format_value(value)} is not a valid name: use {allowed}{remedy}")
    return value


def _check_template(value: str) -> str:
    if not re.fullmatch(TEMPLATE, value):
        raise ValueError(
            f"{format_value(value)} is not a valid name: use 1 to 64 of a-z, 0-9, '.', '_' and '-'"
        )
    return value


def _check_zone(value: str) -> str:
    try:
        zoneinfo.ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:
        close = nearest(value, _known_zones())
        remedy = f"did you mean {close!r}?" if close else "write a name as 'Europe/Berlin'"
        if found := re.fullmatch(_NO_PLACE, value):
            form = "an offset" if found["offset"] else "an abbreviation"
            remedy = f"{form} names no place; write one, as 'Europe/Berlin'"
        raise ValueError(f"time zone {format_value(value)} is not known; {remedy}") from error
    return value


_NO_PLACE = r"[A-Z]{2,5}|(UTC|GMT)?(?P<offset>[+-][0-9:]+)"
"""The form of CEST and UTC+2. A few are known, such as EST, and near to many that are not."""


@cache
def _known_zones() -> list[str]:
    # This reads the disk, which is slow.
    return sorted(zoneinfo.available_timezones())


Name = Annotated[str, AfterValidator(_check_name), Field(json_schema_extra={"pattern": NAME})]
"""The name of a rule or a channel."""

_LAST_YEAR = 9998


def read_instant(text: str) -> datetime:
    """Return the instant of a timestamp, in UTC.

    Raises:
        ValueError: It is not ISO 8601 with an offset, or its year is above 9998.
        OverflowError: It has no form in UTC.
    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None or at.year > _LAST_YEAR:
        raise ValueError
    return at.astimezone(UTC)


def _check_instant(text: str) -> str:
    try:
        read_instant(text)
    except (ValueError, OverflowError) as error:
        problem = "is not an instant; write ISO 8601 with an offset, as '2026-01-01T12:00:00Z'"
        raise ValueError(f"{format_value(text)} {problem}") from error
    return text


def _check_language(text: str) -> str:
    if text not in (AUTO, *LANGUAGES):
        known = ", ".join((AUTO, *LANGUAGES))
        raise ValueError(f"{format_value(text)} is not a language that is known: {known}")
    return text


Instant = Annotated[str, AfterValidator(_check_instant)]
"""A timestamp of a test file: ISO 8601 with an offset, in quotes."""

TemplateName = Annotated[
    str, AfterValidator(_check_template), Field(json_schema_extra={"pattern": TEMPLATE})
]
"""The name of a Fathom template."""

Language = Annotated[
    str,
    AfterValidator(_check_language),
    Field(json_schema_extra={"enum": [AUTO, *LANGUAGES]}),
]
"""A language whose words can be stemmed, or ``auto``."""


def _check_database(address: str) -> str:
    if not address.startswith(("postgresql://", "postgres://")):
        raise ValueError("begins with 'postgresql://', as in postgresql://host/database")
    hosts = address.partition("://")[2].partition("/")[0]
    if "," in hosts.rpartition("@")[2] and "target_session_attrs=" not in address:
        problem = "names several servers, so it must say which of them to use"
        raise ValueError(f"{problem}: end it with '?target_session_attrs=read-write'")
    return address


PREFIX = "python:"
"""With it begins the name of a function."""

SHAPE = f"{PREFIX}package.module:function"
"""The name of a function, as messages show it."""

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"

FUNCTION = rf"^{PREFIX}{_WORD}(\.{_WORD})*:{_WORD}$"
"""The pattern of the names of functions."""

FunctionName = Annotated[str, Field(pattern=FUNCTION)]
"""The name of a Python function."""

DatabaseAddress = Annotated[
    str,
    AfterValidator(_check_database),
    Field(json_schema_extra={"pattern": "^postgres(ql)?://"}),
]
"""The address of a PostgreSQL database."""

TimeZone = Annotated[str, AfterValidator(_check_zone)]
"""An IANA name that this host knows."""
