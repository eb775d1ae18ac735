"""Erase a scope, or episodes by their ids, from the facts; record what is not complete.

An erased ledger row keeps its number, its commitment and its chain hash. Its content and its salt
are removed, so its hash reveals no content. The record of an unfinished erasure names the scope
and its episodes; it is overwritten once they are erased.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.resolution import Decision
from slumberd.model.episode import EARLIEST, LATEST, instant, microseconds
from slumberd.model.firing import Firing, Outcome
from slumberd.model.record import ErasedRows, RecordedErasures, name_of
from slumberd.model.scope import ScopeFilter, digest_of, episode_digest_of
from slumberd.storage.engine import Session
from slumberd.storage.erased_scopes import (
    key_of,
    record_erased_episodes,
    record_erased_scope,
)
from slumberd.storage.ledger.arrivals import ARRIVAL, DEPARTURE, FORGETS_SCOPES
from slumberd.storage.ledger.batch import Batch
from slumberd.storage.ledger.erased_rows import (
    ERASED,
    FORGETS,
    FORGETS_EPISODES,
    FORGETS_KEY,
    begin_rewrites,
    compare_erasures,
    document_of,
)
from slumberd.storage.ledger.erasure_search import (
    ScopeContent,
    find_named,
    find_scope,
    key_range,
    owner_in_key,
)
from slumberd.storage.ledger.firings import REMOVED
from slumberd.storage.ledger.rows import commitment_of, owner_in


class Unfinished(NamedTuple):
    """An erasure whose episodes may not be erased yet.

    Attributes:
        eids: Ids of its episodes.
        moment: Claims up to this instant are erased, microseconds since 1970 UTC; None when only
            the episodes of `alone` are erased.
        by: Who requested the erasure.
        alone: Ids of episodes that are erased by their ids, whatever their instants.
    """

    reach: ScopeFilter
    eids: frozenset[str]
    moment: int | None
    by: str
    alone: frozenset[str] = frozenset()

    def parts(self) -> list[Unfinished]:
        """Return the erasure of the scope, and that of single episodes."""
        of_scope = self._replace(alone=frozenset())
        of_episodes = self._replace(eids=self.alone, moment=None)
        return [
            *([] if self.moment is None else [of_scope]),
            *([of_episodes] if self.alone else []),
        ]


def begin(session: Session, erasure: Unfinished) -> None:
    """Record an erasure whose episodes are not erased yet; in its transaction."""
    for part in erasure.parts():
        session.do(
            "unfinished_erasures.begin",
            {
                "scope": _name_of(part),
                "eids": orjson.dumps(sorted(part.eids)),
                "moment": EARLIEST if part.moment is None else part.moment,
                "by": part.by,
            },
        )


def end(session: Session, erasures: Collection[Unfinished]) -> None:
    """Delete the records of finished erasures; the transaction overwrites deleted rows."""
    names = [(_name_of(part),) for erasure in erasures for part in erasure.parts()]
    session.do_each("unfinished_erasures.end", names)


def read_unfinished(session: Session) -> list[Unfinished]:
    """Return the erasures whose episodes may not be erased yet."""
    return [_unfinished_from(*row) for row in session.stream("unfinished_erasures.all")]


def _unfinished_from(name: str, eids: bytes, moment: int, by: str) -> Unfinished:
    user, session, agent, *of_episodes = orjson.loads(name)
    ids = frozenset(orjson.loads(eids))
    scope = ScopeFilter(user, session, agent)
    if of_episodes:
        return Unfinished(scope, ids, None, by, ids)
    return Unfinished(scope, ids, moment, by)


def _name_of(erasure: Unfinished) -> str:
    """Return the key of the record of one part: its scope, and a hash of single episodes."""
    scope = erasure.reach
    parts: list[str | None] = [scope.user, scope.session, scope.agent]
    if erasure.moment is None:
        # A hash: an index of PostgreSQL takes no long text.
        parts.append(hashlib.sha256(orjson.dumps(sorted(erasure.alone))).hexdigest())
    return orjson.dumps(parts).decode()


FORGET = "@erasure"
"""The rule id of erasures."""


class GoingFact(NamedTuple):
    """A current fact that an erasure removes.

    Attributes:
        payload: Its body.
    """

    id: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Erasure:
    """The result of an erasure.

    Attributes:
        outcome: The firing of the erasure, with the facts that are current again.
        number: The ledger row of this firing.
        counts: The number of erased or deleted rows, by table.
        eids: Ids of the source episodes of the erased rows.
        head: The chain hash before the erasure, hexadecimal.
        foreign: The numbers of blank rows that no erasure names, this one included.
        foreign_rows: How many such rows there are; the numbers of some may be unknown.
        going: The current facts that go, unless every fact of the user and agent goes.
    """

    outcome: Outcome
    counts: dict[str, int]
    eids: set[str]
    head: str
    foreign: Sequence[int] = ()
    foreign_rows: int = 0
    going: Sequence[GoingFact] = ()
    number: int = 0


class ErasureRequest(NamedTuple):
    """The request of an erasure.

    Attributes:
        eids: Ids of its episodes; the ledger may not know all of them.
        kept: Ids among them that an episode of another scope has now.
        moment: Claims up to this instant are erased, microseconds; None when only the episodes
            of `alone`, and `edits`, are erased.
        at: The instant of the request.
        by: Who requested the erasure.
        key: The key of the scope hashes, for a database without one.
        reason: Why; empty without a reason. Later erasures keep it.
        alone: Ids of episodes that are erased by their ids, whatever their instants.
        edits: Facts of manual edits and of other programs that are erased.
    """

    scope: ScopeFilter
    eids: frozenset[str]
    kept: frozenset[str]
    moment: int | None
    at: datetime
    by: str
    key: bytes | None
    reason: str = ""
    alone: frozenset[str] = frozenset()
    edits: frozenset[str] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether every fact of the user, or of the user and the agent, is erased."""
        return self.moment is not None and self.scope.session is None


