"""The effects that a resolution records in the ledger, and how many facts they delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from slumberd.consolidation.incoming import RecordedCandidate
from slumberd.model.firing import DeletionImpact

Event = Literal[
    "claim", "withdrawal", "quarantine", "known", "restored", "undone", "erased", "gated"
]
Effect = Literal["add", "update", "delete", "noop", "quarantine"]

BELOW_SALIENCE = "below_salience"
"""The reason of a noop: the rule's salience gate holds the episode back."""


class ResolvedEffect(NamedTuple):
    """One effect of a resolution: a row for the ledger.

    Attributes:
        seq: The row's number.
        event: The kind of event.
        effect: The effect of the event on the facts.
        candidate: The candidate; None for a fact that was restored because another was removed.
        fact_id: The id of the claim's fact; empty when contested.
        key: The key of the claim; empty when contested.
        replaces: Ids of the facts that were removed.
        reason: Why the row is a noop or a quarantine.
        first: Number of the first row of an equal evaluation; the row's own number if it is new.
    """

    seq: int
    event: Event
    effect: Effect
    candidate: RecordedCandidate | None
    fact_id: str
    key: str
    replaces: tuple[str, ...] = ()
    reason: str = ""
    first: int = 0


def deletion_impact(entries: Sequence[ResolvedEffect]) -> DeletionImpact:
    """Return how many facts the rows of a batch delete, and how many fewer are current after it."""
    if all(entry.effect != "delete" for entry in entries):
        return DeletionImpact(0, 0)
    existed: dict[str, bool] = {}
    successors: dict[str, str | None] = {}  # of each fact: itself, the one after it, or None
    for entry in entries:
        asserts = entry.effect in ("add", "update")
        for fact_id in entry.replaces:
            existed.setdefault(fact_id, True)
            successors[fact_id] = entry.fact_id if asserts else None
        if asserts:
            existed.setdefault(entry.fact_id, False)
            successors[entry.fact_id] = entry.fact_id
    before = [fact_id for fact_id, was_there in existed.items() if was_there]
    lost = sum(_find_successor(fact_id, successors) is None for fact_id in before)
    after = sum(fact_id == successor for fact_id, successor in successors.items())
    return DeletionImpact(lost, len(before) - after)


def _find_successor(fact_id: str, successors: Mapping[str, str | None]) -> str | None:
    """Return the current fact that replaced a fact, perhaps itself; None when there is none."""
    other = successors[fact_id]
    while other is not None and successors[other] != other:
        other = successors[other]  # a successor is asserted later, so the loop ends
    return other
