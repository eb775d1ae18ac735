"""Find the sets of words that overlap enough, without comparing each pair.

An exact set similarity join: Bayardo et al. 2007, "Scaling up all pairs similarity search", with
the positions of Xiao et al. 2008, "Efficient similarity joins for near duplicate detection".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

_ROUNDING = 1e-9
"""The most by which a product of a similarity and a size is wrong."""


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the share of the common words in all words of two sets, 0 to 1; 1 for empty sets."""
    common = len(left & right)
    return common / (len(left) + len(right) - common) if left or right else 1.0


def rank_by_rarity(sets: Iterable[frozenset[str]]) -> dict[str, int]:
    """Return the rank of each word of some sets; a word of fewer sets has a lower rank."""
    frequencies = Counter(word for words in sets for word in words)
    by_rarity = sorted(frequencies, key=lambda word: (frequencies[word], word))
    return {word: rank for rank, word in enumerate(by_rarity)}


class SimilarSets:
    """Sets of words, and an index that finds the ones that are similar to another set.

    The words of a set are ordered, rare ones first. Two similar sets have at least one word in
    common among the first words of both. So only first words are indexed.

    Args:
        rank: The rank of each word by rarity. All sets consist of these words.
        similarity: The least Jaccard similarity of similar sets, above 0, at most 1.
    """

    def __init__(self, rank: Mapping[str, int], similarity: float) -> None:
        self._rank = rank
        self._similarity = similarity
        self._common_share = similarity / (1 + similarity)
        self._sets: list[frozenset[str]] = []
        self._numbers: dict[str, dict[tuple[int, int], list[int]]] = {}

    def add(self, words: frozenset[str]) -> int:
        """Add a set, which must not be empty; return its number. Numbers count from 0."""
        number = len(self._sets)
        self._sets.append(words)
        for position, word in enumerate(self._first_words(words)):
            places = self._numbers.setdefault(word, {})
            places.setdefault((len(words), position), []).append(number)
        return number

    def find(self, words: frozenset[str]) -> Iterator[tuple[int, float]]:
        """Yield the number and the similarity of each similar set, in any order."""
        for number in self._candidates(words):
            other = self._sets[number]
            if not self._can_be_similar(len(words), 0, len(other), 0):
                continue
            similarity = jaccard(words, other)
            if similarity >= self._similarity:
                yield number, similarity

    def _candidates(self, words: frozenset[str]) -> Collection[int]:
        found: set[int] = set()
        size = len(words)
        looked_at = 0
        for position, word in enumerate(self._first_words(words)):
            places = self._numbers.get(word, {})
            looked_at += len(places)
            if looked_at > len(self._sets):  # then a look at each set is faster
                return range(len(self._sets))
            for (other_size, other_position), numbers in places.items():
                if self._can_be_similar(size, position, other_size, other_position):
                    found.update(numbers)
        return found

    def _can_be_similar(self, size: int, position: int, other_size: int, other: int) -> bool:
        """Return whether sets can be similar whose first common word has these positions."""
        possible = min(size - position, other_size - other)
        return possible >= self._common_share * (size + other_size) - _ROUNDING

    def _first_words(self, words: frozenset[str]) -> list[str]:
        """Return the words of which a similar set has one, whatever its size."""
        least = math.ceil(self._similarity * len(words) - _ROUNDING)
        ordered = sorted(words, key=self._rank.__getitem__)
        return ordered[: len(words) - max(1, least) + 1]
