"""Find texts that are nearly the same: by their words, in any script, and by their vectors.

Also find what two equal wordings may differ in. Punctuation and case do not count, other signs do:
"10 EUR." is "10 eur", and "10 %" is not "10".
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from slumberd.model.texts import cut, limit_marks
from slumberd.search.vectors import Rows

_ENGLISH = "not no never none nobody nothing nowhere neither nor without hardly"
_GERMAN = (
    "nicht kein keine keinen keinem keiner keines nie niemals niemand nichts ohne weder nirgends"
)
_ROMANCE = (
    "ne pas jamais sans aucun aucune rien nunca nada nadie sin ninguno ninguna tampoco "
    "non mai senza nessuno nulla não nem sem nenhum nenhuma"
)
_OTHERS = "niet geen nooit zonder nie nigdy bez не нет никогда ничего без δεν لا ليس नहीं मत"
NEGATIONS = frozenset(f"{_ENGLISH} {_GERMAN} {_ROMANCE} {_OTHERS}".split())
"""Words that turn a statement into its opposite, of common languages, case-folded."""

NEGATING_PARTS = ("不", "没", "沒", "无", "無", "非", "未", "别", "ない", "なく", "ません", "ไม่")
"""The same for scripts without spaces."""

_CONTRACTED = "are could did does do had has have is might must need ought should was were would"
_CONTRACTIONS = {f"{verb}nt": (verb, "not") for verb in _CONTRACTED.split()} | {
    "aint": ("is", "not"),
    "cannot": ("can", "not"),
    "cant": ("can", "not"),
    "shant": ("shall", "not"),
    "wont": ("will", "not"),
}
"""Of the words that end with "n't", without their apostrophe, and of "cannot"."""

_NUMBER_WORDS = {
    word: str(number)
    for number, words in enumerate(
        (
            "zero null", "eins", "two zwei", "three drei", "four vier", "five fünf", "six sechs",
            "seven sieben", "eight acht", "nine neun", "ten zehn", "eleven elf", "twelve zwölf",
        )
    )
    for word in words.split()
}  # fmt: skip

_NUMBER = re.compile(
    r"(?:(?<![\w-])[-\u2212])?\d+(?:[.,:/\-]\d+)*|[〇一二三四五六七八九十百千万億亿零两兩]"
)
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
_SIGNS = frozenset("#%&*?@")
"""Punctuation that changes what a text says."""
_APOSTROPHES = frozenset("'\u2019\u02bc")


class Wording(NamedTuple):
    """The words of a text, for comparisons.

    Attributes:
        text: The text without differences of form, case and white space, up to the bound of
            `normal_form`.
        words: Its words in order; of scripts without spaces, pairs of characters.
        numbers: Its numbers, sorted; and a hash of what is beyond the bound, so that a long text
            equals no other by its begin alone.
        negations: Its negations, sorted.
    """

    text: str
    words: tuple[str, ...]
    numbers: tuple[str, ...]
    negations: tuple[str, ...]


_REMEMBERED_CHARACTERS = 2_000
"""A longer text is read again each time, so that remembered ones take little memory."""


def wording_of(content: str) -> Wording:
    """Return the wording of a text; those of the last short texts are remembered."""
    return (_remembered if len(content) <= _REMEMBERED_CHARACTERS else _read_wording)(content)


def forget_wordings() -> None:
    """Forget all wordings."""
    _remembered.cache_clear()


def _read_wording(content: str) -> Wording:
    text, rest = _bounded_text(content)
    words = words_of(text)
    numbers = (*_numbers_of(text, words), *([_hash_of(rest)] if rest else []))
    return Wording(text, words, numbers, _negations_of(text, words))


# A firing looks at a text up to four times, but between them at few others.
_remembered = lru_cache(maxsize=2_048)(_read_wording)


def set_of_words(words: Iterable[str], text: str) -> frozenset[str]:
    """Return the set of the words of a text; of a text without words, the text itself."""
    return frozenset(words) or frozenset([text])


def normal_text(content: str) -> str:
    """Return a text without differences of form (NFKC), case and white space."""
    text, rest = _bounded_text(content)
    return f"{text} {_hash_of(rest)}" if rest else text


def _bounded_text(content: str) -> tuple[str, str]:
    """Return the normal text up to the bound, and what is beyond it."""
    limited = limit_marks(content)
    folded, beyond = cut(unicodedata.normalize("NFKC", limited).casefold(), content)
    text, more = cut(unicodedata.normalize("NFKC", folded), content)
    marks = content if limited != content else ""
    return " ".join(text.split()), f"{more}{beyond}{marks}"


def _hash_of(rest: str) -> str:
    return sha256(rest.encode(errors="surrogatepass")).hexdigest()


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a normal text, in order.

    A sign that is not punctuation is a word. A run of a script without spaces yields its pairs of
    adjacent characters. "don't" yields "do" and "not".
    """
    spaced = text.translate(_SPACING).split()
    if text.isascii() and not any(word in _CONTRACTIONS for word in spaced):
        return tuple(spaced)
    return tuple(part for word in spaced for part in _parts(word))


class _Spacing(dict[int, str]):
    """Says what each character becomes before a text is split at white space."""

    def __missing__(self, code: int) -> str:
        self[code] = found = _spaced(chr(code))
        return found


