"""Choose the facts that a request shows to a language model: current ones, and those to come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from slumberd.consolidation.claim import sources_in_lineage
from slumberd.consolidation.extraction.turns import name_of_speaker
from slumberd.model.episode import microseconds
from slumberd.model.extraction import Extracted, ModelSettings, Question, ShownFact, Stated, Turn
from slumberd.model.fact import Fact
from slumberd.model.predicates import names_predicate
from slumberd.model.scope import episode_id_of

MOST_FACTS = 50
"""The most facts that a request shows."""

MOST_STATED = 100
"""So many of the last statements of a user and agent are kept until a firing promotes them."""

MOST_OWNERS = 200
"""The number of users and agents whose statements are kept."""


class PendingFacts:
    """What turns assert that no firing has promoted yet: the last statements of each owner."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[tuple[str, str], OrderedDict[str, ShownFact]] = OrderedDict()

    def add(self, found: Iterable[Stated]) -> None:
        """Add what turns assert."""
        for user, agent, fact in found:
            self._add((user, agent), fact)

    def add_answer(self, turn: Turn, triples: Sequence[Extracted]) -> None:
        """Add what a language model found in a turn."""
        for number, one in enumerate(triples, 1):
            if one.intent == "add":
                name = f"{turn.id}#{number}"
                said = (one.subject, one.predicate, one.object)
                self._add((turn.user, turn.agent), ShownFact(name, *said, turn.at, (turn.id,)))

    def _add(self, owner: tuple[str, str], fact: ShownFact) -> None:
        facts = self._by_owner.setdefault(owner, OrderedDict())
        facts[fact.name] = fact
        if len(facts) > MOST_STATED:
            facts.popitem(last=False)
        self._by_owner.move_to_end(owner)
        if len(self._by_owner) > MOST_OWNERS:
            self._by_owner.popitem(last=False)

    def of(self, user: str, agent: str) -> list[ShownFact]:
        """Return what the turns of a user and agent assert."""
        return [*self._by_owner.get((user, agent), {}).values()]


def known_facts(
    facts: Iterable[Fact],
    pending: Iterable[ShownFact],
    settings: ModelSettings,
    questions: Sequence[Question],
) -> list[ShownFact]:
    """Return the facts that some turns may take back, the newest first.

    They are about the user, the agent, a speaker, or somebody whom a turn names. Facts that no
    episode stated are left out: nothing that came from elsewhere is sent.

    Args:
        facts: Current facts of the user and agent of the turns.
        pending: What their turns assert that no firing has promoted yet.
        settings: What is asked.
        questions: The turns, of one user, agent and session.
    """
    names = {name for question in questions for name in _names_in(question, settings)}
    texts = [question.turn.content.casefold() for question in questions]
    predicates = frozenset(settings.predicates)
    latest = max(question.turn.at for question in questions)
    by_name = {one.name: one for one in (*_promoted(facts), *pending)}
    found = [
        one
        for one in by_name.values()
        if one.at < latest
        if names_predicate(predicates, one.predicate)
        if _is_of(one.subject, names) or any(one.subject.casefold() in text for text in texts)
    ]
    return sorted(found, key=lambda one: (one.at, one.name), reverse=True)[:MOST_FACTS]


def _promoted(facts: Iterable[Fact]) -> Iterator[ShownFact]:
    """Yield the facts that episodes stated."""
    for fact in facts:
        subject, predicate = fact.payload.get("subject"), fact.payload.get("predicate")
        stated = sources_in_lineage(fact.lineage[:1])
        if isinstance(subject, str) and isinstance(predicate, str) and subject and stated:
            yield ShownFact(
                episode_id_of(fact.id), subject, predicate, fact.payload.get("object"),
                microseconds(fact.said_at), sources_in_lineage(fact.lineage),
            )  # fmt: skip


def _names_in(question: Question, settings: ModelSettings) -> set[str]:
    turns = [turn for turn in (question.turn, question.before) if turn is not None]
    spoken = {name_of_speaker(turn, settings.speakers) for turn in turns}
    return {question.turn.user, question.turn.agent, *spoken} - {""}


def _is_of(subject: str, names: Iterable[str]) -> bool:
    """Return whether a subject is one of some names, or belongs to one: ``ann's sister``."""
    return any(
        subject == name or subject.startswith((f"{name}'s ", f"{name}\u2019s ")) for name in names
    )
