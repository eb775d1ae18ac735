"""Turn the hits of slumberd into prompts."""

from __future__ import annotations

from collections.abc import Sequence

from slumberd.search.context import EstimatedTokens, quote
from slumberd.search.hits import Hit
from tests.recall.engine import Line, Prompt

_TOKENS = EstimatedTokens()
_END_OF_LINE = 1

_BEFORE = 2
"""So many lines of a context are before the first item."""

FRAME = _TOKENS.count_tokens(quote(()))
"""The tokens of the two marks and the notice around the lines of a context."""


def prompt_of(text: str, hits: Sequence[Hit]) -> Prompt:
    """Return a context with its items."""
    quoted = [hit for hit in hits if hit.kind == "episode"]
    sources = frozenset(id for hit in hits if hit.kind == "fact" for id in hit.sources)
    marked = frozenset(hit.id for hit in quoted if _is_marked(hit))
    return Prompt(text, [hit.id for hit in quoted], sources, marked)


def lines_of(hits: Sequence[Hit]) -> list[Line]:
    """Return hits as the lines that quote them in a context, which counts each line by itself."""
    return [
        Line(hit.id, _TOKENS.count_tokens(_line_of(hit)) + _END_OF_LINE, _is_marked(hit))
        for hit in hits
    ]


def _is_marked(hit: Hit) -> bool:
    return bool(getattr(hit, "superseded", ()))


def _line_of(hit: Hit) -> str:
    return "\n".join(quote([hit]).split("\n")[_BEFORE:-1])
