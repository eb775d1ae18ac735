"""Raise texts that are likely to answer a question for other reasons than their words.

The weights were trained listwise on three conversations of LoCoMo, five chats of REALTALK and
BEAM-100K together, in November 2026, and reduced by a third, which costs none of them recall.
docs/project/benchmarks.md has the figures. Long texts get no weight of a speaker, a time or a
question: long replies would hide what people said.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import NamedTuple

SPEAKER = 0.3
"""The weight of a text by the one person whom the question names."""

TIME = 0.5
"""The weight of a text that names a time, when the question asks for one."""

SESSION = 0.7
"""The weight of a text of the session that answers most; of other sessions less, in proportion."""

QUESTION = -0.1
"""The weight of a text that asks itself."""

MOST_WORDS = 60
"""A longer text gets the weight of its session only, and `LONG_SHARE` of that."""

LONG_SHARE = 0.7
"""Without it, BEAM-100K loses recall."""

_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_BEST_OF_A_SESSION = 3
"""A session answers as much as the mean of its best texts, so many."""

_ASKS_FOR_A_TIME = re.compile(
    r"\bwhen\b|\b(?:what|which) (?:date|day|month|year)\b", re.IGNORECASE | re.ASCII
)

_MONTHS = (
    r"jan(?:uary)?|feb(?:ruary)?|march|april|june|july|aug(?:ust)?|sept(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?"
)
_DAYS = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_PERIODS = r"week|weekend|month|year|night|summer|winter|spring|fall|autumn"
_NAMES_A_TIME = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|ago|since|recently|soon|morning|weekend"
    rf"|few (?:days|weeks|months|years)|(?:last|next|this|past) (?:{_PERIODS}|{_DAYS})"
    rf"|{_MONTHS}|{_DAYS}|(?:19|20)[0-9][0-9])\b",
    re.IGNORECASE | re.ASCII,
)


class Sought(NamedTuple):
    """What a question says about the texts that answer it.

    Attributes:
        speaker: The one speaker of the scope whom the question names; None for none or several.
        time: Whether it asks for a time.
    """

    speaker: str | None
    time: bool


def sought_by(
    question: str, words: Sequence[str], speakers: Iterable[tuple[str, frozenset[str]]]
) -> Sought:
    """Return what a question says about the texts that answer it.

    Args:
        question: The question.
        words: Its words.
        speakers: The speakers of the scope, each with the words of the name.
    """
    known = {word.removesuffix("'s") for word in words}
    named = [speaker for speaker, name in speakers if name and name <= known]
    one = named[0] if len(named) == 1 else None
    return Sought(one, _ASKS_FOR_A_TIME.search(question) is not None)


def weight_of(text: str, speaker: str, session: float, sought: Sought) -> float:
    """Return by how much a text is raised, or lowered; 0 for not at all.

    Args:
        text: The text.
        speaker: Who said it.
        session: The weight of its session.
        sought: What the question says.
    """
    if len(text.split(None, MOST_WORDS)) > MOST_WORDS:
        return LONG_SHARE * session
    weight = session + QUESTION if text.rstrip().endswith(_QUESTION_MARKS) else session
    if speaker and speaker == sought.speaker:
        weight += SPEAKER
    if sought.time and _NAMES_A_TIME.search(text):
        weight += TIME
    return weight


def evidence_of(part: float) -> float:
    """Return how much speaks for a text: 0 to infinity, for a part of 0 to 1 of the question."""
    return -math.log1p(-min(part, 1 - 1e-12))


def raised(part: float, weight: float) -> float:
    """Return what a text has of the question once it is raised, 0 to 1."""
    return -math.expm1(-evidence_of(part) * math.exp(weight))


def session_weights(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the weight of each session.

    Args:
        parts: The session of each text, and what it has of the question. Texts of no session, with
            an empty name, are left out.
    """
    evidence: dict[str, list[float]] = defaultdict(list)
    for session, part in parts:
        if session:
            evidence[session].append(evidence_of(part))
    means = {session: sum(nlargest(_BEST_OF_A_SESSION, some)) for session, some in evidence.items()}
    most = max(means.values(), default=0.0)
    return {session: SESSION * mean / most for session, mean in means.items()} if most else {}
