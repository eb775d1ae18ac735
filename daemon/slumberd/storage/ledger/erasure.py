"""Erase a scope from the facts, and keep the erasure on record until the episodes are erased too.

An erased ledger row keeps its number, its commitment and its chain hash. Its content and its salt
are removed, so its hash reveals no content. The record of an unfinished erasure names the scope
and its episodes; it is overwritten once they are erased.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import MANUAL
from slumberd.consolidation.decision import Decision
from slumberd.model.episode import instant, microseconds
from slumberd.model.erasures import ErasedRows, RecordedErasures, name_of
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.firing import Firing
from slumberd.model.record import Outcome
from slumberd.model.scope import ScopeFilter, digest_of, escape
from slumberd.storage.engine import Session
from slumberd.storage.erased_scopes import key_of, record_erased_scope
from slumberd.storage.ledger.batch import Batch
from slumberd.storage.ledger.erased_rows import (
    ERASED,
    FORGETS,
    FORGETS_KEY,
    compare_erasures,
    document_of,
)
from slumberd.storage.ledger.reductions import REMOVED
from slumberd.storage.ledger.rewrites import begin_rewrites
from slumberd.storage.ledger.rows import commitment_of, owner_in


class Unfinished(NamedTuple):
    """An erasure whose episodes may not be erased yet.

    Attributes:
        reach: The scope.
        eids: Ids of its episodes.
        moment: Claims up to this instant are erased, microseconds since 1970 UTC.
        by: Who requested the erasure.
    """

    reach: ScopeFilter
    eids: frozenset[str]
    moment: int
    by: str


def begin(session: Session, erasure: Unfinished) -> None:
    """Record an erasure whose episodes are not erased yet; in its transaction."""
    session.do(
        "unfinished_erasures.begin",
        {
            "scope": _scope_json(erasure.reach),
            "eids": orjson.dumps(sorted(erasure.eids)),
            "moment": erasure.moment,
            "by": erasure.by,
        },
    )


def end(session: Session, scopes: Collection[ScopeFilter]) -> None:
    """Delete the records of finished erasures; the transaction overwrites deleted rows."""
    session.do_each("unfinished_erasures.end", [(_scope_json(scope),) for scope in scopes])


def read_unfinished(session: Session) -> list[Unfinished]:
    """Return the erasures whose episodes may not be erased yet."""
    return [
        Unfinished(ScopeFilter(*orjson.loads(scope)), frozenset(orjson.loads(eids)), moment, by)
        for scope, eids, moment, by in session.stream("unfinished_erasures.all")
    ]


def _scope_json(scope: ScopeFilter) -> str:
    return orjson.dumps([scope.user, scope.session, scope.agent]).decode()


FORGET = "@erasure"
"""The rule id of erasures."""

WITHOUT_OWNER = "//"
"""The first part of an owner whose user and agent are unknown."""


@dataclass(slots=True)
class ScopeContent:
    """The content of a store of facts that belongs to a scope.

    Attributes:
        claims: The fact id and the owner of each claim; another owner may use the same id.
        rows: Numbers of ledger rows without a fact id.
        eids: Ids of its episodes.
        newest: The latest instant of a claim, microseconds. Quarantined episodes do not count:
            another program may have written them under the scope's key.
    """

    claims: set[tuple[str, str]] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    eids: set[str] = field(default_factory=set)
    newest: int = 0


@dataclass(frozen=True, slots=True)
class Erasure:
    """The result of an erasure.

    Attributes:
        outcome: The firing of the erasure, with the facts that are current again.
        counts: The number of erased or deleted rows, by table.
        eids: Ids of the source episodes of the erased rows.
        head: The chain hash before the erasure, hexadecimal.
        foreign: The numbers of blank rows that no erasure names, this one included.
        foreign_rows: How many such rows there are; the numbers of some may be unknown.
    """

    outcome: Outcome
    counts: dict[str, int]
    eids: set[str]
    head: str
    foreign: Sequence[int] = ()
    foreign_rows: int = 0


def find_scope(session: Session, scope: ScopeFilter, eids: Set[str] = frozenset()) -> ScopeContent:
    """Return the content of the ledger that belongs to a scope.

    Args:
        session: Of the facts.
        scope: The scope.
        eids: Ids of its episodes; quarantined rows of them without an owner are found too.
    """
    found = ScopeContent()
    for seq, fact_id, at, document, owner in _rows(session, scope, eids):
        if scope.session is not None and document.get("session") != scope.session:
            continue
        if fact_id is None:
            found.rows.append(seq)
        else:
            found.claims.add((fact_id, owner))
            found.newest = max(found.newest, at or 0)
        if document.get("rank") != MANUAL:
            found.eids.add(document.get("eid") or episode_id_of(fact_id or ""))
    found.claims |= _manual_claims_that_refer(session, found.claims)
    found.eids.discard("")
    return found


def _rows(session: Session, scope: ScopeFilter, eids: Set[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows whose key or owner is in the scope, of any session."""
    keys = _key_range(scope)
    for seq, fact_id, at, payload, key in session.stream("erasure.rows_of_keys", keys):
        yield seq, fact_id, at, orjson.loads(payload), _owner_in(key)
    for seq, fact_id, at, payload in session.stream("erasure.rows_without_key"):
        document = orjson.loads(payload)
        if document["owner"].startswith(keys["low"]):
            yield seq, fact_id, at, document, document["owner"]
        elif fact_id is None and document["eid"] in eids and _has_no_owner(document["owner"]):
            yield seq, None, at, document | {"session": scope.session}, document["owner"]


