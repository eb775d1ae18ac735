"""Bring texts into a normal form, and mark texts that were recalled.

A normal form of Unicode takes bounded time and length: the compatibility form of one character may
have 18 characters, and a long run of combining marks takes the square of its length to sort.

An agent that stores its whole prompt as an episode also stores the context in it. That context
begins and ends with the marks of this module, so extraction and search leave it out. Within it, a
sentence that is not true any more says so in place.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import date

LANGUAGES = (
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "esperanto",
    "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian",
    "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese", "romanian", "russian",
    "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip
"""The languages whose words can be stemmed."""

AUTO = "auto"
"""In place of a language: the stop words of the texts decide."""

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


BEGIN = "<slumberd-memory>"
END = "</slumberd-memory>"

MOST_NOTES = 3
"""The most replacing values that a quoted sentence names."""

_MOST_CHARACTERS = 200
"""The longest value in a note; the rest is cut off."""

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip

_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?(?:{re.escape(END)}|\\Z)", re.DOTALL)


def without_recalled(text: str) -> str:
    """Return a text of the same length, with spaces in place of what was recalled.

    A block without an end reaches to the end of the text.
    """
    return _BLOCK.sub(lambda block: " " * len(block.group()), text) if BEGIN in text else text


def strip_recalled(text: str) -> str:
    """Return a text without what was recalled, and without the space around it."""
    # A space keeps the text around a block from becoming another mark.
    return _BLOCK.sub(" ", text).strip()


def note_of(what: str, at: date, value: str) -> str:
    """Return what a quoted sentence says about itself, such as "replaced on 8 March 2026: ...".

    Args:
        what: What happened.
        value: The value that is current now, the one that was retracted, or the id of an episode.
    """
    if len(value) > _MOST_CHARACTERS:
        value = value[:_MOST_CHARACTERS] + "\N{HORIZONTAL ELLIPSIS}"
    return f"{what} on {at.day} {_MONTHS[at.month - 1]} {at.year}: {value}"


def limit_notes(notes: Sequence[str]) -> list[str]:
    """Return the first notes, and how many others there are."""
    others = len(notes) - MOST_NOTES
    return [*notes[:MOST_NOTES], *([f"and {others} more"] if others > 0 else [])]


def is_storable(text: str) -> bool:
    """Return whether a store can keep a text unchanged: no NUL and no lone surrogate."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
