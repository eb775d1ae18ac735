"""Write claims and deltas as ledger rows with a hash chain, and read them back.

Each row has a commitment: the salted SHA-256 of all its content that can be erased. Its chain hash
covers the previous chain hash, the commitment and the rest of the row. An erasure removes content
and salt and keeps both hashes, so the chain still verifies and a hash reveals no content. With
a key the chain hash is an HMAC: without the key, no program can rewrite the chain. A ledger has a
key from its first row on, or never.
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256 as _sha256
from itertools import starmap
from typing import Any, AnyStr, Generic, NamedTuple, assert_never

import orjson

from slumberd.consolidation.claim import (
    EPISODE,
    MANUAL,
    Claim,
    Precedence,
    retracted_object,
    sources_in_lineage,
    user_and_agent,
)
from slumberd.consolidation.incoming import (
    FUTURE,
    ID_TAKEN,
    UNSAID,
    ClaimCandidate,
    Contested,
    HeldBack,
    RecordedCandidate,
    Undo,
    Unmatched,
    Unreadable,
    Unsaid,
)
from slumberd.consolidation.precedence import Evaluation, History, UndoneEvaluation, author_of
from slumberd.consolidation.resolution import ResolvedEffect
from slumberd.model.episode import instant
from slumberd.model.errors import LedgerKeyError
from slumberd.model.firing import Kind, Record
from slumberd.model.scope import canonical, channel_of, episode_id_of, key_of, owner_of
from slumberd.model.stages import SUMMARISES
from slumberd.storage.engine import Session
from slumberd.storage.strict_json import written

GENESIS = bytes(32)
"""The chain hash before the first row."""

LEAST, MOST = -(2**63), 2**63 - 1
"""No number of a row is lower or higher: the bounds of a whole table."""

KINDS: tuple[Kind, ...] = ("firing", "add", "update", "delete", "noop", "quarantine")
EVENTS = (
    "firing", "claim", "withdrawal", "quarantine", "known", "restored", "undone", "erased",
    "gated",
)  # fmt: skip
"""Events that rows record; the ledger keeps their numbers, so a new one comes last."""
_KIND_NUMBERS: dict[str, int] = {kind: number for number, kind in enumerate(KINDS)}
_EVENT_NUMBERS = {event: number for number, event in enumerate(EVENTS)}
FIRING, CLAIM = EVENTS.index("firing"), EVENTS.index("claim")
UNDONE, FIRING_KIND = EVENTS.index("undone"), KINDS.index("firing")
PLAIN_CLAIM = {"asserts", "payload", "session"}
"""What the ledger stores of an episode's own claim without names, links and a confidence."""

_UNSEALED = 12
"""How many columns a row has before its salt."""
SALT_BYTES, HASH_BYTES = 16, 32
_FIRST_SALTS, _MOST_SALTS = 64, 4_096
"""Salts of the first and of the largest read; each read doubles the number.

A system call releases the interpreter lock so briefly that a waiting thread wakes up in vain."""

_ERASABLE = struct.Struct(">Bqqiii")
_PUBLIC = struct.Struct(">qqqqBB")


def commitment_of(
    salt: bytes,
    key_id: int | None,
    at: int | None,
    fact_id: bytes | None,
    replaces: bytes | None,
    payload: bytes | None,
) -> bytes:
    """Return the salted SHA-256 of the content of a row that can be erased."""
    fixed = _ERASABLE.pack(
        (key_id is None) | (at is None) << 1,
        key_id or 0,
        at or 0,
        -1 if fact_id is None else len(fact_id),
        -1 if replaces is None else len(replaces),
        -1 if payload is None else len(payload),
    )
    parts = (salt, fixed, fact_id or b"", replaces or b"", payload or b"")
    return _sha256(b"".join(parts)).digest()


def fixed_part(seq: int, first: int, firing: int, version: int, event: int, kind: int) -> bytes:
    """Return the numbers of a row that no erasure removes, as the chain hash covers them."""
    return _PUBLIC.pack(seq, first, firing, version, event, kind)


def chain_of(
    key: bytes | None, previous: bytes, commitment: bytes, fixed: bytes, reason: bytes
) -> bytes:
    """Return the hash over the previous chain hash and the parts of a row that are never erased."""
    message = b"".join((previous, commitment, fixed, reason))
    return _sha256(message).digest() if key is None else hmac.digest(key, message, "sha256")


