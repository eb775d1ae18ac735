"""Make the candidates that withdraw what versions of episodes, or rules, say no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.incoming import (
    Candidate,
    ClaimCandidate,
    Contested,
    Erased,
    HeldBack,
    Unmatched,
    Unreadable,
    Unsaid,
    unmatched_candidate,
)
from slumberd.consolidation.precedence import Evaluation, has_claim_in_force
from slumberd.consolidation.state import KnownState
from slumberd.model.episode import EpisodeVersion

Whole = ClaimCandidate | HeldBack | Unmatched | Unsaid | Unreadable
"""The candidate of an episode's own claim."""


def withdraw(
    versions: Sequence[EpisodeVersion], rule_id: str, channels: Iterable[str]
) -> dict[str, list[Candidate]]:
    """Return, by channel, candidates without a claim, as if the rule's filter selected no version.

    Versions of unknown owners are left out, so nothing under their ids is changed.
    """
    with_owner = [version for version in versions if not version.contested]
    return {
        channel: [unmatched_candidate(version, rule_id, channel) for version in with_owner]
        for channel in sorted(channels)
    }


def withdraw_parts(
    candidates: Sequence[Candidate], known: KnownState, recorded: Mapping[str, Sequence[Claim]]
) -> list[Unsaid]:
    """Return candidates for the claims that episodes made besides their own, and make no more.

    A claim that was undone gets a candidate, too: the undo may be undone later. So does the own
    claim of an episode that only another rule has evaluated.

    Args:
        candidates: Of one channel.
        known: Knows the parts of their fact ids, and the evaluations of these parts.
        recorded: All claims of these parts, undone ones too, by fact id.
    """
    arriving = {candidate.fact_id for candidate in candidates}
    return [
        _unsaid(candidate, part)
        for candidate in candidates
        if candidate.fact_id in known.parts
        if not isinstance(candidate, Contested | Erased) and _is_evaluated(candidate, known)
        for part in sorted((known.parts[candidate.fact_id] - arriving) | _unread(candidate, known))
        if _may_be_of(candidate, known.evaluations.get(part, ()), recorded.get(part, ()))
    ]


def withdraw_former(candidate: Candidate, fact_id: str) -> list[Candidate]:
    """Return what withdraws an episode's claim under the id that an older slumberd gave to it.

    Args:
        candidate: Of the episode's own claim, under the id of today.
        fact_id: The former id.
    """
    match candidate:
        case ClaimCandidate() | Unsaid() | Unreadable():
            return [_unsaid(candidate, fact_id)]
        case Unmatched():
            return [candidate._replace(fact_id=fact_id)]
        case _:
            return []


def _unread(whole: Whole, known: KnownState) -> set[str]:
    """Return the fact id of an episode's own claim, if only other rules have evaluated it."""
    prior = known.evaluations.get(whole.fact_id)
    is_skipped = isinstance(whole, Unmatched) and not has_claim_in_force(whole.rule_id, prior or ())
    return {whole.fact_id} if is_skipped and prior is not None else set()


def _is_evaluated(whole: Whole, known: KnownState) -> bool:
    """Return whether the rule evaluates an episode, and not only its gate or its filter."""
    match whole:
        case HeldBack():
            return known.passes_gate(whole)
        case Unmatched():
            ids = (whole.fact_id, *known.parts[whole.fact_id])
            found = (known.evaluations.get(fact_id, ()) for fact_id in ids)
            return any(has_claim_in_force(whole.rule_id, evaluations) for evaluations in found)
        case _:
            return True


def _may_be_of(whole: Whole, evaluations: Sequence[Evaluation], recorded: Sequence[Claim]) -> bool:
    """Return whether the claims of a part are of an episode, and not of another with that id.

    Undone claims decide only when no claim is in force.
    """
    in_force = [evaluation.claim for evaluation in evaluations if evaluation.claim is not None]
    if in_force:
        return any(claim.source == whole.eid for claim in in_force)
    origins = {(claim.source, claim.owner) for claim in recorded}
    return not origins or (whole.eid, whole.owner) in origins


def _unsaid(whole: Whole, part: str) -> Unsaid:
    return Unsaid(
        fact_id=part,
        owner=whole.owner,
        rule_id=whole.rule_id,
        at=whole.at,
        eid=whole.eid,
        version=whole.version,
        session=whole.session,
        reread=whole.reread,
    )
