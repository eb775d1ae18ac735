"""Find, among the hits of one answer, later turns of a session that say nearly the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from slumberd.model.texts import without_recalled
from slumberd.retrieval.hits import Hit, SimilarTurn
from slumberd.retrieval.terms import Analyser

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
