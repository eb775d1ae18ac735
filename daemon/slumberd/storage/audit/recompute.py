"""Settle a ledger again, a part at a time: what the law makes of its acts, against its deltas."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby, pairwise, zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import MANUAL
from slumberd.consolidation.incoming import UNREADABLE, Candidate
from slumberd.consolidation.precedence import MultiValued, said_by
from slumberd.consolidation.resolution import Entry, Resolution
from slumberd.model.episode import Gated
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.record import Break
from slumberd.model.scope import FORGOTTEN
from slumberd.sql_statements import statements
from slumberd.storage.audit.partition import Part, Told
from slumberd.storage.ledger.batch import fact_row
from slumberd.storage.ledger.bulk_write import Row
from slumberd.storage.ledger.history import current_facts_on
from slumberd.storage.ledger.rows import KINDS, WHATS, claim_from, histories_from
from slumberd.storage.ledger.state_loader import LoadedGround
from slumberd.storage.ledger.undo import withdraw

_SQL = statements("replay")
_LEDGER = statements("ledger")
_RESTORED, _UNDONE = WHATS.index("restored"), WHATS.index("undone")
_QUARANTINE = WHATS.index("quarantine")
_NOTHING: dict[str, Any] = {}
_NEVER = 2**63


class Change(NamedTuple):
    """A firing that changed which predicates are multi-valued: its number and instant."""

    n: int
    at: int
    multi: MultiValued


class Settled(NamedTuple):
    """What came of a part: the rows of its facts, and of its keys."""

    facts: list[Row]
    heads: list[Row]


class Findings(NamedTuple):
    """What came of comparing deltas.

    Attributes:
        rows: Rows of the ledger that were looked at.
        differing: Those that came out differently, though nothing before them was forgotten.
        unclear: Those that came out differently, which what was forgotten may explain.
        first: The first of the former.
        resettled: Firing, number and key of what came and went when channels changed.
    """

    rows: int = 0
    differing: int = 0
    unclear: int = 0
    first: Break | None = None
    resettled: tuple[tuple[int, int, str], ...] = ()

    def __or__(self, other: Findings) -> Findings:
        """Return the findings of two parts as those of one."""
        firsts = [one for one in (self.first, other.first) if one is not None]
        return Findings(
            self.rows + other.rows,
            self.differing + other.differing,
            self.unclear + other.unclear,
            min(firsts, key=attrgetter("seq"), default=None),
            self.resettled + other.resettled,
        )


class Resettling:
    """A ledger being settled again; each part on a ground of its own."""

    def __init__(self, connection: sqlite3.Connection, depth: int) -> None:
        self._connection = connection
        self._depth = depth
        self._changes: list[Change] = []
        self._forgets: set[int] = set()
        for n, at, payload in connection.execute(_SQL["changing_firings"]):
            told = orjson.loads(payload)
            if "forgets" in told:
                self._forgets.add(n)
            elif "multi_valued" in told:
                self._changes.append(Change(n, at, MultiValued(told["multi_valued"])))
        erased = connection.execute(_SQL["first_erased"]).fetchone()
        self._unclear_from: int = erased[0] if erased else _NEVER

    def settle(self, part: Part) -> tuple[Settled, Findings]:
        """Settle a part again; return what stands by it, and how it differs."""
        one = _Resettled(self._connection, self._depth, self._unclear_from)
        changes = iter((*self._changes, None))
        change = next(changes)
        for number, found in groupby(part, attrgetter("firing")):
            while change is not None and change.n < number:
                one.change_channels(change, ())
                change = next(changes)
            if change is not None and change.n == number:
                one.change_channels(change, [*found])
                change = next(changes)
            # What a forgetting erased was not said this time, so there is nothing to take out.
            elif number not in self._forgets:
                one.settle(number, [*found])
        while change is not None:
            one.change_channels(change, ())
            change = next(changes)
        findings = Findings(len(part), one.differing, one.unclear, one.first, tuple(one.resettled))
        return one.settled(), findings

    def in_order(self, findings: Findings) -> Findings:
        """Add to the findings of all parts what channels changed in another order than by key."""
        for (firing, _, key), (other, seq, after) in pairwise(sorted(findings.resettled)):
            if firing == other and after < key:
                findings |= self._out_of_order(other, seq)
        return findings

    def _out_of_order(self, firing: int, seq: int) -> Findings:
        if firing >= self._unclear_from:
            return Findings(unclear=1)
        return Findings(differing=1, first=Break(seq, "comes out in another order"))


class _Resettled:
    """A part of a ledger being settled again."""

    def __init__(self, connection: sqlite3.Connection, depth: int, unclear_from: int) -> None:
        self._connection = connection
        self._unclear_from = unclear_from
        self._loaded = LoadedGround(connection, MultiValued(), depth)
        self._known_state = self._loaded.known_state
        self.differing = self.unclear = 0
        self.first: Break | None = None
        self.resettled: list[tuple[int, int, str]] = []

    def settled(self) -> Settled:
        """Return the rows of what stands, and of the keys."""
        facts = [fact_row(one) for one in current_facts_on(self._known_state)]
        return Settled(facts, [*self._loaded.changed()])

    def settle(self, number: int, rows: Sequence[Told]) -> None:
        """Settle the rows of a firing again."""
        resolution = Resolution(self._known_state, firing=number, at=rows[0].fired_at)
        if any(row.what == _UNDONE for row in rows):
            self._undo(resolution, number, rows)
        else:
            self._meet(resolution, rows)
        self._compare(number, rows, resolution.entries)

    def change_channels(self, change: Change, rows: Sequence[Told]) -> None:
        """Settle again what a change of channels concerns; its rows go by key."""
        before = self._known_state.multi
        self._known_state.multi = change.multi
        if not self._known_state.full:
            self._compare(change.n, rows, ())
            return
        resolution = Resolution(self._known_state, firing=change.n, at=change.at)
        first = {row.key_id: row.seq for row in reversed(rows)}
        for key in sorted(self._known_state.full):
            if (key in before) != (key in change.multi):
                # Between the rows of this key are none, but before them those of other parts.
                seq = first.get(self._loaded.key_ids.get(key))
                if seq is not None:
                    resolution.skip_to(seq)
                resolution.resettle([key], before)
        self.resettled += [(change.n, entry.seq, entry.key) for entry in resolution.entries]
        self._compare(change.n, rows, resolution.entries)

    def _undo(self, resolution: Resolution, firing: int, rows: Sequence[Told]) -> None:
        undone = [row.fact_id for row in rows if row.what == _UNDONE]
        asked = {"ids": orjson.dumps(undone).decode()}
        found = self._connection.execute(_LEDGER["meetings"], asked)
        # Of what the ledger says of these ids by now, only what it said then.
        histories = histories_from(evaluation for evaluation in found if evaluation[1] < firing)
        for row in rows:
            if row.what == _QUARANTINE:
                self._meet(resolution, [row])
            if row.what != _UNDONE or row.fact_id not in histories:
                continue
            number = orjson.loads(row.payload or b"")["undoes"]
            resolution.skip_to(row.seq)
            history = histories[row.fact_id]
            withdraw(resolution, row.fact_id, history, (number, firing), at=row.fired_at)

    def _meet(self, resolution: Resolution, rows: Sequence[Told]) -> None:
        full = self._known_state.full
        for row in rows:
            met = None if row.what == _RESTORED else self._met(row, said_by(row.rule))
            if met is None:
                continue
            claim = met.claim
            if claim is not None:
                full.setdefault(claim.key, set())
            resolution.skip_to(row.seq)
            resolution.meet(met)
            if claim is not None:
                full[claim.key].add(claim.fact_id)
                self._loaded.key_ids.setdefault(claim.key, row.key_id or row.seq)
                for name in claim.names:
                    self._known_state.referrers.setdefault(name, set()).add(claim.fact_id)

    def _met(self, row: Told, rule_id: str) -> Candidate | None:
        """Return what was met then; None when that cannot be told any more."""
        document = orjson.loads(row.payload) if row.payload else _NOTHING
        fact_id, at = row.fact_id or "", row.at or 0
        match WHATS[row.what]:
            case "act":
                claim = claim_from(fact_id, at, document)
                eid = fact_id if claim.precedence.rank == MANUAL else claim.precedence.id
                return Candidate(fact_id, claim.owner, rule_id, row.version, at, eid, claim)
            case "known":
                return self._met_again(row, fact_id, rule_id)
            case "forgotten":
                return Candidate(
                    "", "", rule_id, row.version, 0, "", None, FORGOTTEN, contested=True
                )
            case "gated":
                return Candidate(
                    fact_id, document["owner"], rule_id, row.version, at, document["eid"], None,
                    gated=Gated(document["salience"], document["min"]),
                )  # fmt: skip
            case _:
                # A quarantine that takes something out is recorded without its reason.
                unread = WHATS[row.what] == "quarantine"
                return Candidate(
                    fact_id, document["owner"], rule_id, row.version, at, document["eid"], None,
                    row.reason or UNREADABLE if unread else "", contested=not fact_id,
                )  # fmt: skip

    def _met_again(self, row: Told, fact_id: str, rule_id: str) -> Candidate | None:
        before = reversed(self._known_state.evaluations.get(fact_id, ()))
        last = next((one for one in before if one.rule_id == rule_id), None)
        if last is None:
            return None
        # It was nobody else's, or it would have been recorded without a fact id.
        owner = next((one.claim.owner for one in self._known_state.counted(fact_id)), "")
        return Candidate(
            fact_id, owner, rule_id, row.version, row.at or 0, episode_id_of(fact_id), last.claim,
            "" if last.claim else UNREADABLE,
        )  # fmt: skip

    def _compare(self, number: int, rows: Sequence[Told], entries: Sequence[Entry]) -> None:
        for row, entry in zip_longest(rows, entries):
            if row is not None and entry is not None and self._same(row, entry):
                continue
            if number >= self._unclear_from:
                self.unclear += 1
                continue
            self.differing += 1
            if self.first is None:
                self.first = Break(row.seq if row else entry.seq, _difference(row, entry))

    def _same(self, row: Told, entry: Entry) -> bool:
        return (
            row.seq == entry.seq
            and KINDS[row.kind] == entry.delta
            and WHATS[row.what] == entry.what
            and (row.fact_id or "") == entry.fact_id
            and row.replaces == _replaced(entry)
            and row.reason == entry.reason
            and row.first == entry.first
            and self._same_key(row.key_id, entry.key)
        )

    def _same_key(self, key_id: int | None, key: str) -> bool:
        if not key:
            return key_id is None
        return self._loaded.key_ids.get(key) == key_id


def _replaced(entry: Entry) -> str | None:
    return orjson.dumps(entry.replaces).decode() if entry.replaces else None


def _difference(row: Told | None, entry: Entry | None) -> str:
    recorded = "nothing"
    if row is not None:
        recorded = _words(KINDS[row.kind], row.fact_id or "", row.replaces, row.reason)
    again = "nothing"
    if entry is not None:
        again = _words(entry.delta, entry.fact_id, _replaced(entry), entry.reason)
    return f"recorded as {recorded}, comes out as {again}"


def _words(kind: str, fact_id: str, replaces: str | None, reason: str) -> str:
    words = [kind, repr(fact_id), f"replacing {replaces}" if replaces else "", reason]
    return " ".join(word for word in words if word)
