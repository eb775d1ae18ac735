"""Likeness: which facts say nearly the same, and which of them the very same.

What a model of words calls near speaks of the same, and may say the opposite: "the shop is open"
and "the shop is closed" are as near as a restatement. So nearness alone takes nothing out. What is
near is linked, and only what says the same word for word takes the older one's place.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from slumberd.consolidation.claim import Claim, Precedence, has_subject
from slumberd.model.fact_ids import canonical
from slumberd.model.scope import escape

TEXT_CHARACTERS = 4_000
"""Of a text that are compared by what they speak of; word for word, all of it is."""

WORD_CHARACTERS = 65_536
"""Of contents that are compared word for word; longer ones must be equal to the letter."""

_WORD = re.compile(r"\d+(?:[.,:/-]\d+)*|[^\W\d_]+(?:['\u2019][^\W\d_]+)*|[^\s\w]|_")
_SENTENCE_ENDS = frozenset(".!…")
_ARTICLES = frozenset({"a", "an", "the"})
_NEGATIONS = frozenset(
    {
        *(
            "no",
            "not",
            "never",
            "none",
            "nobody",
            "nothing",
            "nowhere",
            "neither",
            "nor",
            "without",
        ),
        *("but", "cannot", "except", "barely", "hardly"),
        *("aucun", "jamais", "ne", "ni", "pas", "sans"),
        *("kein", "keine", "nicht", "nie", "niemand", "ohne"),
        *("mai", "non", "nunca", "senza", "sin"),
    }
)
_LEAST_TURNED = 2
"""Words of each part that may change places: of two alone, either may act on the other."""
_MOST_TURNED = 200
"""Words of a text from which on another order is not looked for."""


class Statement(NamedTuple):
    """What a fact says, as far as others are compared with it.

    Attributes:
        fact_id: The fact's id.
        key: Its key.
        precedence: When it was said.
        payload: Its body.
    """

    fact_id: str
    key: str
    precedence: Precedence
    payload: dict[str, Any]

    @property
    def text(self) -> str:
        """Its content; of a fact without any, its subject, predicate and object."""
        content = _content(self)
        if content and not content.isspace():
            return content[:TEXT_CHARACTERS]
        triple = (self.payload.get(part) for part in ("subject", "predicate", "object"))
        return " ".join(_shown(one) for one in triple if one is not None)[:TEXT_CHARACTERS]


def statement_of(claim: Claim) -> Statement:
    """Return what an act says."""
    return Statement(claim.fact_id, claim.key, claim.precedence, claim.payload)


def family_of(claim: Claim) -> str:
    """Return what all keys begin with that an act's fact is compared with.

    They are of the same user, agent and channel, and of the same subject; facts without a key of
    subject and predicate are compared with each other.
    """
    if has_subject(claim):
        return f"{act.owner}{escape(act.payload['subject'])}/"
    return f"{act.owner}//"


def says_the_same(one: Statement, other: Statement) -> bool:
    """Say whether two facts of a family say the very same, word for word.

    Where sentences begin and end, and articles, do not count. The end of a text may have become its
    beginning where nothing is negated; any other order may turn around who did what to whom. Words
    that differ may be opposites, numbers or names: there are none.
    """
    return (
        all(_same_part(one, other, part) for part in ("subject", "predicate", "object"))
        and bool(_words(one.text))
        and _same_contents(_content(one), _content(other))
    )


class _Word(NamedTuple):
    """A word, a number or a sign.

    Attributes:
        text: As it is written.
        begins: Whether a sentence begins with it, so that a capital says nothing.
    """

    text: str
    begins: bool = False

    def is_as(self, other: _Word) -> bool:
        """Say whether it is the same word."""
        mine, theirs = self.text, other.text
        if mine == theirs:
            return True
        capital = self.begins or other.begins
        return capital and mine[1:] == theirs[1:] and mine[0].casefold() == theirs[0].casefold()

    @property
    def negates(self) -> bool:
        """Whether it turns something into its opposite, in some languages that we know."""
        folded = self.text.casefold().replace("\u2019", "'")
        return folded in _NEGATIONS or folded.endswith("n't")


def _same_contents(one: str, other: str) -> bool:
    if max(len(one), len(other)) > WORD_CHARACTERS:
        return one == other
    return _bag_of(one) == _bag_of(other) and _same_words(_words(one), _words(other))


@lru_cache(maxsize=2_048)
def _bag_of(text: str) -> int:
    """Return what is equal for texts of the same words in any order, capitals aside.

    Each of many near texts is taken apart once, and not once for each of the others.
    """
    return hash(tuple(sorted(word.text.casefold() for word in _words(text))))


def _same_part(one: Statement, other: Statement, part: str) -> bool:
    mine, theirs = one.payload.get(part), other.payload.get(part)
    if isinstance(mine, str) and isinstance(theirs, str):
        # These are no sentences: a capital in them may be all that makes a name.
        return _texts(mine) == _texts(theirs)
    return canonical(mine) == canonical(theirs)


def _texts(text: str) -> list[str]:
    return [word.text for word in _words(text)]


def _same_words(one: Sequence[_Word], other: Sequence[_Word]) -> bool:
    if len(one) != len(other):
        return False
    if all(map(_Word.is_as, one, other)):
        return True
    if len(one) > _MOST_TURNED or any(word.negates for word in one):
        return False
    return any(
        all(map(_Word.is_as, (*one[first:], *one[:first]), other))
        for first in range(_LEAST_TURNED, len(one) - _LEAST_TURNED + 1)
    )


def _words(text: str) -> list[_Word]:
    """Return the words of a text in order, but no articles and no ends of sentences."""
    found: list[_Word] = []
    begins = True
    for word in _WORD.findall(unicodedata.normalize("NFC", text)):
        if word in _SENTENCE_ENDS:
            begins = True
            continue
        if word.casefold() not in _ARTICLES:
            found.append(_Word(word, begins))
        begins = False
    return found


def _content(statement: Statement) -> str:
    content = statement.payload.get("content")
    return content if isinstance(content, str) else ""


def _shown(value: object) -> str:
    return value if isinstance(value, str) else canonical(value)
