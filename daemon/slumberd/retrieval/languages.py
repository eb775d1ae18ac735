"""Recognise the languages of texts by their stop words, and choose those of a scope."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from slumberd.retrieval.stop_words import STOP_WORDS
from slumberd.retrieval.words import fold

AUTO = "auto"
"""In place of a language: the stop words of the texts decide."""

UNKNOWN = "unknown"
"""The language of texts that have few stop words of each language that is known."""

DEFAULT = "english"
"""The language of a scope whose texts are too short to decide; names of predicates are English."""

_MOST_WORDS = 200
"""So many words at the beginning of a text are looked at."""

_FEWEST_STOP_WORDS = 2
_LEAST_SHARE = 0.25
"""The least stop words of a language in a text of it: their number, and their share of words."""

_UNKNOWN_SHARE = 0.2
_FEWEST_WORDS = 12
"""A text of this many words is of an unknown language when fewer than this share are stop words."""

_LEAST_PART = 1 / 8
"""The least share of texts of a second language, compared with the first one of the scope."""

_WRITTEN_AS_NAMES = frozenset({"Will", "May", "US", "IT"})
"""Within a sentence these are no stop words of English. At its beginning they may be."""

_WORD = re.compile(r"\w+")

_NAMES = (*STOP_WORDS,)


def stop_words_of(language: str | None) -> frozenset[str]:
    """Return the stop words of a language, folded; none when they are not known."""
    return _FOLDED.get(language, frozenset())


def is_stop_word(word: str) -> bool:
    """Return whether a folded word is a stop word of one of the known languages."""
    return word in _LANGUAGES_OF


def names_in_question(question: str) -> frozenset[str]:
    """Return the English stop words that a question writes as names, such as May, folded."""
    if question.isupper():
        return frozenset()
    others = _WORD.findall(question)[1:]
    return frozenset(word.lower() for word in others if word in _WRITTEN_AS_NAMES)


def _read() -> dict[str | None, frozenset[str]]:
    return {name: frozenset(map(fold, words.split())) for name, words in STOP_WORDS.items()}


_FOLDED = _read()
_LANGUAGES_OF = {
    word: tuple(number for number, name in enumerate(_NAMES) if word in _FOLDED[name])
    for words in _FOLDED.values()
    for word in words
}


def recognise(words: Sequence[str]) -> str | None:
    """Return the language of a text by its folded words alone.

    Returns:
        Its name; `UNKNOWN` for a text without stop words; None when too few words
        decide.
    """
    looked_at = words[:_MOST_WORDS]
    counts = [0] * len(_NAMES)
    for word in looked_at:
        for number in _LANGUAGES_OF.get(word, ()):
            counts[number] += 1
    most, total = max(counts), len(looked_at)
    if most >= _FEWEST_STOP_WORDS and most >= _LEAST_SHARE * total and counts.count(most) == 1:
        return _NAMES[counts.index(most)]
    if total >= _FEWEST_WORDS and most < _UNKNOWN_SHARE * total:
        return UNKNOWN
    return None


class ScopeLanguages:
    """Counts the texts of a scope by language, and chooses its languages.

    The choice depends on the set of the texts only. Counts go by powers of two, so a new text
    changes the choice seldom.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, language: str | None) -> None:
        """Count a text, as it was recognised."""
        if language is not None:
            self._counts[language] += 1

    def remove(self, language: str | None) -> None:
        """Count a text no more."""
        if language is not None:
            self._counts[language] -= 1

    def chosen(self) -> tuple[str, ...]:
        """Return the languages that count, the first one first.

        `UNKNOWN` is the only one, when most texts are of it.
        """
        counts = {name: 2 ** round(math.log2(n)) for name, n in self._counts.items() if n > 0}
        unknown = counts.pop(UNKNOWN, 0)
        most = max(counts.values(), default=0)
        if unknown > most:
            return (UNKNOWN,)
        chosen = [name for name in _by_count(counts) if counts[name] >= _LEAST_PART * most]
        return (*chosen,) or (DEFAULT,)


def _by_count(counts: dict[str, int]) -> Iterable[str]:
    return sorted(counts, key=lambda name: (-counts[name], _NAMES.index(name)))