class LedgerRow(NamedTuple, Generic[AnyStr]):
    """One row of the ledger, as stored.

    ``LedgerRow[bytes]`` has texts as bytes, so that a check can read a row that is not valid UTF-8.

    Attributes:
        seq: Its number, in order of commit; without gaps, except before a row of ``@copy``.
        first: The number of the first row of an equal evaluation; its own number if it is new.
        firing: The number of its firing's own row.
        event: What it records: an index of `EVENTS`.
        kind: The effect on the facts: an index of `KINDS`.
        reason: Why it is a noop or a quarantine; empty otherwise.
        version: The evaluated version of the episode; 0 for manual edits.
        key_id: The number of its key; None without a key.
        at: The instant of its claim, microseconds since 1970 UTC; None without a claim.
        fact_id: The id of its fact; None for firings, and when another owner holds the id.
        replaces: The ids of the removed facts as JSON; None when it removed none.
        payload: The evaluated claim as JSON; None without one.
        salt: Hides the content from guesses; None in an erased row, and until `seal` draws it.
        commitment: The salted hash of the content; empty until `seal` computes it.
        chain: The chain hash; empty until `seal` computes it.
    """

    seq: int
    first: int
    firing: int
    event: int
    kind: int
    reason: AnyStr
    version: int
    key_id: int | None
    at: int | None
    fact_id: AnyStr | None
    replaces: AnyStr | None
    payload: bytes | None
    salt: bytes | None = None
    commitment: bytes = b""
    chain: bytes = b""


class RowWithFiring(NamedTuple):
    """A row of the ledger, and the firing that wrote it.

    Attributes:
        row: The row, without its hashes.
        rule_hash: The rule's content hash then; empty for manual edits.
        fired_at: The firing's instant, microseconds since 1970 UTC.
    """

    row: LedgerRow[str]
    rule_id: str
    rule_hash: str
    trigger: str
    fired_at: int


def rows_from(found: Iterable[Sequence[Any]]) -> Iterator[LedgerRow[str]]:
    """Yield rows from the columns of a query that has no hashes."""
    return starmap(LedgerRow, found)


def row_with_firing(columns: Sequence[Any]) -> RowWithFiring:
    """Return a row and its firing from the columns of a query, those of the firing last."""
    *row, rule_id, rule_hash, trigger, fired_at = columns
    return RowWithFiring(LedgerRow(*row), rule_id, rule_hash, trigger, fired_at)


def replaced_ids(row: LedgerRow[str]) -> tuple[str, ...]:
    """Return the ids of the facts that a row removed."""
    return tuple(orjson.loads(row.replaces)) if row.replaces else ()


def seal(
    rows: Iterable[LedgerRow[str]], previous: bytes, key: bytes | None
) -> Iterator[LedgerRow[str]]:
    """Yield each row with its salt, its commitment and its chain hash after `previous`."""
    salts = _salts()
    for row in rows:
        seq, first, firing, event, kind, reason, version, key_id, at, fact_id, replaces, *_ = row
        salt = next(salts)
        commitment = commitment_of(
            salt,
            key_id,
            at,
            None if fact_id is None else fact_id.encode(),
            None if replaces is None else replaces.encode(),
            row.payload,
        )
        fixed = _PUBLIC.pack(seq, first, firing, version, event, kind)
        previous = chain_of(key, previous, commitment, fixed, reason.encode())
        yield LedgerRow._make((*row[:_UNSEALED], salt, commitment, previous))


def _salts() -> Iterator[bytes]:
    # A read for each salt would cost as much as the hashing.
    count = _FIRST_SALTS
    while True:
        random = os.urandom(SALT_BYTES * count)
        for first in range(0, len(random), SALT_BYTES):
            yield random[first : first + SALT_BYTES]
        count = min(2 * count, _MOST_SALTS)


def row_of(entry: ResolvedEffect, *, firing: int, key_id: int | None) -> LedgerRow[str]:
    """Return the row of an entry, without salt and hashes."""
    seq, event, effect, candidate, fact_id, _, removed, reason, first = entry
    replaces = orjson.dumps(removed).decode() if removed else None
    return LedgerRow(
        seq, first, firing, _EVENT_NUMBERS[event], _KIND_NUMBERS[effect], reason,
        candidate.version if candidate else 0, key_id, candidate.at if candidate else None,
        fact_id or None, replaces, _payload_of(entry),
    )  # fmt: skip


def _payload_of(entry: ResolvedEffect) -> bytes | None:
    candidate = entry.candidate
    if candidate is None:
        return None
    if isinstance(candidate, ClaimCandidate) and entry.event == "known":
        return None
    document = _document_of_candidate(candidate)
    if candidate.session:
        document["session"] = candidate.session
    return written(document)


