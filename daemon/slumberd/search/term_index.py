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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from heapq import nlargest
from itertools import accumulate, islice
from typing import NamedTuple

import orjson

from slumberd.search.columns import Interned, Parts, SavedParts, read_array, read_json

NONE = -1
"""In place of a number: there is no such neighbour."""


Entries = dict[str, list[tuple[int, str, int]]]
"""By session, the instant, id and number of each text, in order."""


class Neighbours:
    """The order of numbered texts within their sessions: by instant, then by id.

    Args:
        read: Returns the texts that are there already, when they are first needed.

    Attributes:
        previous: By the number of a text, the number of the text before it, or `NONE`.
        next: By the number of a text, the number of the text after it, or `NONE`.
    """

    def __init__(self, read: Callable[[], Entries] = dict) -> None:
        self.previous = array("i")
        self.next = array("i")
        self._read = read

    @cached_property
    def _sessions(self) -> Entries:
        return defaultdict(list, self._read())

    def parts(self) -> SavedParts:
        """Return what `load` needs."""
        return {"previous": self.previous[:], "next": self.next[:]}

    def load(self, parts: Parts) -> None:
        """Take what was saved."""
        self.previous = read_array("i", parts["previous"])
        self.next = read_array("i", parts["next"])

    def append(self, number: int, session: str, at: int, id: str) -> None:
        """Add a text. Its number must be the next one.

        Args:
            session: The session; a text of the empty session has no neighbours.
            id: The id, which decides between equal instants.
        """
        # The entries that are read must be those before this text.
        entries = self._sessions[session] if session else []
        self.previous.append(NONE)
        self.next.append(NONE)
        if not session:
            return
        entry = at, id, number
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

_NO_TERM = 2**32 - 1
"""In place of the number of a term: the text is removed, or no text has the term."""

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


_BITS = 32
"""The postings of a term: the number of each text that has it, above a count of so many bits.

The numbers ascend. The count says how often the own words of the text have the term. It is 0 when
only its speaker or its day has the term, or when the text is removed.
"""

_COUNT = 2**_BITS - 1

_NO_POSTINGS = array("Q")


def _count_of(number: int, postings: array[int]) -> int:
    """Return how often a text has a term."""
    wanted = number << _BITS
    place = bisect_left(postings, wanted)
    if place == len(postings) or postings[place] >> _BITS != number:
        return 0
    count: int = postings[place] & _COUNT
    return count


