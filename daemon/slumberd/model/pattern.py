"""The forms of a pattern's slot (prefix, glob, regular expression, values), and how globs match.

Forms are case-sensitive and match the whole text. Only `Equals` and `OneOf` match values that are
not texts. A glob becomes a regular expression whose time is bounded by text times glob.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, field_validator

from slumberd.model.scope import canonical

LONGEST = 1_000
"""The most characters of a glob or a regular expression."""


class _Form(BaseModel):
    """A form with one field, which a caller may give by position."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def __init__(self, *given: Any, **named: Any) -> None:
        if given:
            (name,) = type(self).model_fields
            if named or len(given) > 1:
                raise TypeError(f"{type(self).__name__} takes one value")
            named = {name: given[0]}
        super().__init__(**named)


class Prefix(_Form):
    """Matches every text with this prefix; ``%``, ``_``, ``*`` and the like match themselves."""

    prefix: str

    def __init__(self, *prefix: str, **named: Any) -> None:
        super().__init__(*prefix, **named)


class Glob(_Form):
    """Matches every text of a shape.

    ``*`` matches any characters or none, ``?`` one character, ``[abc]`` and ``[a-z]`` one of
    several, ``[!abc]`` and ``[^abc]`` any other character. Within brackets ``]`` comes first and
    ``-`` at either end; ``[*]`` is a star. All other characters match themselves, also ``%``,
    ``_``, ``.`` and the backslash. At most `LONGEST` characters.
    """

    glob: str

    def __init__(self, *glob: str, **named: Any) -> None:
        super().__init__(*glob, **named)


class Matches(_Form):
    """Matches every text that a regular expression matches whole; ``.*word.*`` finds a word.

    The syntax is RE2's: linear time, so no look-around and no back-references. At most `LONGEST`
    characters. It needs the extra ``regex``.
    """

    matches: str

    def __init__(self, *matches: str, **named: Any) -> None:
        super().__init__(*matches, **named)


class Equals(_Form):
    """Matches one JSON value, in the slot `object` only, by canonical JSON.

    So 1, 1.0, true and "1" are four values. The order of keys does not count. Null also matches a
    fact without an object.
    """

    equals: Any

    def __init__(self, *equals: Any, **named: Any) -> None:
        super().__init__(*equals, **named)

    @field_validator("equals")
    @classmethod
    def _is_json(cls, value: object) -> object:
        return check_json(value)


class OneOf(_Form):
    """Matches any of some texts; in the slot `object`, any of some JSON values, as `Equals`."""

    one_of: tuple[Any, ...]

    def __init__(self, *one_of: Any, **named: Any) -> None:
        super().__init__(**named if named and not one_of else {"one_of": one_of, **named})

    @field_validator("one_of")
    @classmethod
    def _are_json(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(check_json, values))


Text = str | Prefix | Glob | Matches | OneOf
"""The forms of a slot for texts; a ``str`` matches an equal text."""


def require_texts(form: Text | None) -> Text | None:
    """Return the form of a slot that holds texts only.

    Raises:
        ValueError: It accepts a value that is no text.
    """
    if isinstance(form, OneOf) and not all(isinstance(value, str) for value in form.one_of):
        raise ValueError("only an object can be other than a text")
    return form


def check_json(value: object) -> object:
    """Return a value that JSON can represent; any text, as in all forms.

    Raises:
        ValueError: JSON cannot represent it.
    """
    if isinstance(value, str):
        return value
    try:
        canonical(value)
    except TypeError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not _finite(value):
        raise ValueError("holds a number that JSON cannot hold")
    return value


def _finite(value: object) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_finite, value.values()))
        case list() | tuple():
            return all(map(_finite, value))
        case _:
            return True


_STAR = "*"


class InvalidGlobError(ValueError):  # the caller, who knows the slot, raises the error
    """An invalid glob.

    Attributes:
        position: Character, from 0.
    """

    def __init__(self, problem: str, position: int) -> None:
        self.problem = problem
        self.position = position
        super().__init__(problem)


class _Piece(NamedTuple):
    """One element of a glob: its regular expression, and its text when it matches one text only."""

    expression: str
    literal: str | None = None


def matcher_of(glob: str) -> Callable[[str], bool]:
    """Return a function that matches a text against a glob.

    Raises:
        InvalidGlobError: The glob is invalid.
    """
    runs: list[str] = [""]
    for piece in _pieces(glob):
        if piece.expression == _STAR:
            runs.append("")
        else:
            runs[-1] += piece.expression
    first, *others = runs
    if not others:
        return _full(first)
    *between, last = others
    # Atomic: the first match of a run between two stars is enough, so there is no backtracking.
    found = "".join(f"(?>.*?{run})" for run in between if run)
    return _full(f"{first}{found}.*{last}")


def _full(expression: str) -> Callable[[str], bool]:
    match = re.compile(expression, re.DOTALL).fullmatch
    return lambda text: match(text) is not None


def literal_prefix(glob: str) -> tuple[str, bool]:
    """Return the text that a glob begins with, and whether the glob is nothing but that text.

    Raises:
        InvalidGlobError: The glob is invalid.
    """
    start = ""
    for piece in _pieces(glob):
        if piece.literal is None:
            return start, False
        start += piece.literal
    return start, True


def _pieces(glob: str) -> list[_Piece]:
    found = []
    place = 0
    while place < len(glob):
        piece, place = _piece(glob, place)
        found.append(piece)
    return found


def _piece(glob: str, place: int) -> tuple[_Piece, int]:
    match glob[place]:
        case "*":
            return _Piece(_STAR), place + 1
        case "?":
            return _Piece("."), place + 1
        case "[":
            return _class(glob, place)
        case character:
            return _Piece(re.escape(character), character), place + 1


def _class(glob: str, start: int) -> tuple[_Piece, int]:
    place = start + 1
    negated = glob[place : place + 1] in ("!", "^")
    place += negated
    # A bracket that comes first is a plain character.
    end = glob.find("]", place + 1)
    if end < 0:
        raise InvalidGlobError("'[' has no ']'; write '[[]' for the character itself", start)
    members = _members(glob, place, end)
    if len(members) == 1 and not negated and isinstance(members[0], str):
        return _Piece(re.escape(members[0]), members[0]), end + 1
    inside = "".join(map(_member, members))
    return _Piece(f"[{'^' if negated else ''}{inside}]"), end + 1


_Member = str | tuple[str, str]


def _members(glob: str, place: int, end: int) -> list[_Member]:
    """Return the characters of a class, and the two ends of each of its ranges."""
    found: list[_Member] = []
    while place < end:
        if place + 2 < end and glob[place + 1] == "-":
            low, high = glob[place], glob[place + 2]
            if low > high:
                raise InvalidGlobError(
                    f"{low}-{high} is not a range: it ends before it begins", place
                )
            found.append((low, high))
            place += 3
        else:
            found.append(glob[place])
            place += 1
    return found


def _member(member: _Member) -> str:
    if isinstance(member, str):
        return re.escape(member)
    return "-".join(map(re.escape, member))
