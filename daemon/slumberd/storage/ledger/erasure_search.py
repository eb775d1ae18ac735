"""Find what an erasure erases in the ledger: the content of a scope, of episodes, or of a fact."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import MANUAL
from slumberd.model.episode import LATEST
from slumberd.model.scope import ScopeFilter, channel_of, episode_id_of, escape
from slumberd.model.stages import MARKS
from slumberd.storage.engine import Session
from slumberd.storage.ledger.rows import claim_from, owner_in, sources_of

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
        future: Ids of its episodes whose instants are still to come; `newest` is of the others.
    """

    claims: set[tuple[str, str]] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    eids: set[str] = field(default_factory=set)
    newest: int = 0
    future: set[str] = field(default_factory=set)

    def add(self, row: tuple[Any, ...], *, latest: int, said_by: Set[str] | None = None) -> None:
        """Add a row of `_rows`.

        Args:
            latest: The last instant that is not still to come, microseconds.
            said_by: The only episodes whose ids are added; None adds every one.
        """
        seq, fact_id, at, document, owner = row
        if fact_id is None:
            self.rows.append(seq)
        else:
            self.claims.add((fact_id, owner))
        is_future = at is not None and at > latest
        if fact_id is not None and not is_future:
            self.newest = max(self.newest, at or 0)
        if document.get("rank") == MANUAL:
            return
        eid = document.get("eid") or episode_id_of(fact_id or "")
        if eid and (said_by is None or eid in said_by):
            self.eids.add(eid)
            if is_future:
                self.future.add(eid)


def find_scope(
    session: Session,
    scope: ScopeFilter,
    eids: Set[str] = frozenset(),
    *,
    latest: int = LATEST,
) -> ScopeContent:
    """Return the content of the ledger that belongs to a scope.

    Args:
        session: Of the facts.
        eids: Ids of its episodes; quarantined rows of them without an owner are found too.
        latest: The last instant that is not still to come, microseconds.
    """
    found = ScopeContent()
    for row in _rows(session, scope, eids):
        document = row[3]
        if scope.session is None or document.get("session") == scope.session:
            found.add(row, latest=latest)
    found.claims |= _manual_claims_that_refer(session, found.claims)
    return found


def find_named(
    session: Session,
    scope: ScopeFilter,
    eids: Set[str],
    fact_ids: Set[str] = frozenset(),
    *,
    unshared: Set[str] = frozenset(),
) -> ScopeContent:
    """Return the content of the ledger that comes from some episodes of a scope.

    Args:
        session: Of the facts.
        eids: The ids of the episodes. All that names one of them as a source belongs to it.
        fact_ids: Facts of manual edits and of other programs; all their claims are found.
        unshared: Those of the episodes whose ids no other scope has; their quarantined rows without
            an owner are found too.
    """
    found = ScopeContent()
    for row in _rows(session, scope, unshared):
        _, fact_id, _, document, _ = row
        if fact_id in fact_ids or not eids.isdisjoint(sources_of(fact_id or "", document)):
            found.add(row, latest=LATEST, said_by=eids)
    found.claims |= _marks_that_name(session, scope, {*eids, *(id for id, _ in found.claims)})
    found.claims |= _manual_claims_that_refer(session, found.claims)
    return found


def _marks_that_name(session: Session, scope: ScopeFilter, names: set[str]) -> set[tuple[str, str]]:
    """Return the marks that leave out an episode because of an erased episode or summary."""
    return {
        (fact_id, owner)
        for _, fact_id, _, document, owner in _rows(session, scope, frozenset())
        if fact_id is not None and channel_of(fact_id) == MARKS
        if str(document.get("payload", {}).get("object")) in names
    }


class FactSources(NamedTuple):
    """Where a fact comes from.

    Attributes:
        eids: The ids of the episodes that say it, also of those that said the same before.
        edits: The ids of manual edits, and of facts of other programs, that say it.
    """

    eids: frozenset[str]
    edits: frozenset[str]


def find_sources(session: Session, scope: ScopeFilter, fact_id: str) -> FactSources | None:
    """Return where a fact of a scope comes from; None when the scope never had it.

    Without all that says the same of the same key, an older statement would be current again.
    """
    stated = [row for row in _rows(session, scope, frozenset()) if row[1] == fact_id]
    if not stated:
        return None
    claims = [claim_from(fact_id, at, document) for _, _, at, document, _ in _claims_in(stated)]
    beliefs = {(claim.key, claim.object) for claim in claims[-1:] if claim.asserts}
    # Of each fact id the newest claim counts: an edited episode may say something else by now.
    newest = {row[1]: row for row in _claims_in(_rows(session, scope, frozenset()))}
    same = [row for row in newest.values() if row[3]["asserts"] and _belief_of(row) in beliefs]
    eids: set[str] = set()
    edits: set[str] = set()
    for _, its_id, _, document, _ in (*stated, *same):
        eids.update(sources_of(its_id, document))
        if document.get("rank") == MANUAL:
            edits.add(its_id)
    return FactSources(frozenset(eids), frozenset(edits))


def _claims_in(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows that are claims, in order."""
    return sorted((row for row in rows if "asserts" in row[3]), key=lambda row: row[0])


def _belief_of(row: tuple[Any, ...]) -> tuple[str, str]:
    _, fact_id, at, document, _ = row
    claim = claim_from(fact_id, at, document)
    return claim.key, claim.object


def find_owners(session: Session, fact_ids: Collection[str]) -> set[str]:
    """Return the users that have claims of some fact ids."""
    rows = session.stream("erasure.rows_of_facts", {"ids": sorted(fact_ids)})
    documents = (orjson.loads(payload) for *_, payload in rows if payload)
    return {user for user, _ in map(owner_in, documents) if user}


def _rows(session: Session, scope: ScopeFilter, eids: Set[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows whose key or owner is in the scope, of any session."""
    keys = key_range(scope)
    for seq, fact_id, at, payload, key in session.stream("erasure.rows_of_keys", keys):
        yield seq, fact_id, at, orjson.loads(payload), owner_in_key(key)
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


def key_range(scope: ScopeFilter) -> dict[str, str]:
    """Return the first key of a scope, and the first one after it."""
    low = _prefix(scope)
    return {"low": low, "high": f"{low[:-1]}0"}


def owner_in_key(key: str) -> str:
    """Return the owner with which a key begins."""
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
