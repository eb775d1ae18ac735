"""Embeddings by the model of the extra ``vectors``."""

from __future__ import annotations

import sys
from math import isclose
from typing import Any

import numpy as np
import pytest

from slumberd.errors import ExtraMissingError, StoppedError
from slumberd.retrieval.embeddings import LONGEST, WordEmbedder, _Words, _words

pytestmark = pytest.mark.unit

NEAR = ("Ada drinks green tea every morning", "Every morning Ada drinks green tea.")
FAR = "The meeting was moved to room 12"


def product(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_texts_that_speak_of_the_same_are_near() -> None:
    one, other, far = WordEmbedder().embed([*NEAR, FAR])
    assert product(one, other) > 0.9
    assert product(one, far) < 0.3


def test_opposites_are_as_near_as_restatements() -> None:
    yes, no, again = WordEmbedder().embed(["ada likes tea", "ada dislikes tea", "ada prefers tea"])
    assert product(yes, no) > product(yes, again) - 0.1


@pytest.mark.parametrize("text", ["x", "tea " * 5_000, "茶が好き", "\ud800"])
def test_every_text_has_a_vector_of_length_one(text: str) -> None:
    [vector] = WordEmbedder().embed([text])
    assert len(vector) == 256
    assert isclose(product(vector, vector), 1.0, rel_tol=1e-5)


def test_a_text_without_words_has_no_direction() -> None:
    [vector] = WordEmbedder().embed([""])
    assert set(vector) == {0.0}
    assert WordEmbedder().embed([]) == []


def test_a_text_alone_has_the_vector_that_it_has_among_others() -> None:
    embedder = WordEmbedder()
    [alone] = embedder.embed([NEAR[0]])
    among, *_ = embedder.embed([NEAR[0], FAR * 50])
    assert product(alone, among) == pytest.approx(1.0)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    _words.cache_clear()
    with pytest.raises(ExtraMissingError, match=r"slumberd\[vectors\]") as caught:
        WordEmbedder()
    assert caught.value.extra == "vectors"


def test_each_text_is_compared_with_those_before_it() -> None:
    texts = [NEAR[0], FAR, NEAR[1], "", NEAR[0]]
    near = [*WordEmbedder().near(texts, first=1, least=0.9, most=4)]
    assert [[number for number, _ in found] for found in near] == [[], [0], [], [0, 2]]
    assert all(0.9 <= cosine <= 1 for found in near for _, cosine in found)


def test_it_looks_back_no_further_than_it_is_told() -> None:
    texts = [NEAR[0], *[f"{FAR} {number}" for number in range(400)], NEAR[1]]
    embedder = WordEmbedder()
    [*_, last] = embedder.near(texts, first=1, least=0.9, most=401)
    assert [number for number, _ in last] == [0]
    [*_, last] = embedder.near(texts, first=1, least=0.9, most=400)
    assert last == []


def test_cached_vector_equals_the_computed_one() -> None:
    words = _Words(_words()._model, most_cached=1)
    first = words.directions([*NEAR, FAR])

    again = words.directions([FAR, *NEAR, FAR])

    assert again.tolist() == [first[2].tolist(), *first.tolist()]
    assert len(words._cache) == 1


class Model:
    """A model that remembers how long the texts were that it took together."""

    def __init__(self) -> None:
        self.taken: list[list[int]] = []

    def embed(self, texts: list[str]) -> Any:
        self.taken.append([len(text) for text in texts])
        return np.ones((len(texts), 256), np.float32)


def test_only_the_beginning_of_a_long_text_counts() -> None:
    model = Model()
    beginning = "tea " * (LONGEST // 4)

    _Words(model).directions([beginning + "a" * 10_000_000, beginning + "b"])

    assert model.taken == [[LONGEST]]


def test_a_long_text_makes_no_others_long() -> None:
    model = Model()
    texts = [f"{'a' * 60_000}{number}" for number in range(4)]

    _Words(model).directions([*(f"tea {number}" for number in range(100)), *texts])

    assert all(len(lengths) * max(lengths) <= 2 * LONGEST for lengths in model.taken)
    assert sum(map(len, model.taken)) == 104


def test_what_takes_the_model_many_steps_is_cut_by_its_bytes() -> None:
    model = Model()

    _Words(model).directions(["\N{GRINNING FACE}" * LONGEST])

    assert model.taken == [[LONGEST // 2]]


def test_vectors_that_were_found_until_it_was_late_are_kept() -> None:
    model = Model()
    words = _Words(model)
    texts = [f"{'a' * 60_000}{number}" for number in range(6)]

    with pytest.raises(StoppedError):
        words.directions(texts, lambda: len(model.taken) == 2)
    words.directions(texts)

    assert [len(lengths) for lengths in model.taken] == [2, 2, 2]


def test_a_comparison_ends_when_it_is_late() -> None:
    with pytest.raises(StoppedError):
        next(
            WordEmbedder().near(
                ["one text", "two"], first=1, least=0, most=1, cancelled=lambda: True
            )
        )
