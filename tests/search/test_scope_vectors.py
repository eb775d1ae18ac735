"""Meanings in the index of one scope: exact after any change, and for the neighbours, too."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.search.embeddings import word_table
from slumberd.search.scope_index import IndexedTurn, ScopeIndex
from slumberd.search.term_index import Neighbours
from tests.support.late_imports import LateModule

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from slumberd.search import scope_vectors
else:
    np = LateModule("numpy")
    scope_vectors = LateModule("slumberd.search.scope_vectors")


SENTENCES = [
    "I adopted a small dog from the shelter",
    "My sister plays the violin in an orchestra",
    "We flew to Lisbon in the spring",
    "The doctor told me to sleep more",
    "He repairs old motorcycles",
    "Yes, every week",
    "The bakery closes at noon",
    "She studies law in Hamburg",
]


def turns(count: int = len(SENTENCES), session: str = "s") -> list[IndexedTurn]:
    return [
        IndexedTurn(f"t{number}", text, session, 10**15 + number, "Ann")
        for number, text in enumerate(SENTENCES[:count])
    ]


def test_text_with_the_meaning_and_no_word_of_the_question_is_found() -> None:
    index = ScopeIndex(language="english", vectors=True)
    index.put(turns(session=""))

    best = index.search("Which pet does she have?")[0]

    assert best.id == "t0"
    assert best.lexical == 0
    assert best.vector is not None
    assert best.score == pytest.approx(0.9 * 2.2 * 0.4 * best.vector)


def test_cosine_is_that_of_the_definition() -> None:
    index = ScopeIndex(vectors=True)
    some = turns(4)
    index.put(some)

    found = {match.id: match.vector for match in index.search("violin in the orchestra")}

    assert found.items() <= defined_cosines(some, "violin in the orchestra").items()


class _Near(float):
    """A number that is equal to numbers near to it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(other - float(self)) < 1e-4

    def __hash__(self) -> int:
        return 0


def defined_cosines(some: list[IndexedTurn], query: str) -> dict[str, _Near]:
    """Return the cosines of the turns of one session, in order, computed one by one."""
    table = word_table()
    texts = table.encode([f"{one.speaker} {one.text} {one.extra}" for one in some])
    counts = np.zeros(len(table.vectors))
    for tokens in texts:
        counts[sorted(set(tokens.tolist()))] += 1
    total = 2.0 ** round(np.log2(len(some)))
    rounded = 2.0 ** np.round(np.log2(np.maximum(counts, 0.5)))
    weights = np.log(1 + (total - np.minimum(rounded, total) + 0.5) / (rounded + 0.5))

    def unit(vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(vector / np.linalg.norm(vector), np.float64)

    own = [unit((table.vectors[tokens] * weights[tokens][:, None]).sum(0)) for tokens in texts]
    with_neighbours = []
    for place, vector in enumerate(own):
        together = vector.copy()
        for step, weight in ((-1, 0.6), (-2, 0.3), (1, 0.2), (2, 0.1)):
            if 0 <= place + step < len(own):
                together += weight * own[place + step]
        with_neighbours.append(unit(together))
    mean = np.mean(with_neighbours, axis=0)
    [tokens] = table.encode([query])
    asked = unit(unit((table.vectors[tokens] * weights[tokens][:, None]).sum(0)) - mean)
    return {
        one.id: _Near(unit(vector - mean) @ asked)
        for one, vector in zip(some, with_neighbours, strict=True)
    }


@pytest.mark.slow
@given(st.lists(st.sampled_from(range(len(SENTENCES))), max_size=12), st.randoms())
@settings(max_examples=25, deadline=None)
def test_history_of_changes_has_no_effect(dropped: list[int], shuffling: random.Random) -> None:
    index = ScopeIndex(vectors=True)
    some = turns()
    for one in shuffling.sample(some, len(some)):
        index.put([one])
        index.search("violin")
    for number in dropped:
        index.drop([f"t{number}"])
        index.search("dog")
    for number in dropped[:3]:
        index.put([some[number]])
    left = {*range(len(some))} - {*dropped[3:]} | {*dropped[:3]}
    fresh = ScopeIndex(vectors=True)
    fresh.put(some[number] for number in sorted(left))

    found, expected = index.search("violin dog law"), fresh.search("violin dog law")

    assert {one.id: one.score for one in found} == pytest.approx(
        {one.id: one.score for one in expected}, abs=1e-4
    )


def test_text_without_words_has_no_meaning() -> None:
    index = ScopeIndex(vectors=True)
    index.put([IndexedTurn("a", ""), IndexedTurn("b", "violin")])

    assert [match.id for match in index.search("violin")] == ["b"]
    assert index.search("") == []


def test_empty_index_finds_nothing() -> None:
    assert ScopeIndex(vectors=True).search("violin") == []


def test_words_of_a_removed_text_are_forgotten() -> None:
    neighbours = Neighbours()
    vectors = scope_vectors.ScopeVectors(neighbours)
    for number, text in enumerate(["zeppelin", "bicycle"]):
        neighbours.append(number, "", 0, text)
        vectors.append(text, short=True)
    [zeppelin, *_] = word_table().encode(["zeppelin"])[0]
    vectors.cosines("bicycle")
    assert zeppelin in kept_words(vectors)

    vectors.remove(0)
    vectors.cosines("bicycle")

    assert zeppelin not in kept_words(vectors)


def kept_words(vectors: scope_vectors.ScopeVectors) -> set[int]:
    """Return the numbers of all words that an index keeps in order; one number a word."""
    return {int(word) for word in vars(vectors)["_words"]}
