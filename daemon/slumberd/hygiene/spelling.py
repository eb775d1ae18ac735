"""Group words that may be spellings of one word: they differ by one letter, or two are swapped.

Each word is stored under all texts that it becomes when one letter is left out, as in Garbe's
symmetric deletion. Two words with such a text in common are in one group, and groups with a common
word are one. A group only proposes what to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

SHORTEST, LONGEST = 4, 32
"""Words with fewer or more characters are in no group: too much, or too little, is alike."""


def spelling_groups(words: Iterable[str]) -> dict[str, str]:
    """Return the first word, in alphabetical order, of each word's group."""
    found = sorted(set(words))
    parents = {word: word for word in found}
    holders: dict[str, str] = {}
    for word in found:
        for shortened in _shortened(word):
            _join(parents, holders.setdefault(shortened, word), word)
    return {word: _first_of(parents, word) for word in found}


def _shortened(word: str) -> Iterator[str]:
    """Yield a word, and the word without each of its letters."""
    if SHORTEST <= len(word) <= LONGEST and word.isalpha():
        yield word
        for place in range(len(word)):
            yield word[:place] + word[place + 1 :]


def _join(parents: dict[str, str], left: str, right: str) -> None:
    first, second = sorted((_first_of(parents, left), _first_of(parents, right)))
    parents[second] = first


def _first_of(parents: dict[str, str], word: str) -> str:
    while parents[word] != word:
        parents[word] = parents[parents[word]]  # halves the path for the next look-up
        word = parents[word]
    return word
