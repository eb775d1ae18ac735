"""Mark texts that were recalled, so that extraction and search leave them out.

An agent that stores its whole prompt as an episode also stores the context in it. That context
begins and ends with the marks of this module. Within it, a sentence that is not true any more says
so in place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

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
        at: When.
        value: The value that is current now, the one that was retracted, or the id of an episode.
    """
    if len(value) > _MOST_CHARACTERS:
        value = value[:_MOST_CHARACTERS] + "\N{HORIZONTAL ELLIPSIS}"
    return f"{what} on {at.day} {_MONTHS[at.month - 1]} {at.year}: {value}"


def limit_notes(notes: Sequence[str]) -> list[str]:
    """Return the first notes, and how many others there are."""
    others = len(notes) - MOST_NOTES
    return [*notes[:MOST_NOTES], *([f"and {others} more"] if others > 0 else [])]
