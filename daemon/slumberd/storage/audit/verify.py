"""Verify a ledger: its chain, what stands beside it, what was told of it, and the facts.

The chain finds whatever was changed, removed, inserted or reordered. It cannot see that rows at
its end are missing. That shows where something else still speaks of them: the firing they belong
to, the number of the last line logged, the quarantine, a key, a fact. Where somebody took care of
all these, it shows only against checkpoints that were told elsewhere.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from slumberd.model.episode import microseconds
from slumberd.model.record import Break, Checkpoint
from slumberd.sql_statements import statements
from slumberd.storage.audit.fact_check import first_changed_fact
from slumberd.storage.audit.verify_tables import first_changed_schema, first_changed_table
from slumberd.storage.audit.worker import Helper, Work, helping
from slumberd.storage.ledger.rows import (
    GENESIS,
    HASH_BYTES,
    SALT_BYTES,
    WHATS,
    ErasedRows,
    chain_of,
    checked_key,
    commitment_of,
    fixed_part,
)
from slumberd.storage.sqlite.connection import KeyedConnection, escaped, snapshot, texts_as

_SQL = statements("ledger")
_FACTS = statements("facts")
_EXTERNAL = statements("external")
_FILE = statements("migrations")["file"]
_FIRING, _CLAIM = WHATS.index("firing"), WHATS.index("act")

_HERE = 0.4
"""The share of the keys that whoever recomputes the chain compares, too: both end together."""

_Row = tuple[Any, ...]
"""A row of the ledger, as the table has it; texts as the bytes that they are."""


class Booked(NamedTuple):
    """One row of ``slumberd_firings``; texts as the bytes that they are."""

    n: int
    rule: bytes
    rule_hash: bytes
    cause: bytes
    at: int
    last_seq: int
    generation: int
    upto_seq: int
    counts: bytes


_OUT_OF_ORDER = "follows row {}: a row is missing or out of order"
_OTHER_CONTENT = "its content is not what was committed to"
_OTHER_CHAIN = "its chain hash does not follow from the row before"

NOT_BOOKED = Booked(0, b"", b"", b"", 0, 0, 0, 0, b"")


def verify(
    connection: sqlite3.Connection,
    depth: int,
    against: Iterable[Checkpoint] = (),
    *,
    chain_only: bool = False,
) -> tuple[int, str, Break | None]:
    """Recompute the chain and replay it; return rows read, the head and the first break.

    Args:
        connection: Reads.
        depth: Links of lineage.
        against: What was told of the ledger before.
        chain_only: Whether to leave out all that is not the chain: what the rows hold, against
            their commitments, and what stands beside them, facts too.

    Raises:
        LedgerKeyError: The connection has not the key that the ledger was begun with.
    """
    with snapshot(connection):
        if chain_only:
            count, head, broken = _first_broken_link(connection)
            broken = broken or _contradicted(connection, count, against)
        else:
            with _helping(connection, depth) as helper:
                count, head, broken = first_break(connection)
                broken = (
                    broken
                    or _contradicted(connection, count, against)
                    or first_changed_schema(connection)
                    or _first_changed_name(connection)
                    or first_changed_table(connection)
                    or first_changed_fact(connection, depth, helper)
                )
    return count, head.hex(), broken


def _helping(connection: sqlite3.Connection, depth: int) -> AbstractContextManager[Helper | None]:
    """Return a process that compares the facts of most keys; None where it would not pay."""
    last = connection.execute(_SQL["last_row"]).fetchone()
    rows = last[0] if last else 0
    path = Path(connection.execute(_FILE).fetchone()[0])
    return helping(
        Work("compare", path, depth, int(rows * _HERE)),
        rows=rows,
        unchanging=isinstance(connection, KeyedConnection) and connection.unchanging,
    )


def _first_broken_link(connection: sqlite3.Connection) -> tuple[int, bytes, Break | None]:
    key = checked_key(connection)
    previous, before = GENESIS, 0
    with texts_as(connection, bytes):
        for *numbers, reason, commitment, chain in connection.execute(_SQL["links"]):
            seq = numbers[0]
            if seq != before + 1:
                return before, previous, Break(seq, _OUT_OF_ORDER.format(before))
            if chain != _chain(numbers, reason, previous, commitment, key):
                return before, previous, Break(seq, _OTHER_CHAIN)
            previous, before = chain, seq
    return before, previous, None


def first_break(connection: sqlite3.Connection) -> tuple[int, bytes, Break | None]:
    """Recompute the chain; return rows read, the head, and what is wrong with chain or firings."""
    key = checked_key(connection)
    with texts_as(connection, bytes):
        beside, erasures = _Beside(connection), _Erasures()
        previous, seq = GENESIS, 0
        for row in connection.execute(_SQL["sealed"]):
            problem = _problem(row, previous, seq, key, beside)
            if problem:
                return seq, previous, Break(row[0], problem)
            seq, previous = row[0], row[-1]
            erasures.read(row)
        return seq, previous, erasures.uncovered() or beside.cut_short(connection, seq)


def _problem(row: _Row, previous: bytes, before: int, key: bytes | None, beside: _Beside) -> str:
    (
        seq, delta, firing, what, kind, reason, version,
        key_id, at, fact_id, replaces, salt, payload, commitment, chain,
    ) = row  # fmt: skip
    if seq != before + 1:
        return _OUT_OF_ORDER.format(before)
    if salt is None:
        if not _is_as_forgotten(row):
            return _OTHER_CONTENT
    elif len(salt) != SALT_BYTES or commitment != commitment_of(
        salt, key_id, at, fact_id, replaces, payload
    ):
        return _OTHER_CONTENT
    numbers = seq, delta, firing, version, what, kind
    if chain != _chain(numbers, reason, previous, commitment, key):
        return _OTHER_CHAIN
    if what == _CLAIM and key_id is None and salt is not None:
        return "is an act that speaks of no key"
    return beside.problem(seq, firing, what, payload)


def _chain(
    numbers: Sequence[int],
    reason: bytes,
    previous: bytes,
    commitment: bytes,
    key: bytes | None,
) -> bytes:
    try:
        fixed = fixed_part(*numbers)
    except struct.error:  # a number that we never write
        return b""
    return chain_of(key, previous, commitment, fixed, reason)


def _is_as_forgotten(row: _Row) -> bool:
    """Say whether a row without a salt lost all that can be erased, and is one that may."""
    _, _, _, what, _, _, _, key_id, at, fact_id, replaces, _, payload, commitment, _ = row
    # A firing's own row holds nothing that could be forgotten.
    erased = all(value is None for value in (key_id, at, fact_id, replaces, payload))
    return erased and what != _FIRING and len(commitment) == HASH_BYTES


class _Erasures:
    """The rows that were erased, held against what the last erasure says of them."""

    def __init__(self) -> None:
        self._erased = ErasedRows()
        self._after: int | None = None
        self._last = (0, self._erased.told())

    def read(self, row: _Row) -> None:
        """Take the next row of the ledger."""
        seq, _, _, what, *_, salt, payload, _, _ = row
        if salt is None:
            self._erased.add(seq)
            self._after = seq if self._after is None else self._after
        elif what == _FIRING and "erased" in (told := _told(payload)):
            self._last = seq, told["erased"]
            self._after = None

    def uncovered(self) -> Break | None:
        """Say which row is erased without an erasure that covers it; None when all are covered."""
        if self._after is not None:
            return Break(self._after, "is erased, and no erasure follows it")
        seq, told = self._last
        found = self._erased.told()
        if found == told:
            return None
        words = f"{found['rows']} rows are erased, and the last erasure covers {told['rows']}"
        return Break(seq, f"{words}; they are not the same rows")


class _Beside:
    """What stands beside the ledger for quick reading, held against the rows that it is from."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._firings = map(Booked._make, connection.execute(_SQL["booked"]))
        self._channels: dict[int, bytes] = dict(connection.execute(_SQL["all_channels"]))
        self._current = NOT_BOOKED
        self._next = next(self._firings, None)

    def problem(self, seq: int, firing: int, what: int, payload: bytes | None) -> str:
        """Say what does not fit to the next row of the ledger; nothing when all does."""
        if what == _FIRING:
            return self._begin(seq, payload)
        if self._next is not None and self._next.n <= seq:
            return f"slumberd_firings has a firing {self._next.n} that is not in the ledger"
        if firing != self._current.n or seq > self._current.last_seq:
            return f"is not a row of its firing {firing}"
        return ""

    def _begin(self, seq: int, payload: bytes | None) -> str:
        if self._current.last_seq != seq - 1:
            return f"comes before the last row of firing {self._current.n}"
        if self._next is None or self._next.n != seq:
            return "slumberd_firings does not have this firing"
        self._current, self._next = self._next, next(self._firings, None)
        return self._differs(self._current, _told(payload))

    def _differs(self, booked: Booked, told: dict[str, Any]) -> str:
        for column, value in _columns(told).items():
            if getattr(booked, column) != value:
                return f"slumberd_firings says another {column} of this firing"
        multi = orjson.dumps(told["multi_valued"]) if "multi_valued" in told else None
        if self._channels.pop(booked.n, None) != multi:
            return "slumberd_channels says something else about this firing"
        return ""

    def cut_short(self, connection: sqlite3.Connection, count: int) -> Break | None:
        """Say what still speaks of rows after the last one; None when nothing does."""
        mentions = {
            self._current.last_seq: f"firing {self._current.n} reaches",
            **{firing.n: "slumberd_firings goes on" for firing in [self._next] if firing},
            max(self._channels, default=0): "slumberd_channels goes on",
            connection.execute(_SQL["last_mentioned"]).fetchone()[0]: "there was a row",
        }
        for seq, how in mentions.items():
            if seq and seq > count:
                return Break(count, f"the ledger ends here, but {how} to row {seq}")
        if self._channels:
            return Break(min(self._channels), "slumberd_channels has it, and the ledger does not")
        return None


