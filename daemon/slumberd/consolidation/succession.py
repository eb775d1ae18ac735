"""Find what took the place of a claim that is not current any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slumberd.consolidation.claim import Claim, Precedence, covers
from slumberd.consolidation.precedence import (
    MANUAL_RULE_ID,
    SECOND,
    Assertion,
    SlotState,
    effective_claims,
    is_spared,
    place_of,
)
from slumberd.consolidation.state import KnownState


class Successor(NamedTuple):
    """What took the place of a claim in its slot.

    Attributes:
        assertions: The assertions that did; empty for a retraction.
        retraction: The precedence of the retraction that did; None for assertions.
    """

    assertions: tuple[Assertion, ...] = ()
    retraction: Precedence | None = None


def claim_of_episode(fact_id: str, known_state: KnownState) -> Claim | None:
    """Return the claim of an episode under a fact id, also when an edit of that id hides it."""
    evaluations = [
        evaluation
        for evaluation in known_state.evaluations.get(fact_id, ())
        if evaluation.rule_id != MANUAL_RULE_ID
    ]
    return next((effective.claim for effective in effective_claims(evaluations)), None)


def is_held(claim: Claim, declared: Iterable[str], known_state: KnownState) -> bool:
    """Return whether what a claim asserts is current, whoever said it last.

    Args:
        claim: The claim; its slot is loaded.
        declared: The slots of the declared facts of its key.
        known_state: The known state.
    """
    return any(
        current.object == claim.object
        for slot in (known_state.multi_valued.slot_of(claim), *declared)
        for current in known_state.current_at((claim.key, slot))
    )


def successor_of(claim: Claim, known_state: KnownState) -> Successor:
    """Return what took the place of a claim that is not held; an empty one when nothing did.

    These are the current assertions of its slot, else the newest retraction that covers it, else
    a later assertion that is not current itself.
    """
    slot = known_state.multi_valued.slot_of(claim)
    head = known_state.heads.get(claim.key, {}).get(slot, SlotState())
    if head.current:
        return Successor(head.current)
    retraction = _newest_over(claim, head)
    if retraction is not None:
        return Successor(retraction=retraction)
    place = place_of(claim.precedence, known_state.law)
    newer = [won for won in head.winners if place_of(won.precedence, known_state.law) > place]
    return Successor(tuple(newer))


def _newest_over(claim: Claim, head: SlotState) -> Precedence | None:
    """Return the newest retraction of a slot that covers a claim."""
    found = [
        by
        for what, by in head.retractions.items()
        if covers(what.removeprefix(SECOND), claim.object)
        and by > claim.precedence
        and not is_spared(claim.precedence, by)
    ]
    return max(found, default=None)


def retracting_claim(
    target: Claim, by: Precedence, fact_ids: Iterable[str], known_state: KnownState
) -> Claim | None:
    """Return the claim that retracted another one.

    Args:
        target: The claim that was retracted.
        by: The precedence of the retraction.
        fact_ids: The fact ids that the retracting claim may have; their evaluations are loaded.
        known_state: The known state.
    """
    found = [
        effective.claim
        for fact_id in fact_ids
        for effective in known_state.effective_claims(fact_id)
        if effective.claim.owner == target.owner
        and effective.claim.precedence[:3] == by[:3]
        and (effective.claim.names or effective.claim.clears_key)
    ]
    return min(found, key=lambda claim: _distance(claim, target), default=None)


def _distance(claim: Claim, target: Claim) -> tuple[bool, bool, int]:
    """Order the claims of one version: that names the target, that clears its key, the others."""
    clears = claim.clears_key and claim.key == target.key and covers(claim.cleared, target.object)
    return not claim.names_claim(target), not clears, claim.precedence.part
