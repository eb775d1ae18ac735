"""The generated texts are the same in each run, and every figure of the latency is measured."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.recall import latency
from tests.recall.generated import Generator
from tests.recall.samples import plain

pytestmark = [pytest.mark.unit, pytest.mark.slow]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_texts() -> None:
    assert [*Generator(5).episodes("ann", 30)] == [*Generator(5).episodes("ann", 30)]
    assert [*Generator(5).episodes("ann", 3)] != [*Generator(6).episodes("ann", 3)]


def test_few_words_are_frequent_and_many_are_rare() -> None:
    words = Counter(
        word for episode in Generator().episodes("ann", 500) for word in episode.content.split()
    )

    assert words["the"] > len(words) / 10
    assert sum(count == 1 for count in words.values()) > len(words) / 3


def test_a_question_has_words_of_its_text() -> None:
    generator = Generator()
    (episode,) = generator.episodes("ann", 1)

    assert len(set(generator.question(episode.content).split()) & set(episode.content.split())) >= 3


async def test_every_figure_of_the_latency_is_measured() -> None:
    figures = await latency.measure([plain], latency.Size(records=200, users=4, questions=8))

    assert [figure.name for figure in figures] == [
        "storing",
        "one user, first search",
        *(f"one user, {what}" for what in ("p50", "p95", "p50 of processor")),
        *(f"4 users, first searches, {what}" for what in ("p50", "p95", "p50 of processor")),
        *(f"4 users, {what}" for what in ("p50", "p95", "p50 of processor")),
        "a user among others, to alone",
    ]
    assert all(figure.value > 0 for figure in figures)
