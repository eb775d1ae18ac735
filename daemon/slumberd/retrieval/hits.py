"""What a search returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from slumberd.model.superseded import Superseded

Kind = Literal["episode", "fact"]
Trust = Literal["said", "derived", "extracted", "declared", "corrected"]
"""Who stands for a text: a speaker, a rule that promoted what a program stated, a rule that found
it in a text, another program, or a person who corrected it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarTurn:
    """A later episode of the same session whose speaker uses nearly the same words.

    Attributes:
        id: The episode.
        at: When it was said, in UTC.
    """

    id: str
    at: datetime


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
        superseded: Of an episode, its claims that are not current any more, each with what is
            current in its place. Its other claims are current.
        similar_later: The later episodes in the same answer that say nearly the same, oldest first.
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
    superseded: tuple[Superseded, ...] = ()
    similar_later: tuple[SimilarTurn, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the hit as values of JSON, ``id``, ``kind`` and ``score`` first."""
        return {
            **asdict(self),
            "at": self.at.isoformat(),
            "sources": [*self.sources],
            "superseded": [_dated(one) for one in self.superseded],
            "similar_later": [_dated(one) for one in self.similar_later],
        }


def _dated(part: Superseded | SimilarTurn) -> dict[str, Any]:
    return {**asdict(part), "at": part.at.isoformat()}
