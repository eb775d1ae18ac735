"""Raise texts that are likely to answer a question for other reasons than their words.

The weights were trained listwise on three conversations of LoCoMo, five chats of REALTALK and
BEAM-100K together, in November 2026. Then they were reduced by a third; recall stayed equal.
docs/project/benchmarks.md has the figures. Long texts get no weight of a speaker, a time or a
question: long replies would hide what people said.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

SPEAKER = 0.3
"""The weight of a text by the one person whom the question names."""

TIME = 0.5
"""The weight of a text that names a time, when the question asks for one."""

SESSION = 0.7
"""By how much less a text of a session counts that answers nothing than one of the best session."""

QUESTION = -0.1
"""The weight of a text that asks itself."""

MOST_WORDS = 60
"""Of a longer text only the session counts, and `LONG_SHARE` of what it answers."""

LONG_SHARE = 0.7
"""Without it, BEAM-100K loses recall."""

_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_BEST_OF_A_SESSION = 3
"""The number of best texts of a session whose mean says how much the session answers."""

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
        speakers: The speakers of the scope, each with the words of the name.
    """
    known = {word.removesuffix("'s") for word in words}
    named = [speaker for speaker, name in speakers if name and name <= known]
    one = named[0] if len(named) == 1 else None
    return Sought(one, _ASKS_FOR_A_TIME.search(question) is not None)


class TextSigns(NamedTuple):
    """What a text alone says about whether it is raised.

    Attributes:
        is_long: Whether it has more than `MOST_WORDS` words; the others are then False.
        asks: Whether it ends with a question mark.
    """

    is_long: bool
    asks: bool = False
    names_a_time: bool = False


def signs_of(text: str) -> TextSigns:
    """Return what a text alone says about whether it is raised."""
    if len(text) > 2 * MOST_WORDS and len(text.split(None, MOST_WORDS)) > MOST_WORDS:
        return TextSigns(is_long=True)
    asks = text.rstrip().endswith(_QUESTION_MARKS)
    return TextSigns(False, asks, _NAMES_A_TIME.search(text) is not None)


def weight_of(signs: TextSigns, speaker: str, share: float | None, sought: Sought) -> float:
    """Return by how much a text is raised, or lowered; 0 for not at all.

    Args:
        signs: What `signs_of` returned for the text.
        speaker: Who said it.
        share: What `SessionEvidence.share_of` returned.
        sought: What the question says.
    """
    long_share = LONG_SHARE if signs.is_long else 1
    weight = 0.0 if share is None else SESSION * (share * long_share - 1)
    if signs.is_long:
        return weight
    if signs.asks:
        weight += QUESTION
    if speaker and speaker == sought.speaker:
        weight += SPEAKER
    if sought.time and signs.names_a_time:
        weight += TIME
    return weight


def evidence_of(part: float) -> float:
    """Return how much speaks for a text: 0 to infinity, for a part of 0 to 1 of the question."""
    return -math.log1p(-min(part, 1 - 1e-12))


def raised(part: float, weight: float) -> float:
    """Return what a text has of the question once it is raised, 0 to 1."""
    return -math.expm1(-evidence_of(part) * math.exp(weight))


class SessionEvidence(NamedTuple):
    """How much the sessions of a scope answer of a question.

    Attributes:
        shares: By session, what it answers compared with the one that answers most, 0 to 1.
        most: What that one answers; 0 without sessions.
    """

    shares: Mapping[str, float]
    most: float

    def share_of(self, session: str, part: float) -> float | None:
        """Return the share of a text; None when there are no sessions to compare.

        Args:
            session: The session of the text; without one, the text is compared itself.
            part: What the text has of the question.
        """
        if not self.most:
            return None
        if session:
            return self.shares.get(session, 0.0)
        return min(1.0, evidence_of(part) / self.most)


def evidence_of_sessions(parts: Iterable[tuple[str, float]]) -> SessionEvidence:
    """Return how much the sessions of a scope answer of a question.

    Args:
        parts: The session of each text, and what it has of the question. Texts of no session, with
            an empty name, are left out.
    """
    evidence: dict[str, list[float]] = defaultdict(list)
    for session, part in parts:
        if session:
            evidence[session].append(evidence_of(part))
    means = {
        session: sum(nlargest(_BEST_OF_A_SESSION, some)) / _BEST_OF_A_SESSION
        for session, some in evidence.items()
    }
    most = max(means.values(), default=0.0)
    shares = {session: mean / most for session, mean in means.items()} if most else {}
    return SessionEvidence(shares, most)
