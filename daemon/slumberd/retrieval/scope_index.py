"""Index the texts of one scope in memory, and find those that answer a question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from slumberd.model.episode import instant
from slumberd.retrieval.neighbours import NONE, Neighbours
from slumberd.retrieval.scope_vectors import ScopeVectors
from slumberd.retrieval.term_index import CHOSEN, SHORT, Allows, Concept, TermIndex
from slumberd.retrieval.terms import Analyser

VECTOR_WEIGHT = 0.4
"""A text without a word of the question, but with its meaning, has this score."""

_DAY = 86_400_000_000
"""Microseconds."""

_DIGITS = 8
"""Decimals of a score: sums of the same numbers in another order are equal then."""

_MOST_REMOVED = 1_000
"""The index is rebuilt when it holds more removed texts than this, and than others."""


class IndexedTurn(NamedTuple):
    """A text that can be found.

    Attributes:
        id: Unique in the index.
        text: The text.
        session: The conversation that it belongs to; empty for a text without neighbours.
        at: When it was said, microseconds since 1970 UTC; 0 for a text without a date.
        speaker: Who said it.
        extra: Other words about it, such as the caption of a picture.
    """

    id: str
    text: str
    session: str = ""
    at: int = 0
    speaker: str = ""
    extra: str = ""


class Match(NamedTuple):
    """A text that was found.

    Attributes:
        id: Its id.
        score: How much of the question it answers, above 0 and up to 1.
        lexical: The part of the words, 0 to 1.
        vector: The cosine of the meanings, -1 to 1; None without vectors.
    """

    id: str
    score: float
    lexical: float
    vector: float | None = None


Accept = Callable[[str], bool]
"""Returns whether the text with an id may be found."""


class ScopeIndex:
    """The texts of one scope.

    A result depends on the set of the texts only, not on the order in which they came. Use one
    index in one thread at a time.

    Args:
        language: The language of the texts, one of `terms.LANGUAGES`; None stems no word.
        vectors: Whether meanings count, too; needs the extra ``vectors``.

    Raises:
        ExtraMissingError: The extra ``vectors`` is not installed.
        UsageError: The language is unknown.
    """

    def __init__(self, *, language: str | None = None, vectors: bool = False) -> None:
        self._analyser = Analyser(language)
        self._has_vectors = vectors
        self._begin()

    def _begin(self) -> None:
        self._numbers: dict[str, int] = {}
        self._turns: list[IndexedTurn | None] = []
        self._speakers: dict[str, frozenset[str]] = {}
        self._days: dict[int, frozenset[str]] = {}
        self._neighbours = Neighbours()
        self._words = TermIndex(self._neighbours)
        self._vectors = ScopeVectors(self._neighbours) if self._has_vectors else None

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    @property
    def size_bytes(self) -> int:
        """About how much memory the index takes."""
        vectors = self._vectors.size_bytes if self._vectors is not None else 0
        return self._words.size_bytes + vectors

    def put(self, turns: Iterable[IndexedTurn]) -> None:
        """Add texts; a text with the id of another replaces it."""
        for turn in turns:
            if turn.id in self._numbers:
                self._remove(turn.id)
            self._add(turn)
        self._rebuild_if_sparse()

    def drop(self, ids: Iterable[str]) -> None:
        """Remove texts; unknown ids are ignored."""
        for id in ids:
            if id in self._numbers:
                self._remove(id)
        self._rebuild_if_sparse()

    def _add(self, turn: IndexedTurn) -> None:
        number = len(self._turns)
        self._numbers[turn.id] = number
        self._turns.append(turn)
        analyser = self._analyser
        terms = analyser.terms(f"{turn.text} {turn.extra}" if turn.extra else turn.text)
        names, dates = self._names_of(turn.speaker), self._dates_of(turn.at)
        self._neighbours.append(number, turn.session, turn.at, turn.id)
        self._words.append((turn.at, turn.id), terms, names, dates)
        if self._vectors is not None:
            text = f"{turn.speaker} {turn.text} {turn.extra}"
            self._vectors.append(text, short=len(terms) <= SHORT)

    def _names_of(self, speaker: str) -> frozenset[str]:
        found = self._speakers.get(speaker)
        if found is None:
            found = self._speakers[speaker] = frozenset(self._analyser.terms(speaker))
        return found

    def _dates_of(self, at: int) -> frozenset[str]:
        if not at:
            return frozenset()
        day = at // _DAY
        found = self._days.get(day)
        if found is None:
            found = self._days[day] = frozenset(self._analyser.date_terms(instant(at)))
        return found

    def _remove(self, id: str) -> None:
        number = self._numbers.pop(id)
        turn = self._turns[number]
        if turn is not None:
            self._neighbours.remove(number, turn.session, turn.at, turn.id)
            self._speakers.pop(turn.speaker, None)
        self._turns[number] = None
        self._words.remove(number)
        if self._vectors is not None:
            self._vectors.remove(number)

    def _rebuild_if_sparse(self) -> None:
        removed = len(self._turns) - len(self._numbers)
        if removed > max(_MOST_REMOVED, len(self._numbers)):
            left = [turn for turn in self._turns if turn is not None]
            self._begin()
            self.put(left)

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        least: float = 0.0,
        accept: Accept | None = None,
        aliases: Sequence[Sequence[str]] = (),
    ) -> list[Match]:
        """Return the texts that answer a question best, best first; equal scores by id.

        Args:
            query: The question.
            limit: At most this many.
            least: The least score. A text with a score of 0 is never returned.
            accept: Chooses the texts that may be found, before they are ranked.
            aliases: Groups of names that mean the same.
        """
        if limit < 1:
            return []
        concepts = self._concepts(query, aliases)
        allows = None if accept is None else self._allowance(accept)
        most = sum(concept.most for concept in concepts) or 1.0
        if self._vectors is None:
            scores = self._words.score(concepts, most=max(limit, CHOSEN), allows=allows)
            found = [self._match(number, score / most) for number, score in scores.items()]
        else:
            found = self._blend(query, concepts, most, max(limit, CHOSEN), allows)
        found = [match for match in found if match.score > 0 and match.score >= least]
        found.sort(key=lambda match: (-match.score, match.id))
        return found[:limit]

    def _blend(
        self,
        query: str,
        concepts: Sequence[Concept],
        most: float,
        limit: int,
        allows: Allows | None,
    ) -> list[Match]:
        """Return the best texts by words and the best by meaning, with both scores."""
        assert self._vectors is not None  # noqa: S101 # the caller has looked
        cosines = self._vectors.cosines(query)
        nearest = self._vectors.nearest(cosines, limit, allows)
        scores = self._words.score(concepts, most=limit, also=nearest, allows=allows)
        return [
            self._match(number, score / most, float(cosines[number]))
            for number, score in scores.items()
        ]

    def previous(self, id: str) -> str | None:
        """Return the id of the text before another in its session; None when there is none."""
        number = self._neighbours.previous[self._numbers[id]]
        turn = self._turns[number] if number != NONE else None
        return None if turn is None else turn.id

    def _concepts(self, query: str, aliases: Sequence[Sequence[str]]) -> list[Concept]:
        """Return what a question asks for; a name in it also stands for its aliases."""
        terms = self._analyser.query_terms(query)
        others: Mapping[str, dict[str, None]] = {term: {} for term in terms}
        for group in aliases:
            names = [self._analyser.terms(name) for name in group]
            for name in names:
                if name and set(name) <= others.keys():
                    same = [term for other in names if other != name for term in other]
                    for term in name:
                        others[term].update(dict.fromkeys(same))
        return [self._words.concept([term, *others[term]]) for term in terms]

    def _allowance(self, accept: Accept) -> Allows:
        """Return whether a number may be found; each one is asked about once."""
        known: dict[int, bool] = {}

        def allows(number: int) -> bool:
            found = known.get(number)
            if found is None:
                turn = self._turns[number]
                found = known[number] = turn is not None and accept(turn.id)
            return found

        return allows

    def _match(self, number: int, lexical: float, cosine: float | None = None) -> Match:
        turn = self._turns[number]
        assert turn is not None  # noqa: S101 # removed texts have no score
        # Words and meaning are two signs. The text fails the question only as far as both fail.
        score = 1 - (1 - lexical) * (1 - VECTOR_WEIGHT * max(cosine or 0.0, 0.0))
        shown = None if cosine is None else round(cosine, _DIGITS)
        return Match(turn.id, round(score, _DIGITS), round(lexical, _DIGITS), shown)
