"""Apply the precedence rule: select the current facts from a set of claims.

A retraction covers what is older than itself. Per key (per object, when multi-valued) the
assertions with the highest precedence are current, unless a retraction covers them. There are
several only when one version of one episode asserts several objects: its claims hold together.

A `SlotState` is all of a slot that the rule needs when more claims arrive: the assertions with the
highest precedence, and per object the newest retraction above them. Claims are folded into
a slot state one at a time, in any order. So a stored state equals a state folded from every claim.

Law 1, of ledgers before version 0.3.0, differs in one point: there each claim of a version has a
precedence of its own, so of the objects of one key only that with the highest number is current.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from slumberd.consolidation.claim import (
    ALL,
    EPISODE,
    MANUAL,
    Claim,
    Precedence,
    covers,
    deletes_by_key,
    is_wide,
)
from slumberd.model.predicates import ManyBut, Several, document_of, holds_several

Link = dict[str, Any]
"""A lineage entry that names a replaced fact."""

OVER_SIBLINGS = 1 << 30
"""The part of a retraction that covers claims of its own version, which it names."""

UNDER_SIBLINGS = -1
"""The part of a retraction that covers no claim of its own version."""

SECOND = "^"
"""Begins the entry of the second newest retraction, where the newest covers no sibling."""

DELETIONS = "@"
"""The slot of a key that holds its newest deletes by key, per object; it has no assertion."""

MANUAL_RULE_ID = "@manual"
"""The rule id of manual edits."""

EXTERNAL = "@external"
"""The rule id of other programs' writes to the facts; they take precedence as manual edits."""

GRAPH = "@graph/"
"""The prefix of the rule ids of graph promotion; its claims take precedence as manual edits."""


def author_of(rule_id: str) -> str:
    """Map a rule id of the ledger to the author that its claims count as."""
    return MANUAL_RULE_ID if rule_id == EXTERNAL or rule_id.startswith(GRAPH) else rule_id


class Evaluation(NamedTuple):
    """One ledger row in which a rule, or a manual edit, evaluated one fact id.

    Attributes:
        seq: The row's number.
        rule_id: The rule, or `MANUAL_RULE_ID`.
        version: Number of the episode's version; 0 for manual edits.
        claim: Its claim; None when the filter does not select the version, or it cannot be read.
        promoted_at: The firing's instant, microseconds since 1970 UTC.
        owner: User, agent and channel; different owners may use one fact id in turn.
    """

    seq: int
    rule_id: str
    version: int
    claim: Claim | None
    promoted_at: int
    firing: int = 0
    owner: str = ""


class UndoneEvaluation(NamedTuple):
    """One ledger row that withdraws a firing's evaluation of one fact id.

    Attributes:
        seq: The row's number.
        firing: The number of the firing that was undone.
        by: The number of the firing that undid it.
        owner: User, agent and channel of the withdrawn evaluation.
    """

    seq: int
    firing: int
    by: int
    owner: str = ""


class History(NamedTuple):
    """All that the ledger knows of one fact id, oldest first."""

    evaluations: list[Evaluation]
    undone: list[UndoneEvaluation]

    def remaining(self) -> list[Evaluation]:
        """Return the evaluations that were not undone.

        The undo of a firing withdraws its evaluations. Of each version that the firing was the
        first to evaluate, it also withdraws the rule's later evaluations. An undo that was itself
        undone withdraws nothing.
        """
        if not self.undone:
            return self.evaluations
        voided: dict[int, int] = {}
        for undo in reversed(self.undone):
            if undo.by not in voided:
                voided.setdefault(undo.firing, undo.seq)
        first: dict[tuple[str, int], int] = {}
        for evaluation in self.evaluations:
            first.setdefault(_version_of(evaluation), evaluation.firing)
        return [
            evaluation
            for evaluation in self.evaluations
            if evaluation.firing not in voided
            and evaluation.seq > voided.get(first[_version_of(evaluation)], 0)
        ]

    def without(self, rows: Set[int]) -> History:
        """Return the history without some rows of the ledger."""
        return History(
            [evaluation for evaluation in self.evaluations if evaluation.seq not in rows],
            [undo for undo in self.undone if undo.seq not in rows],
        )

    def owner_at(self, firing: int) -> str:
        """Return the owner of a firing's evaluation, or undone evaluation, of this fact id."""
        evaluated = [row.owner for row in self.evaluations if row.firing == firing]
        withdrawn = [row.owner for row in self.undone if row.by == firing]
        return next(iter(evaluated + withdrawn), "")


