"""Find texts that have most of their words in common, up to one letter each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from slumberd.consolidation.stages.similar_texts import (
    NEGATIONS,
    jaccard,
    set_of_words,
    words_of,
)
from slumberd.model.errors import ExtraMissingError

FUZZY_SHARE = 0.6
"""Texts whose words, up to one letter each, have a lower Jaccard similarity are not fuzzy equal."""

FUZZY_CHARACTERS = 20_000
"""Longer texts are compared by the method ``exact`` instead: fuzzy takes the square of a length."""

SHORTEST, LONGEST = 4, 32
"""Words with fewer or more characters are in no group: too much, or too little, is alike."""

_ROUNDING = 1e-9
"""The most by which a product of a share and a count is wrong."""

_SCORE_ROUNDING = 1e-6
"""The most by which a similarity of characters in percent is wrong."""


def spelling_groups(words: Iterable[str]) -> dict[str, str]:
    """Return the first word, in alphabetical order, of each word's group.

    The words of a group may be spellings of one word: they differ by one letter, or two are
    swapped. Each word is stored under all texts that it becomes when one letter is left out, as in
    Garbe's symmetric deletion. Two words with such a text in common are in one group, and groups
    with a common word are one.
    """
    found = sorted(set(words))
    parents = {word: word for word in found}
    holders: dict[str, str] = {}
    for word in found:
        for shortened in _shortened(word):
            if (holder := holders.setdefault(shortened, word)) != word:
                _join(parents, holder, word)
    return {word: _first_of(parents, word) for word in found}


@lru_cache(maxsize=65_536)
def _shortened(word: str) -> tuple[str, ...]:
    """Return a word, and the word without each of its letters; nothing for one in no group."""
    if word in NEGATIONS or not (SHORTEST <= len(word) <= LONGEST and word.isalpha()):
        return ()
    return (word, *(word[:place] + word[place + 1 :] for place in range(len(word))))


def _join(parents: dict[str, str], left: str, right: str) -> None:
    first, second = sorted((_first_of(parents, left), _first_of(parents, right)))
    parents[second] = first


def _first_of(parents: dict[str, str], word: str) -> str:
    while parents[word] != word:
        parents[word] = parents[parents[word]]  # halves the path for the next look-up
        word = parents[word]
    return word


def spelled_alike(
    left: Sequence[str], right: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of two texts, with one word for all spellings of it in both texts.

    So what it says of two texts depends on no other text.
    """
    groups = spelling_groups({*left, *right})
    return tuple(groups[word] for word in left), tuple(groups[word] for word in right)


def spelled_share(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets of words, up to one letter a word."""
    one, other = spelled_alike([*left], [*right])
    return jaccard(frozenset(one), frozenset(other))


class SpelledSets:
    """Sets of words, and an index that finds those that share most words up to one letter.

    If two sets have a share `FUZZY_SHARE` of their groups in common, at most the rest of the groups
    of one set alone has no word that is a spelling of a word of the other set. So it suffices to
    look up one group more than this rest.
    """

    def __init__(self) -> None:
        self._count = 0
        self._spelled: dict[str, list[str]] = {}
        self._numbers: dict[str, list[int]] = {}

    def add(self, words: frozenset[str]) -> None:
        """Add a set. Its number is how many sets were added before."""
        for word in words:
            if word not in self._numbers:
                self._numbers[word] = []
                for shortened in _shortened(word):
                    self._spelled.setdefault(shortened, []).append(word)
            self._numbers[word].append(self._count)
        self._count += 1

    def candidates(self, words: frozenset[str]) -> list[int]:
        """Return the numbers of all sets that may share enough, and of others, in order."""
        found: dict[str, set[str]] = {}
        for word, group in spelling_groups(words).items():
            near = found.setdefault(group, {word})
            near.update(other for form in _shortened(word) for other in self._spelled.get(form, ()))
        by_group = [
            [self._numbers[word] for word in near if word in self._numbers]
            for near in found.values()
        ]
        by_group.sort(key=lambda numbers: sum(map(len, numbers)))
        rest = int((1 - FUZZY_SHARE) * len(by_group) + _ROUNDING)
        return sorted(
            {number for some in by_group[: rest + 1] for numbers in some for number in numbers}
        )


Similar = Callable[[str, Sequence[str], float], Iterator[tuple[str, float, int]]]
"""Yields the texts whose characters are similar to a text, with their similarities and places.

A similarity is 0 to 1; the last argument is the least one.
"""


def by_characters() -> Similar:
    """Return what compares the characters of texts.

    Raises:
        ExtraMissingError: The extra ``fuzzy`` is not installed.
    """
    try:
        from rapidfuzz import fuzz, process  # type: ignore[import-not-found, unused-ignore] # of an extra
    except ImportError as error:
        raise ExtraMissingError("fuzzy", "duplicates cannot be compared by characters") from error

    def similar(text: str, texts: Sequence[str], least: float) -> Iterator[tuple[str, float, int]]:
        found: Iterator[tuple[str, float, int]] = process.extract_iter(
            text, texts, scorer=fuzz.ratio, score_cutoff=100 * least - _SCORE_ROUNDING
        )
        for other, score, place in found:
            if score / 100 >= least:
                yield other, score / 100, place

    return similar


def near_by_spelling(text: str, texts: Sequence[str], similarity: float) -> Iterator[int]:
    """Yield the places of the texts that are similar to a text by their characters and words.

    Args:
        text: A normal text of at most `FUZZY_CHARACTERS`, as the texts are.

    Raises:
        ExtraMissingError: The extra ``fuzzy`` is not installed.
    """
    words = set_of_words(words_of(text), text)
    for other, _, place in by_characters()(text, texts, similarity):
        if spelled_share(words, set_of_words(words_of(other), other)) >= FUZZY_SHARE:
            yield place
