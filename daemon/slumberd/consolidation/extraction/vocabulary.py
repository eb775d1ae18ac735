"""The words of the extractor ``conversation``: predicates, people, and lists of words.

Also the forms of auxiliary verbs that its expressions share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slumberd.model.predicates import names_predicate

NAME = "conversation"
"""The name of the extractor; the ids of all its expressions begin with it."""

VERSION = 1
"""Changes when the extractor finds other triples in the same text with the same vocabulary."""


@dataclass(frozen=True, slots=True)
class PersonWord:
    """What a word for a person means.

    Attributes:
        gender: ``female`` or ``male``; empty when the word does not say.
        named: The predicate that a name after the word states; may be empty.
        implies: What ``my`` with the word states of the speaker: objects by predicate.
    """

    gender: str = ""
    named: str = ""
    implies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words that an extractor knows.

    All keys of `people`, `aliases` and `words` are casefolded.

    Attributes:
        single_valued: The predicates that hold one object.
        multi_valued: The predicates that may hold several objects at once.
        opposites: For each predicate the predicates that contradict it with the same object.
        people: What words for people mean.
        aliases: Other words for people and animals.
        words: The words of each list.
        removed: The names of patterns that must state nothing, as ``extracted.by`` has them.
    """

    single_valued: frozenset[str]
    multi_valued: frozenset[str]
    opposites: Mapping[str, frozenset[str]]
    people: Mapping[str, PersonWord]
    aliases: Mapping[str, str]
    words: Mapping[str, frozenset[str]]
    removed: frozenset[str] = frozenset()

    def knows(self, predicate: str) -> bool:
        """Return whether a predicate is in the vocabulary; ``favourite_*`` names all of a kind."""
        return names_predicate(self.single_valued | self.multi_valued, predicate)

    def holds_one(self, predicate: str) -> bool:
        """Return whether a predicate holds one object."""
        return names_predicate(self.single_valued, predicate)

    def named(self, word: str) -> str:
        """Return the usual word for one that may be an alias, casefolded."""
        plain = word.casefold()
        return self.aliases.get(plain, plain)

    def holds(self, name: str, word: str) -> bool:
        """Return whether a list has a word, or its singular."""
        listed, plain = self.words.get(name, frozenset()), word.casefold()
        return plain in listed or singular(plain) in listed


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(words.split())


def singular(word: str) -> str:
    """Return the singular of an English noun, by its ending."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


BE = "(?:am|is|are)"
BEEN = "(?:am|is|are|have been|has been)"
HAVE = "(?:have|has)"
SINCE = "(?: (?:for|since|ever since|all my life|my whole life).*)"
