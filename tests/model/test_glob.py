"""How globs match, compared with an oracle that compares one character at a time."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slumberd.model.pattern import matcher_of

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
