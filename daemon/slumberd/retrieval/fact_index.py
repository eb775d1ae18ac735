"""Find the facts that answer a question."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slumberd.model.episode import are_near
from slumberd.model.fact import Fact
from slumberd.model.superseded import words_of_payload
from slumberd.retrieval.hits import Trust
from slumberd.retrieval.languages import is_stop_word
from slumberd.retrieval.scope_index import IndexedTurn, Match, ScopeIndex
from slumberd.retrieval.terms import Analyser
from slumberd.retrieval.words import words_of

ALIAS_PREDICATES = frozenset({"alias", "aliases", "also_known_as", "aka"})
"""A fact with one of these predicates says that its subject has another name."""

_LEAST_LETTERS = 6
"""A shorter word differs from too many others by one letter only."""

_LONGEST_STOP_WORD = 20
"""No longer name is a stop word."""

_PLAIN = Analyser()

_MANUAL = "@manual"


class FactIndex:
    """The facts of one scope, with their index.

    Args:
        language: The language of the facts; `languages.AUTO` recognises it; None stems no word.
        vectors: Whether meanings count.
    """

    def __init__(self, *, language: str | None, vectors: bool) -> None:
        self.index = ScopeIndex(language=language, vectors=vectors)
        self.facts: dict[str, Fact] = {}
        self._turns: dict[str, IndexedTurn] = {}
        self._name_words: set[str] = set()

    def replace(self, facts: Iterable[Fact]) -> None:
        """Hold these facts and no others."""
        self.facts = {fact.id: fact for fact in facts}
        turns = {id: IndexedTurn(id, words_of_fact(fact)) for id, fact in self.facts.items()}
        names = {name for fact in self.facts.values() for name in names_of_fact(fact)}
        self.index.drop([id for id in self._turns if id not in turns])
        self.index.keep(_stop_words_among(names))
        self.index.put([turn for id, turn in turns.items() if self._turns.get(id) != turn])
        self._turns = turns
        self._name_words = {word for name in names for word in _PLAIN.terms(name)}

    def search(self, query: str, *, limit: int, least: float = 0.0) -> list[Match]:
        """Return the facts that answer a question best, best first.

        Args:
            query: The question. A name with one typing error counts as the name.
            limit: At most this many.
            least: The least score.
        """
        return self.index.search(
            query,
            limit=limit,
            least=least,
            aliases=self.aliases,
            also=self._misspelled_in(query),
        )

    def named_in(self, text: str) -> set[str]:
        """Return the ids of the facts whose subject, object or alias a text names in full.

        Args:
            text: The text. A name with one typing error counts as the name.
        """
        terms = {*self.index.analyser.terms(" ".join([text, *self._misspelled_in(text)]))}
        aliases = self.aliases
        same = {name: group for group in aliases for name in group}
        found = set()
        for id, fact in self.facts.items():
            own = names_of_fact(fact)
            names = {*own, *(other for name in own for other in same.get(name, ()))}
            if any(
                terms.issuperset(words) for words in map(self.index.analyser.terms, names) if words
            ):
                found.add(id)
        return found

    def _misspelled_in(self, text: str) -> list[str]:
        """Return the words of names that a text has with one typing error."""
        words = {*_PLAIN.terms(text)} - self._name_words
        return sorted(
            known
            for known in self._name_words
            if len(known) >= _LEAST_LETTERS
            if any(word[:1] == known[:1] and are_near(word, known) for word in words)
        )

    @property
    def aliases(self) -> list[list[str]]:
        """Groups of names that mean the same, by the facts that say so."""
        return [
            names_of_fact(fact)
            for fact in self.facts.values()
            if fact.payload.get("predicate") in ALIAS_PREDICATES
        ]


def _stop_words_among(names: Iterable[str]) -> frozenset[str]:
    """Return the names that are one stop word, such as Will and US, folded."""
    words = (words_of(name) for name in names if len(name) <= _LONGEST_STOP_WORD)
    return frozenset(some[0] for some in words if len(some) == 1 and is_stop_word(some[0]))


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
