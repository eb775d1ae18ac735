"""What a slot of a pattern may ask for besides one text: a form each, and none of them a wildcard.

Case counts everywhere, and a form speaks of the whole text. Only `Equals` and `OneOf` speak of
values that are no text.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from slumberd.core.act import canonical

LONGEST = 1_000
"""Characters of a glob or a regular expression."""


class _Form(BaseModel):
    """A form of one field, which may be given without its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, *given: Any, **named: Any) -> None:
        if given:
            (name,) = type(self).model_fields
            if named or len(given) > 1:
                raise TypeError(f"{type(self).__name__} takes one value")
            named = {name: given[0]}
        super().__init__(**named)


class Prefix(_Form):
    """Every text that begins like this; ``%``, ``_``, ``*`` and the like stand for themselves."""

    prefix: str

    def __init__(self, *prefix: str, **named: Any) -> None:
        super().__init__(*prefix, **named)


class Glob(_Form):
    """Every text of a shape.

    ``*`` is any characters or none, ``?`` one character, ``[abc]`` and ``[a-z]`` one of several,
    ``[!abc]`` and ``[^abc]`` one other than these. Within brackets ``]`` comes first and ``-`` at
    either end; ``[*]`` is a star. All else stands for itself: ``%``, ``_``, ``.`` and the
    backslash, too. At most `LONGEST` characters.
    """

    glob: str

    def __init__(self, *glob: str, **named: Any) -> None:
        super().__init__(*glob, **named)


class Matches(_Form):
    """Every text that a regular expression matches whole; ``.*word.*`` looks for a word.

    The syntax is RE2's: no look-around and no back-references, and so linear time. At most
    `LONGEST` characters. It needs the extra ``regex``.
    """

    matches: str

    def __init__(self, *matches: str, **named: Any) -> None:
        super().__init__(*matches, **named)


class Equals(_Form):
    """A JSON value: of objects only, by canonical JSON as the law compares them.

    So 1, 1.0, true and "1" are four values, the order of keys does not count, and null is a fact
    without an object, too.
    """

    equals: Any

    def __init__(self, *equals: Any, **named: Any) -> None:
        super().__init__(*equals, **named)

    @field_validator("equals")
    @classmethod
    def _is_json(cls, value: object) -> object:
        return checked_json(value)


class OneOf(_Form):
    """Any of some texts; of objects, any of some JSON values, each as `Equals` takes it."""

    one_of: tuple[Any, ...]

    def __init__(self, *one_of: Any, **named: Any) -> None:
        super().__init__(**named if named and not one_of else {"one_of": one_of, **named})

    @field_validator("one_of")
    @classmethod
    def _are_json(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(checked_json, values))


Text = str | Prefix | Glob | Matches | OneOf
"""What a slot of text asks for; a ``str`` is the text itself."""


def checked_json(value: object) -> object:
    """Return a value that JSON holds as it is; a text whatever it is, as all forms do.

    Raises:
        ValueError: It is none.
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
