"""A text is divided where its sentences end, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.extraction.sentences import MAX_SENTENCES, divide_into_sentences, readable_form

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
