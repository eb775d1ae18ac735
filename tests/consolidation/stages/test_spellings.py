"""Duplicates by ``fuzzy`` against a comparison of all pairs, and what is kept to find them."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.consolidation.stages.duplicates import find_duplicates, same_roles
from slumberd.consolidation.stages.entries import Entry
from slumberd.consolidation.stages.neighbours import comparable_of, compared_texts, find_near
from slumberd.consolidation.stages.similar_texts import NEGATIONS, wording_of
from slumberd.consolidation.stages.spellings import SpelledSets, spelled_share
from slumberd.model.stages import Dedup
from tests.consolidation.stages.test_duplicates import (
    entries_of,
    needs_rapidfuzz,
    of_all_pairs,
    similarities,
)
from tests.support.embedders import WordSums
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.unit, needs_rapidfuzz]

EMBED = WordSums().rows

CHAINS = ["brother", "bother", "mother", "other", "moths", "not", "nott", "tea", "sea", "2", "like"]
texts = st.lists(st.sampled_from(CHAINS) | st.text("abc", max_size=6), max_size=7).map(" ".join)
some_entries = st.lists(texts, max_size=9).map(lambda found: entries_of(*found))
word_sets = st.frozensets(st.sampled_from(CHAINS) | st.text("ab", min_size=3, max_size=6))


def spellings(left: str, right: str) -> bool:
    """Return whether two words become equal when at most one letter of each is left out."""
    if left == right:
        return True
    if any(word in NEGATIONS or not word.isalpha() for word in (left, right)):
        return False
    if not all(4 <= len(word) <= 32 for word in (left, right)):
        return False
    shortened = [
        {word, *(word[:place] + word[place + 1 :] for place in range(len(word)))}
        for word in (left, right)
    ]
    return not shortened[0].isdisjoint(shortened[1])


def groups_of(words: set[str]) -> dict[str, str]:
    """Return the first word of the group of each word: the words that chains of spellings join."""
    groups = {word: {word} for word in words}
    for left, right in combinations(sorted(words), 2):
        if spellings(left, right):
            joined = groups[left] | groups[right]
            groups.update(dict.fromkeys(joined, joined))
    return {word: min(group) for word, group in groups.items()}


def length_of_common(left: str, right: str) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for one in left:
        before = row
        row = [0]
        for place, other in enumerate(right):
            row.append(before[place] + 1 if one == other else max(row[-1], before[place + 1]))
    return row[-1]


def similarity_of(left: Entry, right: Entry, least: float) -> float | None:
    """Return the similarity of two entries; None when they are no duplicates."""
    one, other = wording_of(left.content), wording_of(right.content)
    if (one.numbers, one.negations) != (other.numbers, other.negations):
        return None
    if one.text == other.text:
        return 1.0
    words = [wording.words or (wording.text,) for wording in (one, other)]
    groups = groups_of({*words[0], *words[1]})
    spelled = [tuple(groups[word] for word in some) for some in words]
    sets = [frozenset(some) for some in spelled]
    share = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    both = len(one.text) + len(other.text)
    found = 1 - (both - 2 * length_of_common(one.text, other.text)) / both
    return found if found >= least and share >= 0.6 and same_roles(*spelled) else None


@settings(max_examples=amount(200, full=5_000))
@given(
    entries=some_entries,
    least=st.sampled_from([0.31, 0.61, 0.76, 0.91]),
    keep=st.sampled_from(["newest", "oldest"]),
)
def test_fuzzy_finds_what_a_comparison_of_all_pairs_finds(
    entries: list[Entry], least: float, keep: Any
) -> None:
    found = find_duplicates(entries, "fuzzy", similarity=least, keep=keep)

    expected = of_all_pairs(entries, least, keep, similarity_of)
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    assert [one.similarity for one in found] == pytest.approx([one[2] for one in expected])


def test_similarity_of_exactly_the_threshold_makes_a_duplicate() -> None:
    entries = entries_of("Ann likes the brown dog", "Ann likes the brown dogs")
    [found] = find_duplicates(entries, "fuzzy")

    assert find_duplicates(entries, "fuzzy", similarity=found.similarity) == [found]
    above = math.nextafter(found.similarity, 1)
    assert find_duplicates(entries, "fuzzy", similarity=above) == []


def test_other_texts_make_no_duplicates_of_two() -> None:
    brother, bother, mother = (f"my {word} called" for word in ("brother", "bother", "mother"))

    assert find_duplicates(entries_of(brother, mother), "fuzzy") == []
    assert find_duplicates(entries_of(brother, mother, "a bother it is"), "fuzzy") == []
    found = find_duplicates(entries_of(brother, mother, bother), "fuzzy")
    assert [(one.id, one.of) for one in found] == [("e0", "e2"), ("e1", "e2")]


@settings(max_examples=amount(200, full=5_000))
@given(st.lists(word_sets.filter(bool), max_size=8), word_sets.filter(bool))
def test_index_loses_no_set_that_shares_enough_words(
    kept: list[frozenset[str]], wanted: frozenset[str]
) -> None:
    sets = SpelledSets()
    for words in kept:
        sets.add(words)

    found = sets.candidates(wanted)

    shares = [spelled_share(wanted, words) for words in kept]
    assert {number for number, share in enumerate(shares) if share >= 0.6} <= {*found}
    assert found == sorted(set(found))


@settings(max_examples=amount(100, full=3_000))
@given(
    entries=some_entries,
    text=texts,
    method=st.sampled_from(["fuzzy", "vectors"]),
    least=similarities,
)
def test_kept_texts_lead_to_all_duplicates_of_a_text(
    entries: list[Entry], text: str, method: Any, least: float
) -> None:
    stages = [Dedup(method="exact"), Dedup(method=method, similarity=least)]
    [*kept, compared] = compared_texts(
        [comparable_of(entry) for entry in (*entries, *entries_of(text))], stages, EMBED
    )
    assert compared is not None
    rows = [
        (entry.id, one.text, one.vector)
        for entry, one in zip(entries, kept, strict=True)
        if one is not None and one.assertion == compared.assertion
    ]

    found = find_near([compared], rows, stages)

    for entry in entries:
        pair = [entry, Entry("new", "s1", text, 99)]
        if wording_of(text).text != wording_of(entry.content).text and find_duplicates(
            pair, method, similarity=least, embed=EMBED
        ):
            assert entry.id in found


def test_nothing_is_kept_of_texts_that_no_stage_compares_with_all() -> None:
    compared = [comparable_of(entry) for entry in entries_of("tea", "x" * 20_001)]

    assert compared_texts(compared, [Dedup()], EMBED) == [None, None]
    _, long = compared_texts(compared, [Dedup(method="fuzzy")], EMBED)
    assert long is not None
    assert (long.text, long.vector) == ("", b"")
