"""The normal form of a text is bounded, and tells long texts apart."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.consolidation.stages.similar_texts import normal_text, wording_of
from slumberd.model.texts import LONGEST, MOST_MARKS, limit_marks, words_of
from slumberd.search.terms import Analyser
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.unit, pytest.mark.sampled]

LIGATURE = "\ufdfa"
"""One character whose compatibility form has 18."""
ABOVE, BELOW = "\u0301", "\u0316"
MARKED = "e" + (ABOVE + BELOW) * 20_000


def longest_run(text: str) -> int:
    """Return the most combining marks in a row."""
    longest = run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        longest = max(longest, run)
    return longest


def test_compatibility_form_of_a_long_text_is_cut() -> None:
    text = f"{LIGATURE} " * 16_000

    assert len(wording_of(text).text) <= LONGEST
    assert sum(map(len, Analyser().terms(text))) <= 2 * LONGEST


def test_long_text_without_longer_forms_is_not_cut() -> None:
    text = "wört " * 40_000

    assert len(wording_of(text).words) == len(Analyser().terms(text)) == 40_000


@pytest.mark.parametrize("end", ["x", "Y", ABOVE, "5"])
def test_texts_that_differ_beyond_the_bound_are_not_equal(end: str) -> None:
    text = LIGATURE * 5_000

    one, other = wording_of(text + "a"), wording_of(f"{text}a{end}")

    # As plain truths: the report of a difference of long texts takes minutes.
    same = [
        one.text == other.text,
        one.numbers == other.numbers,
        normal_text(text + "a") == normal_text(f"{text}a{end}"),
        wording_of(text + "a") == one,
    ]
    assert same == [True, False, False, True]


def test_marks_of_one_letter_are_bounded_before_they_are_sorted() -> None:
    assert longest_run(limit_marks(MARKED)) == MOST_MARKS
    assert longest_run(wording_of(MARKED).text) <= MOST_MARKS
    assert wording_of(MARKED).numbers != wording_of(MARKED + ABOVE).numbers
    assert [len(term) for term in Analyser().terms(MARKED)] == [1]


@settings(max_examples=amount(100, full=2_000))
@given(st.text(alphabet=st.sampled_from([ABOVE, BELOW, "a", " ", ".", "é", "5"]), max_size=200))
def test_text_with_few_marks_stays_and_others_lose_marks_only(text: str) -> None:
    limited = limit_marks(text)

    assert longest_run(limited) <= MOST_MARKS
    assert [c for c in limited if not unicodedata.combining(c)] == [
        c for c in text if not unicodedata.combining(c)
    ]
    assert (limited == text) == (longest_run(text) <= MOST_MARKS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Trip, 2nd_time!", ["the", "trip", "2nd_time"]),
        ("KRAKÓW straße", ["kraków", "strasse"]),
        ("Krako\u0301w", ["kraków"]),
        ("हिन्दी और दिन", ["हिन्दी", "और", "दिन"]),
        ("\u0645\u06cc\u200c\u062e", ["\u0645\u06cc\u200c\u062e"]),
        ("\u2764\ufe0f tea \U0001f469\u200d\U0001f467", ["tea"]),
        ("... \u0301", []),
    ],
)
def test_words_keep_their_marks_in_every_case_and_normal_form(text: str, words: list[str]) -> None:
    assert words_of(text) == words
    for form in ("NFC", "NFD"):
        assert words_of(unicodedata.normalize(form, text.upper())) == words_of(text)


def test_words_of_a_text_with_many_marks_are_found_in_bounded_time() -> None:
    [word] = words_of(MARKED)

    assert longest_run(unicodedata.normalize("NFD", word)) <= MOST_MARKS
