"""Count the names of facts, and find those that a question misspells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import orjson

from slumberd.model.episode import are_near, comparable
from slumberd.search.columns import Parts, SavedParts, read_json
from slumberd.search.languages import is_stop_word, words_of
from slumberd.search.terms import Analyser

_LEAST_LETTERS = 6
"""A shorter word differs from too many others by one letter only."""

_LONGEST_STOP_WORD = 20
"""No longer name is a stop word."""

_PLAIN = Analyser()

_BYTES_OF_A_NAME = 60
_BYTES_OF_A_WORD = 90
"""About the bytes of each, without its letters."""


class Names:
    """The names of facts, and the words in them; each counts until the last fact with it goes.

    Attributes:
        stop_words: The names that are one stop word, such as Will and US, folded.
    """

    def __init__(self) -> None:
        self.stop_words: frozenset[str] = frozenset()
        self._names: Counter[str] = Counter()
        self._saved = memoryview(b"")
        """The names that were saved, until they are needed: a search needs the words only."""
        self._words: Counter[str] = Counter()
        self._stop_words: Counter[str] = Counter()
        self._long: dict[str, list[str]] = {}
        """The words that a typing error may change, each in two places."""

    @property
    def size_bytes(self) -> int:
        """About how much memory the names and the words take."""
        words = _BYTES_OF_A_WORD * len(self._words)
        return _BYTES_OF_A_NAME * len(self._names) + len(self._saved) + words

    def parts(self) -> SavedParts:
        """Return what `load` needs."""
        self._read_names()
        names, words, stop_words = dict(self._names), dict(self._words), dict(self._stop_words)
        places = {place: [*some] for place, some in self._long.items()}
        return {
            "name_counts": lambda: orjson.dumps(names),
            "name_words": lambda: orjson.dumps([words, stop_words, places]),
        }

    def load(self, parts: Parts) -> None:
        """Take what was saved."""
        self._saved = parts["name_counts"]
        words, stop_words, self._long = read_json(parts["name_words"])
        self._words, self._stop_words = Counter(words), Counter(stop_words)
        self.stop_words = frozenset(stop_words)

    def _read_names(self) -> None:
        if self._saved:
            self._names, self._saved = Counter(read_json(self._saved)), memoryview(b"")

    def add(self, names: Iterable[str]) -> None:
        """Count the names of a fact."""
        self._read_names()
        for name in names:
            self._names[name] += 1
            if self._names[name] == 1:
                self._add_words(name)

    def remove(self, names: Iterable[str]) -> None:
        """Count the names of a fact no more."""
        self._read_names()
        for name in names:
            if _count_less(self._names, name):
                self._remove_words(name)

    def _add_words(self, name: str) -> None:
        for word in {*_PLAIN.terms(name)}:
            self._words[word] += 1
            if self._words[word] == 1 and len(word) >= _LEAST_LETTERS:
                for place in _places_of(word):
                    self._long.setdefault(place, []).append(word)
        for word in _stop_words_in(name):
            self._stop_words[word] += 1
            self.stop_words |= {word}

    def _remove_words(self, name: str) -> None:
        for word in {*_PLAIN.terms(name)}:
            if _count_less(self._words, word) and len(word) >= _LEAST_LETTERS:
                for place in _places_of(word):
                    self._long[place].remove(word)
        for word in _stop_words_in(name):
            if _count_less(self._stop_words, word):
                self.stop_words -= {word}

    def misspelled_in(self, text: str) -> list[str]:
        """Return the words of names that a text has with one typing error."""
        found: set[str] = set()
        for word in {*_PLAIN.terms(text)} - self._words.keys():
            for place in _places_of(word, changes=(-1, 0, 1)):
                found.update(known for known in self._long.get(place, ()) if are_near(word, known))
        return sorted(found)


def _count_less(counts: Counter[str], key: str) -> bool:
    """Count one less; return whether none is left."""
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True


def _places_of(word: str, changes: Sequence[int] = (0,)) -> list[str]:
    """Return the places of a word, and of words with other lengths.

    A place is the first letter, the length, and the second letter or the last one. One typing error
    changes the second letter or the last one, but never both.

    Args:
        changes: What is added to the length.
    """
    letters = comparable(word)
    return [
        f"{word[:1]}{len(letters) + by}{end}"
        for by in changes
        for end in (f"+{letters[1:2]}", f"-{letters[-1:]}")
    ]


def _stop_words_in(name: str) -> Sequence[str]:
    """Return the word of a name that is one stop word, folded."""
    words = words_of(name) if len(name) <= _LONGEST_STOP_WORD else ()
    return words if len(words) == 1 and is_stop_word(words[0]) else ()
