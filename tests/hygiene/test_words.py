"""Words: what counts as a word, a number and a negation, in several scripts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.hygiene.similar_texts import (
    SimilarSets,
    jaccard,
    normal_text,
    rank_by_rarity,
    spelling_groups,
    wording_of,
)

pytestmark = pytest.mark.unit

word_sets = st.lists(st.frozensets(st.sampled_from("abcdefghij"), min_size=1), max_size=25)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10 EUR.", ("10", "eur")),
        ("Ann's tea, isn't it?", ("anns", "tea", "is", "not", "it", "?")),
        ("you cannot, won\u2019t", ("you", "can", "not", "will", "not")),
        ("C++ for 5 €", ("c", "+", "+", "for", "5", "€")),
        ("我喜欢 tea", ("我喜", "喜欢", "tea")),
        ("茶", ("茶",)),
        ("हिन्दी भाषा", ("हिन्दी", "भाषा")),
        ("zero\u200bwidth", ("zerowidth",)),
        ("... !", ()),
    ],
)
def test_text_is_split_into_words(text: str, words: tuple[str, ...]) -> None:
    assert wording_of(text).words == words


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("from 10.50 to 1,000 on 2026-11-23 at 10:30.", ("1,000", "10.50", "10:30", "2026-11-23")),
        ("minus -5, room B-5 and \u22127", ("-5", "5", "\u22127")),
        ("twelve or \u0661\u0662", ("12", "12")),
        ("三点", ("三",)),
        ("none", ()),
    ],
)
def test_numbers_of_a_text_are_found(text: str, numbers: tuple[str, ...]) -> None:
    assert wording_of(text).numbers == tuple(sorted(numbers))


@pytest.mark.parametrize(
    ("text", "negations"),
    [
        ("I didn't say no.", ("no", "not")),
        ("Ich habe keine Zeit und nie Geld", ("keine", "nie")),
        ("她不来", ("不",)),
        ("行きません", ("ません",)),
        ("a note", ()),
    ],
)
def test_negations_of_a_text_are_found(text: str, negations: tuple[str, ...]) -> None:
    assert wording_of(text).negations == negations


@pytest.mark.slow
@given(st.text())
def test_normal_text_has_no_case_and_no_superfluous_white_space(text: str) -> None:
    normal = normal_text(text)

    assert normal == " ".join(normal.split())
    assert normal_text(f" {text}\n") == normal


@given(word_sets, st.floats(0.05, 1))
def test_index_finds_exactly_the_similar_sets(
    sets: list[frozenset[str]], similarity: float
) -> None:
    index = SimilarSets(rank_by_rarity(sets), similarity)
    for words in sets:
        index.add(words)

    for words in sets:
        expected = {
            number: jaccard(words, other)
            for number, other in enumerate(sets)
            if jaccard(words, other) >= similarity
        }
        found = list(index.find(words))
        assert dict(found) == expected
        assert len(found) == len(expected)


def test_sets_without_words_are_equal() -> None:
    assert jaccard(frozenset(), frozenset()) == 1.0


def test_words_of_one_letter_difference_are_one_group() -> None:
    groups = spelling_groups(["receive", "recieve", "colour", "color", "tea", "sea", "house"])

    assert groups == {
        "receive": "receive", "recieve": "receive", "colour": "color", "color": "color",
        "tea": "tea", "sea": "sea", "house": "house",
    }  # fmt: skip


@given(st.lists(st.text("abc", max_size=6), max_size=20), st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_the_order_of_words(words: list[str], chance: object) -> None:
    assert spelling_groups(words[::-1]) == spelling_groups(words)
    assert all(groups <= word for word, groups in spelling_groups(words).items())
