"""The contract of every text comparer: which earlier texts are near, and how near."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slumberd.model.errors import StoppedError
from slumberd.search.embeddings import WordEmbedder
from slumberd.search.vectors import TextComparer
from tests.support.fakes import FakeComparer

pytestmark = pytest.mark.unit

TEA = "alice drinks tea in the morning"
BRIDGE = "the bridge closed because of ice"


@pytest.fixture(params=[FakeComparer, WordEmbedder], ids=["fake", "words"])
def comparer(request: pytest.FixtureRequest) -> TextComparer:
    comparer_class: Callable[[], TextComparer] = request.param
    return comparer_class()


def numbers(comparer: TextComparer, *texts: str, first: int = 0, most: int = 10) -> list[list[int]]:
    found = comparer.near(texts, first=first, least=0.9, most=most)
    return [[number for number, _ in near] for near in found]


def test_text_is_near_to_equal_texts_before_it(comparer: TextComparer) -> None:
    assert numbers(comparer, TEA, BRIDGE, TEA, TEA) == [[], [], [0], [0, 2]]


def test_comparison_begins_with_the_given_text(comparer: TextComparer) -> None:
    assert numbers(comparer, TEA, TEA, TEA, first=2) == [[0, 1]]
    assert numbers(comparer, TEA, first=1) == []


def test_text_is_compared_with_a_bounded_number_of_texts(comparer: TextComparer) -> None:
    assert numbers(comparer, TEA, BRIDGE, TEA, TEA, most=1) == [[], [], [], [2]]


def test_cosine_of_near_texts_is_at_most_one(comparer: TextComparer) -> None:
    [_, near] = comparer.near([TEA, TEA], first=0, least=0.9, most=10)

    assert [number for number, _ in near] == [0]
    assert 0.999 < near[0][1] <= 1


def test_text_without_words_is_near_to_no_text(comparer: TextComparer) -> None:
    assert numbers(comparer, "", "", TEA, "") == [[], [], [], []]


def test_cancelled_comparison_ends(comparer: TextComparer) -> None:
    # The embedder caches vectors: it checks for cancellation only when it computes some.
    unseen = ["this text is in no other test", "and neither is that text"]

    with pytest.raises(StoppedError):
        next(comparer.near(unseen, first=1, least=0.9, most=10, cancelled=lambda: True))
