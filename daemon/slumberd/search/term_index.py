"""Score the texts of one scope by their words: BM25F with the statistics of that scope alone.

The formula: Robertson, Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
The fields of a text are its own words, its speaker, its date, and the words of its neighbours in
its session. A reply often carries the answer, and the turn before it the words of the question.
Neighbours count for short texts only: a long text has words enough.

The length of a text counts in full, BM25's b is 1, but only from `SHORT` terms on: a remark
gains nothing by being short. So a score depends on other texts only by how many have a term.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from itertools import islice
from sys import intern
from typing import NamedTuple

NONE = -1
"""In place of a number: there is no such neighbour."""


class Neighbours:
    """The order of numbered texts within their sessions: by instant, then by id.

    Attributes:
        previous: By the number of a text, the number of the text before it, or `NONE`.
        next: By the number of a text, the number of the text after it, or `NONE`.
    """

    def __init__(self) -> None:
        self.previous = array("i")
        self.next = array("i")
        self._sessions: dict[str, list[tuple[int, str, int]]] = defaultdict(list)

    def append(self, number: int, session: str, at: int, id: str) -> None:
        """Add a text. Its number must be the next one.

        Args:
            session: The session; a text of the empty session has no neighbours.
            id: The id, which decides between equal instants.
        """
        self.previous.append(NONE)
        self.next.append(NONE)
        if not session:
            return
        entries, entry = self._sessions[session], (at, id, number)
        place = len(entries)
        if entries and entry < entries[-1]:
            place = bisect_left(entries, entry)
        entries.insert(place, entry)
        before = entries[place - 1][2] if place else NONE
        after = entries[place + 1][2] if place + 1 < len(entries) else NONE
        self._link(before, number)
        self._link(number, after)

    def remove(self, number: int, session: str, at: int, id: str) -> None:
        """Remove a text, as it was added."""
        if not session:
            return
        entries = self._sessions[session]
        del entries[bisect_left(entries, (at, id, number))]
        if not entries:
            del self._sessions[session]
        self._link(self.previous[number], self.next[number])
        self.previous[number] = self.next[number] = NONE

    def _link(self, before: int, after: int) -> None:
        if before != NONE:
            self.next[before] = after
        if after != NONE:
            self.previous[after] = before


_BEGINNING = 3
"""The number of first letters that similar words share."""

LEAST = 0.5
"""The least share of trigrams that similar words have in common: twice the common ones to all."""

_MOST = 16
"""The most words that count as forms of one word."""


class SimilarWords:
    """The words of texts, by their first letters."""

    def __init__(self) -> None:
        self._words: dict[str, set[str]] = defaultdict(set)

    def add(self, words: Iterable[str]) -> None:
        """Add words; those of it that are there stay."""
        for word in words:
            if len(word) >= _BEGINNING and word.isalpha():
                self._words[word[:_BEGINNING]].add(word)

    def discard(self, word: str) -> None:
        """Remove a word, if it is there."""
        words = self._words.get(word[:_BEGINNING])
        if words is not None:
            words.discard(word)
            if not words:
                del self._words[word[:_BEGINNING]]

    def like(self, word: str) -> list[str]:
        """Return the words that look like a word, the most similar first; not the word itself."""
        grams = _trigrams(word)
        found = [
            (-alike, other)
            for other in self._words.get(word[:_BEGINNING], ())
            if other != word and (alike := _likeness(grams, _trigrams(other))) >= LEAST
        ]
        return [other for _, other in sorted(found)[:_MOST]]


def _trigrams(word: str) -> frozenset[str]:
    spaced = f" {word} "
    return frozenset(spaced[start : start + 3] for start in range(len(spaced) - 2))


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return 2 * len(one & other) / (len(one) + len(other))


SATURATION = 1.2
"""BM25's k1: how soon more occurrences of a term add nothing."""

SHORT = 40
"""The most terms of a short text; only so many first terms of a neighbour count.

In a text of twice as many terms, each occurrence counts half.
"""

SPEAKER_WEIGHT = 0.5
DATE_WEIGHT = 0.5
PREVIOUS_WEIGHTS = (0.6, 0.3)
"""How much the terms of the last text count, and of the text before it."""

NEXT_WEIGHTS = (0.2, 0.1)

CHOSEN = 150
"""So many texts are chosen by their own words; then they and their neighbours are scored."""

_FEWEST = 100
"""A smaller scope counts as one of so many texts. Else unknown words would outweigh all others."""

_MOST_READ = 10_000
"""So many occurrences are read to find texts, the rarest terms first."""

_NO_TERMS: frozenset[str] = frozenset()

Frequencies = dict[int, float]
"""How often the terms of a concept occur in texts, by number, divided by their lengths."""

Allows = Callable[[int], bool]
"""Returns whether the text with a number may be found."""


