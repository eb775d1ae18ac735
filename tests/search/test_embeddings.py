"""Embeddings by the model of the extra ``vectors``."""

from __future__ import annotations

import sys
from math import isclose
from typing import TYPE_CHECKING, Any

import pytest

from slumberd.model.errors import ExtraMissingError, StoppedError
from slumberd.search.embeddings import LONGEST, WordEmbedder, _model, _Words, _words
from tests.support.late_imports import LateModule

if TYPE_CHECKING:
    import numpy as np
else:
    np = LateModule("numpy")


pytestmark = pytest.mark.unit

NEAR = ("Ada drinks green tea every morning", "Every morning Ada drinks green tea.")
FAR = "The meeting was moved to room 12"


def product(left: tuple[float, ...], right: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


@pytest.mark.slow
def test_restatements_are_near() -> None:
    statement, restatement, far = WordEmbedder().embed([*NEAR, FAR])
    assert product(statement, restatement) > 0.9
    assert product(statement, far) < 0.3


def test_opposites_are_as_near_as_restatements() -> None:
    likes, dislikes, prefers = WordEmbedder().embed(
        ["ada likes tea", "ada dislikes tea", "ada prefers tea"]
    )
    assert product(likes, dislikes) > product(likes, prefers) - 0.1


@pytest.mark.parametrize("text", ["x", "tea " * 5_000, "茶が好き", "\ud800"])
def test_every_text_has_a_vector_of_length_one(text: str) -> None:
    [vector] = WordEmbedder().embed([text])
    assert len(vector) == 256
    assert isclose(product(vector, vector), 1.0, rel_tol=1e-5)


def test_a_text_without_words_has_a_vector_of_zeros() -> None:
    [vector] = WordEmbedder().embed([""])
    assert set(vector) == {0.0}
    assert WordEmbedder().embed([]) == []


def test_the_vector_of_a_text_does_not_depend_on_other_texts() -> None:
    embedder = WordEmbedder()
    [alone] = embedder.embed([NEAR[0]])
    among, *_ = embedder.embed([NEAR[0], FAR * 50])
    assert product(alone, among) == pytest.approx(1.0)


def test_without_the_extra_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    _model.cache_clear()
    _words.cache_clear()
    with pytest.raises(ExtraMissingError, match=r"slumberd\[vectors\]") as caught:
        WordEmbedder()
    assert caught.value.extra == "vectors"


@pytest.mark.slow
def test_each_text_is_compared_with_the_texts_before_it() -> None:
    texts = [NEAR[0], FAR, NEAR[1], "", NEAR[0]]
    near = [*WordEmbedder().near(texts, first=1, least=0.9, most=4)]
    assert [[number for number, _ in found] for found in near] == [[], [0], [], [0, 2]]
    assert all(0.9 <= cosine <= 1 for found in near for _, cosine in found)


@pytest.mark.slow
def test_a_text_is_compared_with_at_most_the_given_number_of_texts_before_it() -> None:
    texts = [NEAR[0], *[f"{FAR} {number}" for number in range(400)], NEAR[1]]
    embedder = WordEmbedder()
    [*_, last] = embedder.near(texts, first=1, least=0.9, most=401)
    assert [number for number, _ in last] == [0]
    [*_, last] = embedder.near(texts, first=1, least=0.9, most=400)
    assert last == []


def test_cached_vector_equals_the_computed_one() -> None:
    embedder = _Words(_words()._model, most_cached=1)
    first = embedder.directions([*NEAR, FAR])

    again = embedder.directions([FAR, *NEAR, FAR])

    assert again.tolist() == [first[2].tolist(), *first.tolist()]
    assert len(embedder._cache) == 1


class Model:
    """A model that records the lengths of the texts of each call."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def embed(self, texts: list[str]) -> Any:
        self.calls.append([len(text) for text in texts])
        return np.ones((len(texts), 256), np.float32)


def test_only_the_beginning_of_a_long_text_is_embedded() -> None:
    model = Model()
    beginning = "tea " * (LONGEST // 4)

    _Words(model).directions([beginning + "a" * 10_000_000, beginning + "b"])

    assert model.calls == [[LONGEST]]


def test_a_long_text_pads_only_few_other_texts() -> None:
    model = Model()
    texts = [f"{'a' * 60_000}{number}" for number in range(4)]

    _Words(model).directions([*(f"tea {number}" for number in range(100)), *texts])

    assert all(len(lengths) * max(lengths) <= 2 * LONGEST for lengths in model.calls)
    assert sum(map(len, model.calls)) == 104


def test_a_text_of_unknown_characters_is_cut_by_its_bytes() -> None:
    model = Model()

    _Words(model).directions(["\N{GRINNING FACE}" * LONGEST])

    assert model.calls == [[LONGEST // 2]]


def test_vectors_computed_before_a_cancellation_stay_in_the_cache() -> None:
    model = Model()
    embedder = _Words(model)
    texts = [f"{'a' * 60_000}{number}" for number in range(6)]

    with pytest.raises(StoppedError):
        embedder.directions(texts, lambda: len(model.calls) == 2)
    embedder.directions(texts)

    assert [len(lengths) for lengths in model.calls] == [2, 2, 2]


def test_a_cancelled_comparison_ends() -> None:
    with pytest.raises(StoppedError):
        next(
            WordEmbedder().near(
                ["first text", "second"], first=1, least=0, most=1, cancelled=lambda: True
            )
        )
