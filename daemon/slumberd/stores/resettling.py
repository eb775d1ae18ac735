"""Settle a ledger again, firing by firing: what the law makes of its acts, against its deltas.

Everything that was ever said is held in memory, some 3 KB an act: that is what makes this faster
than the batches were, each of which had to load what it needed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from slumberd.core.act import HAND, episode_id_of
from slumberd.core.forgotten import FORGOTTEN
from slumberd.core.ground import Incoming
from slumberd.core.law import MultiValued, said_by
from slumberd.core.meet import UNREADABLE
from slumberd.core.record import Break
from slumberd.core.settle import Entry, Settlement
from slumberd.stores.grounds import LoadedGround
from slumberd.stores.ledger import KINDS, WHATS, act_from, histories_from
from slumberd.stores.queries import statements
from slumberd.stores.undoing import withdraw

_SQL = statements("replay")
_LEDGER = statements("ledger")
_RESTORED, _UNDONE = WHATS.index("restored"), WHATS.index("undone")
_NOTHING: dict[str, Any] = {}


class Told(NamedTuple):
    """One row of the ledger; its last column but one says whether its content was erased."""

    seq: int
    first: int
    firing: int
    what: int
    kind: int
    reason: str
    version: int
    key_id: int | None
    at: int | None
    fact_id: str | None
    replaces: str | None
    erased: int
    payload: bytes | None


class Fired(NamedTuple):
    """One firing: its number, its rule, its instant in microseconds."""

    n: int
    rule: str
    at: int


class Resettling:
    """A ledger being settled again.

    Attributes:
        loaded: Everything that was said so far.
        rows: Rows of the ledger so far.
        firings: Firings so far.
        erased: Rows so far whose content was forgotten.
        differing: Rows that came out differently, though nothing before them was forgotten.
        unclear: Rows that came out differently, which what was forgotten may explain.
        first: The first of the former.
    """

    def __init__(self, connection: sqlite3.Connection, depth: int) -> None:
        self._connection = connection
        self.loaded = LoadedGround(connection, MultiValued(), depth)
        self._ground = self.loaded.ground
        self.rows = self.firings = self.erased = self.differing = self.unclear = 0
        self.first: Break | None = None

    def run(self) -> None:
        """Settle every firing again."""
        firings = (Fired(*row) for row in self._connection.execute(_SQL["firings"]))
        rows = (Told(*row) for row in self._connection.execute(_SQL["rows"]))
        for firing, (_, found) in zip(firings, groupby(rows, attrgetter("firing")), strict=True):
            own, *others = found
            self.rows += 1 + len(others)
            self.firings += 1
            self._settle(firing, own, others)

    def _settle(self, firing: Fired, own: Told, rows: Sequence[Told]) -> None:
        told = orjson.loads(own.payload or b"{}")
        left = [row for row in rows if not row.erased]
        self.erased += len(rows) - len(left)
        if "forgets" in told:
            return  # what it erased was not said this time, so there is nothing to take out
        settlement = Settlement(self._ground, firing=firing.n, at=firing.at)
        if "multi_valued" in told:
            self._change_channels(settlement, told["multi_valued"])
        undone = [row for row in left if row.what == _UNDONE]
        if undone:
            self._undo(settlement, firing, undone)
        else:
            self._meet(settlement, firing, left)
        self._compare(left, settlement.entries)

    def _change_channels(
        self, settlement: Settlement, channels: Mapping[str, Iterable[str]]
    ) -> None:
        before, after = self._ground.multi, MultiValued(channels)
        self._ground.multi = after
        keys = [key for key in self._ground.full if (key in before) != (key in after)]
        settlement.resettle(keys, before)

    def _undo(self, settlement: Settlement, firing: Fired, rows: Sequence[Told]) -> None:
        asked = {"ids": orjson.dumps([row.fact_id for row in rows]).decode()}
        found = self._connection.execute(_LEDGER["meetings"], asked)
        # Of what the ledger says of these ids by now, only what it said then.
        histories = histories_from(meeting for meeting in found if meeting[1] < firing.n)
        for row in rows:
            if row.fact_id not in histories:
                continue
            number = orjson.loads(row.payload or b"")["undoes"]
            settlement.skip_to(row.seq)
            history = histories[row.fact_id]
            withdraw(settlement, row.fact_id, history, (number, firing.n), at=firing.at)

    def _meet(self, settlement: Settlement, firing: Fired, rows: Sequence[Told]) -> None:
        full = self._ground.full
        for row in rows:
            met = None if row.what == _RESTORED else self._met(row, said_by(firing.rule))
            if met is None:
                continue
            act = met.act
            if act is not None:
                full.setdefault(act.key, set())
            settlement.skip_to(row.seq)
            settlement.meet(met)
            if act is not None:
                full[act.key].add(act.fact_id)
                self.loaded.key_ids.setdefault(act.key, row.key_id or row.seq)
                for name in act.names:
                    self._ground.namers.setdefault(name, set()).add(act.fact_id)

    def _met(self, row: Told, rule_id: str) -> Incoming | None:
        """Return what was met then; None when that cannot be told any more."""
        document = orjson.loads(row.payload) if row.payload else _NOTHING
        fact_id, at = row.fact_id or "", row.at or 0
        match WHATS[row.what]:
            case "act":
                act = act_from(fact_id, at, document)
                eid = fact_id if act.stamp.rank == HAND else act.stamp.id
                return Incoming(fact_id, act.owner, rule_id, row.version, at, eid, act)
            case "known":
                return self._met_again(row, fact_id, rule_id)
            case "forgotten":
                return Incoming(
                    "", "", rule_id, row.version, 0, "", None, FORGOTTEN, contested=True
                )
            case _:
                # A quarantine that takes something out is recorded without its reason.
                unread = WHATS[row.what] == "quarantine"
                return Incoming(
                    fact_id, document["owner"], rule_id, row.version, at, document["eid"], None,
                    row.reason or UNREADABLE if unread else "", contested=not fact_id,
                )  # fmt: skip

    def _met_again(self, row: Told, fact_id: str, rule_id: str) -> Incoming | None:
        before = reversed(self._ground.meetings.get(fact_id, ()))
        last = next((one for one in before if one.rule_id == rule_id), None)
        if last is None:
            return None
        # It was nobody else's, or it would have been recorded without a fact id.
        owner = next((one.act.owner for one in self._ground.counted(fact_id)), "")
        return Incoming(
            fact_id, owner, rule_id, row.version, row.at or 0, episode_id_of(fact_id), last.act,
            "" if last.act else UNREADABLE,
        )  # fmt: skip

    def _compare(self, rows: Sequence[Told], entries: Sequence[Entry]) -> None:
        for row, entry in zip_longest(rows, entries):
            if row is not None and entry is not None and self._same(row, entry):
                continue
            if self.erased:
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
        return self.loaded.key_ids.get(key) == key_id


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
