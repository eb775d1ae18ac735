"""Decide what a batch changes: candidates and the known state in, rows out; nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from slumberd.consolidation.delta_batch import Condition, never
from slumberd.consolidation.incoming import Candidate, order_of
from slumberd.consolidation.resolution import Resolution
from slumberd.consolidation.resolved_effect import ResolvedEffect
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.errors import StoppedError
from slumberd.model.firing import Counts

T = TypeVar("T")

Link = Callable[[Sequence[Candidate]], Sequence[Candidate]]
"""Links the new facts of candidates with similar facts."""

_ROWS_BETWEEN_CHECKS = 50
"""Rows between two checks for a cancelled firing; a row takes microseconds, or folds a key."""


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
