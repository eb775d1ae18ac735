"""Split texts into comparable words, in any script, and find what two equal wordings may differ in.

Punctuation and case do not count, other signs do: "10 EUR." is "10 eur", and "10 %" is not "10".
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from slumberd.model.texts import cut, limit_marks

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


def wording_of(content: str) -> Wording:
    """Return the wording of a text."""
    text, rest = _bounded_text(content)
    words = words_of(text)
    numbers = (*_numbers_of(text, words), *([_hash_of(rest)] if rest else []))
    return Wording(text, words, numbers, _negations_of(text, words))


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
