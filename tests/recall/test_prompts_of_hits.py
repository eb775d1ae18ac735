"""Hits become prompts: by rank, with the sources of facts and the marks of replaced sentences."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.model.fact import Superseded
from slumberd.search.context import EstimatedTokens, quote
from slumberd.search.hits import Hit
from tests.recall.prompts_of_hits import lines_of, prompt_of
from tests.support.builders import START

pytestmark = [pytest.mark.unit, pytest.mark.slow]


def fields(id: str, text: str = "tea", **changes: Any) -> dict[str, Any]:
    return {
        "id": id, "kind": "episode", "score": 0.5, "lexical": 0.5, "vector": None, "text": text,
        "at": START, "user": "ann", "agent": "default", **changes,
    }  # fmt: skip


def hit(id: str, text: str = "tea", **changes: Any) -> Hit:
    return Hit(**fields(id, text, **changes))


MARK = Superseded(
    subject="ann", predicate="lives_in", object="Porto", kind="replaced", by="Braga", at=START,
    fact_id="e2", text="ann lives_in Braga",
)  # fmt: skip


def test_a_prompt_tells_quoted_episodes_from_the_sources_of_facts() -> None:
    prompt = prompt_of("text", [hit("f", kind="fact", sources=("b", "c")), hit("a")])

    assert prompt.ids == ["a"]
    assert prompt.sources == {"b", "c"}
    assert prompt.episodes == {"a", "b", "c"}


def test_a_prompt_knows_the_quoted_episodes_with_a_mark() -> None:
    prompt = prompt_of("text", [hit("a"), Hit(**fields("b"), superseded=(MARK,))])

    assert prompt.marked == {"b"}


def test_the_lines_of_hits_have_the_tokens_of_their_quotes() -> None:
    hits = [hit("b", "tea " * 40), Hit(**fields("a"), superseded=(MARK,))]

    lines = lines_of(hits)

    assert [line.id for line in lines] == ["b", "a"]
    assert [line.marked for line in lines] == [False, True]
    one, two = (quote([one]).split("\n")[2] for one in hits)
    assert "tea tea" in one
    tokens = EstimatedTokens()
    assert [line.tokens for line in lines] == [
        tokens.count_tokens(one) + 1,
        tokens.count_tokens(two) + 1,
    ]
