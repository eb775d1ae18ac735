"""Choose the current facts that a request shows to a language model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slumberd.consolidation.claim import sources_in_lineage
from slumberd.extraction.turns import name_of_speaker
from slumberd.model.episode import microseconds
from slumberd.model.extraction import KnownFact, ModelSettings, Question
from slumberd.model.fact import Fact
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.predicates import names_predicate

MOST_FACTS = 50
"""A request shows at most so many facts."""


def known_facts(
    facts: Iterable[Fact], settings: ModelSettings, questions: Sequence[Question]
) -> list[KnownFact]:
    """Return the facts that some turns may take back, in the order of `facts`.

    They are about the user, the agent, a speaker, or somebody whom a turn names. Facts that no
    episode stated are left out: nothing that came from elsewhere is sent.

    Args:
        facts: Current facts of the user and agent of the turns, newest first.
        settings: What is asked.
        questions: The turns, of one user, agent and session.
    """
    names = {name for question in questions for name in _names_in(question, settings)}
    texts = [question.turn.content.casefold() for question in questions]
    predicates = frozenset(settings.predicates)
    found: dict[str, KnownFact] = {}
    for fact in facts:
        payload = fact.payload
        subject, predicate = payload.get("subject"), payload.get("predicate")
        sources = sources_in_lineage(fact.lineage)
        stated = sources_in_lineage(fact.lineage[:1])
        if not (isinstance(subject, str) and isinstance(predicate, str) and subject and stated):
            continue
        of_turns = _is_of(subject, names) or any(subject.casefold() in text for text in texts)
        if of_turns and names_predicate(predicates, predicate) and "summarises" not in payload:
            at, name = microseconds(fact.said_at), episode_id_of(fact.id)
            one = KnownFact(name, subject, predicate, payload.get("object"), at, sources)
            found.setdefault(name, one)
    return [*found.values()][:MOST_FACTS]


def _names_in(question: Question, settings: ModelSettings) -> set[str]:
    turns = [turn for turn in (question.turn, question.before) if turn is not None]
    spoken = {name_of_speaker(turn, settings.speakers) for turn in turns}
    return {question.turn.user, question.turn.agent, *spoken} - {""}


def _is_of(subject: str, names: Iterable[str]) -> bool:
    """Return whether a subject is one of some names, or belongs to one: ``ann's sister``."""
    return any(
        subject == name or subject.startswith((f"{name}'s ", f"{name}\u2019s ")) for name in names
    )
