"""The batch that one firing moves: what a rule requests for a window of episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from slumberd.consolidation.batch_deltas import Classified, classify
from slumberd.consolidation.incoming import (
    Candidate,
    ClaimCandidate,
    Contested,
    Erased,
    HeldBack,
    Unmatched,
    Unreadable,
)
from slumberd.hygiene.entries import SummaryFailure
from slumberd.model.delta import AnyDelta
from slumberd.model.episode import EpisodeVersion
from slumberd.model.extraction import SummaryQuestion
from slumberd.model.firing import Counts, Firing, Position

Condition = Callable[[], bool]
"""Returns whether a condition holds; thread-safe."""


def never() -> bool:
    """Return False: a condition that never holds."""
    return False


class Bounds(NamedTuple):
    """What ends the reading of a window early.

    Attributes:
        cancelled: Once it returns True, reading raises `StoppedError`.
        enough: Once it returns True, the salience gate measures no more, and the batch is smaller.
    """

    cancelled: Condition = never
    enough: Condition = never


UNBOUNDED = Bounds()


@dataclass(frozen=True, slots=True)
class DeltaBatch:
    """The deltas that a rule requests for a window, with the claims that they make.

    What the store of facts applies are the candidates: each holds the claim of one version in one
    channel, or why there is none. `deltas` returns the same in the specification's words.

    Attributes:
        firing: The rule, the window, and when and why the rule fires.
        candidates: What each version requests, by channel.
        versions: The newest versions in the window, in log order, unmatched ones included.
        named: Further episodes that `versions` name as replaced, as far as they are known.
        newest: The number of the last row of the log when the window was read.
        unrecorded: Whether an episode waits for the answer of the rule's language model: the window
            ends before it, or leaves it out.
        unsummarised: The groups of episodes that a stage could not summarise.
        summary_questions: The summaries that the rule's language model is to write.
    """

    firing: Firing
    candidates: Mapping[str, Sequence[Candidate]]
    versions: Sequence[EpisodeVersion] = ()
    named: Sequence[EpisodeVersion] = ()
    newest: int = 0
    unrecorded: bool = False
    unsummarised: Sequence[SummaryFailure] = ()
    summary_questions: Sequence[SummaryQuestion] = ()

    @property
    def upto(self) -> Position:
        """The last position of the window; the next window begins after it."""
        return self.firing.upto

    @property
    def is_empty(self) -> bool:
        """Whether the log has no row in the window."""
        return self.firing.upto == self.firing.after

    @property
    def size(self) -> int:
        """The number of candidates in all channels."""
        return sum(map(len, self.candidates.values()))

    @property
    def counts(self) -> dict[str, Counts]:
        """The accounting by channel: what the versions request, whatever the facts are."""
        return {name: _count_requests(found) for name, found in self.candidates.items()}

    @property
    def deltas(self) -> list[AnyDelta]:
        """One delta for each version and channel, as ``MemoryStore.consolidate`` returns them."""
        return self.classify().deltas

    def classify(self) -> Classified:
        """Return the deltas of the versions that the rule selects, and the faults of the others."""
        selected = [one for one in self.versions if one.matched and not one.contested]
        return classify(
            selected,
            self.firing.rule_id,
            [*self.candidates],
            at=self.firing.at,
            others=self.named,
        )

    @property
    def reads_of_held_back(self) -> dict[str, int]:
        """The known number of reads of each episode that the rule's salience gate holds back."""
        return {
            candidate.eid: candidate.shortfall.reads
            for found in self.candidates.values()
            for candidate in found
            if isinstance(candidate, HeldBack)
        }

    def without(self, seqs: Set[int]) -> DeltaBatch:
        """Return the batch without the versions of these numbers in the log."""
        if not seqs:
            return self
        candidates = {
            name: [one for one in found if isinstance(one, Erased) or one.version not in seqs]
            for name, found in self.candidates.items()
        }
        versions = [version for version in self.versions if version.seq not in seqs]
        return replace(self, candidates=candidates, versions=versions)

    def moved_to(self, after: Position, upto: Position) -> DeltaBatch:
        """Return the batch for another window, at whose end the watermark will be."""
        return replace(self, firing=replace(self.firing, after=after, upto=upto))


def _count_requests(candidates: Sequence[Candidate]) -> Counts:
    return Counts(len(candidates), **Counter(map(_requested, candidates)))


def _requested(candidate: Candidate) -> str:
    """Return the field of `Counts` in which a candidate counts before its resolution."""
    match candidate:
        case Unmatched():
            return "filtered"
        case Unreadable() | Contested():
            return "quarantined"
        case ClaimCandidate(claim=claim) if claim.asserts:
            return "updated" if claim.names else "added"
        case ClaimCandidate(claim=claim) if claim.names or claim.clears_key:
            return "deleted"
        case _:
            return "noop"
