"""The effects that a resolution records in the ledger, and which facts they delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from slumberd.consolidation.incoming import RecordedCandidate
from slumberd.model.firing import Losses

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


def losses_after(
    losses: Losses, entries: Sequence[ResolvedEffect], is_older: Callable[[str], bool]
) -> Losses:
    """Return what a command has deleted after one more batch.

    Args:
        losses: What its earlier batches have deleted.
        entries: The rows of the batch.
        is_older: Returns whether a fact, by its id, is older than the command.
    """
    weights, lost, fewer = dict(losses.weights), dict(losses.lost), losses.fewer
    for entry in entries:
        asserts = entry.effect in ("add", "update")
        fewer += len(entry.replaces) - asserts
        carried = 0
        for fact_id in entry.replaces:
            weight = weights.pop(fact_id, None)
            weight = int(is_older(fact_id)) if weight is None else weight
            if asserts:
                carried += weight
            else:
                lost[fact_id] = weight
        if asserts:
            weights[entry.fact_id] = carried + lost.pop(entry.fact_id, 0)
    # Without an entry, a fact that is not older than the command has the weight 0.
    kept = {fact_id: weight for fact_id, weight in weights.items() if weight or is_older(fact_id)}
    return replace(losses, weights=kept, lost=lost, fewer=fewer)
