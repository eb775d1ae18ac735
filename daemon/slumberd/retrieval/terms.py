"""Split texts into the terms of an index, in any script; stem them where the language is known."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import Any, Protocol

from slumberd.errors import UsageError

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
"""The same in ASCII, which is found in half the time."""

_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
"""Scripts without spaces: Chinese, Japanese, Thai, Lao, Burmese, Khmer."""

_ACCENTS = dict.fromkeys(range(0x300, 0x370))
"""The accents of Latin, Greek and Cyrillic letters, once they are decomposed."""

_ARTICLES_AND_PREPOSITIONS = (
    "a an the of in on at by for with about from to into over after before as and or but if then "
    "than so not no nor too very just also there here any some"
)
_PRONOUNS = (
    "i you he she it we they me him her us them my your his its our their mine yours this that "
    "these those who whom whose which what when where why how"
)
_VERBS = (
    "is am are was were be been being do does did doing done have has had having can could will "
    "would shall should may might must s t d ll m re ve dont"
)
_ENGLISH_STOP_WORDS = frozenset(
    f"{_ARTICLES_AND_PREPOSITIONS} {_PRONOUNS} {_VERBS}".split(),
)
_MONTHS = "january february march april may june july august september october november december"
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday"
_NAMES = f"{_MONTHS} {_WEEKDAYS}".split()

LANGUAGES = (
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "esperanto",
    "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian",
    "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese", "romanian", "russian",
    "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip
"""The languages whose words can be stemmed."""

_MOST_GROWN = 100_000
"""A text may grow to so many characters, or to twice its own: some characters stand for 18."""

_MOST_CACHED = 262_144
"""So many words of a language are stemmed once and remembered."""


class _Stems(Protocol):
    """Stems words, each once."""

    def __call__(self, word: str, /) -> str:
        """Return the stem of a word."""
        ...

    def cache_clear(self) -> None:
        """Forget all words."""
        ...


class Analyser:
    """Turns texts into terms.

    Case, accents and differences of form (NFKC) do not count. A run of a script without spaces
    yields its characters and its pairs of adjacent characters.

    Args:
        language: The language of the texts, one of `LANGUAGES`; None stems no word. For English,
            words such as "the" are no terms.

    Raises:
        UsageError: The language is unknown.
    """

    def __init__(self, language: str | None = None) -> None:
        if language is not None and language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise UsageError(f"language {language!r} is unknown; the known ones are {known}")
        self.language = language
        self._stems = _stems_of(language) if language else None
        self._term: Callable[[str], str] = self._stems or _without_ending
        self._stop = _ENGLISH_STOP_WORDS if language == "english" else frozenset[str]()

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text in order, with repetitions."""
        term, stop = self._term, self._stop
        if text.isascii():
            return [term(word) for word in _ASCII_WORD.findall(text.lower()) if word not in stop]
        return [
            term(part)
            for word in _WORD.findall(_folded(text))
            if word not in stop
            for part in _parts(word)
        ]

    def query_terms(self, text: str) -> list[str]:
        """Return each term of a question once, in order; stop words only if there is no other."""
        terms = dict.fromkeys(self.terms(text))
        if not terms and self._stop:
            terms = dict.fromkeys(map(self._term, _WORD.findall(_folded(text))))
        return [*terms]

    def forget_words(self) -> None:
        """Forget the words of this language that the process has stemmed."""
        if self._stems is not None:
            self._stems.cache_clear()

    def date_terms(self, at: datetime) -> list[str]:
        """Return the terms by which people name a day: year and day; in English also names."""
        numbers = [str(at.year), str(at.day)]
        if self.language != "english":
            return numbers
        return [*numbers, *map(self._term, (_NAMES[at.month - 1], _NAMES[12 + at.weekday()]))]


def _folded(text: str) -> str:
    """Return a text without case, accents and differences of form; cut when it grows too long."""
    decomposed = unicodedata.normalize("NFKD", text.casefold()).translate(_ACCENTS)
    most = max(_MOST_GROWN, 2 * len(text))
    return unicodedata.normalize("NFKC", decomposed)[:most]


def _parts(word: str) -> Iterator[str]:
    if word.isascii():
        yield word
        return
    for run in _UNSPACED.split(word):
        if _UNSPACED.fullmatch(run):
            yield from run
            yield from (run[start : start + 2] for start in range(len(run) - 1))
        elif run:
            yield run


def _without_ending(word: str) -> str:
    """Return a word without apostrophes and a possessive ending."""
    if word.isalnum():
        return word
    word = word.replace("\u2019", "'")
    return word.removesuffix("'s").replace("'", "")


@lru_cache
def _stems_of(language: str) -> _Stems:
    import snowballstemmer  # slow to import: it has a module for each language

    stemmer: Any = snowballstemmer.stemmer(language)
    lock = Lock()

    @lru_cache(_MOST_CACHED)
    def stem(word: str) -> str:
        with lock:  # the stemmer keeps the word that it works on
            found: str = stemmer.stemWord(_without_ending(word))
        return found

    return stem
