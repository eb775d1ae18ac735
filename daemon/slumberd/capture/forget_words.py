"""Find the words by which a person asks not to remember what was said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Request = Literal["this", "that"]
"""What is to be forgotten: this turn, or also the turn before."""

FORGET_THIS = ("don't remember this", "do not remember this")
FORGET_THAT = (
    "forget that",
    "forget what I just said",
    "forget what I said",
    "don't remember that",
    "do not remember that",
)

_BEFORE = 60
_CURLY = "\u2019"
_WORD = re.compile(r"[\w']+|[^\w\s']|\n")

_NO_REQUEST = frozenset({
    "always", "cannot", "did", "do", "easily", "he", "i", "it", "may", "might", "must", "never",
    "not", "often", "people", "she", "should", "sometimes", "they", "tend", "to", "users",
    "usually", "we", "who", "will", "would",
})  # fmt: skip
"""After these words, the words to forget report or deny something, and ask for nothing."""

_ENDINGS = ("n't", "dont", "didnt", "wont", "cant", "'d", "'ll", "'ve")
_ASKING = frozenset({"can", "could", "sure", "will", "would"})


class ForgetWords:
    """The words by which a person asks to forget a turn.

    Args:
        this: The words for the turn in which they stand.
        that: The words for that turn and the one before it.
    """

    def __init__(
        self, this: Sequence[str] = FORGET_THIS, that: Sequence[str] = FORGET_THAT
    ) -> None:
        self._this, self._that = _pattern(this), _pattern(that)

    def request_in(self, text: str) -> Request | None:
        """Return what a person asks to forget by a text; None when they ask for nothing."""
        if _asks(self._that, text):
            return "that"
        return "this" if _asks(self._this, text) else None


def _pattern(phrases: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern for phrases, whatever their case, spaces and apostrophes."""
    if not phrases:
        return None
    each = (
        r"\s{1,5}".join(
            re.escape(word).replace("'", f"['{_CURLY}]?")
            for word in phrase.replace(_CURLY, "'").split()
        )
        for phrase in phrases
    )
    return re.compile(rf"(?<!\w)(?:{'|'.join(each)})(?!\w)", re.IGNORECASE)


def _asks(pattern: re.Pattern[str] | None, text: str) -> bool:
    return pattern is not None and any(
        _is_request(text[max(0, match.start() - _BEFORE) : match.start()])
        for match in pattern.finditer(text)
    )


def _is_request(before: str) -> bool:
    """Return whether the words after a text ask for something, by the last words of the text."""
    words = ["", "", *_WORD.findall(before.lower().replace(_CURLY, "'"))]
    second, last = str(words[-2]), str(words[-1])
    if last == "you":
        return second in _ASKING
    if last == "to":
        return second == "you"
    return last not in _NO_REQUEST and not last.endswith(_ENDINGS)
