"""Resolve the claims of a ledger again, a part at a time, and compare the deltas with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise, zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import MANUAL, UNREADABLE
from slumberd.consolidation.incoming import (
    ID_TAKEN,
    UNSAID,
    Candidate,
    ClaimCandidate,
    Contested,
    Erased,
    HeldBack,
    Unmatched,
    Unreadable,
    Unsaid,
)
from slumberd.consolidation.precedence import MultiValued, author_of, latest_of_rule
from slumberd.consolidation.resolution import Resolution, ResolvedEffect
from slumberd.model.episode import SalienceShortfall
from slumberd.model.firing import CHANNELS
from slumberd.model.record import Break
from slumberd.model.scope import episode_id_of
from slumberd.storage.audit.partition import Part
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.arrivals import ARRIVED, MOVED, find_unclear
from slumberd.storage.ledger.batch import fact_row
from slumberd.storage.ledger.history import current_facts_on
from slumberd.storage.ledger.rows import (
    EVENTS,
    KINDS,
    UNDONE,
    LedgerRow,
    claim_from,
    histories_from,
)
from slumberd.storage.ledger.state_loader import LAW_RULE_ID, LoadedState, law_at, law_of
from slumberd.storage.ledger.undo import withdraw

_RESTORED, _QUARANTINE = EVENTS.index("restored"), EVENTS.index("quarantine")
_EMPTY: dict[str, Any] = {}
_NEVER = 2**63
_FIRST_ROW = 1


class SettingsChange(NamedTuple):
    """A firing that changed the multi-valued predicates or the law.

    Attributes:
        at: Its instant, microseconds.
        multi: The multi-valued predicates from then on; None when they stay.
        law: The number of the law from then on; None when it stays.
        resolves: Whether it resolves keys again, and its firing has their rows.
        first_key: The number of the first key that it resolves again.
    """

    n: int
    at: int
    multi: MultiValued | None = None
    law: int | None = None
    resolves: bool = True
    first_key: int = 0


def _change_of_moved(
    session: Session, firing: tuple[int, int, str], payload: bytes, first: int
) -> list[SettingsChange]:
    """Return the change of settings at a firing that was moved, or at an arrival.

    The rows of a user who came were resolved under the settings of the other shard. They hold for
    the keys of this user, from the first of its rows to the arrival.
    """
    n, at, rule_id = firing
    document = orjson.loads(payload)
    if "multi_valued" not in document:
        return []
    multi = MultiValued.from_document(document["multi_valued"])
    resolves = first not in (0, n) and rule_id in (CHANNELS, LAW_RULE_ID)
    first_key = first if first not in (0, n) else _NEVER + 1
    law = law_of(session, payload)
    return [SettingsChange(n, at, multi, law, resolves, first_key)]


class RecordedFiring(NamedTuple):
    """A firing whose rows are resolved again: its number, rule and instant."""

    n: int
    rule_id: str
    at: int


class ResolvedPart(NamedTuple):
    """The rows of ``facts`` and of ``slumberd_keys`` that a part makes."""

    facts: list[Row]
    heads: list[Row]


class Findings(NamedTuple):
    """How the rows of a ledger compare with the deltas that a recomputation makes.

    Attributes:
        rows: How many rows were compared.
        differing: How many rows differ and come before any erased row.
        unclear: How many rows differ and come after an erased row, which may explain it.
        first: The first of the differing rows.
        by_settings: Firing, row number and key of each delta that a change of channels or of the
            law makes.
    """

    rows: int = 0
    differing: int = 0
    unclear: int = 0
    first: Break | None = None
    by_settings: tuple[tuple[int, int, str], ...] = ()

    def __or__(self, other: Findings) -> Findings:
        """Return the combined findings of two parts."""
        firsts = [first for first in (self.first, other.first) if first is not None]
        return Findings(
            self.rows + other.rows,
            self.differing + other.differing,
            self.unclear + other.unclear,
            min(firsts, key=attrgetter("seq"), default=None),
            self.by_settings + other.by_settings,
        )


class Recomputation:
    """Resolves a ledger again; each part starts from an empty state."""

    def __init__(self, session: Session, depth: int) -> None:
        self._session = session
        self._depth = depth
        self._changes: list[SettingsChange] = []
        self._erasures: set[int] = set()
        self._law = law_at(session, _FIRST_ROW)
        first_moved = 0
        for n, at, rule_id, payload in session.stream("replay.changing_firings"):
            document = orjson.loads(payload)
            if "forgets" in document:
                self._erasures.add(n)
            if MOVED in document or ARRIVED in document:
                first_moved = 0 if ARRIVED in document else first_moved or n
                change = _change_of_moved(session, (n, at, rule_id), payload, first_moved)
                self._changes += change
            elif "multi_valued" in document:
                multi = MultiValued.from_document(document["multi_valued"])
                self._changes.append(SettingsChange(n, at, multi=multi))
            elif rule_id == LAW_RULE_ID:
                self._changes.append(SettingsChange(n, at, law=law_of(session, payload)))
        self._unclear_from: int = find_unclear(session) or _NEVER

    def resolve(self, part: Part) -> tuple[ResolvedPart, Findings]:
        """Resolve a part again; return its current facts, and how its rows differ."""
        recomputed = _RecomputedPart(self._session, self._depth, self._law, self._unclear_from)
        changes = iter((*self._changes, None))
        change = next(changes)
        firings = self._read_firings(part)
        for number, found in groupby(part, attrgetter("firing")):
            while change is not None and change.n < number:
                recomputed.change_settings(change, ())
                change = next(changes)
            if change is not None and change.n == number and change.resolves:
                recomputed.change_settings(change, [*found])
                change = next(changes)
                continue
            if change is not None and change.n == number:
                recomputed.change_settings(change, ())
                change = next(changes)
            # The recomputation never saw the erased claims, so an erasure has nothing to remove.
            if number not in self._erasures:
                recomputed.resolve(firings[number], [*found])
        while change is not None:
            recomputed.change_settings(change, ())
            change = next(changes)
        return recomputed.result(), recomputed.findings(len(part))

    def _read_firings(self, part: Part) -> dict[int, RecordedFiring]:
        """Return the firings that wrote the rows of a part, by number."""
        numbers = [*{row.firing for row in part}]
        found = self._session.stream("partition.firings", {"numbers": numbers})
        return {n: RecordedFiring(n, rule_id, at) for n, rule_id, at in found}

    def check_order(self, findings: Findings) -> Findings:
        """Add to the findings of all parts the deltas of changed settings that are not by key."""
        for (firing, _, key), (other, seq, after) in pairwise(sorted(findings.by_settings)):
            if firing == other and after < key:
                findings |= self._out_of_order(other, seq)
        return findings

    def _out_of_order(self, firing: int, seq: int) -> Findings:
        if firing >= self._unclear_from:
            return Findings(unclear=1)
        return Findings(differing=1, first=Break(seq, "comes out in another order"))


class _RecomputedPart:
    """The state of one part during its recomputation."""

    def __init__(self, session: Session, depth: int, law: int, unclear_from: int) -> None:
        self._session = session
        self._unclear_from = unclear_from
        self._loaded = LoadedState(session, MultiValued(), depth, law)
        self._state = self._loaded.known_state
        self._differing = self._unclear = 0
        self._first: Break | None = None
        self._by_settings: list[tuple[int, int, str]] = []

    def result(self) -> ResolvedPart:
        """Return the rows of the current facts, and of the keys."""
        facts = [fact_row(fact) for fact in current_facts_on(self._state)]
        return ResolvedPart(facts, [*self._loaded.changed_rows()])

    def findings(self, rows: int) -> Findings:
        """Return how the rows compare with the deltas; `rows` is their number."""
        return Findings(rows, self._differing, self._unclear, self._first, tuple(self._by_settings))

    def resolve(self, firing: RecordedFiring, rows: Sequence[LedgerRow[str]]) -> None:
        """Resolve the rows of a firing again."""
        resolution = Resolution(self._state, firing=firing.n, at=firing.at)
        if any(row.event == UNDONE for row in rows):
            self._undo(resolution, firing, rows)
        else:
            self._apply(resolution, firing, rows)
        self._compare(firing.n, rows, resolution.entries)

    def change_settings(self, change: SettingsChange, rows: Sequence[LedgerRow[str]]) -> None:
        """Resolve again the keys that a change of settings concerns, in order of key."""
        before, former_law = self._state.multi_valued, self._state.law
        multi = before if change.multi is None else change.multi
        self._state.multi_valued, self._state.law = multi, change.law or former_law
        if not self._state.complete_keys:
            self._compare(change.n, rows, ())
            return
        own = [
            key
            for key in sorted(self._state.complete_keys)
            if self._loaded.key_ids.get(key, _NEVER) >= change.first_key
        ]
        resolution = Resolution(self._state, firing=change.n, at=change.at)
        first = {row.key_id: row.seq for row in reversed(rows)}
        for key in own:
            if change.law not in (None, former_law) or (key in before) != (key in multi):
                # The rows of one key are adjacent; rows of other parts may precede them.
                seq = first.get(self._loaded.key_ids.get(key))
                if seq is not None:
                    resolution.skip_to(seq)
                resolution.resolve_again([key], before, former_law)
        self._by_settings += [(change.n, entry.seq, entry.key) for entry in resolution.entries]
        self._compare(change.n, rows, resolution.entries)

    def _undo(
        self, resolution: Resolution, firing: RecordedFiring, rows: Sequence[LedgerRow[str]]
    ) -> None:
        undone = [row.fact_id for row in rows if row.event == UNDONE]
        parameters = {"values": [*undone]}
        found = self._session.stream("ledger.evaluations", parameters)
        # The undo saw only the evaluations that came before it.
        histories = histories_from(row for row in found if row[1] < firing.n)
        for row in rows:
            if row.event == _QUARANTINE:
                self._apply(resolution, firing, [row])
            if row.event != UNDONE or row.fact_id not in histories:
                continue
            number = orjson.loads(row.payload or b"")["undoes"]
            resolution.skip_to(row.seq)
            history = histories[row.fact_id]
            withdraw(resolution, row.fact_id, history, (number, firing.n), at=firing.at)

    def _apply(
        self, resolution: Resolution, firing: RecordedFiring, rows: Sequence[LedgerRow[str]]
    ) -> None:
        rule_id = author_of(firing.rule_id)
        full = self._state.complete_keys
        for row in rows:
            restored = row.event == _RESTORED
            candidate = None if restored else self._candidate_of(row, rule_id)
            if candidate is None:
                continue
            claim = candidate.claim
            if claim is not None:
                full.setdefault(claim.key, set())
            resolution.skip_to(row.seq)
            resolution.apply(candidate)
            if claim is not None:
                full[claim.key].add(claim.fact_id)
                self._loaded.key_ids.setdefault(claim.key, row.key_id or row.seq)
                self._state.index(claim)

    def _candidate_of(self, row: LedgerRow[str], rule_id: str) -> Candidate | None:
        """Return what the rule evaluated; None when the ledger does not say it any more."""
        event = EVENTS[row.event]
        if event == "erased":
            return Erased()
        if event == "known":
            return self._unchanged_candidate(row, rule_id)
        document = orjson.loads(row.payload) if row.payload else _EMPTY
        if event == "claim":
            return _claim_candidate(row, rule_id, document)
        return _candidate_without_claim(row, rule_id, document)

    def _unchanged_candidate(self, row: LedgerRow[str], rule_id: str) -> Candidate | None:
        fact_id = row.fact_id or ""
        last = latest_of_rule(rule_id, self._state.evaluations.get(fact_id, ()))
        if last is None:
            return None
        # The ledger writes no fact id when the id belongs to another owner.
        claims = [counted.claim for counted in self._state.effective_claims(fact_id)]
        owner = next((claim.owner for claim in claims), "")
        source = next((claim.source for claim in claims if claim.source), episode_id_of(fact_id))
        base: dict[str, Any] = {
            "fact_id": fact_id,
            "owner": owner,
            "rule_id": rule_id,
            "version": row.version,
            "at": row.at or 0,
            "eid": source,
        }
        if last.claim is None:
            return Unreadable(**base, reason=UNREADABLE)
        return ClaimCandidate(**base, claim=last.claim)

    def _compare(
        self, number: int, rows: Sequence[LedgerRow[str]], entries: Sequence[ResolvedEffect]
    ) -> None:
        for row, entry in zip_longest(rows, entries):
            if row is not None and entry is not None and self._agrees(row, entry):
                continue
            if number >= self._unclear_from:
                self._unclear += 1
                continue
            self._differing += 1
            if self._first is None:
                self._first = Break(row.seq if row else entry.seq, _describe_difference(row, entry))

    def _agrees(self, row: LedgerRow[str], entry: ResolvedEffect) -> bool:
        return (
            row.seq == entry.seq
            and KINDS[row.kind] == entry.effect
            and EVENTS[row.event] == entry.event
            and (row.fact_id or "") == entry.fact_id
            and row.replaces == _replaced_ids(entry)
            and row.reason == entry.reason
            and row.first == entry.first
            and self._has_number(entry.key, row.key_id)
        )

    def _has_number(self, key: str, key_id: int | None) -> bool:
        if not key:
            return key_id is None
        return self._loaded.key_ids.get(key) == key_id


def _claim_candidate(row: LedgerRow[str], rule_id: str, document: dict[str, Any]) -> ClaimCandidate:
    fact_id, at = row.fact_id or "", row.at or 0
    claim = claim_from(fact_id, at, document)
    return ClaimCandidate(
        fact_id=fact_id,
        owner=claim.owner,
        rule_id=rule_id,
        version=row.version,
        at=at,
        eid=fact_id if claim.precedence.rank == MANUAL else claim.precedence.id,
        claim=claim,
    )


def _candidate_without_claim(
    row: LedgerRow[str], rule_id: str, document: dict[str, Any]
) -> HeldBack | Unmatched | Unsaid | Unreadable | Contested:
    base: dict[str, Any] = {
        "fact_id": row.fact_id or "",
        "owner": document["owner"],
        "rule_id": rule_id,
        "version": row.version,
        "at": row.at or 0,
        "eid": document["eid"],
    }
    event = EVENTS[row.event]
    # A quarantine row that removes a fact has no reason of its own.
    reason = row.reason or UNREADABLE if event == "quarantine" else ""
    if event == "gated":
        shortfall = SalienceShortfall(document["salience"], document["min"])
        return HeldBack(**base, claim=None, shortfall=shortfall)
    if not row.fact_id:
        return Contested(**base, reason=reason or ID_TAKEN)
    if reason:
        return Unreadable(**base, reason=reason)
    return Unsaid(**base) if document["detail"] == UNSAID else Unmatched(**base)


def _replaced_ids(entry: ResolvedEffect) -> str | None:
    return orjson.dumps(entry.replaces).decode() if entry.replaces else None


def _describe_difference(row: LedgerRow[str] | None, entry: ResolvedEffect | None) -> str:
    recorded = "nothing"
    if row is not None:
        recorded = _describe(KINDS[row.kind], row.fact_id or "", row.replaces, row.reason)
    again = "nothing"
    if entry is not None:
        again = _describe(entry.effect, entry.fact_id, _replaced_ids(entry), entry.reason)
    return f"recorded as {recorded}, comes out as {again}"


def _describe(kind: str, fact_id: str, replaces: str | None, reason: str) -> str:
    words = [kind, repr(fact_id), f"replacing {replaces}" if replaces else "", reason]
    return " ".join(word for word in words if word)
