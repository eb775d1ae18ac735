"""Find the words of texts that look like forms of a word, in an unknown language."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

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
