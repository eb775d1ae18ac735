"""Hands at work: pin, unpin and deltas applied directly, each inside one transaction."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from typing import Any

import orjson

from slumberd.consolidation.claim import Claim
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.manual import (
    OWN_IDS,
    ManualAssertion,
    assertion,
    declaration,
    declares_the_same,
    incoming,
    newest_instant,
    precedence_of,
    retraction,
    says_the_same,
    silence,
    withdrawal,
)
from slumberd.consolidation.precedence import HANDS
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.errors import FactConflictError, InputError, NoInputError
from slumberd.model.delta import AddDelta, AnyDelta, DeleteDelta, NoopDelta, UpdateDelta
from slumberd.model.firing import Firing
from slumberd.model.record import Outcome
from slumberd.sql_statements import statements
from slumberd.storage.ledger.batch import Batch, counts_of
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.sqlite.strict_json import MOST_DEPTH, too_deep

_FACTS = statements("facts")


class HandAtWork:
    """Direct changes, inside a transaction; one batch of them.

    Attributes:
        batch: What they are written as.
        known_state: What is known; `look_up` makes it know more.
    """

    def __init__(self, connection: sqlite3.Connection, depth: int, firing: Firing) -> None:
        self._connection = connection
        self.batch = Batch(connection, firing, channels_at(connection), depth)
        self.known_state: KnownState = self.batch.loaded.known_state
        self.resolution = self.batch.resolution()
        self._claims = 0

    def finish(self) -> Outcome | None:
        """Write what was done; None when nothing was."""
        entries = self.resolution.entries
        if not entries:
            return None
        return self.batch.write(self.resolution, {"": counts_of(self._claims, 0, entries)})

    def assert_(self, said: ManualAssertion, *, again: bool) -> None:
        """Assert a fact, unless the last hand on its id said the same.

        With `again` it is said again when that does not stand any more.

        Raises:
            InputError: An id of it, its user or its agent holds NUL or no valid Unicode, or it is
                nested too deep.
            FactConflictError: Another user, agent or channel holds an id of it, or it is one that
                no fact may take.
        """
        checked(said)
        claim = self.said(said)
        self._refuse_foreign(claim)
        self.batch.loaded.load([incoming(claim)])
        last = self._last_manual_claim(claim.fact_id)
        if last and says_the_same(last, claim) and (self._stands(last) or not again):
            return
        self.do([claim])

    def declare(self, said: ManualAssertion) -> None:
        """Declare a fact, as another program does that pins a row.

        Where a rule or a person holds the id with a current fact, this is a manual edit of it.

        Raises:
            InputError: An id of it, its user or its agent holds NUL or no valid Unicode, or it is
                nested too deep.
            FactConflictError: Another user, agent or channel holds its id, or it is one that no
                fact may take.
        """
        checked(said)
        self.look_up((said.fact_id,))
        if self.edits_manually(said.fact_id):
            self.assert_(said, again=True)
            return
        claim = self.declared(said)
        self._refuse_foreign(claim)
        last = self._last_manual_claim(claim.fact_id)
        if last is None or not self._stands(last) or not declares_the_same(last, claim):
            self.do([claim])

    def edits_manually(self, fact_id: str) -> bool:
        """Say whether a program that writes the row of an id edits what a rule or person said.

        The id must be looked up.
        """
        fact = self.known_state.fact(fact_id)
        return fact is not None and not fact.counted.claim.declared

    def declared(self, said: ManualAssertion) -> Claim:
        """Return the act of declaring a fact."""
        self._claims += 1
        return declaration(said, self.batch.at)

    def remove(self, fact_id: str) -> None:
        """Remove a fact as the program does that pinned it; nothing where it is not current."""
        self.look_up((fact_id,))
        fact = self.known_state.fact(fact_id)
        if fact is not None:
            self.do([self.removed(fact)])

    def removed(self, fact: CurrentFact) -> Claim | Candidate:
        """Return that a program removed a row: a withdrawal of what it declared.

        Where the id is a promoted fact's, too, it is a retraction as by a person.
        """
        rivals = [
            one.claim for one in self.known_state.counted(fact.fact_id) if not one.claim.declared
        ]
        if rivals or not fact.counted.claim.declared:
            return self.taken_out(fact, ())
        self._claims += 1
        return withdrawal(fact.counted.claim)

    def take_out(
        self,
        fact_ids: Sequence[str],
        *,
        lineage: Sequence[dict[str, Any]] = (),
        known_only: bool = False,
    ) -> None:
        """Take out those of some facts that stand.

        Raises:
            NoInputError: `known_only`, and nothing ever spoke of one of the ids.
        """
        self.look_up(fact_ids)
        if known_only:
            self._refuse_unheard_of(fact_ids)
        standing = [self.known_state.fact(fact_id) for fact_id in dict.fromkeys(fact_ids)]
        self.do([self.taken_out(one, lineage) for one in standing if one is not None])

    def apply(self, delta: AnyDelta, *, strict: bool) -> None:
        """Apply one delta whose provenance is whole."""
        lineage = (_provenance(delta),)
        if isinstance(delta, UpdateDelta | DeleteDelta) and strict:
            self._refuse_unknown(delta.replaces)
        match delta:
            case NoopDelta():
                number = self._number()
                precedence = precedence_of(self.batch.at, number)
                self.do(
                    [
                        silence(
                            precedence, number=number, confidence=delta.confidence, lineage=lineage
                        )
                    ]
                )
            case DeleteDelta():
                self.take_out(delta.replaces, lineage=lineage)
            case AddDelta() | UpdateDelta():
                self.assert_(_said(delta, lineage), again=False)

    def look_up(self, fact_ids: Sequence[str]) -> None:
        """Know all of some fact ids: what was said of them, and what stands beside it."""
        self.batch.loaded.load_histories(fact_ids)

    def said(self, said: ManualAssertion, *, at: int | None = None) -> Claim:
        """Return the act of asserting a fact, at an instant in microseconds; now for None."""
        return assertion(said, precedence_of(self.batch.at if at is None else at, self._number()))

    def taken_out(self, fact: CurrentFact, lineage: Sequence[dict[str, Any]]) -> Claim:
        """Return the act of taking out a fact that stands, now."""
        number = self._number()
        precedence = precedence_of(self.batch.at, number)
        return retraction(fact.counted.claim, precedence, number=number, lineage=lineage)

    def _number(self) -> int:
        # Every act leaves a row at least, so the numbers of acts end before the next batch's.
        self._claims += 1
        return self.batch.number + self._claims - 1

    def do(self, changes: Sequence[Claim | Candidate]) -> None:
        """Settle what hands say, and what programs withdraw, in order.

        A manual edit takes effect at once, whatever its key and ids already hold; a declared
        fact is said at the instant that its program gives.
        """
        met = [incoming(one) if isinstance(one, Claim) else one for one in changes]
        self.batch.loaded.load(met)
        edits = [one.claim for one in met if one.claim is not None and not one.claim.declared]
        self._load_every_object(edits)
        for one in met:
            if one.claim is None or one.claim.declared:
                self.resolution.meet(one)
            else:
                self.resolution.meet(incoming(self._in_time(one.claim)))

    def _load_every_object(self, claims: Sequence[Claim]) -> None:
        """Load multi-valued keys whole: the newest instant of any object counts."""
        targets = [target for claim in claims for target in self.known_state.targets(claim)]
        keys = {one.key for one in (*claims, *targets) if one.key in self.known_state.multi}
        self.batch.loaded.load_in_full(keys - self.known_state.full.keys())

    def set_aside(self, met: Candidate) -> None:
        """Enter what cannot be read, or is not whose it says it is; nothing comes of it."""
        self._claims += 1
        self.resolution.meet(met)

    def write_back(self, fact_id: str) -> None:
        """Let the row of a fact id be again what the ledger says, whatever lies there."""
        fact = self.known_state.fact(fact_id)
        if fact is None:
            self.resolution.gone[fact_id] = None
        else:
            claim = fact.counted.claim
            self.resolution.dirty[claim.key, self.known_state.multi.slot_of(claim)] = None

    def _last_manual_claim(self, fact_id: str) -> Claim | None:
        met = reversed(self.known_state.evaluations.get(fact_id, ()))
        return next((one.claim for one in met if one.rule_id == HANDS and one.claim), None)

    def _stands(self, claim: Claim) -> bool:
        fact = self.known_state.fact(claim.fact_id)
        return fact is not None and fact.counted.claim.precedence == claim.precedence

    def _in_time(self, claim: Claim) -> Claim:
        targets = self.known_state.targets(claim)
        newest = newest_instant(
            self.known_state,
            (claim.fact_id, *claim.names),
            (claim.key, *(target.key for target in targets)),
        )
        if newest is None or newest <= claim.precedence.at:
            return claim
        return claim._replace(precedence=claim.precedence._replace(at=newest))

    def _has_row(self, fact_id: str) -> bool:
        return self._connection.execute(_FACTS["has_fact"], (fact_id,)).fetchone() is not None

    def is_taken(self, fact_id: str, owner: str) -> bool:
        """Say whether another user, agent or channel than the owner holds a fact id."""
        return any(one.claim.owner != owner for one in self.known_state.counted(fact_id))

    def _refuse_foreign(self, claim: Claim) -> None:
        if claim.fact_id.startswith(OWN_IDS):
            raise FactConflictError(claim.fact_id, f"ids with {OWN_IDS!r} are the ledger's own")
        self.batch.loaded.load_named((claim.fact_id, *claim.names))
        for fact_id in (claim.fact_id, *claim.names):
            if self.is_taken(fact_id, claim.owner):
                raise FactConflictError(fact_id, "is held by another user, agent or channel")

    def _refuse_unknown(self, fact_ids: Sequence[str]) -> None:
        self.batch.loaded.load_named(fact_ids)
        for fact_id in fact_ids:
            if not self.known_state.counted(fact_id):
                raise FactConflictError(fact_id, "replaces a fact that never was")

    def _refuse_unheard_of(self, fact_ids: Sequence[str]) -> None:
        for fact_id in fact_ids:
            if fact_id not in self.known_state.evaluations and not self._has_row(fact_id):
                remedy = "no fact ever had this id; `slumberd facts` lists those that stand"
                raise NoInputError(fact_id, remedy)


def checked(said: ManualAssertion) -> ManualAssertion:
    """Return what is said, when a ledger can keep it as it is.

    Raises:
        InputError: An id of it, its user or its agent holds NUL or no valid Unicode, or it is
            nested too deep.
    """
    # SQLite's JSON may end a text at a NUL, so such an id would be taken for another's.
    for text in (said.fact_id, said.user, said.agent, *said.names):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            problem = f"{text!r} holds NUL or no valid Unicode"
            raise InputError(f"fact {said.fact_id!r}: {problem}")
    if any(map(too_deep, [said.payload, *said.lineage, said.metadata or {}])):
        raise InputError(f"fact {said.fact_id!r} is nested deeper than {MOST_DEPTH} levels")
    return said


def _provenance(delta: AnyDelta) -> dict[str, Any]:
    return {
        "rule_id": delta.rule_id,
        "source_episode_ids": list(delta.source_episode_ids),
        "promotion_ts": delta.promotion_ts.isoformat(),
    }


def _said(delta: AddDelta | UpdateDelta, lineage: Sequence[dict[str, Any]]) -> ManualAssertion:
    payload = dict(delta.fact_payload)
    fact_id = str(payload.get("id") or _derived_id(delta))
    names = tuple(delta.replaces) if isinstance(delta, UpdateDelta) else ()
    user, agent = str(payload.get("user") or ""), str(payload.get("agent") or "")
    return ManualAssertion(fact_id, user, agent, payload, delta.confidence, lineage, None, names)


def _derived_id(delta: AddDelta | UpdateDelta) -> str:
    # A payload without an id must come out the same each time it is applied.
    told = orjson.dumps(
        [delta.rule_id, delta.source_episode_ids, delta.fact_payload],
        option=orjson.OPT_SORT_KEYS,
    )
    return str(uuid.uuid5(uuid.NAMESPACE_OID, told.decode()))
