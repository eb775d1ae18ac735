"""Index the current facts of one scope, and the marks of its episodes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from math import isfinite
from sys import intern
from typing import Any, NamedTuple

import orjson

from slumberd.model.fact import Fact, sortable_confidence, words_of_payload
from slumberd.model.feed import NumberedFact
from slumberd.model.scope import ScopeFilter
from slumberd.model.stages import MARK_IDS, MARKS
from slumberd.search.columns import Parts, SavedParts, read_json
from slumberd.search.hits import Hit, Trust
from slumberd.search.kept_texts import BYTES_OF_NOTHING, SavableIndex
from slumberd.search.names import Names
from slumberd.search.question_words import words_of_questions
from slumberd.search.scope_index import FoundText, IndexedTurn

ALIAS_PREDICATES = frozenset({"alias", "aliases", "also_known_as", "aka"})
"""A fact with one of these predicates says that its subject has another name."""

_MANUAL = "@manual"

_MARK_IDS = f"@{MARKS}/"

_BYTES_OF_A_FACT = 150
_BYTES_OF_A_MARK = 250
"""About the bytes of each, without its letters."""


class IndexedFact(NamedTuple):
    """What a search needs of a fact.

    Attributes:
        text: The fact in words.
        names: Its subject, and its object or objects, if they are texts.
        predicate: Its predicate; empty when that is no text.
        confidence: As the fact has it; other programs may have written something else.
        standing: The confidence as a number.
    """

    id: str
    text: str
    names: tuple[str, ...]
    predicate: str
    at: datetime
    user: str
    agent: str
    trust: Trust
    confidence: float
    standing: float
    sources: tuple[str, ...]

    @property
    def is_alias(self) -> bool:
        """Whether it says that its names mean the same."""
        return self.predicate in ALIAS_PREDICATES

    @property
    def turn(self) -> IndexedTurn:
        """What is indexed of it."""
        return IndexedTurn(self.id, self.text, questions=words_of_questions(self.predicate))

    @property
    def letters(self) -> int:
        """About the bytes of its texts."""
        return len(self.text) + sum(map(len, self.sources)) + len(self.id)

    def document(self) -> list[Any]:
        """Return what is saved of it beside its id, as values of JSON.

        Raises:
            TypeError: Its confidence is infinite, which JSON has not.
        """
        if not isfinite(self.standing):
            raise TypeError(f"the confidence of fact {self.id!r} is infinite")
        _, text, names, predicate, at, *others = self
        return [text, names, predicate, at.isoformat(), *others]

    @classmethod
    def of_document(cls, id: str, document: list[Any]) -> IndexedFact:  # of the fact
        """Return the fact with an id from its document."""
        found = cls(id, *document)
        at = datetime.fromisoformat(document[3])
        return found._replace(at=at, names=tuple(found.names), sources=tuple(found.sources))


def indexed_fact(fact: Fact) -> IndexedFact:
    """Return what a search needs of a fact. Facts share the names that they have in common."""
    predicate = fact.payload.get("predicate")
    return IndexedFact(
        fact.id,
        words_of_fact(fact),
        tuple(map(intern, names_of_fact(fact))),
        intern(predicate) if isinstance(predicate, str) else "",
        fact.said_at,
        intern(fact.user),
        intern(fact.agent),
        trust_of_fact(fact),
        fact.confidence,
        sortable_confidence(fact),
        sources_of_fact(fact),
    )


class FactIndex(SavableIndex[IndexedFact]):
    """The facts of a user, or of one agent of it, with their index, and the marks of episodes.

    Args:
        scope: The user and the agent.
        language: The language of the facts; `languages.AUTO` recognises it; None stems no word.
        vectors: Whether meanings count.
    """

    def __init__(self, scope: ScopeFilter, *, language: str | None, vectors: bool) -> None:
        super().__init__(
            scope,
            language=language,
            vectors=vectors,
            read=IndexedFact.of_document,
            turn_of=lambda fact: fact.turn,
            is_mixed=True,
        )
        self._names = Names()
        self._aliases: list[tuple[str, Sequence[str]]] = []
        """The id and the names of each fact that states aliases, in order."""
        self._marks: dict[str, str] = {}
        self._hidden: frozenset[str] | None = None

    @property
    def size_bytes(self) -> int:
        """About how much memory the facts, the marks and the index take."""
        return (
            BYTES_OF_NOTHING
            + self.index.size_bytes
            + self._names.size_bytes
            + _BYTES_OF_A_FACT * len(self.kept)
            + self.kept.letters
            + _BYTES_OF_A_MARK * len(self._marks)
        )

    def _ids(self) -> list[str]:
        return [*self.kept]

    def _own_parts(self, ids: Iterable[str]) -> SavedParts:
        marks, aliases = dict(self._marks), [*self._aliases]
        others: SavedParts = {
            "marks": lambda: orjson.dumps(marks),
            "aliases": lambda: orjson.dumps(aliases),
        }
        return others | self._names.parts()

    def _load_own(self, parts: Parts, ids: Sequence[str]) -> None:
        self._marks, self._hidden = read_json(parts["marks"]), None
        self._aliases = [(id, tuple(names)) for id, names in read_json(parts["aliases"])]
        self._names.load(parts)

    @property
    def hidden(self) -> frozenset[str]:
        """The episodes that a mark hides: duplicates, archived and summarised ones.

        The same object until a mark changes.
        """
        if self._hidden is None:
            self._hidden = frozenset(self._marks.values())
        return self._hidden

    @property
    def aliases(self) -> list[Sequence[str]]:
        """Groups of names that mean the same, by the facts that say so, in the order of ids."""
        return [names for _, names in self._aliases]

    def rows(self) -> list[str]:
        """Return the ids of the facts and the marks."""
        return [*self.kept, *self._marks]

    def rows_among(self, rows: Iterable[str]) -> list[str]:
        """Return those of some ids that a fact or a mark has."""
        return [row for row in rows if row in self.kept or row in self._marks]

    def replace(self, rows: Iterable[str], versions: Iterable[NumberedFact]) -> None:
        """Read facts again: those with some ids go, and those that there are now come."""
        before: dict[str, IndexedFact] = {}
        for id in rows:
            if id in self.kept:
                before[id] = self._remove(id)
            elif self._marks.pop(id, None) is not None:
                self._hidden = None
        now = [one.version for one in versions if self._is_of_scope(one.version)]
        new = [indexed_fact(fact) for fact in now if not fact.id.startswith(MARK_IDS)]
        for fact in new:
            self._add(fact)
        for mark in now:
            if mark.id.startswith(_MARK_IDS):
                self._marks[mark.id] = str(mark.payload.get("subject"))
                self._hidden = None
        self.unsaved += len(before) + len(now)
        self.index.drop([id for id in before if id not in self.kept])
        self.index.keep(self._names.stop_words)
        self.index.put(
            fact.turn for fact in new if fact.id not in before or before[fact.id].turn != fact.turn
        )

    def _is_of_scope(self, fact: Fact) -> bool:
        return self.scope.holds_owner(fact.user, fact.agent)

    def _add(self, fact: IndexedFact) -> None:
        if fact.id in self.kept:
            self._remove(fact.id)
        self.kept.put(fact)
        self._names.add(fact.names)
        if fact.is_alias:
            insort(self._aliases, (fact.id, fact.names))

    def _remove(self, id: str) -> IndexedFact:
        fact = self.kept.pop(id)
        self._names.remove(fact.names)
        if fact.is_alias:
            del self._aliases[bisect_left(self._aliases, (fact.id, fact.names))]
        return fact

    def find(self, query: str, *, limit: int, least: float = 0.0) -> list[Hit]:
        """Return the facts that answer a question best, best first.

        Args:
            query: The question. A name with one typing error counts as the name.
            least: The least score.
        """
        return [*map(self._hit, self.search(query, limit=limit, least=least))]

    def find_named(self, question: str, *, limit: int) -> list[Hit]:
        """Return the facts whose subject, object or alias a question names in full, best first."""
        found = self.search(question, limit=max(len(self.kept), 1))
        named = {*self.named_in(question, [match.id for match in found])}
        return [*map(self._hit, [match for match in found if match.id in named][:limit])]

    def by_standing(self) -> list[Hit]:
        """Return all facts, the highest confidence first, of equal ones the latest."""
        ordered = sorted(self.kept.values(), key=lambda fact: fact.id)
        ordered.sort(key=lambda fact: (fact.standing, fact.at), reverse=True)
        return [_hit_of(fact, FoundText(fact.id, fact.standing, 0.0)) for fact in ordered]

    def _hit(self, match: FoundText) -> Hit:
        return _hit_of(self.kept[match.id], match)

    def search(self, query: str, *, limit: int, least: float = 0.0) -> list[FoundText]:
        """Return the facts that answer a question best, best first.

        Args:
            query: The question. A name with one typing error counts as the name.
            least: The least score.
        """
        return self.index.search(
            query,
            limit=limit,
            least=least,
            aliases=self.aliases,
            also=self._names.misspelled_in(query),
        )

    def named_in(self, text: str, ids: Iterable[str]) -> list[str]:
        """Return those of some facts whose subject, object or alias a text names in full.

        Args:
            text: The text. A name with one typing error counts as the name.
            ids: The ids of the facts.
        """
        analyser = self.index.analyser
        terms = {*analyser.terms(" ".join([text, *self._names.misspelled_in(text)]))}
        same = {name: group for group in self.aliases for name in group}

        @cache
        def is_named(name: str) -> bool:
            words = analyser.terms(name)
            return bool(words) and terms.issuperset(words)

        return [
            id
            for id in ids
            if any(
                is_named(name) or any(map(is_named, same.get(name, ())))
                for name in self.kept[id].names
            )
        ]


def _hit_of(fact: IndexedFact, match: FoundText) -> Hit:
    return Hit(
        id=fact.id,
        kind="fact",
        score=match.score,
        lexical=match.lexical,
        vector=match.vector,
        text=fact.text,
        at=fact.at,
        user=fact.user,
        agent=fact.agent,
        trust=fact.trust,
        confidence=fact.confidence,
        sources=fact.sources,
    )


def _names_in(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def names_of_fact(fact: Fact) -> list[str]:
    """Return the subject of a fact, and its object or objects, if they are texts."""
    payload = fact.payload
    return [*_names_in(payload.get("subject")), *_names_in(payload.get("object"))]


def words_of_fact(fact: Fact) -> str:
    """Return a fact in words: its triple; the content of one without subject and predicate."""
    return words_of_payload(fact.payload)


def trust_of_fact(fact: Fact) -> Trust:
    """Return who stands for a fact."""
    if any(entry.get("rule_id") == _MANUAL for entry in _own_entries(fact)):
        return "corrected"
    if not sources_of_fact(fact):
        return "declared"
    return "derived" if fact.extracted_by is None else "extracted"


def sources_of_fact(fact: Fact) -> tuple[str, ...]:
    """Return the ids of the episodes that a fact comes from, in the order of its lineage."""
    entries = _own_entries(fact)
    found = [id for entry in entries for id in entry.get("source_episode_ids") or ()]
    return tuple(dict.fromkeys(map(str, found)))


def _own_entries(fact: Fact) -> list[dict[str, Any]]:
    """Return the entries of a lineage without those of the facts that it replaced."""
    return [entry for entry in fact.lineage if "replaces" not in entry]
