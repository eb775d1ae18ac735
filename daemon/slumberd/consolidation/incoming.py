"""Evaluate a window: turn every version of an episode into one candidate a channel, in a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from slumberd.consolidation.claim import Claim, Fault, claim_of, claims_hold_together, statements_of
from slumberd.consolidation.deltas import Classified, classify
from slumberd.consolidation.stages.entries import SummaryFailure
from slumberd.model.delta import AnyDelta
from slumberd.model.episode import EpisodeVersion, SalienceShortfall, instant
from slumberd.model.firing import Counts, Firing, Position
from slumberd.model.scope import fact_id_of, owner_of
from slumberd.model.stages import StagedEntry

if TYPE_CHECKING:  # a command that reads facts imports no rules
    from slumberd.model.extraction import SummaryQuestion
    from slumberd.model.rule import ConsolidationRule

UNSAID = "unsaid"
"""The reason of a noop: a newer version of the episode does not make the claim any more."""

ID_TAKEN = "id_taken"
"""The reason of a quarantine: another user, agent or channel holds the fact id."""

FUTURE = "future"
"""The reason of a quarantine: the version's instant is still to come. Its detail is the instant."""


class ClaimCandidate(NamedTuple):
    """The version, or the manual edit, makes a claim.

    Attributes:
        owner: User, agent and channel that it comes from.
        rule_id: The rule, or `precedence.MANUAL_RULE_ID`.
        at: Its instant, microseconds since 1970 UTC.
        eid: The episode's id; of a manual edit the fact id.
        version: Number of the episode's version; 0 for manual edits.
        session: The episode's session; empty for manual edits.
        reread: Whether the rule has passed this version, and a read logged it again.
    """

    fact_id: str
    owner: str
    rule_id: str
    at: int
    eid: str
    claim: Claim
    version: int = 0
    session: str = ""
    reread: bool = False


class Unmatched(NamedTuple):
    """The rule's filter does not select the version, or a program withdraws its declared fact.

    Its attributes are those of `ClaimCandidate`.
    """

    fact_id: str
    owner: str
    rule_id: str
    at: int
    eid: str
    version: int = 0
    session: str = ""
    reread: bool = False

    @property
    def claim(self) -> None:
        """It has no claim."""
        return


class Unsaid(NamedTuple):
    """The version of the episode does not make one of the claims that an earlier version made.

    Its attributes are those of `ClaimCandidate`.
    """

    fact_id: str
    owner: str
    rule_id: str
    at: int
    eid: str
    version: int = 0
    session: str = ""
    reread: bool = False

    @property
    def claim(self) -> None:
        """It has no claim."""
        return


class HeldBack(NamedTuple):
    """The rule's salience gate holds the version back.

    Its other attributes are those of `ClaimCandidate`.

    Attributes:
        claim: Its claim, which counts if an earlier claim is in force; None in the ledger and its
            replay.
        shortfall: Why the gate holds it back.
    """

    fact_id: str
    owner: str
    rule_id: str
    at: int
    eid: str
    claim: Claim | None
    shortfall: SalienceShortfall
    version: int = 0
    session: str = ""
    reread: bool = False

    def without_gate(self) -> ClaimCandidate | Unmatched:
        """Return the candidate without its gate."""
        if self.claim is None:
            return Unmatched(
                self.fact_id, self.owner, self.rule_id, self.at, self.eid, self.version,
                self.session,
            )  # fmt: skip
        return ClaimCandidate(
            self.fact_id, self.owner, self.rule_id, self.at, self.eid, self.claim, self.version,
            self.session,
        )  # fmt: skip


class Unreadable(NamedTuple):
    """The rule's filter selects the version, which cannot be read.

    Its other attributes are those of `ClaimCandidate`.

    Attributes:
        reason: Why it cannot be read, in one word.
        detail: Why it cannot be read, for a person.
    """

    fact_id: str
    owner: str
    rule_id: str
    at: int
    eid: str
    reason: str
    detail: str = ""
    version: int = 0
    session: str = ""
    reread: bool = False

    @property
    def claim(self) -> None:
        """It has no claim."""
        return


class Contested(NamedTuple):
    """The version changes no fact, for its instant is still to come or its fact id is taken.

    Its owner may also be unknown. Its other attributes are those of `ClaimCandidate`.

    Attributes:
        reason: Why it is contested, in one word.
        detail: Why it is contested, for a person.
    """

    fact_id: str
    owner: str
    rule_id: str
    at: int
    eid: str
    reason: str
    detail: str = ""
    version: int = 0
    session: str = ""
    reread: bool = False

    @property
    def claim(self) -> None:
        """It has no claim."""
        return


@dataclass(frozen=True, slots=True)
class Erased:
    """The version belongs to an erased scope; the candidate holds nothing of it.

    Attributes:
        reread: Whether the rule has passed this version, and a read logged it again.
    """

    claim: ClassVar[None] = None
    fact_id: ClassVar[str] = ""
    eid: ClassVar[str] = ""
    at: ClassVar[int] = 0
    version: ClassVar[int] = 0
    reread: bool = False


class Undo(NamedTuple):
    """The undo of a firing withdraws the firing's evaluation of a fact id.

    Its other attributes are those of `ClaimCandidate`.

    Attributes:
        firing: The number of the firing that is undone.
        claim: The claim that takes effect instead; None when there is none.
    """

    fact_id: str
    owner: str
    rule_id: str
    at: int
    eid: str
    firing: int
    claim: Claim | None = None
    version: int = 0
    session: str = ""


Candidate = ClaimCandidate | HeldBack | Unmatched | Unsaid | Unreadable | Contested | Erased
"""What the evaluation of a version, or a manual edit, submits to the precedence rule."""

