"""Find the clause around a place in a sentence, and a negation in it. English words only."""

from __future__ import annotations

import re

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
        sentence: The sentence.
        start: Where the part begins, in characters.
        end: Where it ends.
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