class TermIndex:
    """The terms of numbered texts, numbered as well.

    Args:
        neighbours: The order of the texts within their sessions.
        ages: The instant and the id of a text, by its number: of equal texts the newest are chosen.
        similar: Takes the terms of all texts; None when nobody asks for similar ones.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        ages: Callable[[int], tuple[int, str]],
        similar: SimilarWords | None = None,
    ) -> None:
        self._similar = similar
        self._neighbours = neighbours
        self._ages = ages
        self._terms = array("I")
        """The terms of all texts, one text after the other."""
        self._ends = array("Q")
        self._factors = array("d")
        self._sets = Interned[frozenset[str]]()
        self._names = array("I")
        self._dates = array("I")
        self._vocabulary: list[str] = []
        self._numbers: dict[str, int] = {}
        self._postings: list[array[int] | None] = []
        """By term; None for one that is still among the saved ones."""
        self._saved = memoryview(b"")
        self._starts = array("Q", [0])
        self._removed: dict[int, int] = defaultdict(int)
        self._sides: set[str] = set()
        self._count = 0
        self._entries = 0

    @property
    def size_bytes(self) -> int:
        """About how much memory the index takes."""
        return 40 * len(self._factors) + 16 * self._entries + 400 * len(self._numbers)

    def parts(self) -> SavedParts:
        """Return what `load` needs."""
        found = [*map(self._bytes_of_posting, range(len(self._vocabulary)))]
        state = {
            "removed": [*self._removed.items()],
            "sides": [*self._sides],
            "sets": [None if some is None else sorted(some) for some in self._sets.values],
            "uses": [*self._sets.uses],
            "count": self._count,
            "entries": self._entries,
        }
        vocabulary = self._vocabulary[:]
        return {
            "terms": self._terms[:],
            "ends": self._ends[:],
            "factors": self._factors[:],
            "names": self._names[:],
            "dates": self._dates[:],
            "vocabulary": lambda: orjson.dumps(vocabulary),
            "starts": array("Q", accumulate((len(one) // 8 for one in found), initial=0)),
            "postings": b"".join(found),
            "words": lambda: orjson.dumps(state),
        }

    def _bytes_of_posting(self, term: int) -> bytes | memoryview:
        found = self._postings[term]
        return self._saved_posting(term) if found is None else found.tobytes()

    def _saved_posting(self, term: int) -> memoryview:
        return self._saved[8 * self._starts[term] : 8 * self._starts[term + 1]]

    def load(self, parts: Parts) -> None:
        """Take what was saved."""
        self._terms = read_array("I", parts["terms"])
        self._ends = read_array("Q", parts["ends"])
        self._factors = read_array("d", parts["factors"])
        self._names = read_array("I", parts["names"])
        self._dates = read_array("I", parts["dates"])
        self._vocabulary = read_json(parts["vocabulary"])
        self._starts = read_array("Q", parts["starts"])
        self._saved = parts["postings"]
        self._postings = [None] * len(self._vocabulary)
        state = read_json(parts["words"])
        self._removed.update(state["removed"])
        self._sides = {*state["sides"]}
        sets = (None if some is None else frozenset(some) for some in state["sets"])
        self._sets = Interned(sets, state["uses"])
        self._count, self._entries = state["count"], state["entries"]
        starts = self._starts
        self._numbers = {
            term: number
            for number, term in enumerate(self._vocabulary)
            if starts[number] < starts[number + 1]
        }
        if self._similar is not None:
            self._similar.add(self._numbers)

    def append(self, terms: Sequence[str], names: frozenset[str], dates: frozenset[str]) -> None:
        """Add a text under the next number.

        Args:
            terms: Its terms, in order.
            names: The terms of its speaker's name.
            dates: The terms that name its day.
        """
        number = len(self._factors)
        self._factors.append(SHORT / max(len(terms), SHORT))
        self._names.append(self._sets.add(names))
        self._dates.append(self._sets.add(dates))
        self._sides |= names
        self._sides |= dates
        self._entries += len(terms)
        self._count += 1
        found = self._numbers_of(terms)
        self._terms.extend(found)
        self._ends.append(len(self._terms))
        counts = dict.fromkeys(found, 1)
        if len(counts) < len(found):
            counts = Counter(found)
        for one in self._numbers_of([*names, *dates]):
            counts.setdefault(one, 0)
        postings, above = self._postings, number << _BITS
        for one, count in counts.items():
            (postings[one] or self._posting(one)).append(above | count)

    def _numbers_of(self, terms: Sequence[str]) -> list[int]:
        """Return the numbers of terms; new terms get one."""
        numbers = self._numbers
        try:
            return [numbers[term] for term in terms]
        except KeyError:
            return [
                self._add_term(term) if (one := numbers.get(term)) is None else one
                for term in terms
            ]

    def _add_term(self, term: str) -> int:
        """Give a new term a number."""
        number = self._numbers[term] = len(self._vocabulary)
        self._vocabulary.append(term)
        self._postings.append(array("Q"))
        if self._similar is not None:
            self._similar.add((term,))
        return number

    def _posting(self, term: int) -> array[int]:
        """Return the texts of a term, by its number; read them if they are saved."""
        found = self._postings[term]
        if found is None:
            found = self._postings[term] = read_array("Q", self._saved_posting(term))
        return found

    def _begin_of(self, number: int) -> int:
        return self._ends[number - 1] if number else 0

    def remove(self, number: int) -> None:
        """Remove a text; its number stays unused."""
        begin, end = self._begin_of(number), self._ends[number]
        names, dates = self._sets[self._names[number]], self._sets[self._dates[number]]
        found = {*self._terms[begin:end], *(self._numbers[term] for term in names | dates)}
        for term in found:
            self._remove_from(term, number)
        self._terms[begin:end] = array("I", [_NO_TERM]) * (end - begin)
        self._sets.remove(self._names[number])
        self._sets.remove(self._dates[number])
        self._names[number] = self._sets.add(_NO_TERMS)
        self._dates[number] = self._sets.add(_NO_TERMS)
        self._entries -= end - begin
        self._count -= 1

    def _remove_from(self, term: int, number: int) -> None:
        """Count one text less with a term. No word stays that only removed texts had."""
        # Postings of a removed text stay while other texts have the term; they find nothing.
        postings = self._posting(term)
        postings[bisect_left(postings, number << _BITS)] = number << _BITS
        self._removed[term] += 1
        if self._removed[term] == len(postings):
            word = self._vocabulary[term]
            del self._removed[term], self._numbers[word]
            self._postings[term] = array("Q")
            self._vocabulary[term] = ""
            self._sides.discard(word)
            if self._similar is not None:
                self._similar.discard(word)

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
        return best + nlargest(most - len(best), last, key=self._ages)

    def _are_enough(self, found: Iterable[int], most: int, allows: Allows | None) -> bool:
        """Return whether so many texts are found that frequent terms can be left out."""
        allowed = (n for n in found if allows is None or any(map(allows, self._around(n))))
        return len([*islice(allowed, most)]) == most

    def _add_own(
        self, concept: Concept, factors: Sequence[float], totals: dict[int, float]
    ) -> Frequencies:
        """Add the scores of a concept by the texts' own words; return its frequencies."""
        highest = concept.most
        counted: Frequencies = {}
        for term in concept.terms:
            has_sides = term in self._sides
            for posting in self._texts_of(term):
                number = posting >> _BITS
                found = (posting & _COUNT) * factors[number]
                if found:
                    counted[number] = counted.get(number, 0.0) + found
                if has_sides:
                    found += self._side(number, term)
                if found:  # the postings of removed texts stay
                    score = highest * found / (SATURATION + found)
                    totals[number] = totals.get(number, 0.0) + score
        return counted

    def _texts_of(self, term: str) -> array[int]:
        number = self._numbers.get(term)
        return _NO_POSTINGS if number is None else self._posting(number)

    def _count_in(
        self, concept: Concept, factors: Sequence[float], numbers: Iterable[int]
    ) -> Frequencies:
        """Return the frequencies of a concept in some texts and their neighbours."""
        postings = [self._texts_of(term) for term in concept.terms]
        return {
            number: sum(_count_of(number, one) for one in postings) * factors[number]
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
        begin = self._begin_of(number)
        head = self._terms[begin : begin + SHORT]
        return sum(head.count(self._numbers.get(term, _NO_TERM)) for term in concept.terms)

    def is_short(self, number: int) -> bool:
        """Return whether a text is so short that its neighbours count."""
        return self._factors[number] == 1.0

    def texts_with(self, term: str) -> int:
        """Return how many texts have a term."""
        number = self._numbers.get(term)
        if number is None:
            return 0
        return len(self._posting(number)) - self._removed.get(number, 0)

    def _length_of(self, concept: Concept) -> int:
        return sum(len(self._texts_of(term)) for term in concept.terms)

    def _side(self, number: int, term: str) -> float:
        sets = self._sets.values
        weight = SPEAKER_WEIGHT if term in (sets[self._names[number]] or ()) else 0.0
        return weight + DATE_WEIGHT if term in (sets[self._dates[number]] or ()) else weight

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