def _version_of(evaluation: Evaluation) -> tuple[str, int]:
    # Manual edits have no versions, so each counts as a version of its own.
    return evaluation.rule_id, evaluation.version or evaluation.firing


class EffectiveClaim(NamedTuple):
    """A claim that counts, and the rules that promote it.

    Attributes:
        promoters: Rule id and promotion instant (microseconds), sorted by rule id.
    """

    claim: Claim
    promoters: tuple[tuple[str, int], ...]

    @property
    def pinned_at(self) -> int:
        """The promotion instant, or the one in another program's row, in microseconds."""
        if self.claim.pinned_at is not None:
            return self.claim.pinned_at
        if len(self.promoters) == 1:
            return self.promoters[0][1]
        return max(at for _, at in self.promoters)


class Assertion(NamedTuple):
    """The part of an asserting claim that a slot state keeps."""

    precedence: Precedence
    fact_id: str
    object: str


def place_of(precedence: Precedence, law: int) -> tuple[Any, ...]:
    """Return what orders claims that compete; the claims of one version may share one place."""
    return precedence[:3] if LAWS[law].holds_together else precedence


def reach_of(claim: Claim, law: int) -> Precedence:
    """Return below which precedence a claim retracts; it does not retract its siblings."""
    if not claim.source or not LAWS[law].holds_together:
        return claim.precedence
    return claim.precedence._replace(part=UNDER_SIBLINGS)


def reach_on(claim: Claim, target: Claim, law: int) -> Precedence:
    """Return below which precedence a claim retracts what it names in `target`.

    The claims of one version retract each other only when one names another, and asserts something
    else.
    """
    if are_siblings(claim, target, law):
        repeats = claim.asserts and (claim.key, claim.object) == (target.key, target.object)
        if claim.fact_id != target.fact_id and not repeats:
            return claim.precedence._replace(part=OVER_SIBLINGS)
    return reach_of(claim, law)


def are_siblings(claim: Claim, other: Claim, law: int) -> bool:
    """Return whether two claims are of one version, and a law lets these hold together."""
    return claim.source != "" and claim.source == other.source and LAWS[law].holds_together


def is_spared(precedence: Precedence, by: Precedence) -> bool:
    """Return whether a retraction covers no claim of a version because it is of that version."""
    return by.part == UNDER_SIBLINGS and (by.at, by.id) == (precedence.at, precedence.id)


class SlotState:
    """The state of a slot: its winners, the retractions above them, and what they replaced.

    Attributes:
        winner: The assertion with the highest precedence, and of one version that with the lowest
            number; None without assertions.
        siblings: The other assertions of the winner's version, of other objects, by number.
        retractions: The newest retraction above `winner`, per object, words or `ALL`; after
            `SECOND` the second newest, which decides about claims of the newest one's version.
        replaced: Links to the facts that `winner` replaced, newest first; None when they must be
            computed from all of the slot's assertions.
    """

    __slots__ = ("replaced", "retractions", "siblings", "winner")

    def __init__(
        self,
        winner: Assertion | None = None,
        retractions: dict[str, Precedence] | None = None,
        replaced: list[Link] | None = None,
        siblings: tuple[Assertion, ...] = (),
    ) -> None:
        self.winner = winner
        self.siblings = siblings
        self.retractions: dict[str, Precedence] = {} if retractions is None else retractions
        self.replaced = [] if winner is None else replaced

    @property
    def winners(self) -> tuple[Assertion, ...]:
        """The assertions with the highest precedence, by number."""
        return () if self.winner is None else (self.winner, *self.siblings)

    def fold_assertion(self, assertion: Assertion, depth: int, law: int) -> None:
        """Fold an assertion in; keep at most `depth` links to what it replaces."""
        if self.winner is not None:
            place = place_of(assertion.precedence, law)
            highest = place_of(self.winner.precedence, law)
            if place < highest:
                self.replaced = None
                return
            if place == highest:
                self.winner, *others = one_of_each_object((*self.winners, assertion))
                self.siblings = tuple(others)
                return
            if self.replaced is not None:
                self.replaced = [*map(link, reversed(self.winners)), *self.replaced][:depth]
        self.winner, self.siblings = assertion, ()
        if self.retractions:
            self.retractions = {
                what: by for what, by in self.retractions.items() if by > assertion.precedence
            }

    def fold_retraction(self, what: str, by: Precedence) -> None:
        """Fold a retraction of one object, of words, or of `ALL`, in."""
        if self.winner is not None and by <= self.winner.precedence:
            return
        best = self.retractions.get(what, by)
        self.retractions[what] = max(best, by)
        best, by = max(best, by), min(best, by)
        if best.part == UNDER_SIBLINGS and best.rank != EPISODE:
            self._fold_second(what, by, best)
        elif len(self.retractions) > 1:
            self.retractions.pop(SECOND + what, None)

    def _fold_second(self, what: str, by: Precedence, best: Precedence) -> None:
        known = self.retractions.pop(SECOND + what, by)
        others = [other for other in (by, known) if not is_spared(other, best)]
        second = max(others, default=best)
        # Only of claims with a lower rank does the version have others, about another key.
        if (best.at, EPISODE, best.id) < second[:3] and second < best:
            self.retractions[SECOND + what] = second

    @property
    def current(self) -> tuple[Assertion, ...]:
        """The current assertions: the winners that no retraction covers."""
        if not self.retractions:
            return self.winners
        return tuple(
            winner
            for winner in self.winners
            if not any(
                covers(what.removeprefix(SECOND), winner.object)
                and not is_spared(winner.precedence, by)
                for what, by in self.retractions.items()
            )
        )


