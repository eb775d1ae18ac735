"""Count the tokens of texts, exactly or roughly."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from slumberd.model.arguments import require_text

_CHARACTERS_PER_TOKEN = 4


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens as a language model does, or roughly."""

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text; never negative."""
        ...


class EstimatedTokens:
    """Estimates one token for four characters; implements `TokenCounter`.

    The estimate is rounded up, and at least 1, so that no entry is free.
    """

    def count_tokens(self, text: str) -> int:
        """Return the estimate for a text; 1 for an empty one."""
        require_text("text", text)
        return max(1, -(-len(text) // _CHARACTERS_PER_TOKEN))
