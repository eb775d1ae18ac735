"""Bring long texts into a normal form of Unicode, in bounded time and length.

The compatibility form of one character may have 18 characters, and a long run of combining marks
takes the square of its length to sort.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST = 65_536
"""A normal form is at most so long, or as long as its text."""

MOST_MARKS = 30
"""The most combining marks of one letter, as in the Stream-Safe Text Format of Unicode."""

_NO_WORD = re.compile(rf"\W{{{MOST_MARKS + 1},}}")


def limit_marks(text: str) -> str:
    """Return a text without further combining marks after `MOST_MARKS` in a row."""
    return _NO_WORD.sub(_limit_run, text)


def words_of(text: str) -> list[str]:
    """Return the words of a text, alike in every case and normal form.

    A word has letters with their marks, numbers, ``_``, and joiners. Marks alone are none.
    """
    if text.isascii():
        return re.findall(r"\w+", text.lower())
    folded = unicodedata.normalize("NFD", limit_marks(text)).casefold()
    whole = "".join(
        each if _is_of_word(each) else " " for each in unicodedata.normalize("NFC", folded)
    )
    return [word for word in whole.split() if re.search(r"\w", word)]


def _is_of_word(character: str) -> bool:
    return (
        character.isalnum()
        or character in "_\u200c\u200d"
        or unicodedata.category(character).startswith("M")
    )


def _limit_run(match: re.Match[str]) -> str:
    kept, marks = [], 0
    for character in match[0]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MOST_MARKS:
            kept.append(character)
    return "".join(kept)


def cut(normal: str, text: str) -> tuple[str, str]:
    """Return the normal form of a text in its bounds, and the rest of the form."""
    longest = max(LONGEST, len(text))
    return normal[:longest], normal[longest:]
