"""The sentence rule states what a careful reader takes from chat, and little else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slumberd.extraction.heuristic import CONFIDENCE, MAX_OBJECT, MAX_SUBJECT, Heuristic
from slumberd.model.extraction import Extracted, Turn

pytestmark = pytest.mark.unit

SENTENCES = yaml.safe_load((Path(__file__).parent / "heuristic_sentences.yaml").read_text())[
    "sentences"
]
CHAT = SENTENCES[0]["text"].split()
JOINTS = ["I", "my", "has", "were", "not", "maybe", "and", "but", "you", ",", ".", "!", "?", "-"]
WORDS = st.sampled_from([*CHAT, *JOINTS, "tea", "\ud800", "\U0001f600", ":", "(", ""])
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)
HELD_OUT = SENTENCES[2::3]
SEEN = [sentence for number, sentence in enumerate(SENTENCES) if number % 3 != 2]


def stated(text: str, *, speaker: str = "alice") -> list[tuple[str, str, Any]]:
    """Return the triples of one turn."""
    [found] = Heuristic().extract([Turn("e1", "s", speaker, text, 0)], [None])
    return [(one.subject, one.predicate, one.object) for one in found]


def figures(sentences: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return precision and recall."""
    pairs = [(stated(one["text"]), [tuple(one["triple"])] if "triple" in one else [])
             for one in sentences]  # fmt: skip
    right = sum(found == wanted for found, wanted in pairs if found)
    precision = right / sum(len(found) for found, _ in pairs)
    return precision, right / sum(len(wanted) for _, wanted in pairs)


@pytest.mark.parametrize("part", [SEEN, HELD_OUT], ids=["two thirds", "held-out third"])
def test_four_of_five_triples_are_right(part: list[dict[str, Any]]) -> None:
    precision, recall = figures(part)

    print(f"\n{len(part)} sentences: P {precision:.3f} R {recall:.3f}")
    assert precision >= 0.8
    assert recall >= 0.6


@given(st.text() | TEXTS, st.text(max_size=3))
def test_no_text_raises_and_triples_are_bounded(text: str, speaker: str) -> None:
    [found] = Heuristic().extract([Turn("e1", "s", speaker, text, 0)], [None])

    for one in found:
        assert 0 <= one.span[0] < one.span[1] <= len(text)
        assert 0 < len(one.subject) <= MAX_SUBJECT
        assert 0 < len(one.object) <= MAX_OBJECT
        assert one.predicate in ("is", "are", "has", "have", "was", "were")


@given(TEXTS, TEXTS)
def test_sentences_have_no_effect_on_each_other(first: str, second: str) -> None:
    assert set(stated(f"{first}\n{second}")) == {*stated(first), *stated(second)}


def test_speaker_with_a_lone_surrogate_has_a_valid_name() -> None:
    assert stated("I was late.", speaker="\ud800") == [("\ufffd", "was", "late")]


def test_triple_has_its_sentence_and_its_confidence() -> None:
    [[found]] = Heuristic({"user_turn": "Ada"}).extract(
        [Turn("e1", "s", "user_turn", "Hi! I was late.", 0)], [None]
    )

    assert found == Extracted("Ada", "was", "late", "add", (4, 15), "heuristic", CONFIDENCE)


def test_earliest_verb_divides_the_sentence() -> None:
    assert stated("Bob was told that tea is hot.") == [("Bob", "was", "told that tea is hot")]


def test_decimals_and_exclamation_marks_do_not_confuse_sentences() -> None:
    assert stated("Bob has 2.5 dogs! Carol is at home") == [
        ("Bob", "has", "2.5 dogs"), ("Carol", "is", "at home"),
    ]  # fmt: skip


@pytest.mark.parametrize("pronoun", ["He", "she", "It", "They", "We", "You", "This", "that"])
def test_subject_that_only_the_conversation_names_is_skipped(pronoun: str) -> None:
    assert stated(f"{pronoun} was at home.") == []


@pytest.mark.parametrize("text", ["I was late.", "My car is red.", "Bob is my uncle."])
def test_first_person_of_an_unknown_speaker_is_skipped(text: str) -> None:
    assert stated(text, speaker="") == []


@pytest.mark.parametrize(
    "text",
    [
        "Is Bob at home?", "Bob is at home?", "Bob is not at home.", "Bob is never at home.",
        "Maybe Bob is at home.", "If Bob is at home, call.", "Bob would say tea is hot.",
        "Nobody was at home.", "Bob isn't at home.", "Bob may say it is hot.", "Bob's at home.",
    ],
)  # fmt: skip
def test_question_denial_or_guess_states_nothing(text: str) -> None:
    assert stated(text) == []


def test_names_keep_their_case_and_articles_are_left_out() -> None:
    assert stated("The BBC is in London") == [("The BBC", "is", "in London")]
    assert stated("A whale is a mammal") == [("whale", "is", "a mammal")]


def test_subject_and_object_have_at_most_their_bounds() -> None:
    name, words = "x" * MAX_SUBJECT, "y" * MAX_OBJECT

    assert stated(f"{name} is {words}") == [(name, "is", words)]
    assert stated(f"{name}x is {words}") == []
    assert stated(f"{name} is {words}y") == []
    assert stated(f"two three four five six seven is {words}")
    assert stated(f"x two three four five six seven is {words}") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["is ", "Bob is a chef. ", "my ", ", ", "a is b\n", "and so ", "x"]
)
def test_a_million_characters_of_hostile_text_do_not_raise(part: str) -> None:
    assert len(stated(part * (1_000_000 // len(part)))) <= 50
