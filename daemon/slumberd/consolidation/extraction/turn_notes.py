"""What a turn has said so far: its triples, and the people and pets that it named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from slumberd.consolidation.extraction.clauses import Clause
from slumberd.consolidation.extraction.objects_in_english import Object
from slumberd.consolidation.extraction.subjects_in_english import Mention, Subject, mentions
from slumberd.consolidation.extraction.vocabulary import NAME, Vocabulary
from slumberd.model.extraction import Extracted

STATED, IMPLIED, ANSWERED = 0.9, 0.8, 0.7
"""The confidence of what a clause states, of what a possessive implies, and of a short answer."""


class _Said(NamedTuple):
    """Where a turn states a predicate that holds one object."""

    clause: Clause
    id: str
    confidence: float


class Triples(NamedTuple):
    """The triples of a turn at one moment.

    Attributes:
        found: The triples.
        said: Where each predicate that holds one object is stated, by subject and predicate.
    """

    found: tuple[Extracted, ...]
    said: Mapping[tuple[str, str], _Said]


class TurnNotes:
    """Collects what a turn says.

    Args:
        speaker: What the speaker is called.
        vocabulary: The words that are known.

    Attributes:
        found: The triples so far.
        told: The kind of person or animal of each name, and whether it is an animal.
    """

    def __init__(self, speaker: str, vocabulary: Vocabulary) -> None:
        self.speaker = speaker
        self.vocabulary = vocabulary
        self.found: list[Extracted] = []
        self.told: dict[str, tuple[str, bool]] = {}
        self._people: list[tuple[str, str]] = []
        self._said: dict[tuple[str, str], _Said] = {}

    def triples(self) -> Triples:
        """Return what the turn has said so far, for `restore`."""
        return Triples(tuple(self.found), dict(self._said))

    def restore(self, triples: Triples) -> None:
        """Forget what the turn has said since `triples` returned its triples."""
        self.found, self._said = [*triples.found], dict(triples.said)

    def is_over(self, mention: Mention, text: str) -> bool:
        """Return whether a clause names somebody who is no longer what the word says."""
        person = self.vocabulary.people.get(mention.kind)
        is_partner = person is not None and person.named == "partner"
        return bool(_IMPLIES_NOTHING.search(text) or (is_partner and _SEPARATED.search(text)))

    def remember(self, mention: Mention) -> None:
        """Remember somebody for ``she``, ``he`` and the name."""
        who = f"{self.speaker}'s {mention.kind}"
        person = self.vocabulary.people.get(mention.kind)
        self._people.append((person.gender if person else "", who))
        for name in mention.names:
            self.told[name] = (mention.kind, mention.is_pet)

    def imply(self, clause: Clause, mention: Mention) -> None:
        """State what ``my wife Ana`` and ``our dog Rex`` imply."""
        add = partial(self.add, clause, "implied", self.speaker, confidence=IMPLIED)
        if mention.is_pet:
            if mention.names or mention.kind not in _EATEN:
                add("has_pet", mention.kind)
        else:
            for predicate, object_ in self.vocabulary.people[mention.kind].implies.items():
                add(predicate, object_)
        self.name(clause, mention)

    def name(self, clause: Clause, mention: Mention) -> None:
        """State the names of a person or pet."""
        person = self.vocabulary.people.get(mention.kind)
        predicate = "pet_name" if mention.is_pet else person.named if person else ""
        for name in mention.names if predicate else ():
            self.add(clause, "named", self.speaker, predicate, name)

    def who(self, subject: Subject) -> str:
        """Return what the subject of a clause is called; empty when nobody is known."""
        match subject.kind:
            case "i" | "we" | "me":
                return self.speaker
            case "my":
                return f"{self.speaker}'s {subject.mention.kind}" if subject.mention else ""
            case "she" | "he" | "who":
                wanted = {"she": ("female", ""), "he": ("male", "")}.get(subject.kind)
                fits = [who for gender, who in self._people if wanted is None or gender in wanted]
                return fits[-1] if fits else ""
            case _:
                return subject.words

    def lose_pet(self, clause: Clause, id: str, text: str) -> None:
        """Take back the pets that a text names; ``him`` is the pet that was named last."""
        if text in ("him", "her"):
            kind = self._people[-1][1].removeprefix(f"{self.speaker}'s ") if self._people else ""
            text = f"my {kind}"
        text = _OLD.sub(r"\1 ", text)
        for mention in mentions(text, self.vocabulary):
            if mention.is_pet and not text[mention.end :].strip(" ,"):
                self.end_pet(clause, id, mention.kind, mention.names)

    def end_pet(self, clause: Clause, id: str, kind: str, names: Sequence[str]) -> None:
        """Take back a pet, and its names; not the kind while another one of it was named.

        Args:
            clause: What says so.
            id: The pattern.
            kind: The animal; empty for an unknown one.
            names: Its names; without any, the name of the only such animal that was named.
        """
        told = [name for name, (known, _) in self.told.items() if known == kind]
        names = names or (told if len(told) == 1 else ())
        kinds = {kind, *(self.told[name][0] for name in names if self.is_pet(name))} - {""}
        for name in names:
            self.told.pop(name, None)
        if names:
            kinds -= {known for known, _ in self.told.values()}
        for one in sorted(kinds):
            self.end(clause, id, self.speaker, "has_pet", one, (one,))
        for name in names:
            self.end(clause, id, self.speaker, "pet_name", name, (name,))

    def _named(self, subject: str) -> tuple[str, str]:
        """Return the subject and the predicate that hold a name: the speaker's, of a relative."""
        kind = subject.removeprefix(f"{self.speaker}'s ")
        person = self.vocabulary.people.get(kind)
        if person is not None and person.named:
            return self.speaker, person.named
        is_pet = kind != subject and kind in self.vocabulary.words.get("animals", ())
        return (self.speaker, "pet_name") if is_pet else (subject, "name")

    def is_pet(self, name: str) -> bool:
        """Return whether a name was said to be that of a pet."""
        return name in self.told and self.told[name][1]

    def end(  # the triple, and where it is said
        self,
        clause: Clause,
        id: str,
        subject: str,
        predicate: str,
        object_: Object,
        words: Iterable[str],
    ) -> None:
        """Take back the objects that hold all words; forget that the turn stated the object."""
        if f"{NAME}/{id}" not in self.vocabulary.removed:
            gone = (subject, predicate, object_, "add")
            self.found = [
                one
                for one in self.found
                if (one.subject, one.predicate, one.object, one.intent) != gone
            ]
            self.retract(clause, id, subject, predicate, words)

    def drop(self, subject: str, predicate: str) -> None:
        """Forget what the turn stated before of a predicate."""
        self.found = [
            one
            for one in self.found
            if one.intent != "add" or (one.subject, one.predicate) != (subject, predicate)
        ]

    def add(
        self,
        clause: Clause,
        id: str,
        subject: str,
        predicate: str,
        object_: Object,
        confidence: float = STATED,
    ) -> None:
        """State a triple, and take back its opposites.

        A predicate that holds one object keeps what the last clause of the turn states, unless that
        is only implied. A removed pattern states nothing. The name of a relative has a predicate.
        """
        if predicate == "name":
            subject, predicate = self._named(subject)
        if f"{NAME}/{id}" in self.vocabulary.removed:
            return
        if self.vocabulary.holds_one(predicate):
            said = self._said.setdefault((subject, predicate), _Said(clause, id, confidence))
            if confidence < said.confidence:
                return
            if (clause, id) != (said.clause, said.id):
                self.drop(subject, predicate)
                self._said[subject, predicate] = _Said(clause, id, confidence)
        self.found.append(
            Extracted(subject, predicate, object_, "add", clause.span, f"{NAME}/{id}", confidence)
        )
        for opposite in sorted(self.vocabulary.opposites.get(predicate, ())):
            if not self._is_consumed(opposite, object_):
                continue
            self.found.append(
                Extracted(
                    subject, opposite, object_, "delete", clause.span, f"{NAME}/{id}", confidence
                )
            )

    def _is_consumed(self, predicate: str, object_: Object) -> bool:
        """Return whether somebody may eat or drink an object; other predicates take all objects."""
        lists = {"eats": "foods", "drinks": "drinks"}
        other = {"eats": "drinks", "drinks": "foods"}.get(predicate)
        holds = self.vocabulary.holds
        return other is None or not (
            holds(other, str(object_)) and not holds(lists[predicate], str(object_))
        )

    def retract(
        self, clause: Clause, id: str, subject: str, predicate: str, words: Iterable[str]
    ) -> None:
        """Take back the objects that hold all words; without words, all objects.

        Without words, the turn does not imply an object of the predicate either.
        """
        if f"{NAME}/{id}" in self.vocabulary.removed:
            return
        words = tuple(words)
        if not words:
            self.found = [
                one
                for one in self.found
                if (one.subject, one.predicate) != (subject, predicate) or one.by not in _IMPLIED
            ]
        self.found.append(
            Extracted(
                subject,
                predicate,
                None,
                "delete",
                clause.span,
                f"{NAME}/{id}",
                STATED,
                words,
            )
        )


_IMPLIED = frozenset({f"{NAME}/implied", f"{NAME}/named"})
"""The patterns of what ``my wife Ana`` implies."""

_IMPLIES_NOTHING = re.compile(
    r"\b(?:used to|ex|never had|no longer|any ?more|future|imaginary|died|passed away|lost|put"
    r" down|did not make it|crossed the rainbow|as a kid|childhood"
    r"|growing up|when I was|not my|like my|be my|become my|find my|meet my|was my|were my"
    r"|left me|dumped me)\b",
    re.IGNORECASE,
)
_OLD = re.compile(r"^(my|our) (?:old|late) ")
_EATEN = frozenset({"chicken", "fish", "hen", "goat", "pig", "lab", "rat", "bird"})
"""``my fish`` may be a meal, and ``my lab`` a place of work."""
_SEPARATED = re.compile(
    r"\b(?:broke up|broken up|split up|split|separated|divorced?|getting a divorce|no longer"
    r" together)\b",
    re.IGNORECASE,
)