def _told(payload: bytes | None) -> dict[str, Any]:
    """Return what a firing's own row tells of it; nothing when that cannot be read."""
    try:
        told = orjson.loads(payload or b"")
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}


def _columns(told: dict[str, Any]) -> dict[str, object]:
    """Return the columns of a firing as its own row tells them.

    The id of the last episode read is not among them: it can be erased.
    """
    return {
        "rule": _text(told.get("rule")),
        "rule_hash": _text(told.get("rule_hash")),
        "cause": _text(told.get("trigger")),
        "at": _instant(told.get("at")),
        "last_seq": told.get("last_seq"),
        "generation": told.get("generation"),
        "upto_seq": told.get("upto"),
        "counts": orjson.dumps(told.get("counts")),
    }


def _text(value: object) -> bytes | None:
    return value.encode() if isinstance(value, str) else None


def _instant(value: object) -> int | None:
    return microseconds(datetime.fromisoformat(value)) if isinstance(value, str) else None


def _contradicted(
    connection: sqlite3.Connection, count: int, against: Iterable[Checkpoint]
) -> Break | None:
    for rows, head, told in against:
        if rows > count:
            return Break(count, f"the ledger ends here, the log of {told} saw row {rows}")
        found = connection.execute(_SQL["chain"], (rows,)).fetchone() if rows else (GENESIS,)
        if found[0] != head:
            return Break(rows, f"the log of {told} says another head")
    return None


def _first_changed_name(connection: sqlite3.Connection) -> Break | None:
    with texts_as(connection, escaped):
        stored = set(connection.execute(_SQL["all_names"]))
        told = {
            (name, fact_id)
            for fact_id, payload in connection.execute(_SQL["acts_with_names"])
            for name in orjson.loads(payload).get("names", ())
        }
    for name, referrer in sorted(stored ^ told):
        return Break(0, f"slumberd_names is not what the ledger says of {namer!r} and {name!r}")
    return None
