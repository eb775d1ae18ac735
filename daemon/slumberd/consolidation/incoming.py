"""Evaluate a window: turn every version of an episode into one candidate a channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from slumberd.consolidation.claim import Claim, Fault, claim_of, claims_hold_together
from slumberd.model.episode import EpisodeVersion, SalienceShortfall, instant
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import fact_id_of, owner_of

MOST_TRIPLES = 1_000
"""How many triples one episode may have."""

TRIPLES_MALFORMED = "triples_malformed"
"""The reason of a fault: ``metadata.triples`` cannot be read."""

_OWN = ("intent", "subject", "predicate", "object", "replaces")
"""The keys of metadata that make a statement of the episode's own."""


def as_stated(version: EpisodeVersion) -> EpisodeVersion:
    """Return a version as its speaker lets it stand; no rule selects one that was taken back.

    So a rule that has evaluated an older version withdraws what that one claimed.
    """
    return version._replace(matched=False) if version.withdrawn and not version.fault else version


def statements_of(version: EpisodeVersion) -> list[EpisodeVersion]:
    """Return a version once for each of its statements, each with the metadata of its own.

    The first is the statement of the metadata itself. With ``triples`` and without keys of its
    own, the metadata states nothing, as with the intent ``noop``. A version whose ``triples``
    cannot be read is returned with a fault.
    """
    version = as_stated(version)
    triples = version.metadata.get("triples")
    if triples is None or version.fault or not version.matched:
        return [version]
    problem = _find_problem(triples)
    if problem:
        return [version._replace(fault=f"{TRIPLES_MALFORMED}: {problem}")]
    parts = [version._replace(metadata=triple, part=n) for n, triple in enumerate(triples, 1)]
    return [version._replace(metadata=_own_metadata(version.metadata, len(parts))), *parts]


def states_nothing(metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata has neither a statement of its own nor ``triples``."""
    return all(metadata.get(key) is None for key in (*_OWN, "triples"))


def _own_metadata(metadata: dict[str, Any], triples: int) -> dict[str, Any]:
    own = {key: value for key, value in metadata.items() if key != "triples"}
    return {**own, "intent": "noop", "triples": triples} if states_nothing(own) else own


def _find_problem(triples: object) -> str:
    """Return why triples cannot be read; empty when they can."""
    if not isinstance(triples, list):
        return f"triples is {triples!r}; write a list of objects"[:200]
    if len(triples) > MOST_TRIPLES:
        return f"triples has {len(triples)} elements; write {MOST_TRIPLES} at most"
    wrong = next((triple for triple in triples if not isinstance(triple, dict)), None)
    if wrong is not None or None in triples:
        return f"triples holds {wrong!r}; each element is an object"[:200]
    return ""


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
    return {
        channel: [found for some in statements for found in _evaluate_all(some, rule.id, channel)]
        for channel in dict.fromkeys(rule.then_emits)
    }


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
        fact_id=claim.fact_id,
        owner=claim.owner,
        rule_id=rule_id,
        version=version.seq,
        at=version.at,
        eid=version.id,
        claim=claim,
        session=version.session,
        reread=version.reread,
    )


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