def erase(session: Session, request: ErasureRequest, *, depth: int) -> Erasure:
    """Erase a scope, or single episodes; inside a transaction that overwrites deleted rows.

    Args:
        session: Of the facts.
        depth: Links of lineage.
    """
    scope = request.scope
    found = _find(session, request)
    firing = Firing(FORGET, "", "manual", request.at, by=request.by, reason=request.reason)
    batch = Batch(session, firing, depth)
    head = batch.head.hex()
    eids = request.eids | found.eids
    begin(session, Unfinished(scope, eids, request.moment, request.by, request.alone))
    batch.note = _record(session, request)
    resolution = batch.resolution()
    fact_ids = sorted({fact_id for fact_id, _ in found.claims})
    rows, named = _own_rows(
        session, scope, {*found.rows, *rows_of_claims(session, scope, found.claims)}
    )
    earlier = read_erased_rows(session)
    histories = batch.loaded.load_histories(fact_ids)
    keys = sorted(batch.loaded.known_state.complete_keys)
    resolution.erase(
        {fact_id: history.without(rows).remaining() for fact_id, history in histories.items()}
    )
    before = _count_facts(session)
    going = [] if request.is_whole else _read_going(session, request, fact_ids)
    counts = {"slumberd_ledger": _erase_rows(session, rows)}
    batch.note[REMOVED] = _count_removed(session, request, fact_ids)
    batch.note[ERASED] = document_of(named, earlier.base)
    outcome = batch.write(Decision.of(resolution, {}))
    begin_rewrites(session, batch.number)
    counts |= _delete_beside(session, request, found, rows, keys)
    counts["facts"] = before + len(outcome.records) - 1 - _count_facts(session)
    foreign = sorted({*earlier.foreign, *rows.difference(named)})
    return Erasure(
        outcome, counts, found.eids, head, foreign, len(foreign) + earlier.unclear, going,
        batch.number,
    )  # fmt: skip


def _find(session: Session, request: ErasureRequest) -> ScopeContent:
    """Return the content of the ledger that an erasure erases."""
    unshared = request.eids - request.kept
    if request.moment is not None:
        return find_scope(session, request.scope, unshared)
    return find_named(session, request.scope, request.alone, request.edits, unshared=unshared)


def _record(session: Session, request: ErasureRequest) -> dict[str, Any]:
    """Add an erasure to the list of erased scopes; return what its row of the ledger says."""
    note: dict[str, Any] = {}
    if request.moment is not None:
        digest = record_erased_scope(session, request.scope, request.moment, request.key)
        note = {FORGETS: digest.hex(), "moment": instant(request.moment).isoformat()}
    if request.alone:
        digests = record_erased_episodes(session, request.scope.user, request.alone, request.key)
        note[FORGETS_EPISODES] = [digest.hex() for digest in digests]
    if note:
        note[FORGETS_KEY] = name_of(key_of(session) or b"")
    return note


