"""The ledger's rows: how acts and deltas are written down, sealed into a chain, and read back.

Each row carries a commitment, the salted SHA-256 of everything in it that may one day have to
be erased, and a chain hash over the row before, the commitment and the rest. Erasing a row's
content with its salt leaves both, so the chain still verifies and nothing can be guessed back.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from hashlib import sha256 as _sha256
from typing import Any, NamedTuple

import orjson

from slumberd.core.act import (
    ALL,
    EPISODE,
    HAND,
    Act,
    Stamp,
    canonical,
    channel_of,
    episode_id_of,
    key_of,
    owner_of,
)
from slumberd.core.episode import instant
from slumberd.core.law import History, Meeting, Undone
from slumberd.core.record import Kind, Record
from slumberd.core.settle import Entry
from slumberd.stores.queries import statements

GENESIS = bytes(32)
"""The chain before the first row."""

KINDS: tuple[Kind, ...] = ("firing", "add", "update", "delete", "noop", "quarantine")
WHATS = ("firing", "act", "withdrawal", "quarantine", "known", "restored", "undone")
_KIND: dict[str, int] = {kind: number for number, kind in enumerate(KINDS)}
_WHAT = {what: number for number, what in enumerate(WHATS)}
_SALT_BYTES = 16
_NULL = -(2**63)

_SQL = statements("ledger")
_ERASABLE = struct.Struct(">qqIII")
_PUBLIC = struct.Struct(">qqqqBB")


class Row(NamedTuple):
    """One row, as the table has it."""

    seq: int
    delta: int
    firing: int
    what: int
    kind: int
    reason: str
    version: int
    key_id: int | None
    at: int | None
    fact_id: str | None
    replaces: str | None
    salt: bytes | None
    payload: bytes | None
    commitment: bytes
    chain: bytes


def commitment_of(
    salt: bytes,
    key_id: int | None,
    at: int | None,
    fact_id: str | None,
    replaces: str | None,
    payload: bytes | None,
) -> bytes:
    """Return the salted SHA-256 of what a row holds that can be erased."""
    fact = (fact_id or "").encode()
    gone = (replaces or "").encode()
    body = payload or b""
    fixed = _ERASABLE.pack(
        _NULL if key_id is None else key_id,
        _NULL if at is None else at,
        len(fact),
        len(gone),
        len(body),
    )
    return _sha256(b"".join((salt, fixed, fact, gone, body))).digest()


def chain_of(previous: bytes, row: Row) -> bytes:
    """Return the SHA-256 over the previous chain hash and what a row keeps for ever."""
    fixed = _PUBLIC.pack(row.seq, row.delta, row.firing, row.version, row.what, row.kind)
    return _sha256(b"".join((previous, row.commitment, fixed, row.reason.encode()))).digest()


Draft = tuple[
    int, int, int, str, str, str, int, int | None, int | None, str | None, str | None, bytes | None
]
"""A row that is not sealed yet; its columns up to ``payload``, without the salt."""


def seal(drafts: Iterable[Draft], previous: bytes) -> Iterator[tuple[object, ...]]:
    """Yield the columns of each row with salt, commitment and chain, in order after `previous`."""
    for draft in drafts:
        (
            seq, delta, firing, what, kind, reason, version,
            key_id, at, fact_id, replaces, payload,
        ) = draft  # fmt: skip
        salt = os.urandom(_SALT_BYTES)
        commitment = commitment_of(salt, key_id, at, fact_id, replaces, payload)
        fixed = _PUBLIC.pack(seq, delta, firing, version, _WHAT[what], _KIND[kind])
        previous = _sha256(b"".join((previous, commitment, fixed, reason.encode()))).digest()
        yield (
            seq, delta, firing, _WHAT[what], _KIND[kind], reason, version,
            key_id, at, fact_id, replaces, salt, payload, commitment, previous,
        )  # fmt: skip


def draft_of(entry: Entry, *, firing: int, key_id: int | None) -> Draft:
    """Return an entry as a row to seal."""
    met = entry.met
    replaces = orjson.dumps(entry.replaces).decode() if entry.replaces else None
    return (
        entry.seq, entry.first, firing, entry.what, entry.delta, entry.reason,
        met.version if met else 0, key_id, met.at if met else None, entry.fact_id or None,
        replaces, _payload_of(entry),
    )  # fmt: skip


def _payload_of(entry: Entry) -> bytes | None:
    if entry.met is None or entry.what == "known":
        return None
    met = entry.met
    if met.undoes:
        return orjson.dumps({"undoes": met.undoes})
    document = {"eid": met.eid, "detail": met.detail} if met.act is None else document_of(met.act)
    if met.session:
        document["session"] = met.session
    return orjson.dumps(document)


def document_of(act: Act) -> dict[str, Any]:
    """Return an act as the ledger keeps it; what can be told from elsewhere is left out."""
    document: dict[str, Any] = {"asserts": act.asserts, "payload": act.payload}
    if act.names:
        document["names"] = act.names
    if act.clears:
        document["clears"] = True
    if act.confidence != 1.0:
        document["confidence"] = act.confidence
    if act.stamp.rank != EPISODE:
        document["rank"] = act.stamp.rank
    if act.stamp.rank == HAND:
        document |= {
            "id": act.stamp.id,
            "owner": act.owner,
            "key": act.key,
            "object": act.object,
            "lineage": act.lineage,
            "metadata": act.metadata,
        }
    return document


def act_from(fact_id: str, at: int, document: dict[str, Any]) -> Act:
    """Return the act that a document was made from."""
    payload = document["payload"]
    rank = document.get("rank", EPISODE)
    names = tuple(document.get("names", ()))
    clears = document.get("clears", False)
    confidence = document.get("confidence", 1.0)
    asserts = document["asserts"]
    if rank == HAND:
        return Act(
            fact_id, document["owner"], document["key"], Stamp(at, rank, document["id"]),
            asserts, document["object"], names, clears, confidence, payload,
            tuple(document["lineage"]), document["metadata"],
        )  # fmt: skip
    owner = owner_of(payload["user"], payload["agent"], channel_of(fact_id))
    return Act(
        fact_id,
        owner,
        key_of(owner, payload, fact_id),
        Stamp(at, rank, episode_id_of(fact_id)),
        asserts,
        canonical(payload.get("object")) if asserts or "object" in payload else ALL,
        names,
        clears,
        confidence,
        payload,
    )


def histories_from(rows: Iterable[tuple[Any, ...]]) -> dict[str, History]:
    """Return histories by fact id from rows of the query ``meetings``, which come oldest first."""
    found: dict[str, History] = {}
    for fact_id, seq, rule_id, version, what, at, payload, promoted_at, firing in rows:
        history = found.get(fact_id)
        if history is None:
            history = found[fact_id] = History([], [])
        if what == _WHAT["undone"]:
            history.undone.append(Undone(seq, orjson.loads(payload)["undoes"], firing))
            continue
        act = act_from(fact_id, at, orjson.loads(payload)) if what == _WHAT["act"] else None
        history.meetings.append(Meeting(seq, rule_id, version, act, promoted_at, firing))
    return found


def meetings_from(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[Meeting]]:
    """Return, by fact id, the meetings that count, from rows of the query ``meetings``."""
    return {fact_id: history.remaining() for fact_id, history in histories_from(rows).items()}


def firing_id_of(rule_id: str, number: int) -> str:
    """Return the id of a batch: its rule and the number of its own ledger row."""
    return f"{rule_id}@{number}"


def record_from(row: tuple[Any, ...]) -> Record:
    """Return a record from a row of the query ``records``."""
    seq, rule_id, firing, what, kind, fact_id, replaces, payload, reason, at = row
    document = orjson.loads(payload) if payload and what != _WHAT["firing"] else {}
    return Record(
        seq,
        firing_id_of(rule_id, firing),
        rule_id,
        KINDS[kind],
        fact_id or "",
        tuple(orjson.loads(replaces)) if replaces else (),
        sources_of(fact_id or "", document),
        reason,
        document.get("confidence", 1.0),
        instant(at),
    )


def sources_of(fact_id: str, document: dict[str, Any]) -> tuple[str, ...]:
    """Return the ids of the episodes that a row comes from."""
    if document.get("rank") == HAND:
        given = (entry.get("source_episode_ids", ()) for entry in document["lineage"])
        return tuple(dict.fromkeys(source for sources in given for source in sources))
    if "eid" in document:
        return (document["eid"],)
    return (episode_id_of(fact_id),) if fact_id else ()


def rows(connection: sqlite3.Connection, *, chunk: int = 5_000) -> Iterator[Row]:
    """Yield every row in order, reading `chunk` at a time."""
    after = 0
    while found := connection.execute(_SQL["rows"], {"after": after, "limit": chunk}).fetchall():
        yield from (Row(*row) for row in found)
        after = found[-1][0]


class Break(NamedTuple):
    """The first thing that is wrong with a ledger.

    Attributes:
        seq: The row; the row after which one is missing.
        problem: What is wrong with it.
    """

    seq: int
    problem: str


def first_break(found: Iterable[Row]) -> tuple[int, bytes, Break | None]:
    """Recompute commitments and chain; return rows read, the head, and the first break."""
    previous, seq = GENESIS, 0
    for row in found:
        problem = _problem(row, previous, seq)
        if problem:
            return seq, previous, Break(row.seq, problem)
        previous, seq = row.chain, row.seq
    return seq, previous, None


def _problem(row: Row, previous: bytes, before: int) -> str:
    if row.seq != before + 1:
        return f"follows row {before}: a row is missing or out of order"
    if row.salt is not None and row.commitment != commitment_of(
        row.salt, row.key_id, row.at, row.fact_id, row.replaces, row.payload
    ):
        return "its content is not what was committed to"
    if row.chain != chain_of(previous, row):
        return "its chain hash does not follow from the row before"
    return ""
