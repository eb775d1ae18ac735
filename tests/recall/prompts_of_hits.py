"""Turn the hits of slumberd into prompts."""

from __future__ import annotations

from collections.abc import Sequence

from slumberd.retrieval.context import quote
from slumberd.retrieval.hits import Hit
from slumberd.retrieval.token_counter import EstimatedTokens
from tests.recall.engine import Prompt

RANKED = 50
"""So many hits a context chooses among."""

_TOKENS = EstimatedTokens()


def prompt_of(text: str, hits: Sequence[Hit]) -> Prompt:
    """Return a context with its items."""
    quoted = [hit for hit in hits if hit.kind == "episode"]
    sources = frozenset(id for hit in hits if hit.kind == "fact" for id in hit.sources)
    marked = frozenset(hit.id for hit in quoted if getattr(hit, "superseded", ()))
    return Prompt(text, [hit.id for hit in quoted], sources, marked)


def fill_by_rank(hits: Sequence[Hit], budget: int) -> Prompt:
    """Return the first hits, quoted as a context quotes them, until one exceeds the budget."""
    taken: list[Hit] = []
    for hit in hits:
        if _TOKENS.count_tokens(quote([*taken, hit])) > budget:
            break
        taken.append(hit)
    return prompt_of(quote(taken), taken)
