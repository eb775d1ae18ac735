"""How globs match, compared with an oracle that compares one character at a time."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slumberd.model.pattern import InvalidGlobError, matcher_of

pytestmark = pytest.mark.unit

GLOBS = st.text("ab*?", max_size=7)
TEXTS = st.text("ab", max_size=7)


def matches(glob: str, text: str) -> bool:
    if not glob:
        return not text
    if glob[0] == "*":
        return any(matches(glob[1:], text[skipped:]) for skipped in range(len(text) + 1))
    return bool(text) and glob[0] in ("?", text[0]) and matches(glob[1:], text[1:])


@given(GLOBS, TEXTS)
@example("a*b", "ab")
@example("a*b", "aab")
@example("a*b", "aba")
@example("*a*b*", "bab")
@example("*a*b*", "bba")
@example("a*b*a", "aba")
def test_glob_matches_the_texts_that_its_characters_match(glob: str, text: str) -> None:
    assert matcher_of(glob)(text) == matches(glob, text)


@pytest.mark.parametrize(
    ("glob", "text", "expected"),
    [
        pytest.param("x[a-c]y", "xby", True, id="inside a range"),
        pytest.param("x[a-c]y", "xdy", False, id="outside a range"),
        pytest.param("[ab]", "b", True, id="one of two"),
        pytest.param("[!a-c]", "b", False, id="not of a range"),
        pytest.param("[^a-c]", "d", True, id="another than a range"),
        pytest.param("[[]", "[", True, id="bracket"),
        pytest.param("[]a]", "]", True, id="bracket that comes first"),
    ],
)
def test_class_matches_one_of_its_characters(glob: str, text: str, expected: bool) -> None:
    assert matcher_of(glob)(text) is expected


@pytest.mark.parametrize(
    ("glob", "problem"),
    [
        pytest.param("x[a-", "has no ']'", id="open"),
        pytest.param("[c-a]", "c-a is not a range", id="backwards"),
    ],
)
def test_class_that_cannot_be_read_is_refused(glob: str, problem: str) -> None:
    with pytest.raises(InvalidGlobError, match=problem):
        matcher_of(glob)