def _document_of_candidate(candidate: RecordedCandidate) -> dict[str, Any]:
    match candidate:
        case ClaimCandidate():
            return document_of(candidate.claim)
        case Undo():
            return {"undoes": candidate.firing, "owner": candidate.owner}
        case Unmatched():
            return {"eid": candidate.eid, "detail": "", "owner": candidate.owner}
        case Unsaid():
            return {"eid": candidate.eid, "detail": UNSAID, "owner": candidate.owner}
        case Unreadable() | Contested():
            return {"eid": candidate.eid, "detail": candidate.detail, "owner": candidate.owner}
        case HeldBack(shortfall=shortfall):
            limits = {"salience": shortfall.score, "min": shortfall.least}
            return {"eid": candidate.eid, "detail": "", "owner": candidate.owner, **limits}
        case _:
            assert_never(candidate)


def document_of(claim: Claim) -> dict[str, Any]:
    """Return a claim as the ledger stores it, without what other columns hold."""
    document: dict[str, Any] = {"asserts": claim.asserts, "payload": claim.payload}
    if claim.names:
        document["names"] = claim.names
    if claim.clears_key:
        document["clears"] = True
    if claim.confidence != 1.0:
        document["confidence"] = claim.confidence
    if claim.precedence.rank != EPISODE:
        document["rank"] = claim.precedence.rank
    if claim.precedence.rank == MANUAL:
        document |= _manual_part(claim)
    if claim.near:
        document["near"] = claim.near
    if claim.precedence.part:
        document |= {"eid": claim.source, "part": claim.precedence.part}
    return document


def _manual_part(claim: Claim) -> dict[str, Any]:
    """Return the keys that only manual edits and declared facts have."""
    optional = {
        "pinned_at": claim.pinned_at,
        "declared": claim.declared or None,
        "stored": claim.stored,
        "covers": claim.covers,
    }
    return {
        "id": claim.precedence.id,
        "owner": claim.owner,
        "key": claim.key,
        "object": claim.object,
        "lineage": claim.lineage,
        "metadata": claim.metadata,
        **{name: value for name, value in optional.items() if value is not None},
    }


def claim_from(fact_id: str, at: int, document: dict[str, Any]) -> Claim:
    """Return the claim that `document_of` wrote."""
    if document.get("rank") == MANUAL:
        return _manual_claim_from(fact_id, at, document)
    payload = document["payload"]
    asserts = document["asserts"]
    owner = owner_of(payload["user"], payload["agent"], channel_of(fact_id))
    key = key_of(owner, payload, fact_id)
    object_ = canonical(payload.get("object")) if asserts else retracted_object(payload)
    if document.keys() <= PLAIN_CLAIM:  # most claims; the rest takes half as long again
        place = Precedence(at, EPISODE, episode_id_of(fact_id))
        return Claim(fact_id, owner, key, place, asserts, object_, (), False, 1.0, payload)
    return Claim(
        fact_id,
        owner,
        key,
        Precedence(
            at,
            document.get("rank", EPISODE),
            document.get("eid") or episode_id_of(fact_id),
            document.get("part", 0),
        ),
        asserts,
        object_,
        tuple(document.get("names", ())),
        document.get("clears", False),
        document.get("confidence", 1.0),
        payload,
        near=tuple((near, cosine) for near, cosine in document.get("near", ())),
    )


def _manual_claim_from(fact_id: str, at: int, document: dict[str, Any]) -> Claim:
    """Return the claim of a manual edit, or of a declared fact."""
    return Claim(
        fact_id,
        document["owner"],
        document["key"],
        Precedence(at, MANUAL, document["id"]),
        document["asserts"],
        document["object"],
        tuple(document.get("names", ())),
        document.get("clears", False),
        document.get("confidence", 1.0),
        document["payload"],
        tuple(document["lineage"]),
        document["metadata"],
        document.get("pinned_at"),
        declared=document.get("declared", False),
        stored=document.get("stored"),
        covers=document.get("covers"),
    )


def histories_from(rows: Iterable[tuple[Any, ...]]) -> dict[str, History]:
    """Return histories by fact id, from rows of the query ``evaluations``, oldest first."""
    found: dict[str, History] = {}
    for row in rows:
        fact_id, seq, _, _, what, _, payload, _, firing = row
        history = found.get(fact_id)
        if history is None:
            history = found[fact_id] = History([], [])
        if what == UNDONE:
            document = orjson.loads(payload)
            history.undone.append(
                UndoneEvaluation(seq, document["undoes"], firing, document["owner"])
            )
        else:
            history.evaluations.append(evaluation_from(row))
    return found


def evaluation_from(row: Sequence[Any]) -> Evaluation:
    """Return an evaluation from a row of the query ``evaluations`` that is not an undo."""
    fact_id, seq, rule_id, version, what, at, payload, promoted_at, firing = row
    document = orjson.loads(payload) if payload else {}
    claim = claim_from(fact_id, at, document) if what == CLAIM else None
    owner = claim.owner if claim else document.get("owner", "")
    return Evaluation(seq, author_of(rule_id), version, claim, promoted_at, firing, owner)