def _has_no_owner(owner: str) -> bool:
    return owner.startswith(WITHOUT_OWNER)


def _prefix(scope: ScopeFilter) -> str:
    user = f"{escape(scope.user)}/"
    return user if scope.agent is None else f"{user}{escape(scope.agent)}/"


def _key_range(scope: ScopeFilter) -> dict[str, str]:
    low = _prefix(scope)
    return {"low": low, "high": f"{low[:-1]}0"}


def _owner_in(key: str) -> str:
    user, agent, channel, _ = key.split("/", 3)
    return f"{user}/{agent}/{channel}/"


def _manual_claims_that_refer(
    session: Session, claims: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return the manual claims that removed these facts: they repeat the content."""
    found = set()
    parameters = {"ids": sorted({fact_id for fact_id, _ in claims})}
    for name, referrer, payload in session.stream("erasure.manual_claims_that_refer", parameters):
        owner = orjson.loads(payload)["owner"]
        if (name, owner) in claims:
            found.add((referrer, owner))
    return found


class ErasureRequest(NamedTuple):
    """The request of an erasure.

    Attributes:
        scope: The scope.
        eids: Ids of its episodes; the ledger may not know all of them.
        kept: Ids among them that an episode of another scope has now.
        moment: Claims up to this instant are erased, microseconds.
        at: The instant of the request.
        by: Who requested the erasure.
        key: The key of the scope hashes, for a database without one.
        reason: Why; empty without a reason. Later erasures keep it.
    """

    scope: ScopeFilter
    eids: frozenset[str]
    kept: frozenset[str]
    moment: int
    at: datetime
    by: str
    key: bytes | None
    reason: str = ""


def erase(session: Session, request: ErasureRequest, *, depth: int) -> Erasure:
    """Erase a scope; inside a transaction that overwrites deleted rows.

    Args:
        session: Of the facts.
        request: The erasure.
        depth: Links of lineage.
    """
    scope, moment = request.scope, request.moment
    found = find_scope(session, scope, request.eids - request.kept)
    firing = Firing(FORGET, "", "manual", request.at, by=request.by, reason=request.reason)
    batch = Batch(session, firing, depth)
    head = batch.head.hex()
    digest = record_erased_scope(session, scope, moment, request.key)
    begin(session, Unfinished(scope, request.eids | found.eids, moment, request.by))
    batch.note = {FORGETS: digest.hex(), "moment": instant(moment).isoformat()}
    batch.note[FORGETS_KEY] = name_of(key_of(session) or b"")
    resolution = batch.resolution()
    fact_ids = sorted({fact_id for fact_id, _ in found.claims})
    rows, named = _own_rows(session, scope, {*found.rows, *_rows_of(session, scope, found.claims)})
    earlier = read_erased_rows(session)
    histories = batch.loaded.load_histories(fact_ids)
    keys = sorted(batch.loaded.known_state.complete_keys)
    resolution.erase(
        {fact_id: history.without(rows).remaining() for fact_id, history in histories.items()}
    )
    before = _count_facts(session)
    counts = {"slumberd_ledger": _erase_rows(session, rows)}
    batch.note[REMOVED] = _count_removed(session, scope, fact_ids)
    batch.note[ERASED] = document_of(named, earlier.base)
    outcome = batch.write(Decision.of(resolution, {}))
    begin_rewrites(session, batch.number)
    counts |= _delete_beside(session, request, found, rows, keys)
    counts["facts"] = before + len(outcome.records) - 1 - _count_facts(session)
    foreign = sorted({*earlier.foreign, *rows.difference(named)})
    return Erasure(outcome, counts, found.eids, head, foreign, len(foreign) + earlier.unclear)


def _rows_of(session: Session, scope: ScopeFilter, claims: set[tuple[str, str]]) -> Iterator[int]:
    """Yield the numbers of the rows of some claims, without rows of other owners."""
    owners = {
        number: _owner_in(key)
        for number, key in session.stream("erasure.numbers_of_keys", _key_range(scope))
    }
    parameters = {"ids": sorted({fact_id for fact_id, _ in claims})}
    for seq, fact_id, key_id, payload in session.stream("erasure.rows_of_facts", parameters):
        owner = orjson.loads(payload).get("owner") if payload else None
        if (fact_id, owner or owners.get(key_id)) in claims:
            yield seq


def _count_removed(session: Session, scope: ScopeFilter, fact_ids: list[str]) -> int:
    """Return how many facts an erasure removes; the facts that are current again count later."""
    parameters = {
        "user": scope.user, "agent": scope.agent, "whole": scope.session is None, "ids": fact_ids,
    }  # fmt: skip
    count: int = session.value("erasure.count_facts_of_scope", parameters)
    return count


def _count_facts(session: Session) -> int:
    count: int = session.value("erasure.count_facts")
    return count


def _erase_rows(session: Session, rows: Collection[int]) -> int:
    return session.do("erasure.erase_rows", {"rows": sorted(rows)})


def read_erased_rows(session: Session) -> ErasedRows:
    """Compare the blank rows of a ledger with the rows that its erasures name."""
    erasures = session.rows("ledger.firing_rows_of_rule", (FORGET,))
    return compare_erasures(
        (seq for (seq,) in session.stream("erasure.erased")),
        [(seq, erased_in(payload)) for seq, payload in reversed(erasures)],
    )


def read_recorded_erasures(session: Session) -> RecordedErasures:
    """Return the erased scopes that the ledger records; unreadable rows are left out."""
    moments: dict[bytes, int] = {}
    keys: dict[bytes, str] = {}
    for _, payload in session.rows("ledger.firing_rows_of_rule", (FORGET,)):
        document = document_in(payload)
        with suppress(KeyError, TypeError, ValueError):
            digest = bytes.fromhex(document[FORGETS])
            moment = microseconds(datetime.fromisoformat(document["moment"]))
            moments[digest] = max(moment, moments.get(digest, moment))
            if FORGETS_KEY in document:
                keys[digest] = str(document[FORGETS_KEY])
    key = key_of(session)
    unfinished = read_unfinished(session) if key is not None else ()
    begun = {
        digest_of(key or b"", scope.user, scope.session, scope.agent)
        for scope in (each.reach for each in unfinished)
    }
    return RecordedErasures(moments, keys, begun)


def erased_in(payload: bytes | None) -> object:
    """Return what the row of an erasure names; None when it cannot be read."""
    return document_in(payload).get(ERASED)


def document_in(payload: bytes | None) -> dict[str, Any]:
    """Return the document of a row; an empty one when it cannot be read."""
    try:
        document = orjson.loads(payload or b"")
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _own_rows(
    session: Session, scope: ScopeFilter, numbers: Collection[int]
) -> tuple[set[int], list[int]]:
    """Return the rows to erase, and those of them that the erasure names, in order.

    Another program may have changed the tables so that rows of another scope seem to be of this
    one. A row whose own content says so stays. A row with other content than its commitment is
    erased, and the erasure does not name it.
    """
    found = session.rows("erasure.rows_to_erase", {"rows": sorted(numbers)})
    foreign: set[int] = set()
    rows: set[int] = set()
    named: list[int] = []
    # A row without a payload has the owner of the other rows of its key.
    for seq, key_id, at, fact_id, replaces, payload, salt, commitment in sorted(
        found, key=lambda row: (row[5] is None, row[0])
    ):
        content = key_id, at, fact_id, replaces, payload
        if salt is None or commitment != commitment_of(salt, *content):
            rows.add(seq)
        elif _is_of_another(scope, payload) if payload else key_id in foreign:
            foreign.add(key_id)
        else:
            rows.add(seq)
            named.append(seq)
    return rows, sorted(named)


def _is_of_another(scope: ScopeFilter, payload: bytes) -> bool:
    user, agent = owner_in(orjson.loads(payload))
    return bool(user) and (user != scope.user or scope.agent not in (None, agent))


def _delete_beside(
    session: Session,
    request: ErasureRequest,
    found: ScopeContent,
    rows: Collection[int],
    keys: list[str],
) -> dict[str, int]:
    """Delete the rows of a scope from the other tables; return their numbers, by table."""
    scope, eids = request.scope, found.eids | request.eids
    ids = {"ids": sorted({fact_id for fact_id, _ in found.claims})}
    columns = {"user": scope.user, "agent": scope.agent, "whole": scope.session is None}
    deletions: dict[str, tuple[str, dict[str, Any]]] = {
        "facts": ("erasure.drop_facts_of_scope", columns | ids),
        "slumberd_references": ("erasure.drop_references", ids),
        "slumberd_keys": ("erasure.drop_keys", {"keys": sorted(keys)}),
        "slumberd_quarantine": ("erasure.drop_quarantine_of_rows", {"rows": sorted(rows)}),
    }
    # The id of an episode that is kept stays, or its rules would read it again.
    for name in ("erasure.blank_firings", "erasure.blank_watermarks", "erasure.blank_held_batches"):
        session.do(name, {"eids": sorted(eids - request.kept)})
    with session.own_writes(rows=0):
        return {table: session.do(name, values) for table, (name, values) in deletions.items()}
