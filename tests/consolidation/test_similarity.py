"""What says the very same as another, word for word, and what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.consolidation import similarity
from slumberd.consolidation.claim import Claim, Precedence, claim_of
from slumberd.consolidation.similarity import (
    TEXT_CHARACTERS,
    WORD_CHARACTERS,
    Statement,
    family_of,
    says_the_same,
    statement_of,
)
from tests.support.builders import version

pytestmark = pytest.mark.unit

SAME = [
    ("Every morning Ada drinks green tea.", "Ada drinks green tea every morning"),
    ("10 EUR", "10 EUR."),
    ("the tea is hot", "Tea is hot!"),
    ("I met Ada. Tea was served.", "I met Ada. tea was served"),
    ("Ada doesn't like tea", "Ada doesn't like tea."),
    ("caf\u00e9 au lait", "cafe\u0301 au lait"),
    ("茶が好き", "茶が好き"),
]

OTHERS = [
    ("the shop is open", "the shop is closed"),
    ("likes dogs but not cats", "likes cats but not dogs"),
    ("No, tea please", "No tea please"),
    ("Is Ada at home?", "Is Ada at home"),
    ("dog bites man", "man bites dog"),
    ("owes Tom", "Tom owes"),
    ("meet at 10:00", "meet at 11:00"),
    ("costs 10.5", "costs 105"),
    ("costs -5", "costs 5"),
    ("10²", "102"),
    ("I saw Polish", "I saw polish"),
    ("US wins", "us wins"),
    ("Ada likes tea", "Ada likes tea no more"),
    ("a_b", "a b"),
    ("not today maybe tomorrow then", "maybe tomorrow then not today"),
]


def says(content: str, **payload: Any) -> Statement:
    return Statement("e1", "k", Precedence(0, 0, "e1"), {"content": content, **payload})


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_very_same_in_another_dress(one: str, other: str) -> None:
    assert says_the_same(says(one), says(other))
    assert says_the_same(says(other), says(one))


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_what_differs_in_a_word_or_turns_it_around_is_not_the_same(one: str, other: str) -> None:
    assert not says_the_same(says(one), says(other))
    assert not says_the_same(says(other), says(one))


@pytest.mark.parametrize("text", ["", " ", "the", "..."])
def test_nothing_says_nothing(text: str) -> None:
    assert not says_the_same(says(text), says(text))


def test_without_content_the_triple_speaks() -> None:
    one = says("", subject="ada", predicate="pays", object="10 EUR")
    assert one.text == "ada pays 10 EUR"
    assert says_the_same(one, says("", subject="ada", predicate="pays", object="10 EUR."))
    assert not says_the_same(one, says("", subject="ada", predicate="pays", object=["10 EUR"]))


@pytest.mark.parametrize(
    "payload",
    [
        {"subject": "ada", "predicate": "likes", "object": "coffee"},
        {"subject": "ada", "predicate": "hates", "object": "tea"},
        {"subject": "bob", "predicate": "likes", "object": "tea"},
        {"subject": "ada", "predicate": "likes", "object": "Tea"},
        {"subject": "ada", "predicate": "likes"},
    ],
)
def test_the_same_words_about_something_else_are_not_the_same(payload: dict[str, Any]) -> None:
    one = says("the usual", subject="ada", predicate="likes", object="tea")
    assert not says_the_same(one, says("the usual", **payload))


def test_a_very_long_text_is_the_same_only_in_its_order() -> None:
    words = [f"w{number}" for number in range(300)]
    one, turned = " ".join(words), " ".join((*words[100:], *words[:100]))
    assert says_the_same(says(one), says(one))
    assert not says_the_same(says(one), says(turned))


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_texts_can_be_compared_either_way_round(one: str, other: str) -> None:
    assert says_the_same(says(one), says(other)) == says_the_same(says(other), says(one))


WORDS = ["ada", "likes", "hates", "not", "3", "4", "tea", "Tea", "a", ".", "?"]


@given(st.lists(st.sampled_from(WORDS), max_size=8))
def test_whatever_has_words_says_the_same_as_itself(words: list[str]) -> None:
    text = " ".join(words)
    assert says_the_same(says(text), says(text)) == any(word not in ("a", ".") for word in words)


def claim(channel: str = "facts", **overrides: Any) -> Claim:
    said = claim_of(version("e1", **overrides), channel)
    assert isinstance(said, Claim)
    return said


def test_a_family_is_of_one_user_agent_channel_and_subject() -> None:
    known = {"subject": "ada/b", "predicate": "likes"}
    mine = family_of(claim(metadata=known))
    assert mine == family_of(claim(metadata=known | {"predicate": "drinks"}))
    assert statement_of(claim(metadata=known)).key.startswith(mine)
    others = {
        family_of(claim(metadata=known, user="bob")),
        family_of(claim(metadata=known, agent="other")),
        family_of(claim("notes", metadata=known)),
        family_of(claim(metadata={"subject": "ada", "predicate": "likes"})),
        family_of(claim(metadata={"subject": "ada/b"})),
    }
    assert len(others) == 5
    assert mine not in others


def test_long_contents_are_the_same_when_they_are_equal_to_the_letter() -> None:
    long = "Ada likes the tea. " * (WORD_CHARACTERS // 10)

    assert says_the_same(says(long), says(long))
    assert not says_the_same(says(long), says(long.replace("the ", "", 1)))
    assert not says_the_same(says(long), says(long[:-2] + "!"))


def test_near_texts_are_taken_apart_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    words = similarity._words

    def counted(text: str) -> list[Any]:
        taken.append(text)
        return words(text)

    monkeypatch.setattr(similarity, "_words", counted)
    texts = [f"Ada likes tea number {number} " + "tea " * 2_000 for number in range(30)]
    told = [says(text) for text in texts]

    assert not any(says_the_same(one, other) for one in told for other in told if one is not other)

    whole = [text for text in taken if len(text) > TEXT_CHARACTERS]
    assert len(whole) == len(texts)


def test_statements_of_another_number_of_words_do_not_say_the_same() -> None:
    one, other = (
        similarity.Statement(id, "key", Precedence(0, 0, id), {"content": content})
        for id, content in (("e1", "tea is nice"), ("e2", "tea is very nice"))
    )

    assert not similarity.says_the_same(one, other)