def rows_of_claims(
    session: Session, scope: ScopeFilter, claims: set[tuple[str, str]]
) -> Iterator[int]:
    """Yield the numbers of the rows of some claims, without rows of other owners."""
    owners = {
        number: owner_in_key(key)
        for number, key in session.stream("erasure.numbers_of_keys", key_range(scope))
    }
    parameters = {"ids": sorted({fact_id for fact_id, _ in claims})}
    for seq, fact_id, key_id, payload in session.stream("erasure.rows_of_facts", parameters):
        owner = orjson.loads(payload).get("owner") if payload else None
        if (fact_id, owner or owners.get(key_id)) in claims:
            yield seq


def _columns(request: ErasureRequest) -> dict[str, Any]:
    scope = request.scope
    return {"user": scope.user, "agent": scope.agent, "whole": request.is_whole}


def _count_removed(session: Session, request: ErasureRequest, fact_ids: list[str]) -> int:
    """Return how many facts an erasure removes; the facts that are current again count later."""
    parameters = {**_columns(request), "ids": fact_ids}
    count: int = session.value("erasure.count_facts_of_scope", parameters)
    return count


def _read_going(session: Session, request: ErasureRequest, fact_ids: list[str]) -> list[GoingFact]:
    """Return the current facts that an erasure removes."""
    parameters = {**_columns(request), "ids": fact_ids}
    rows = sorted(session.rows("erasure.facts_of_scope", parameters))
    return [GoingFact(fact_id, document_in(payload)) for fact_id, payload in rows]


def _count_facts(session: Session) -> int:
    count: int = session.value("erasure.count_facts")
    return count


def _erase_rows(session: Session, rows: Collection[int]) -> int:
    return session.do("erasure.erase_rows", {"rows": sorted(rows)})


def read_erased_rows(session: Session) -> ErasedRows:
    """Compare the blank rows of a ledger with the rows that its erasures name."""
    erasures = sorted(
        (seq, erased_in(payload))
        for rule_id in (FORGET, DEPARTURE)
        for seq, payload in session.rows("ledger.firing_rows_of_rule", (rule_id,))
    )
    return compare_erasures((seq for (seq,) in session.stream("erasure.erased")), erasures)


def read_recorded_erasures(session: Session) -> RecordedErasures:
    """Return the erased scopes that the ledger records; unreadable rows are left out."""
    moments: dict[bytes, int] = {}
    keys: dict[bytes, str] = {}
    recorded = [
        document_in(payload)
        for rule_id in (FORGET, ARRIVAL)
        for _, payload in session.rows("ledger.firing_rows_of_rule", (rule_id,))
    ]
    for document in recorded:
        for digest, moment in _recorded_in(document):
            moments[digest] = max(moment, moments.get(digest, moment))
            if FORGETS_KEY in document:
                keys[digest] = str(document[FORGETS_KEY])
    key = key_of(session)
    unfinished = read_unfinished(session) if key is not None else ()
    begun = {digest for each in unfinished for digest in _digests_of(key or b"", each)}
    return RecordedErasures(moments, keys, begun)


def _recorded_in(document: dict[str, Any]) -> list[tuple[bytes, int]]:
    """Return the hashes and moments that the row of an erasure names; none that are unreadable."""
    found: list[tuple[bytes, int]] = []
    with suppress(KeyError, TypeError, ValueError):
        digest = bytes.fromhex(document[FORGETS])
        found.append((digest, microseconds(datetime.fromisoformat(document["moment"]))))
    with suppress(KeyError, TypeError, ValueError):
        found.extend((bytes.fromhex(text), LATEST) for text in document[FORGETS_EPISODES])
    with suppress(KeyError, TypeError, ValueError):
        found.extend(
            (bytes.fromhex(text), microseconds(datetime.fromisoformat(moment)))
            for text, moment in document[FORGETS_SCOPES]
        )
    return found


def _digests_of(key: bytes, erasure: Unfinished) -> list[bytes]:
    scope = erasure.reach
    if erasure.moment is None:
        return [episode_digest_of(key, scope.user, eid) for eid in erasure.alone]
    return [digest_of(key, scope.user, scope.session, scope.agent)]


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
    eids = found.eids | request.eids
    ids = {"ids": sorted({fact_id for fact_id, _ in found.claims})}
    columns = _columns(request)
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
