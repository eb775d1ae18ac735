"""Similar texts: what a word is, and near vectors against a comparison of all pairs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from time import process_time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.consolidation.stages import similar_texts
from slumberd.consolidation.stages.duplicates import VECTORS_REST, find_duplicates, same_roles
from slumberd.consolidation.stages.entries import Duplicate, Entry
from slumberd.consolidation.stages.neighbours import Comparable, traces_of
from slumberd.consolidation.stages.similar_texts import (
    NearVectors,
    SimilarSets,
    jaccard,
    normal_text,
    rank_by_rarity,
    wording_of,
)
from slumberd.consolidation.stages.spellings import spelling_groups
from slumberd.model.errors import ExtraMissingError
from slumberd.model.stages import Dedup
from slumberd.search.embeddings import WordEmbedder
from tests.consolidation.stages.test_duplicates import (
    entries_of,
    of_all_pairs,
    similarities,
    some_entries,
)
from tests.support.embedders import WordSums
from tests.support.late_imports import LateModule
from tests.support.sample_sizes import amount

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    np = LateModule("numpy")


pytestmark = pytest.mark.unit

EMBED = WordSums().rows


@cache
def vector(text: str) -> tuple[float, ...]:
    [row] = EMBED([text]).tolist()
    return tuple(row)


def cosine(left: str, right: str) -> float:
    return math.fsum(a * b for a, b in zip(vector(left), vector(right), strict=True))


def similarity_of(left: Entry, right: Entry, least: float) -> float | None:
    """Return the similarity of two duplicates; None when they are not: the definition."""
    one, other = wording_of(left.content), wording_of(right.content)
    if left.triple != right.triple or one.numbers != other.numbers:
        return None
    if one.negations != other.negations:
        return None
    if one.text == other.text:
        return 1.0
    rests = [
        " ".join(word for word in mine if word not in others)
        for mine, others in ((one.words, other.words), (other.words, one.words))
    ]
    sets = [frozenset(wording.words or (wording.text,)) for wording in (one, other)]
    share = jaccard(*sets)
    if share >= 0.5 and all(rests) and all(letter < "\u0250" for letter in "".join(rests)):
        has_near_rests = cosine(*rests) >= VECTORS_REST
    else:
        has_near_rests = share >= least
    found = min(1.0, round(cosine(one.text, other.text), 6))
    mergeable = has_near_rests and same_roles(one.words, other.words)
    return found if mergeable and found >= least else None


@pytest.mark.cases(2)
@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 3, 256])
@settings(max_examples=amount(150, full=3_000))
@given(entries=some_entries, least=similarities, keep=st.sampled_from(["newest", "oldest"]))
def test_search_finds_what_a_comparison_of_all_pairs_finds(
    block: int, entries: list[Entry], least: float, keep: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similar_texts, "_BLOCK", block)

        found = find_duplicates(entries, "vectors", similarity=least, keep=keep, embed=EMBED)

    assert found == of_all_pairs(entries, least, keep, similarity_of)


@pytest.mark.slow
@settings(max_examples=amount(100, full=2_000))
@given(some_entries, similarities)
def test_decision_about_two_entries_does_not_depend_on_others(
    entries: list[Entry], least: float
) -> None:
    by_id = {entry.id: entry for entry in entries}

    found = find_duplicates(entries, "vectors", similarity=least, embed=EMBED)

    for one in found:
        pair = [by_id[one.id], by_id[one.of]]
        assert find_duplicates(pair, "vectors", similarity=least, embed=EMBED) == [one]
    kept = by_id.keys() - {one.id for one in found}
    for left, right in combinations(sorted(kept), 2):
        pair = [by_id[left], by_id[right]]
        assert find_duplicates(pair, "vectors", similarity=least, embed=EMBED) == []


def directions(count: int, seed: int) -> npt.NDArray[np.float32]:
    rows = np.random.default_rng(seed).normal(size=(count, 6))
    found: npt.NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found.astype(np.float32)


@pytest.mark.cases(3)
@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 7, 256])
@pytest.mark.parametrize("most", [1, 3, 600])
def test_search_returns_the_nearest_kept_vectors_in_the_order_of_keeping(
    block: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similar_texts, "_BLOCK", block)
    rows = directions(600, block)
    near = NearVectors(rows, 0.9, most)
    kept: list[int] = []

    for number in range(600):
        found = dict(near.find(number))

        cosines = {other: float(rows[number].astype(float) @ rows[other]) for other in kept}
        nearest = sorted(cosines, key=lambda other: -cosines[other])[:most]
        assert [*found] == sorted(other for other in nearest if cosines[other] >= 0.9)
        assert all(abs(found[other] - cosines[other]) < 1e-6 for other in found)
        if number % 3:
            near.keep(number)
            kept.append(number)


@pytest.mark.parametrize("most", [3, 25])
@pytest.mark.parametrize("size", [5, 256])
def test_of_equally_near_vectors_the_first_ones_are_found(
    most: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(most)
    words = chance.normal(size=(40, 256)).astype(np.float32)
    # Sums of the same words in other orders differ in their last digits.
    sums = [np.add.accumulate(chance.permutation(words))[-1] for _ in range(300)]
    rows = np.array([row / np.linalg.norm(row) for row in sums], np.float32)
    monkeypatch.setattr(similar_texts, "_BLOCK", size)
    near = NearVectors(rows, 0.85, most)
    for number in range(299):
        near.keep(number)

    for _ in range(2):
        assert [other for other, _ in near.find(299)] == [*range(most)]


def are_merged(left: str, right: str, **options: Any) -> bool:
    embed = WordEmbedder().rows
    return bool(find_duplicates(entries_of(left, right), "vectors", embed=embed, **options))


PARAPHRASES = [
    ("The meeting starts on Monday morning", "the meeting begins on Monday morning."),
    ("He bought a new car", "He purchased a new car"),
    ("Her daughter started school in September", "Her daughter began school in September"),
    ("He finished reading the book", "He completed reading the book"),
    ("We need to fix the login page", "We have to repair the login page"),
    ("Ann took a photo of the old town", "Ann took a picture of the old town"),
    ("Bob watched the movie at home", "Bob watched the film at home"),
    ("The colour of the shop is blue", "The color of the shop is blue"),
]


@pytest.mark.parametrize(("left", "right"), PARAPHRASES)
def test_paraphrases_are_duplicates_by_vectors(left: str, right: str) -> None:
    assert are_merged(left, right)


@pytest.mark.parametrize(("left", "right"), PARAPHRASES)
@pytest.mark.parametrize("guard", [" 7 / 8", " / never", " not a / not b"])
def test_paraphrases_with_other_numbers_or_negations_are_kept(
    left: str, right: str, guard: str
) -> None:
    ends = guard.split(" /")

    assert not are_merged(left + ends[0], right + ends[1])


def test_paraphrases_with_different_triples_are_kept() -> None:
    first, second = entries_of(*PARAPHRASES[0])
    entries = [first._replace(triple="a"), second._replace(triple="b")]

    assert find_duplicates(entries, "vectors", embed=WordEmbedder().rows) == []


@pytest.mark.parametrize("end", ["", " and told everybody in the office about it after lunch"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Ann likes green tea", "Ann hates green tea"),
        ("Ann likes green tea", "Ann likes black tea"),
        ("Ann moved to Lyon last spring", "Ann moved to Paris last spring"),
        ("The meeting starts on Monday morning", "The meeting starts on Tuesday morning"),
        ("He bought a new car", "He sold a new car"),
        ("Her daughter started school", "Her son started school"),
        ("Our office is closed on Sunday", "Our office is open on Sunday"),
        ("He finished reading the book", "He started reading the book"),
        ("Ann prefers tea over coffee", "Ann prefers coffee over tea"),
        ("Carol pays the invoice", "Dave pays the invoice"),
        ("The build failed in the night", "The build passed in the night"),
        ("Ann works at the bank", "Ann works at the bank and writes a book about old ships"),
        ("her husband is xqzvbn", "her husband is kfwrtz"),
        ("mjbdrq wkxz tlrmpv", "vbnxzq plkw dfghj"),
    ],
)
def test_texts_that_differ_in_a_word_of_another_meaning_are_kept(
    left: str, right: str, end: str
) -> None:
    assert not are_merged(left + end, right + end)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("वह जनवरी में आई", "वह फरवरी में आई"),
        ("يبدأ الاجتماع يوم الاثنين", "يبدأ الاجتماع يوم الخميس"),
        ("การประชุมเริ่มวันจันทร์", "เซิร์ฟเวอร์ล่มเมื่อคืน"),
        ("会议星期一开始", "会议星期五开始"),
    ],
)
def test_words_of_other_scripts_are_compared_as_words(left: str, right: str) -> None:
    """The model spells them letter by letter, so the vectors of all of them are near."""
    assert not are_merged(left, right, similarity=0.7)
    assert are_merged(left, f"{left}.", similarity=0.7)


def test_texts_without_words_are_duplicates_of_equal_texts_only() -> None:
    entries = entries_of("", "...", " ", "!", "...")

    found = find_duplicates(entries, "vectors", similarity=0.01, embed=WordEmbedder().rows)

    assert found == [Duplicate("e0", "e2", 1.0), Duplicate("e1", "e4", 1.0)]


def test_vectors_without_an_embedder_are_an_error_that_names_the_extra() -> None:
    with pytest.raises(ExtraMissingError, match=r"slumberd\[vectors\]"):
        find_duplicates(entries_of("a"), "vectors")


@pytest.mark.slow
def test_entry_is_compared_by_meaning_with_the_nearest_entries_only() -> None:
    """Else many similar texts that are not duplicates would take the square of their number."""
    rests: list[int] = []

    def embed(texts: Sequence[str]) -> npt.NDArray[np.float32]:
        rests.append(len(texts))
        return np.array([[1.0, 0.0] if " " in text else [0.0, 0.0] for text in texts], np.float32)

    contents = [f"a b word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(300)]

    assert find_duplicates(entries_of(*contents), "vectors", embed=embed) == []
    assert rests[0] == 300
    assert max(rests[1:]) == 25


@pytest.mark.nightly
def test_twenty_thousand_texts_take_fifteen_seconds_by_vectors() -> None:
    chance = random.Random(1)
    letters = "bcdfghjklmpqrstvwxz"
    vocabulary = ["".join(chance.choices(letters, k=6)) for _ in range(8_000)]
    contents = [" ".join(chance.choices(vocabulary, k=12)) for _ in range(18_000)]
    copied = chance.sample(range(len(contents)), 2_000)
    entries = entries_of(*contents, *(f"{contents[number]} extra" for number in copied))

    started = process_time()
    found = find_duplicates(entries, "vectors", embed=WordEmbedder().rows)

    assert process_time() - started < 15
    assert {duplicate.id for duplicate in found} == {f"e{number}" for number in copied}


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


def test_assertion_of_a_long_text_is_read_once_for_all_of_its_traces() -> None:
    reads: list[int] = []

    class Assertion:
        def __repr__(self) -> str:
            reads.append(1)
            return "('1', '2')"

    words = frozenset(f"word{number}" for number in range(1_000))

    traces = traces_of(Comparable((Assertion(),), "", words), [Dedup(similarity=0.5)])

    assert (len(traces), len(reads)) == (501, 1)
