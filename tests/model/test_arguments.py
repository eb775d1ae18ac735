"""An argument of another kind is refused in words, before a store reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slumberd.model.arguments import (
    require_instant,
    require_iterable,
    require_object,
    require_objects,
    require_text,
    require_whole_number,
)
from slumberd.model.errors import UsageError
from slumberd.model.fact import FactPattern
from tests.support.builders import START

pytestmark = pytest.mark.unit

PATTERN = FactPattern()


def as_pattern(name: str, value: object) -> None:
    require_object(name, value, "FactPattern")


def as_patterns(name: str, value: object) -> None:
    require_objects(name, value, "FactPattern")


@pytest.mark.parametrize(
    ("require", "value"),
    [
        (as_pattern, PATTERN),
        (as_patterns, [PATTERN]),
        (as_patterns, ()),
        (require_iterable, {1}),
        (require_text, ""),
        (require_whole_number, 0),
        (require_instant, START),
        (require_instant, None),
    ],
)
def test_argument_of_the_kind_is_taken(require: Callable[[str, Any], None], value: object) -> None:
    require("given", value)


@pytest.mark.parametrize(
    ("require", "value", "problem"),
    [
        (as_pattern, {}, "given is {}; give an object of the class FactPattern"),
        (as_patterns, "ann", "given is 'ann'; give a list of objects of the class FactPattern"),
        (as_patterns, PATTERN, f"given is {PATTERN!r:.100}; give a list of objects of the class"),
        (as_patterns, [PATTERN, 7], "given[1] is 7; give an object of the class FactPattern"),
        (require_iterable, b"ann", "given is b'ann'; give a list"),
        (require_iterable, 7, "given is 7; give a list"),
        (require_text, None, "given is None; give a text"),
        (require_whole_number, True, "given is True; give a whole number"),
        (require_whole_number, 1.0, "given is 1.0; give a whole number"),
        (require_instant, "now", "given is 'now'; give a datetime with a time zone"),
        (require_instant, START.replace(tzinfo=None), "; give a datetime with a time zone"),
    ],
)
def test_argument_of_another_kind_is_named(
    require: Callable[[str, Any], None], value: object, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        require("given", value)

    assert problem in str(caught.value)
