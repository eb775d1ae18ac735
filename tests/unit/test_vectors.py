"""Embeddings by the model of the extra ``vectors``."""

from __future__ import annotations

import sys
from math import isclose

import pytest

from slumberd.errors import ExtraMissingError
from slumberd.vectors import WordEmbedder, _model, check_vectors

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
    assert isclose(product(vector, vector), 1.0)


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
    _model.cache_clear()
    with pytest.raises(ExtraMissingError, match=r"slumberd\[vectors\]") as caught:
        WordEmbedder()
    assert caught.value.extra == "vectors"


def test_whether_texts_can_be_compared_is_told_without_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_vectors("nothing is compared")
    monkeypatch.setattr("slumberd.vectors.find_spec", lambda _: None)

    with pytest.raises(ExtraMissingError, match=r"^nothing is compared: install .*\[vectors\]"):
        check_vectors("nothing is compared")
