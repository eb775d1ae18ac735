"""What finds facts, among the facts of one scope."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.model.fact import Fact
from slumberd.retrieval.indexes import FactIndex
from tests.support.builders import START


def facts_of(*triples: tuple[Any, Any, Any]) -> list[Fact]:
    """Return facts with the ids f0, f1 and so on."""
    return [
        Fact(
            id=f"f{place}",
            user="alice",
            agent="rag",
            payload=dict(zip(("subject", "predicate", "object"), triple, strict=True)),
            lineage=[],
            confidence=0.9,
            pinned_at=START,
        )
        for place, triple in enumerate(triples)
    ]


def index_of(*triples: tuple[Any, Any, Any]) -> FactIndex:
    index = FactIndex(language="auto", vectors=False)
    index.replace(facts_of(*triples))
    return index


@pytest.mark.parametrize(
    ("name", "other"),
    [("will", "ada"), ("May", "ada"), ("Al", "ada"), ("US", "Oslo"), ("IT", "sales")],
)
def test_name_that_is_a_stop_word_is_found(name: str, other: str) -> None:
    index = index_of((other, "is known for", "tea"), (name, "is known for", "tea"))

    found = index.search(f"What is {name} known for?", limit=2)

    assert (found[0].id, found[0].score) == ("f1", 0.9)
    assert found[1].score < 0.9
    assert index.named_in(f"What is {name} known for?") == {"f1"}


def test_name_that_is_a_stop_word_of_another_language_is_found() -> None:
    index = index_of(("ben", "is", "in Bergen"))

    assert index.index.languages == ("dutch",)
    assert [match.id for match in index.search("Where is Ben?", limit=1)] == ["f0"]
    assert index.named_in("Where is Ben?") == {"f0"}


def test_name_without_facts_is_a_stop_word_again() -> None:
    index = index_of(("will", "likes", "tea"))

    index.replace(facts_of(("ada", "likes", "tea")))

    assert index.search("will", limit=1) == []
    [found] = index.search("Will ada have tea?", limit=1)
    assert found == index_of(("ada", "likes", "tea")).search("Will ada have tea?", limit=1)[0]


def test_exact_words_of_a_fact_have_the_score_1_beside_a_similar_name() -> None:
    index = index_of(("ada", "favourite_colour", "red"), ("favourites", "contain", "tea"))

    [first, *_] = index.search("ada favourite colour red", limit=2)

    assert (first.id, first.score) == ("f0", 1.0)