def one_of_each_object(assertions: Iterable[Assertion]) -> list[Assertion]:
    """Return the assertions of one version without repetitions, by number.

    Of several with one object, that with the lowest number is the fact.
    """
    found: dict[str, Assertion] = {}
    for assertion in sorted(assertions):
        found.setdefault(assertion.object, assertion)
    return [*found.values()]


def link(replaced: Assertion) -> Link:
    """Return the lineage entry for a replaced assertion."""
    sources = [] if replaced.precedence.rank == MANUAL else [replaced.precedence.id]
    return {"replaces": replaced.fact_id, "source_episode_ids": sources}


def has_claim_in_force(rule_id: str, prior: Sequence[Evaluation]) -> bool:
    """Return whether a rule's last evaluation of a fact id has a claim."""
    last = latest_of_rule(rule_id, prior)
    return last is not None and last.claim is not None


def latest_of_rule(rule_id: str, prior: Sequence[Evaluation]) -> Evaluation | None:
    """Return a rule's last evaluation of a fact id."""
    return next((earlier for earlier in reversed(prior) if earlier.rule_id == rule_id), None)


def effective_claims(evaluations: Sequence[Evaluation]) -> tuple[EffectiveClaim, ...]:
    """Return the effective claims of a fact id: at most one of an episode and one manual edit.

    Args:
        evaluations: Oldest first. The last evaluation of each rule counts, and the last manual
            edit. Among the rules, the newest version counts. An edit by another program counts
            alone until a rule evaluates a newer version.
    """
    if len(evaluations) == 1:
        _, rule_id, _, claim, promoted_at, *_ = evaluations[0]
        return () if claim is None else (EffectiveClaim(claim, ((rule_id, promoted_at),)),)
    latest = {evaluation.rule_id: evaluation for evaluation in evaluations}
    edit = latest.pop(MANUAL_RULE_ID, None)
    newest = max((evaluation.version for evaluation in latest.values()), default=0)
    if edit is not None and edit.claim is not None and edit.claim.covers is not None:
        if newest <= edit.claim.covers:
            return (_claim_of_edit(edit, edit.claim),)
        edit = None
    of_episode = _claim_of_version(list(latest.values()), newest)
    of_edit = () if edit is None or edit.claim is None else (_claim_of_edit(edit, edit.claim),)
    return _separate(*of_episode, *of_edit)


def _claim_of_version(evaluations: list[Evaluation], version: int) -> tuple[EffectiveClaim, ...]:
    current = [
        evaluation
        for evaluation in evaluations
        if evaluation.version == version and evaluation.claim
    ]
    if not current or current[0].claim is None:
        return ()
    promoters = sorted((evaluation.rule_id, evaluation.promoted_at) for evaluation in current)
    return (EffectiveClaim(current[0].claim, tuple(promoters)),)


def _claim_of_edit(evaluation: Evaluation, claim: Claim) -> EffectiveClaim:
    return EffectiveClaim(claim, ((MANUAL_RULE_ID, evaluation.promoted_at),))


def _separate(*claims: EffectiveClaim) -> tuple[EffectiveClaim, ...]:
    """Return the claims of one fact id, changed so that at most one of them is current."""
    if len(claims) < 2:
        return claims
    if len({effective.claim.owner for effective in claims}) > 1:
        # An id has one owner. The erasure of a third owner's claims may leave two; then the
        # manual edit keeps the id.
        return claims[-1:]
    # An id holds one fact: each of the claims retracts the older one under this id.
    return tuple(map(_name_own_id, claims))


def _name_own_id(effective: EffectiveClaim) -> EffectiveClaim:
    claim = effective.claim
    return EffectiveClaim(claim._replace(names=(*claim.names, claim.fact_id)), effective.promoters)