def _spaced(character: str) -> str:
    category = unicodedata.category(character)
    if character in _APOSTROPHES or category == "Cf":
        return ""
    if character in _SIGNS or category[0] == "S":
        return f" {character} "
    return " " if category[0] in "PZ" or category == "Cc" else character


_SPACING = _Spacing()


@lru_cache(maxsize=65_536)
def _parts(word: str) -> tuple[str, ...]:
    if word.isascii():
        return _CONTRACTIONS.get(word, (word,))
    return tuple(pair for run in _UNSPACED.split(word) if run for pair in _pairs(run))


def _pairs(run: str) -> tuple[str, ...]:
    if len(run) < 3 or not _UNSPACED.fullmatch(run):
        return (run,)
    return tuple(run[start : start + 2] for start in range(len(run) - 1))


def _numbers_of(text: str, words: tuple[str, ...]) -> tuple[str, ...]:
    digits = [_in_ascii(number) for number in _NUMBER.findall(text)]
    return tuple(sorted(digits + [_NUMBER_WORDS[word] for word in words if word in _NUMBER_WORDS]))


def _in_ascii(number: str) -> str:
    if number.isascii():
        return number
    return "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in number)


def _negations_of(text: str, words: tuple[str, ...]) -> tuple[str, ...]:
    found = [word for word in words if word in NEGATIONS]
    if not text.isascii():
        found += [part for part in NEGATING_PARTS for _ in range(text.count(part))]
    return tuple(sorted(found))


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

    An exact set similarity join, without a comparison of each pair: Bayardo et al. 2007, "Scaling
    up all pairs similarity search", with the positions of Xiao et al. 2008, "Efficient similarity
    joins for near duplicate detection".

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


Embed = Callable[[Sequence[str]], Rows]
"""Returns a vector of length 1 for each text, in order; zeros for a text without words.

The vector of a text depends on no other text.

Raises:
    ExtraMissingError: The optional dependency is not installed.
"""

_BLOCK = 256
"""So many vectors are compared with the kept ones in one step."""

_COSINE_ROUNDING = 1e-4
"""The most by which a cosine of a block is wrong: its sums depend on the size of the block."""

_DIGITS = 6
"""The digits of a cosine after the point. A sum of single precision has no more."""


class NearVectors:
    """Vectors in order, some of them kept, and an exact search among the kept ones.

    The vectors are the rows of a numpy array that the caller passes in; no model is loaded here.
    The search compares vectors in blocks, and computes each cosine that it returns again. So the
    cosine of two vectors does not depend on others.

    Args:
        rows: The vectors.
        least: Two vectors are near from this cosine on, above 0.
        most: The search returns at most so many, the nearest ones.
    """

    def __init__(self, rows: Rows, least: float, most: int) -> None:
        self._rows = rows
        self._least = least
        self._most = most
        self._kept: list[int] = []
        self._block = range(0)
        self._compared: Sequence[int] = ()
        self._cosines: Rows = None
        self._exact: Rows = None

    def keep(self, number: int) -> None:
        """Keep a vector; its number is higher than that of each kept one."""
        self._kept.append(number)

    def find(self, number: int) -> Iterator[tuple[int, float]]:
        """Yield the kept vectors near to one, in the order of keeping, with their cosines.

        Args:
            number: The number of the vector; it never falls, and is higher than each kept one.
        """
        if number not in self._block:
            self._compare_block(number)
        cosines = self._cosines[number - self._block.start]
        places = (cosines >= self._least - _COSINE_ROUNDING).nonzero()[0]
        if len(places) > self._most:
            cosines = self._exact_cosines()[number - self._block.start]
        nearest = places[(-cosines[places]).argsort(kind="stable")].tolist()
        kept = self._kept_among(nearest)
        for other in sorted(kept):
            cosine = self._cosine(number, other)
            if cosine >= self._least:
                yield other, cosine

    def _compare_block(self, first: int) -> None:
        """Compare a block with all kept vectors, and with itself: it may keep some of its own."""
        self._block = range(first, min(first + _BLOCK, len(self._rows)))
        self._compared = [*self._kept, *self._block]
        block = self._rows[self._block.start : self._block.stop]
        self._cosines = block @ self._rows[self._compared].T
        self._exact = None

    def _exact_cosines(self) -> Rows:
        """Return the cosines of the block, such that equal vectors have equal ones."""
        if self._exact is None:
            block = self._rows[self._block.start : self._block.stop].astype(float)
            self._exact = (block @ self._rows[self._compared].astype(float).T).round(_DIGITS)
        return self._exact

    def _kept_among(self, places: Sequence[int]) -> list[int]:
        """Return the first kept vectors of some places of the comparison."""
        before = len(self._compared) - len(self._block)
        found: list[int] = []
        own = frozenset(self._kept[before:])
        for place in places:
            number = self._compared[place]
            if place < before or number in own:
                found.append(number)
                if len(found) == self._most:
                    break
        return found

    def _cosine(self, left: int, right: int) -> float:
        product = self._rows[left].astype(float) * self._rows[right]
        return min(1.0, round(float(product.sum()), _DIGITS))
