"""Decide what a batch changes: candidates and the known state in, rows out; nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.delta_batch import Condition, never
from slumberd.consolidation.incoming import (
    Candidate,
    ClaimCandidate,
    Contested,
    Erased,
    HeldBack,
    Unmatched,
    Unreadable,
    Unsaid,
    order_of,
    unmatched_candidate,
)
from slumberd.consolidation.precedence import Evaluation, has_claim_in_force
from slumberd.consolidation.resolution import Resolution, ResolvedEffect
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.model.episode import EpisodeVersion
from slumberd.model.errors import StoppedError
from slumberd.model.firing import Counts

T = TypeVar("T")

_ROWS_BETWEEN_CHECKS = 50
"""Rows between two checks for a cancelled firing; a row takes microseconds, or folds a key."""

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


Link = Callable[[Sequence[Candidate]], Sequence[Candidate]]
"""Links the new facts of candidates with similar facts."""


class Decision(NamedTuple):
    """What a batch changes.

    Attributes:
        rows: The new ledger rows, in order, without the row of the firing.
        counts: What became of the candidates, by channel.
        facts: The facts that are current afterwards, of the slots that the batch touches.
        removed: The ids of the facts that are not current any more, or have another row.
    """

    rows: Sequence[ResolvedEffect]
    counts: Mapping[str, Counts]
    facts: Sequence[CurrentFact]
    removed: Sequence[str]

    @classmethod
    def of(
        cls, resolution: Resolution, counts: Mapping[str, Counts], cancelled: Condition = never
    ) -> Decision:
        """Return the decision of a resolution that is complete.

        Raises:
            StoppedError: `cancelled` returned True.
        """
        found = until_cancelled(resolution.current_facts(), cancelled)
        current = {fact.fact_id: fact for fact in found}
        return cls(resolution.entries, counts, [*current.values()], [*resolution.removed])


def decide(  # noqa: PLR0913 # one for each part of the request
    candidates: Mapping[str, Sequence[Candidate]],
    known: KnownState,
    *,
    number: int,
    at: int,
    again: bool = False,
    link: Link = list,
    cancelled: Condition = never,
) -> Decision:
    """Resolve candidates by the precedence rule.

    Args:
        candidates: The candidates by channel, in any order.
        known: The known state of all keys and fact ids that they touch; it changes to the state
            after the batch.
        number: The number of the firing's ledger row.
        at: The instant of the batch, microseconds.
        again: Whether the batch evaluates versions that its rule has passed.
        link: Links the new facts with similar facts.
        cancelled: Called often; True cancels the batch.

    Raises:
        StoppedError: `cancelled` returned True; `known` must not be used again.
    """
    linked = {channel: link(_with_earlier(found, known)) for channel, found in candidates.items()}
    resolution = Resolution(known, firing=number, at=at, again=again)
    counts = {channel: _resolve(resolution, found, cancelled) for channel, found in linked.items()}
    return Decision.of(resolution, counts, cancelled)


def _with_earlier(candidates: Sequence[Candidate], known: KnownState) -> Sequence[Candidate]:
    """Return the candidates with what their earlier evaluation decided once for all."""
    evaluations = known.evaluations
    return [
        known.with_earlier_claim(candidate) if candidate.fact_id in evaluations else candidate
        for candidate in candidates
    ]


def _resolve(
    resolution: Resolution, candidates: Sequence[Candidate], cancelled: Condition
) -> Counts:
    before, filtered = len(resolution.entries), resolution.filtered
    known, passed_over = resolution.known, resolution.passed_over
    for candidate in until_cancelled(sorted(candidates, key=order_of), cancelled):
        resolution.apply(candidate)
    added = resolution.entries[before:]
    read = len(candidates) - (resolution.passed_over - passed_over)
    counts = counts_of(read, resolution.filtered - filtered, added)
    return counts._replace(noop=counts.noop + resolution.known - known)


def counts_of(read: int, filtered: int, entries: Sequence[ResolvedEffect]) -> Counts:
    """Count what became of the candidates, from their ledger rows."""
    kinds = Counter(entry.effect for entry in entries if entry.event != "restored")
    return Counts(
        read,
        filtered,
        kinds["add"],
        kinds["update"],
        kinds["delete"],
        kinds["noop"],
        kinds["quarantine"],
        sum(1 for entry in entries if entry.event == "restored"),
    )


def until_cancelled(values: Iterable[T], cancelled: Condition) -> Iterator[T]:
    """Yield values, and raise once `cancelled` returns True.

    Raises:
        StoppedError: `cancelled` returned True.
    """
    for number, value in enumerate(values):
        if number % _ROWS_BETWEEN_CHECKS == 0:
            check_cancelled(cancelled)
        yield value


def check_cancelled(cancelled: Condition) -> None:
    """Raise when a batch is cancelled.

    Raises:
        StoppedError: `cancelled` returned True.
    """
    if cancelled():
        raise StoppedError("the firing was cancelled before its commit")
