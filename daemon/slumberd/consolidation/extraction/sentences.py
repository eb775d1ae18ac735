"""Divide a text into sentences, and find negations in their clauses. Negations are English only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

_END = re.compile(r"\n+|[\u3002\uff01\uff1f]+|[.!?\u2026]+[\"')\]\u201d\u2019]*")


def listed(words: str) -> frozenset[str]:
    """Return words that spaces divide."""
    return frozenset(words.split())


_BEFORE_NAMES = listed(
    "mr mrs ms mx dr prof rev hon st sgt capt lt col gen gov sen rep vs cf fig eq al e.g i.e ca"
)
_AT_ENDS = listed(
    "a.m p.m etc inc ltd co corp jr sr approx dept est ave blvd rd mt ft u.s u.k u.n ph.d b.c a.d"
    " jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri sat sun"
)
_LONGEST_ABBREVIATION = 8
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u00b4`", "'"))
_SURROGATE = re.compile("[\ud800-\udfff]")

MAX_SENTENCES = 2_000
"""A text has at most this many sentences; what follows them is left out."""


class Sentence(NamedTuple):
    """One sentence of a text, without white space around it.

    Attributes:
        start: Where it begins in the text, in characters.
        text: Its words.
    """

    start: int
    text: str


def readable_form(text: str) -> str:
    """Return a text of the same length with ``'`` as its only apostrophe, and valid Unicode."""
    return replace_surrogates(text.translate(_APOSTROPHES))


def replace_surrogates(text: str) -> str:
    """Return a text of the same length with U+FFFD for each lone surrogate."""
    return _SURROGATE.sub("\ufffd", text)


def divide_into_sentences(text: str) -> list[Sentence]:
    """Return the first `MAX_SENTENCES` sentences of a text, in order. Takes linear time.

    A line end always ends a sentence. Full stops in abbreviations and numbers end none.
    """
    return list(islice(_sentences(text), MAX_SENTENCES))


def _sentences(text: str) -> Iterator[Sentence]:
    start = 0
    for match in _END.finditer(text):
        if _ends_sentence(text, start, match):
            yield from _sentence(text, start, match.end())
            start = match.end()
    yield from _sentence(text, start, len(text))


def _sentence(text: str, start: int, end: int) -> Iterator[Sentence]:
    """Yield the sentence in a part of a text; nothing when the part is white space."""
    part = text[start:end]
    words = part.lstrip()
    if words:
        yield Sentence(start + len(part) - len(words), words.rstrip())


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    mark, following = match[0], text[match.end() : match.end() + 1]
    if mark[0] in "\n\u3002\uff01\uff1f":
        return True
    if following and not following.isspace():
        return False
    return mark != "." or not _is_abbreviation(text, start, match.start(), match.end())


def _is_abbreviation(text: str, start: int, stop: int, after: int) -> bool:
    """Return whether the full stop at `stop` belongs to an abbreviation or to a list's number."""
    window = text[max(start, stop - _LONGEST_ABBREVIATION) : stop]
    word = window.split()[-1] if window and not window[-1].isspace() else ""
    word = word.lstrip("\"'([")
    following = text[after : after + 2].lstrip()
    if word.casefold() in _BEFORE_NAMES:
        return True
    if word.casefold() in _AT_ENDS:
        return following[:1].islower() or following[:1].isdigit()
    if word.casefold() in ("no", "nos"):
        return following[:1].isdigit()
    if word.isdecimal():
        return text[start:stop].strip() == word if stop - start < _LONGEST_ABBREVIATION else False
    return len(word) == 1 and word.isupper() and word != "I"


WINDOW = 200
"""A negation counts when it stands at most this many characters before the place."""

_CLAUSE_START = re.compile(
    r"[,;:.!?()\[\]\n\u2013\u2014]|\s-\s"
    r"|\b(?:but|however|though|although|because|so|then|if)\b"
    r"|\band\s+(?=(?:i|we|you|he|she|they|it)\b)"
    r"|^\s*(?:no|nope)\s+(?=(?:i|we|you|he|she|they|it|that|this|there|please|thanks)\b)",
    re.IGNORECASE,
)
_WITHOUT_FORCE = re.compile(
    r"\b(?:why (?:not|don't|dont)|not (?:only|just)|no (?:doubt|problem|wonder)|nothing but"
    r"|(?:don't|dont|not) forget|can't wait|cannot wait|(?:is|are|do|does|would|could)n't"
    r" (?:there|you|it|that|this|they))\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:not|no|never|without|neither|nor|none|nobody|nothing|cannot"
    r"|dont|doesnt|didnt|isnt|arent|wasnt|werent|cant|wont|wouldnt|shouldnt|havent|hasnt"
    r"|instead of|rather than|except)\b|n't\b",
    re.IGNORECASE,
)

_NEXT_CLAUSE = re.compile(
    r";|\s(?=[-\u2013\u2014]+\s)|(?=[\u2013\u2014])"
    r"|\b(?=(?:but|however|though|although|because|whereas)\b)"
    r"|\b(?=(?:and|or|so|while)\s+(?:i|we|you|he|she|they|it|my|our|his|her|their)\b)",
    re.IGNORECASE,
)


def clause_around(sentence: str, start: int, end: int) -> str:
    """Return the clause in which a part of a sentence stands; several when it crosses their limits.

    A clause ends at ``;`` and at a dash, and before a conjunction such as ``but``. ``and`` and
    ``or`` begin one before a new subject. A comma alone ends none: "maybe, I like tea".

    Args:
        start: Where the part begins, in characters.
    """
    limits = [match.end() for match in _NEXT_CLAUSE.finditer(sentence)]
    begin = max((limit for limit in limits if limit <= start), default=0)
    return sentence[begin : min((limit for limit in limits if limit >= end), default=None)]


def is_negated(sentence: str, at: int) -> bool:
    """Return whether a negation stands in the same clause before a place.

    A clause ends at punctuation, at a conjunction such as ``but``, and at ``and`` with a new
    subject. Phrases such as ``why not`` and ``not only`` negate nothing.

    Args:
        sentence: The sentence, with ``'`` as its only apostrophe.
        at: The place, in characters from 0.
    """
    text = sentence[max(0, at - WINDOW) : at]
    starts = [match.end() for match in _CLAUSE_START.finditer(text)]
    clause = text[starts[-1] :] if starts else text
    return _NEGATION.search(_WITHOUT_FORCE.sub(" ", clause)) is not None
