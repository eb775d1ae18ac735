"""Turn the words of texts into terms: their stems where the language is known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import Any, Protocol

from slumberd.model.errors import UsageError
from slumberd.model.texts import AUTO, LANGUAGES
from slumberd.search.languages import parts_of, stop_words_of, words_of

_IRREGULAR_FORMS = """
    become became
    begin began begun
    blow blew blown
    break broke broken
    bring brought
    build built
    buy bought
    catch caught
    choose chose chosen
    come came
    draw drew drawn
    drink drank drunk
    drive drove driven
    eat ate eaten
    fall fell fallen
    feel felt
    fight fought
    find found
    fly flew flown
    forget forgot forgotten
    get got gotten
    give gave given
    go went gone
    grow grew grown
    hear heard
    hold held
    keep kept
    know knew known
    lend lent
    lose lost
    make made
    meet met
    pay paid
    ride rode ridden
    run ran
    say said
    see saw seen
    sell sold
    send sent
    shoot shot
    sing sang sung
    sit sat
    sleep slept
    speak spoke spoken
    spend spent
    stand stood
    steal stole stolen
    swim swam swum
    take took taken
    teach taught
    tell told
    think thought
    throw threw thrown
    understand understood
    wake woke woken
    wear wore worn
    win won
    write wrote written
    child children
    man men
    woman women
    foot feet
    tooth teeth
    mouse mice
    wife wives
    knife knives
    half halves
    good better best
    bad worse worst
"""
"""A group a line, with the form first that stands for the others."""


_MONTHS = "january february march april may june july august september october november december"
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday"
_NAMES = f"{_MONTHS} {_WEEKDAYS}".split()

_MOST_CACHED = 262_144
"""So many words of a language are stemmed once and remembered."""

_ELISIONS = {
    "french": re.compile(r"\A(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu)'"),
    "italian": re.compile(r"\A(?:[cdlmnstv]|un|(?:d|n|s)?[aeu]ll|quest|quell)'"),
}
"""Words that lose their end before a vowel, and what follows is the word that counts."""

_ORDINAL = re.compile("([0-9]+)(?:st|nd|rd|th)")


class _Stems(Protocol):
    """Stems words, each once."""

    def __call__(self, word: str, /) -> str:
        """Return the stem of a word."""
        ...

    def cache_clear(self) -> None:
        """Forget all words."""
        ...


def require_language(language: str | None) -> None:
    """Refuse a language that no index knows; `AUTO` and None are known.

    Raises:
        UsageError: The language is unknown.
    """
    if language not in (None, AUTO, *LANGUAGES):
        known = ", ".join((AUTO, *LANGUAGES))
        raise UsageError(f"language {language!r} is unknown; the known ones are {known}")


class Analyser:
    """Turns words into terms.

    A run of a script without spaces yields its characters and its pairs of adjacent characters.

    Args:
        language: The language of the texts, one of `LANGUAGES`, or `languages.UNKNOWN`. None
            stems no word. Where the stop words of a language are known, such as "the", they are no
            terms of a text with other words.
        names: Folded words that are names, and so no stop words, such as "will".
    """

    def __init__(self, language: str | None = None, names: frozenset[str] = frozenset()) -> None:
        self.language = language
        self._term = _stems_of(language) if language in LANGUAGES else _without_ending
        self._stop = stop_words_of(language) - names
        self._elision = _ELISIONS.get(language or "")

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text in order, with repetitions."""
        return self.terms_of(self.counted(words_of(text)), is_ascii=text.isascii())

    def counted(self, words: Sequence[str]) -> list[str]:
        """Return the words of a text that count; stop words only if there is no other.

        Args:
            words: The words, as `languages.words_of` returns them.
        """
        stop, elision = self._stop, self._elision
        if elision is not None:
            words = [elision.sub("", word) for word in words]
        return [word for word in words if word not in stop] or [*words]

    def terms_of(self, words: Sequence[str], *, is_ascii: bool) -> list[str]:
        """Return the terms of words that count, in order, with repetitions.

        Args:
            words: The words, as `counted` returns them.
            is_ascii: Whether they are ASCII.
        """
        if is_ascii:
            return [*map(self._term, words)]
        return [term for word in words for term in self.terms_of_word(word)]

    def terms_of_word(self, word: str) -> list[str]:
        """Return the terms of one word: one, but of some scripts its parts."""
        return [*map(self._term, parts_of(word))]

    def date_terms(self, at: datetime) -> list[str]:
        """Return the terms by which people name a day: year and day; in English also names."""
        numbers = [str(at.year), str(at.day)]
        if self.language != "english":
            return numbers
        return [*numbers, *map(self._term, (_NAMES[at.month - 1], _NAMES[12 + at.weekday()]))]


def _without_ending(word: str) -> str:
    """Return a word without apostrophes and a possessive ending."""
    if word.isalnum():
        return word
    return word.removesuffix("'s").replace("'", "")


def _read_irregular_forms() -> dict[str, str]:
    groups = [line.split() for line in _IRREGULAR_FORMS.strip().splitlines()]
    return {form: first for first, *forms in groups for form in forms}


_FIRST_FORMS = _read_irregular_forms()


def _english_form(word: str) -> str:
    """Return the form that stands for an irregular one, and the number of an ordinal."""
    ordinal = _ORDINAL.fullmatch(word)
    return ordinal[1] if ordinal else _FIRST_FORMS.get(word, word)


_STEMS: dict[str, _Stems] = {}
"""What stems the words of each language that an index has had in this process."""


def forget_words() -> None:
    """Forget the words of all languages that the process has stemmed."""
    for stems in _STEMS.values():
        stems.cache_clear()


def _stems_of(language: str) -> _Stems:
    if language not in _STEMS:
        # Two threads may be here at once; all indexes use one memory, which can be forgotten.
        _STEMS.setdefault(language, _new_stems(language))
    return _STEMS[language]


def _new_stems(language: str) -> _Stems:
    import snowballstemmer  # slow to import: it has a module for each language

    stemmer: Any = snowballstemmer.stemmer(language)
    lock = Lock()
    form_of = _english_form if language == "english" else str

    @lru_cache(_MOST_CACHED)
    def stem(word: str) -> str:
        with lock:  # the stemmer keeps the word that it works on
            found: str = stemmer.stemWord(form_of(_without_ending(word)))
        return found

    return stem