def evaluations_from(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[Evaluation]]:
    """Return the evaluations that count, by fact id, from rows of the query ``evaluations``."""
    return {fact_id: history.remaining() for fact_id, history in histories_from(rows).items()}


def firing_id_of(rule_id: str, number: int) -> str:
    """Return the id of a batch: its rule and the number of its own ledger row."""
    return f"{rule_id}@{number}"


_REASON_KEY = b'"reason":'
"""It is in the document of a firing with a reason; few have one, so few are parsed."""


def record_from(columns: Sequence[Any]) -> Record:
    """Return a record from a row of the query ``records``."""
    *found, sibling, run = columns
    row, rule_id, _, _, fired_at = row_with_firing(found)
    fact_id = row.fact_id or ""
    document = orjson.loads(row.payload) if row.payload and row.event != FIRING else {}
    return Record(
        row.seq,
        firing_id_of(rule_id, row.firing),
        rule_id,
        KINDS[row.kind],
        fact_id,
        replaced_ids(row),
        sources_of(fact_id, document),
        row.reason or reason_of_firing(row),
        document.get("confidence", 1.0),
        instant(fired_at),
        *_owner_of(fact_id, row.reason, orjson.loads(sibling) if sibling else document),
        run or "",
    )


def reason_of_firing(row: LedgerRow[str]) -> str:
    """Return why a person requested a firing; empty for other rows, and without a reason."""
    if row.event != FIRING or not row.payload or _REASON_KEY not in row.payload:
        return ""
    with suppress(orjson.JSONDecodeError):  # another program changed the row
        document = orjson.loads(row.payload)
        if isinstance(document, dict):
            return str(document.get("reason", ""))
    return ""


def has_known_owner(fact_id: str | None, reason: str) -> bool:
    """Return whether the owner of a row is known; a row without a fact id may be of anyone."""
    return bool(fact_id) or reason in (ID_TAKEN, FUTURE)


def _owner_of(fact_id: str | None, reason: str, document: dict[str, Any]) -> tuple[str, str]:
    """Return the user and agent of a row, from its document or that of a row of the same fact."""
    if not has_known_owner(fact_id, reason):
        return "", ""
    return owner_in(document)


def owner_in(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the user and agent that the document of a row names; empty when it names none."""
    if "owner" in document:
        return user_and_agent(document["owner"])
    payload = document.get("payload", {})
    return payload.get("user", ""), payload.get("agent", "")


def sources_of(fact_id: str, document: dict[str, Any]) -> tuple[str, ...]:
    """Return the ids of the source episodes of a row."""
    if document.get("rank") == MANUAL:
        return sources_in_lineage(document["lineage"])
    if SUMMARISES in document.get("payload", {}):
        return tuple(document["payload"][SUMMARISES])
    if "eid" in document:
        return (document["eid"],)
    return (episode_id_of(fact_id),) if fact_id else ()


_NO_KEY = 0
_MISSING = "the ledger has a key: set facts.key_file to the file of its key"
_WRONG = "the ledger was begun with another key: set facts.key_file to the file of that key"
_NOT_KEYED = (
    "the ledger was begun without a key, and cannot get one: remove facts.key_file, "
    "or begin another ledger at another facts.path"
)


def record_key(session: Session) -> bytes | None:
    """Record the key of the session, if any, for a new ledger; inside a transaction."""
    key = session.key
    session.do("ledger.set_number", {"name": "key", "value": _fingerprint_of(key)})
    return key


def is_usable_name(name: str) -> bool:
    """Return whether an episode can have the id that a claim names: no id contains NUL."""
    return "\0" not in name


def require_key(session: Session) -> bytes | None:
    """Return the key of the session, if any, after checking it against the ledger.

    Raises:
        LedgerKeyError: The keys differ, or only one of session and ledger has a key.
    """
    recorded = session.value("ledger.number", ("key",))
    return check_key(session, recorded) if session.one("ledger.last_row") else session.key


def check_key(session: Session, recorded: int) -> bytes | None:
    """Return the key of the session, if any, after checking it against that of the first row.

    Args:
        session: Has the key.
        recorded: The number of the ledger's key.

    Raises:
        LedgerKeyError: The keys differ, or only one of session and ledger has a key.
    """
    key = session.key
    if recorded != _fingerprint_of(key):
        problem = _MISSING if key is None else _WRONG if recorded else _NOT_KEYED
        raise LedgerKeyError(session.where, problem)
    return key


def _fingerprint_of(key: bytes | None) -> int:
    """Return a number that differs between keys and does not reveal the key."""
    if key is None:
        return _NO_KEY
    return int.from_bytes(hmac.digest(key, b"slumberd ledger", "sha256")[:8]) >> 1 | 1