class Concept(NamedTuple):
    """What a question asks for.

    Attributes:
        terms: Terms that mean the same; one is enough.
        weight: How rare they are: BM25's inverse document frequency.
    """

    terms: tuple[str, ...]
    weight: float

    @property
    def most(self) -> float:
        """The score that no text exceeds."""
        return self.weight * (SATURATION + 1)

    def score(self, frequency: float) -> float:
        """Return the score of a text in which the terms have a weighted frequency."""
        return self.most * frequency / (SATURATION + frequency)


class TermIndex:
    """The terms of numbered texts.

    Args:
        neighbours: The order of the texts within their sessions.
        similar: Takes the terms of all texts; None when nobody asks for similar ones.
    """

    def __init__(self, neighbours: Neighbours, similar: SimilarWords | None = None) -> None:
        self._similar = similar
        self._neighbours = neighbours
        self._ages: list[tuple[int, str]] = []
        self._terms: list[Sequence[str]] = []
        self._factors = array("d")
        self._names: list[frozenset[str]] = []
        self._dates: list[frozenset[str]] = []
        self._postings: dict[str, array[int]] = defaultdict(lambda: array("I"))
        self._removed: dict[str, int] = defaultdict(int)
        self._sides: set[str] = set()
        self._count = 0
        self._entries = 0

    @property
    def size_bytes(self) -> int:
        """About how much memory the index takes."""
        return 400 * len(self._terms) + 16 * self._entries + 250 * len(self._postings)

    def append(
        self,
        age: tuple[int, str],
        terms: Sequence[str],
        names: frozenset[str],
        dates: frozenset[str],
    ) -> None:
        """Add a text under the next number.

        Args:
            age: Its instant and its id: of equal texts the newest are chosen.
            terms: Its terms, in order.
            names: The terms of its speaker's name.
            dates: The terms that name its day.
        """
        number = len(self._terms)
        self._ages.append(age)
        terms = [*map(intern, terms)]  # texts share the terms that they have in common
        self._terms.append(terms)
        self._factors.append(SHORT / max(len(terms), SHORT))
        self._names.append(names)
        self._dates.append(dates)
        self._sides |= names
        self._sides |= dates
        self._entries += len(terms)
        self._count += 1
        postings = self._postings
        found = {*terms, *names, *dates}
        if self._similar is not None:
            self._similar.add(found - postings.keys())
        for term in found:
            postings[term].append(number)

    def remove(self, number: int) -> None:
        """Remove a text; its number stays unused."""
        terms, names, dates = self._terms[number], self._names[number], self._dates[number]
        for term in {*terms, *names, *dates}:
            self._remove_from(term)
        self._terms[number] = ()
        self._names[number] = self._dates[number] = _NO_TERMS
        self._entries -= len(terms)
        self._count -= 1

    def _remove_from(self, term: str) -> None:
        """Count one text less with a term. No word stays that only removed texts had."""
        # Postings of a removed text stay while other texts have the term; they find nothing.
        self._removed[term] += 1
        if self._removed[term] == len(self._postings[term]):
            del self._removed[term], self._postings[term]
            self._sides.discard(term)
            if self._similar is not None:
                self._similar.discard(term)

    def concept(self, terms: Sequence[str]) -> Concept:
        """Return what terms with one meaning ask for; the most frequent one says how rare it is."""
        found = max(map(self.texts_with, terms), default=0)
        texts = max(self._count, _FEWEST)
        return Concept(tuple(terms), math.log(1 + (texts - found + 0.5) / (found + 0.5)))

    def score(
        self,
        concepts: Iterable[Concept],
        *,
        most: int = CHOSEN,
        also: Iterable[int] = (),
        allows: Allows | None = None,
        asked: int = SHORT,
    ) -> dict[int, float]:
        """Return the scores of the texts that may answer a question best, by number.

        These are the texts with the best scores by their own words, and their neighbours.

        Args:
            concepts: What the question asks for.
            most: How many texts are chosen by their own words.
            also: More texts to score.
            allows: Returns whether a text may be found; None when all may.
            asked: How many words the question has. A text that is no longer counts as short.
        """
        factors = self._factors
        if asked > SHORT:
            factors = array("d", (min(1.0, factor * asked / SHORT) for factor in factors))
        ordered = sorted(concepts, key=lambda one: (-one.weight, one.terms))
        found: dict[Concept, Frequencies] = {}
        chosen = {*also}
        for number in self._choose(ordered, factors, most, allows, found):
            chosen.update(self._around(number))
        for concept in ordered:
            if concept not in found:
                found[concept] = self._count_in(concept, factors, chosen)
        parts = [
            (concept, found[concept], [term for term in concept.terms if term in self._sides])
            for concept in ordered
        ]
        allowed = chosen if allows is None else filter(allows, chosen)
        return {number: self._score_text(number, parts) for number in allowed}

    def _choose(
        self,
        concepts: Iterable[Concept],
        factors: Sequence[float],
        most: int,
        allows: Allows | None,
        found: dict[Concept, Frequencies],
    ) -> list[int]:
        """Return the texts with the best scores by their own words.

        Args:
            concepts: The rarest first.
            factors: By text, how much each occurrence of a term counts.
            most: How many texts.
            allows: Returns whether a text may be found.
            found: Takes the frequencies of each concept that chose texts.
        """
        totals: dict[int, float] = {}
        read = 0
        for concept in concepts:
            # The frequent terms come last; they add little, and take long.
            read += self._length_of(concept)
            if read > _MOST_READ and self._are_enough(totals, most, allows):
                break
            found[concept] = self._add_own(concept, factors, totals)
        if allows is not None:
            totals = {n: total for n, total in totals.items() if any(map(allows, self._around(n)))}
        if len(totals) <= most:
            return [*totals]
        least = sorted(totals.values(), reverse=True)[most - 1]
        best = [number for number, total in totals.items() if total > least]
        last = [number for number, total in totals.items() if total == least]
        return best + nlargest(most - len(best), last, key=self._ages.__getitem__)

    def _are_enough(self, found: Iterable[int], most: int, allows: Allows | None) -> bool:
        """Return whether so many texts are found that frequent terms can be left out."""
        allowed = (n for n in found if allows is None or any(map(allows, self._around(n))))
        return len([*islice(allowed, most)]) == most

    def _add_own(
        self, concept: Concept, factors: Sequence[float], totals: dict[int, float]
    ) -> Frequencies:
        """Add the scores of a concept by the texts' own words; return its frequencies."""
        texts, highest = self._terms, concept.most
        counted: Frequencies = {}
        for term in concept.terms:
            has_sides = term in self._sides
            for number in self._postings.get(term, ()):
                found = texts[number].count(term) * factors[number]
                if found:
                    counted[number] = counted.get(number, 0.0) + found
                if has_sides:
                    found += self._side(number, term)
                if found:  # the postings of removed texts stay
                    score = highest * found / (SATURATION + found)
                    totals[number] = totals.get(number, 0.0) + score
        return counted

    def _count_in(
        self, concept: Concept, factors: Sequence[float], numbers: Iterable[int]
    ) -> Frequencies:
        """Return the frequencies of a concept in some texts and their neighbours."""
        texts = self._terms
        return {
            number: sum(texts[number].count(term) for term in concept.terms) * factors[number]
            for number in {other for number in numbers for other in self._around(number)}
        }

    def _score_text(
        self, number: int, parts: Iterable[tuple[Concept, Frequencies, Sequence[str]]]
    ) -> float:
        """Return the score of a text.

        Args:
            number: The text.
            parts: By concept, the frequencies in the texts, and its terms that name speakers and
                days.
        """
        near = self._near(number) if self.is_short(number) else ()
        score = 0.0
        for concept, frequencies, sides in parts:
            found = frequencies.get(number, 0.0)
            for term in sides:
                found += self._side(number, term)
            for weight, other in near:
                if frequencies.get(other):
                    found += weight * self._head_frequency(other, concept, frequencies)
            if found:
                score += concept.score(found)
        return score

    def _head_frequency(self, number: int, concept: Concept, frequencies: Frequencies) -> float:
        """Return how often a concept occurs in the beginning of a text."""
        if self.is_short(number):
            return frequencies[number]
        head = self._terms[number][:SHORT]
        return sum(head.count(term) for term in concept.terms)

    def is_short(self, number: int) -> bool:
        """Return whether a text is so short that its neighbours count."""
        return self._factors[number] == 1.0

    def texts_with(self, term: str) -> int:
        """Return how many texts have a term."""
        return len(self._postings.get(term, ())) - self._removed.get(term, 0)

    def _length_of(self, concept: Concept) -> int:
        return sum(len(self._postings.get(term, ())) for term in concept.terms)

    def _side(self, number: int, term: str) -> float:
        weight = SPEAKER_WEIGHT if term in self._names[number] else 0.0
        return weight + DATE_WEIGHT if term in self._dates[number] else weight

    def _around(self, number: int) -> list[int]:
        """Return a text and its neighbours."""
        return [number, *(other for _, other in self._near(number))]

    def _near(self, number: int) -> list[tuple[float, int]]:
        """Return the neighbours of a text, with their weights."""
        before, after = self._neighbours.previous, self._neighbours.next
        found = []
        for places, weights in ((before, PREVIOUS_WEIGHTS), (after, NEXT_WEIGHTS)):
            other = number
            for weight in weights:
                other = places[other]
                if other == NONE:
                    break
                found.append((weight, other))
        return found
