"""A person's words not to remember something are found, and other sentences with them are not."""

from __future__ import annotations

import pytest

from slumberd.model.capture.episodes import Capture, ForgetWords
from slumberd.model.episode import Episode
from tests.support.builders import episode
from tests.support.lists import of_each

pytestmark = pytest.mark.unit

ASKED = [
    ("Don't remember this: my PIN is 4711.", "this"),
    ("my PIN is 4711, don\u2019t remember this", "this"),
    ("please dont  remember\nthis", "this"),
    ("My sister is ill. DO NOT REMEMBER THIS!", "this"),
    ("Could you not... please do not remember this", "this"),
    ("Forget that.", "that"),
    ("Oh, forget that!", "that"),
    ("Please forget that I told you.", "that"),
    ("Can you forget that?", "that"),
    ("I want you to forget that", "that"),
    ("Don't remember this. And forget that, too.", "that"),
    ("forget what I just said", "that"),
]
NOT_ASKED = [
    "I don't remember this place.",
    "We do not remember this either",
    "Don't forget that I live in Oslo.",
    "Do not forget that it is Monday.",
    "I'll never forget that day",
    "I tend to forget that",
    "Did you forget that we moved?",
    "They always forget that",
    "He won't forget that",
    "unforget that, forget thatch",
    "remember this",
    "",
]


@of_each(lambda: ASKED)
def test_request_to_forget_is_found(case: tuple[str, str]) -> None:
    text, asked = case

    assert ForgetWords().request_in(text) == asked


@of_each(lambda: NOT_ASKED)
def test_sentence_that_asks_for_nothing_is_no_request(text: str) -> None:
    assert ForgetWords().request_in(text) is None


def test_words_of_the_configuration_replace_the_defaults() -> None:
    words = ForgetWords(["nicht merken", "unter uns (bitte)"], [])

    assert words.request_in("Bitte Nicht  merken: ich ziehe um.") == "this"
    assert words.request_in("das bleibt unter uns (bitte)") == "this"
    assert words.request_in("Forget that. Don't remember this.") is None


def said(*turns: tuple[str, str]) -> list[Episode]:
    return [
        episode(id=str(number), content=text, source_node=speaker)
        for number, (speaker, text) in enumerate(turns)
    ]


def kept(*turns: tuple[str, str], capture: Capture | None = None) -> list[str]:
    found = (capture or Capture()).without_forgotten(said(*turns))
    return [each.content for each in found]


def test_turn_and_the_replies_to_it_are_left_out() -> None:
    assert kept(
        ("user", "one"), ("assistant", "two"),
        ("user", "Don't remember this: three"), ("assistant", "four"), ("tool", "five"),
        ("user", "six"), ("assistant", "seven"),
    ) == ["one", "two", "six", "seven"]  # fmt: skip


def test_turn_before_goes_too_when_the_person_asks_for_that() -> None:
    assert kept(
        ("user", "zero"), ("assistant", "answer"),
        ("user", "one"), ("assistant", "two"),
        ("user", "Forget that."), ("assistant", "four"),
        ("user", "six"),
    ) == ["zero", "answer", "six"]  # fmt: skip
    assert kept(("assistant", "hello"), ("user", "forget that")) == []


def test_words_of_others_are_no_request() -> None:
    talk = [("assistant", "Forget that."), ("tool", "don't remember this"), ("user", "yes")]

    assert kept(*talk) == [text for _, text in talk]
    assert kept(("pilot", "forget that"), capture=Capture(person=["pilot"])) == []
