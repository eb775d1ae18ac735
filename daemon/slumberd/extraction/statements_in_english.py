"""The expressions of the extractor ``conversation``: what follows a subject, and what it states.

An expression is matched from the beginning of what follows the subject, without adverbs and
negation. An effect is written ``predicate=reader:group``, ``predicate='words'``, ``-predicate`` for
a retraction of all objects, or ``-predicate~group`` for a retraction by the words of a group.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

from slumberd.extraction.statements_of_clauses import CLAUSES
from slumberd.extraction.statements_of_people import PEOPLE
from slumberd.extraction.statements_of_taste import TASTE
from slumberd.extraction.statements_of_work import WORK

Subjects = Literal["any", "speaker", "known"]
"""Who may be the subject: everybody, the speaker only, or the speaker, relatives and pets."""


class Effect(NamedTuple):
    """One thing that an expression states or takes back.

    Attributes:
        predicate: What is stated or taken back.
        retracts: Whether it is taken back.
        reader: The name of the reader of the object; empty for fixed words.
        group: The group of the expression with the object.
        words: The fixed object.
    """

    predicate: str
    retracts: bool = False
    reader: str = ""
    group: str = ""
    words: str = ""


class Expression(NamedTuple):
    """An expression, and what it states.

    Attributes:
        id: Its name in ``extracted.by``.
        when: What follows the subject.
        effects: What it states; when the first one cannot be read, it states nothing.
        negated: What it states under a negation: ``-`` takes back the first object, a predicate
            states the object with it. Empty: nothing.
        subjects: Who may be the subject.
    """

    id: str
    when: re.Pattern[str]
    effects: tuple[Effect, ...]
    negated: str
    subjects: Subjects


_EFFECT = re.compile(
    r"(?P<sign>-?)(?P<predicate>\w+)(?:='(?P<words>[^']+)'|=(?P<reader>\w+):(?P<group>\w)"
    r"|~(?P<by>\w+))?"
)


def _effect(text: str) -> Effect:
    match = _EFFECT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no effect")
    parts = match.groupdict()
    return Effect(
        parts["predicate"],
        bool(parts["sign"]),
        parts["reader"] or "",
        parts["group"] or parts["by"] or "",
        parts["words"] or "",
    )


@cache
def clause_expressions() -> tuple[Expression, ...]:
    """Return the expressions of whole clauses; the speaker is their subject."""
    return tuple(
        Expression(
            id, re.compile(when, re.IGNORECASE), tuple(map(_effect, effects.split("; "))), "", "any"
        )
        for id, when, effects in CLAUSES
    )


@cache
def expressions() -> tuple[Expression, ...]:
    """Return the expressions, in the order in which they are tried."""
    return tuple(
        Expression(
            id,
            re.compile(when, re.IGNORECASE if "[A-Z]" not in when else 0),
            tuple(map(_effect, effects.split("; "))),
            negated,
            subjects,  # type: ignore[arg-type]  # the table gives no other word
        )
        for id, when, effects, negated, subjects in (*WORK, *PEOPLE, *TASTE)
    )
