"""Split texts into folded words, in any script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from slumberd.model.texts import cut, limit_marks

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
"""The same in ASCII, which is found in half the time."""

_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
"""Scripts without spaces: Chinese, Japanese, Thai, Lao, Burmese, Khmer."""

_ACCENTS = dict.fromkeys(range(0x300, 0x370))
"""The accents of Latin, Greek and Cyrillic letters, once they are decomposed."""

_APOSTROPHE = "\u2019"


def words_of(text: str) -> list[str]:
    """Return the words of a text in order: without case, accents and differences of form (NFKC).

    A text without letters and digits has its signs as words, such as a picture of a thumb.
    """
    if text.isascii():
        lower = text.lower()
        return _ASCII_WORD.findall(lower) or lower.split()
    folded = fold(text).replace(_APOSTROPHE, "'")
    return _WORD.findall(folded) or folded.split()


def fold(text: str) -> str:
    """Return a text without case, accents and differences of form."""
    limited = limit_marks(text.casefold())
    decomposed = unicodedata.normalize("NFKD", limited).translate(_ACCENTS)
    folded, _ = cut(unicodedata.normalize("NFKC", decomposed), text)
    return folded


def parts_of(word: str) -> Iterator[str]:
    """Yield a word; of a script without spaces its characters, and its pairs of neighbours."""
    if word.isascii():
        yield word
        return
    for run in _UNSPACED.split(word):
        if _UNSPACED.fullmatch(run):
            yield from run
            yield from (run[start : start + 2] for start in range(len(run) - 1))
        elif run:
            yield run