class Law(NamedTuple):
    """What a law decides; the ledger keeps the number of the law that its rows were resolved under.

    Attributes:
        fold_assertion: Folds an assertion into the state of its slot, with so many lineage links.
        holds_together: Whether the claims of one version share one place in the order of claims,
            and retract each other only by name.
    """

    fold_assertion: Callable[[SlotState, Assertion, int], None]
    holds_together: bool


FIRST_LAW = 1
"""The law of slumberd 0.2.0; firings that name no law were resolved under it."""

LAWS: dict[int, Law] = {
    FIRST_LAW: Law(partial(SlotState.fold_assertion, law=FIRST_LAW), holds_together=False),
    2: Law(partial(SlotState.fold_assertion, law=2), holds_together=True),
}
"""Every law by its number. A law stays as it is: a change of what it decides is a new law."""


def newest_law() -> int:
    """Return the number of the law that new ledgers begin with."""
    return max(LAWS)


FORMER = "@former"
"""In the document of a change that is under way: the setting of the other keys. No channel."""


class MultiValued:
    """Which predicates of which channels may hold several objects at once.

    A change of the setting resolves some keys at a time. Meanwhile the new setting holds for the
    first keys, in the order of `order_in_change`, and the former one for the others.

    Attributes:
        channels: The setting by channel; without channels whose predicates all hold one object.
        former: The setting of keys that a change has not resolved yet; None without a change.
        share: The change has resolved the keys whose order is below it.
    """

    __slots__ = ("_several", "channels", "former", "share")

    def __init__(
        self,
        channels: Mapping[str, Several | Iterable[str]] | None = None,
        former: MultiValued | None = None,
        share: float = 1.0,
    ) -> None:
        found = {
            channel: several if isinstance(several, ManyBut) else frozenset(several)
            for channel, several in sorted((channels or {}).items())
        }
        self.channels: dict[str, Several] = {name: some for name, some in found.items() if some}
        self.former = former
        self.share = share
        self._several = {
            _escaped(channel): ManyBut(frozenset(map(_escaped, several.single_valued)))
            if isinstance(several, ManyBut)
            else frozenset(map(_escaped, several))
            for channel, several in self.channels.items()
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> MultiValued:
        """Return the setting that `document` wrote."""
        channels = {
            name: ManyBut(frozenset(value["single_valued"])) if isinstance(value, dict) else value
            for name, value in document.items()
            if name != FORMER
        }
        former = document.get(FORMER)
        if former is None:
            return cls(channels)
        return cls(channels, cls.from_document(former["channels"]), former["share"])

    def document(self) -> dict[str, Any]:
        """Return the setting as JSON, as the ledger stores it."""
        found = document_of(self.channels)
        if self.former is not None:
            found[FORMER] = {"channels": self.former.document(), "share": self.share}
        return found

    @property
    def is_plain(self) -> bool:
        """Whether every predicate holds one object."""
        return not self._several and self.former is None

    def __contains__(self, key: str) -> bool:
        """Return whether a key holds several objects at once."""
        if self.former is not None and order_in_change(key) >= self.share:
            return key in self.former
        if not self._several:
            return False
        parts = key.split("/")
        several = self._several.get(parts[2]) if len(parts) == 5 else None
        return several is not None and holds_several(parts[4], several)

    def slot(self, key: str, object_: str) -> str:
        """Return the slot of an object: the object of a multi-valued key, else `ALL`."""
        return object_ if key in self and not is_wide(object_) else ALL

    def slot_of(self, claim: Claim) -> str:
        """Return the slot in which a claim competes; a declared fact has a slot of its own."""
        return (
            slot_of_declared(claim.fact_id)
            if claim.declared
            else self.slot(claim.key, claim.object)
        )

    def slots_of(self, claim: Claim) -> set[str]:
        """Return the slots that folding a claim touches, except those of declared facts."""
        found = {ALL, self.slot_of(claim)}
        if claim.declared or deletes_by_key(claim):
            found.add(DELETIONS)
        return found


def slot_of_declared(fact_id: str) -> str:
    """Return the slot of a declared fact; no object's JSON begins like it."""
    return f"{DELETIONS}{fact_id}"


def is_declared_slot(slot: str) -> bool:
    """Return whether a slot is that of a declared fact."""
    return slot.startswith(DELETIONS) and slot != DELETIONS


def order_in_change(key: str) -> float:
    """Return the order of a key when a setting changes, 0 to 1: the same in every process."""
    return int.from_bytes(sha256(key.encode(errors="surrogatepass")).digest()[:6]) / 2**48


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")
