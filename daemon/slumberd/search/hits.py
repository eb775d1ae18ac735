"""What a search returns, and which later turns among it say nearly the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

from slumberd.model.fact import Superseded
from slumberd.model.texts import without_recalled
from slumberd.search.terms import Analyser

Kind = Literal["episode", "fact"]
KINDS: tuple[Kind, ...] = ("episode", "fact")
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


LEAST_SIMILARITY = 0.6
"""Two turns are similar when they share at least this part of all their words (Jaccard)."""

_LEAST_WORDS = 3
"""Shorter turns, such as "Thank you!", are alike without being about the same."""

MOST_COMPARED = 50
"""So many hits are compared."""

_MOST_CHARACTERS = 1_000
"""Longer turns are not compared: two long replies with the same words are still two replies."""

_PLAIN = Analyser()


def name_similar_turns(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits, each with the later turns that are similar: same session, same speaker.

    Args:
        hits: The hits of one answer, best first; only the first `MOST_COMPARED` are compared.
    """
    said: dict[tuple[str, ...], list[Hit]] = defaultdict(list)
    for hit in hits[:MOST_COMPARED]:
        if hit.kind == "episode" and len(hit.text) <= _MOST_CHARACTERS:
            said[hit.user, hit.agent, hit.session, hit.speaker].append(hit)
    later = {
        hit.id: tuple(SimilarTurn(id=one.id, at=one.at) for one in found)
        for turns in said.values()
        if len(turns) > 1
        for hit, found in _later_turns(turns)
    }
    if not later:
        return [*hits]
    return [
        replace(hit, similar_later=later[hit.id])
        if hit.kind == "episode" and hit.id in later
        else hit
        for hit in hits
    ]


def _later_turns(turns: Sequence[Hit]) -> Iterator[tuple[Hit, list[Hit]]]:
    """Yield the turns of one speaker in one session that have similar later ones, with these."""
    read = [
        (turn, words)
        for turn in sorted(turns, key=lambda turn: (turn.at, turn.id))
        if len(words := frozenset(_PLAIN.terms(without_recalled(turn.text)))) >= _LEAST_WORDS
    ]
    for place, (turn, words) in enumerate(read):
        found = [other for other, others in read[place + 1 :] if _are_similar(words, others)]
        if found:
            yield turn, found


def _are_similar(left: frozenset[str], right: frozenset[str]) -> bool:
    smaller, larger = sorted((len(left), len(right)))
    if smaller < LEAST_SIMILARITY * larger:
        return False
    common = len(left & right)
    return common >= LEAST_SIMILARITY * (len(left) + len(right) - common)
