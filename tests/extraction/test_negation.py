"""A negation counts in its own clause only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.extraction.sentences import WINDOW, clause_around, is_negated

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "text",
    [
        "I do not like tea", "I don't like tea", "I dont like tea", "no tea", "never any tea",
        "a cake without tea", "I cannot stand tea", "neither milk nor tea", "coffee instead of tea",
        "coffee rather than tea", "NOT tea", "Well, I can't drink tea",
    ],
)  # fmt: skip
def test_place_after_a_negation_is_negated(text: str) -> None:
    assert is_negated(text, len(text))


@pytest.mark.parametrize(
    "text",
    [
        "I like tea", "No, tea", "not coffee, but tea", "not coffee but tea", "no thanks: tea",
        "I am not hungry and I like tea", "If there is no milk, tea", "Why not tea",
        "why don't we have tea",
        "not only milk and tea", "Isn't there tea", "No I want tea", "I know tea", "a knot of tea",
        "nothing but tea", "don't forget the tea", "I am not sure (tea",
    ],
)  # fmt: skip
def test_place_in_another_clause_or_after_a_phrase_without_force_is_not(text: str) -> None:
    assert not is_negated(text, len(text))


def test_negation_after_the_place_does_not_count() -> None:
    assert not is_negated("tea is not for me", 3)


def test_negation_far_before_the_place_does_not_count() -> None:
    text = "not " + "x" * WINDOW

    assert not is_negated(text, len(text))


@given(st.text(), st.integers(0, 100))
def test_no_text_raises(text: str, at: int) -> None:
    assert is_negated(text, at) in (True, False)


PARTS = st.sampled_from(["tea ", "but ", "and I ", "; ", " - ", "\u2014", "or ", "because ", ", "])


@given(st.lists(PARTS, max_size=8).map("".join), st.integers(0, 60), st.integers(0, 60))
def test_clause_holds_the_part_of_the_sentence(sentence: str, one: int, other: int) -> None:
    start, end = sorted((min(one, len(sentence)), min(other, len(sentence))))

    clause = clause_around(sentence, start, end)

    assert sentence[start:end] in clause
    assert clause in sentence


@pytest.mark.parametrize(
    ("sentence", "part", "clause"),
    [
        ("I like tea but not milk", "tea", "I like tea "),
        ("I like tea but not milk", "milk", "but not milk"),
        ("I like tea, and I like milk", "tea", "I like tea, "),
        ("I like tea and milk, maybe", "tea", "I like tea and milk, maybe"),
        ("Well; I like tea; no milk", "tea", " I like tea;"),
        ("I like tea \u2013 no milk", "tea", "I like tea "),
        ("I like semi-sweet tea", "tea", "I like semi-sweet tea"),
        ("I like tea BECAUSE it is hot", "tea", "I like tea "),
        ("I like butter", "butter", "I like butter"),
    ],
)
def test_clause_ends_at_these_places(sentence: str, part: str, clause: str) -> None:
    start = sentence.index(part)

    assert clause_around(sentence, start, start + len(part)) == clause