RecordedCandidate = ClaimCandidate | HeldBack | Unmatched | Unsaid | Unreadable | Contested | Undo
"""What a ledger row records of a candidate."""


def order_of(candidate: Candidate) -> tuple[int | str, ...]:
    """Return the sort key of a candidate within a batch: its precedence."""
    claim = candidate.claim
    return (candidate.at, 0, candidate.eid) if claim is None else claim.precedence


def set_aside_future(
    versions: Sequence[EpisodeVersion], latest: int | None
) -> Sequence[EpisodeVersion]:
    """Return versions, of which those with an instant after the latest one cannot be evaluated.

    A version that the filter does not select, or that cannot be read, stays as it is.

    Args:
        latest: Microseconds since 1970 UTC; None sets none aside.
    """
    if latest is None or all(version.at <= latest for version in versions):
        return versions
    return [
        version._replace(fault=f"{FUTURE}: {future_detail(version.at)}", contested=True)
        if version.at > latest and version.matched and not version.fault
        else version
        for version in versions
    ]


def future_detail(at: int) -> str:
    """Return the detail of a version of the future: its instant; texts order as instants do."""
    return instant(at).isoformat(timespec="microseconds")


def evaluate(
    versions: Sequence[EpisodeVersion], rule: ConsolidationRule
) -> dict[str, list[Candidate]]:
    """Return a rule's candidates by channel; one for each statement of each version."""
    statements = [statements_of(version) for version in versions]
    found: dict[str, list[Candidate]] = {channel: [] for channel in rule.then_emits}
    for channel, candidates in found.items():
        for some in statements:
            candidates += _evaluate_all(some, rule.id, channel)
    return found


def _evaluate_all(
    statements: Sequence[EpisodeVersion], rule_id: str, channel: str
) -> list[Candidate]:
    """Return the candidates of one version; its claims of one key have one precedence."""
    found = [_evaluate(statement, rule_id, channel) for statement in statements]
    if len(found) == 1:
        return found
    claims = iter(claims_hold_together([one.claim for one in found if one.claim is not None]))
    return [
        one._replace(claim=next(claims)) if isinstance(one, ClaimCandidate | HeldBack) else one
        for one in found
    ]


def _evaluate(version: EpisodeVersion, rule_id: str, channel: str) -> Candidate:
    if not version.fault and not version.matched:
        return unmatched_candidate(version, rule_id, channel)
    claim = claim_of(version, channel)
    if isinstance(claim, Fault):
        return _faulty(version, rule_id, channel, claim)
    return _with_claim(version, rule_id, claim)


def _with_claim(version: EpisodeVersion, rule_id: str, claim: Claim) -> Candidate:
    if version.gated is not None:
        return HeldBack(
            fact_id=claim.fact_id,
            owner=claim.owner,
            rule_id=rule_id,
            version=version.seq,
            at=version.at,
            eid=version.id,
            claim=claim,
            session=version.session,
            shortfall=version.gated,
            reread=version.reread,
        )
    return ClaimCandidate(
        claim.fact_id, claim.owner, rule_id, version.at, version.id, claim, version.seq,
        version.session, version.reread,
    )  # fmt: skip


def unmatched_candidate(version: EpisodeVersion, rule_id: str, channel: str) -> Unmatched:
    """Return the candidate of a version that the rule's filter does not select."""
    return Unmatched(
        fact_id=fact_id_of(channel, version.id, version.part),
        owner=owner_of(version.user, version.agent, channel),
        rule_id=rule_id,
        version=version.seq,
        at=version.at,
        eid=version.id,
        session=version.session,
        reread=version.reread,
    )


def _faulty(
    version: EpisodeVersion, rule_id: str, channel: str, fault: Fault
) -> Unreadable | Contested:
    kind = Contested if version.contested else Unreadable
    return kind(
        fact_id=fact_id_of(channel, version.id, version.part),
        owner=owner_of(version.user, version.agent, channel),
        rule_id=rule_id,
        version=version.seq,
        at=version.at,
        eid=version.id,
        session=version.session,
        reread=version.reread,
        reason=fault.reason,
        detail=fault.detail,
    )


def contest(
    candidate: ClaimCandidate | HeldBack | Unmatched | Unsaid | Unreadable,
    reason: str = ID_TAKEN,
    detail: str = "",
) -> Contested:
    """Return a contested candidate in place of one whose fact id is another owner's."""
    return Contested(
        fact_id=candidate.fact_id,
        owner=candidate.owner,
        rule_id=candidate.rule_id,
        version=candidate.version,
        at=candidate.at,
        eid=candidate.eid,
        session=candidate.session,
        reason=reason,
        detail=detail or describe_taken(candidate.fact_id),
    )


def contest_returning(undo: Undo, *, owner: str, rule_id: str, version: int) -> Contested:
    """Return the candidate of the evaluation that an undo would restore under a taken id."""
    return Contested(
        fact_id=undo.fact_id,
        owner=owner,
        rule_id=rule_id,
        version=version,
        at=undo.at,
        eid=undo.eid,
        reason=ID_TAKEN,
        detail=describe_taken(undo.fact_id),
    )


def describe_taken(fact_id: str) -> str:
    """Return the detail of a candidate whose fact id is another owner's."""
    return f"fact id {fact_id!r} belongs to another user or agent"


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
        staged: What is kept of each episode that the stages saw, if the window asks for it.
    """

    firing: Firing
    candidates: Mapping[str, Sequence[Candidate]]
    versions: Sequence[EpisodeVersion] = ()
    named: Sequence[EpisodeVersion] = ()
    newest: int = 0
    unrecorded: bool = False
    unsummarised: Sequence[SummaryFailure] = ()
    summary_questions: Sequence[SummaryQuestion] = ()
    staged: Sequence[StagedEntry] = ()

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
