"""What a search returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

Kind = Literal["episode", "fact"]
Trust = Literal["said", "derived", "extracted", "declared", "corrected"]
"""Who stands for a text: a speaker, a rule that promoted what a program stated, a rule that found
it in a text, another program, or a person who corrected it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An episode or a fact that answers a question.

    Attributes:
        id: Its id.
        kind: What it is.
        score: How much of the question it answers, 0 to 1. A search returns no hit with 0.
        lexical: The part of the words, 0 to 1.
        vector: The cosine of the meanings, -1 to 1; None without vectors.
        text: The episode's content, or the fact in words.
        at: When it was said, in UTC.
        user: From its scope.
        agent: From its scope.
        session: From its scope; empty for a fact.
        speaker: Who said it; empty when unknown.
        trust: Who stands for it.
        confidence: A fact's confidence, 0 to 1; None for an episode.
        sources: The ids of the episodes that a fact comes from.
    """

    id: str
    kind: Kind
    score: float
    lexical: float
    vector: float | None
    text: str
    at: datetime
    user: str
    agent: str
    session: str = ""
    speaker: str = ""
    trust: Trust = "said"
    confidence: float | None = None
    sources: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the hit as values of JSON, ``id``, ``kind`` and ``score`` first."""
        return {**asdict(self), "at": self.at.isoformat(), "sources": [*self.sources]}
