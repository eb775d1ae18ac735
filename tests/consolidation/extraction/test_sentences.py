"""A text is divided where its sentences end, and a negation counts in its own clause only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation.extraction.sentences import (
    MAX_SENTENCES,
    WINDOW,
    clause_around,
    divide_into_sentences,
    is_negated,
    readable_form,
)

pytestmark = pytest.mark.unit

TEXTS = st.text(st.sampled_from("aI. !?\n\"').,5\u2026\u3002Mrdeg\u2019\ud800"), max_size=40)


def texts(text: str) -> list[str]:
    return [sentence.text for sentence in divide_into_sentences(text)]


@given(TEXTS | st.text())
def test_sentences_stand_in_the_text_in_order_and_leave_out_only_white_space(text: str) -> None:
    end = 0

    for sentence in divide_into_sentences(text):
        assert not text[end : sentence.start].strip()
        end = sentence.start + len(sentence.text)
        assert text[sentence.start : end] == sentence.text
        assert sentence.text.strip() == sentence.text != ""

    assert not text[end:].strip()


@given(TEXTS | st.text())
def test_readable_form_has_the_length_of_the_text_and_is_valid_unicode(text: str) -> None:
    readable = readable_form(text)

    assert len(readable) == len(text)
    assert readable.encode().decode() == readable
    assert readable_form(readable) == readable


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Smith met Mrs. Jones.", "Bob has 2.5 dogs.", "We use version 3.11.2 here",
        "It costs $1,200.50 a month.", "He came at 5 p.m. sharp.", "See e.g. the manual.",
        "J. R. Tolkien wrote it.", "Look at No. 5 there.", "The site is example.org today.",
        "1. Buy milk", "Wait...what", "St. Mary is near.", "Tea, coffee, etc. are there",
    ],
)  # fmt: skip
def test_full_stop_of_an_abbreviation_or_number_ends_no_sentence(text: str) -> None:
    assert texts(text) == [text]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two.", ["One.", "Two."]),
        ("One! Two? Three", ["One!", "Two?", "Three"]),
        ("Really?! Yes...  No", ["Really?!", "Yes...", "No"]),
        ("one\ntwo\n\nthree", ["one", "two", "three"]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("We meet at 5 p.m. Bring tea.", ["We meet at 5 p.m.", "Bring tea."]),
        ("So did I. She left.", ["So did I.", "She left."]),
        ("No. I stay.", ["No.", "I stay."]),
        ("It has 5. You have 6.", ["It has 5.", "You have 6."]),
        ("Hai\u3002Iie\u3002", ["Hai\u3002", "Iie\u3002"]),
        ("  ", []),
        ("...", ["..."]),
    ],
)
def test_sentence_ends_at_its_mark_or_at_the_line_end(text: str, sentences: list[str]) -> None:
    assert texts(text) == sentences


def test_sentences_beyond_the_bound_are_left_out() -> None:
    assert texts("a! " * (MAX_SENTENCES + 1)) == ["a!"] * MAX_SENTENCES


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
