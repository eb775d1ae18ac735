"""Erase a scope from facts.db: facts, and all that is personal in the ledger beside them.

A row of the ledger that is erased keeps its number, its commitment and its link of the chain;
what the commitment covers goes, with the salt, so nothing can be guessed back.

Erasures that facts.db has done and memory.db perhaps not; kept until both have.

A row names the scope and its episodes. It goes, overwritten, once memory.db holds them no more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import MANUAL
from slumberd.model.episode import instant
from slumberd.model.fact_ids import episode_id_of
from slumberd.model.firing import Firing
from slumberd.model.record import Outcome
from slumberd.model.scope import Reach, escape
from slumberd.sql_statements import statements
from slumberd.storage.ledger.batch import Batch
from slumberd.storage.ledger.bulk_write import by_us
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.rows import ErasedRows
from slumberd.storage.sqlite.erased_scopes import remember

_UNFINISHED_SQL = statements("unfinished_erasures")


class Unfinished(NamedTuple):
    """An erasure that memory.db may not have done.

    Attributes:
        reach: The scope.
        eids: Ids of its episodes.
        moment: Up to when it is forgotten, microseconds since 1970 UTC.
        by: Who asked.
    """

    reach: Reach
    eids: frozenset[str]
    moment: int
    by: str


def begin(connection: sqlite3.Connection, erasure: Unfinished) -> None:
    """Record that an erasure is half done; inside of its transaction."""
    connection.execute(
        _UNFINISHED_SQL["begin"],
        {
            "scope": _written(erasure.reach),
            "eids": orjson.dumps(sorted(erasure.eids)),
            "moment": erasure.moment,
            "by": erasure.by,
        },
    )


def end(connection: sqlite3.Connection, reaches: Collection[Reach]) -> None:
    """Record that erasures are done; inside of a transaction that overwrites what it deletes."""
    connection.executemany(_UNFINISHED_SQL["end"], [(_written(reach),) for reach in reaches])


def unfinished(connection: sqlite3.Connection) -> list[Unfinished]:
    """Return the erasures that are half done."""
    return [
        Unfinished(Reach(*orjson.loads(scope)), frozenset(orjson.loads(eids)), moment, by)
        for scope, eids, moment, by in connection.execute(_UNFINISHED_SQL["all"])
    ]


def _written(reach: Reach) -> str:
    return orjson.dumps([reach.user, reach.session, reach.agent]).decode()


FORGET = "@erasure"
"""The rule id of what erases a scope."""

OF_NOBODY = "//"
"""How the owner begins of an episode whose user and agent cannot be told."""

_SQL = {**statements("facts"), **statements("erasure")}


@dataclass(slots=True)
class Scoped:
    """What facts.db holds of a scope.

    Attributes:
        claims: Every fact id that a claim of it speaks under, with the claim's owner: another
            owner may use the same id.
        rows: Numbers of ledger rows of it that speak under no fact id.
        eids: Ids of its episodes.
        newest: The latest instant of a claim, microseconds. What was quarantined does not count:
            another program may have written it under the scope's key.
    """

    claims: set[tuple[str, str]] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    eids: set[str] = field(default_factory=set)
    newest: int = 0


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was erased.

    Attributes:
        outcome: The firing that did it, with the facts that stand again.
        counts: How many rows went, by table.
        eids: Ids of the episodes that the erased rows came from.
        head: The chain's head before, hexadecimal.
    """

    outcome: Outcome
    counts: dict[str, int]
    eids: set[str]
    head: str


def find_scope(
    connection: sqlite3.Connection, reach: Reach, eids: Set[str] = frozenset()
) -> Scoped:
    """Return what the ledger knows of a scope.

    Args:
        connection: Of facts.db.
        reach: The scope.
        eids: Ids of its episodes; what was quarantined under them as of nobody is found too.
    """
    found = Scoped()
    for seq, fact_id, at, document, owner in _rows(connection, reach, eids):
        if reach.session is not None and document.get("session") != reach.session:
            continue
        if fact_id is None:
            found.rows.append(seq)
        else:
            found.claims.add((fact_id, owner))
            found.newest = max(found.newest, at or 0)
        if document.get("rank") != MANUAL:
            found.eids.add(document.get("eid") or episode_id_of(fact_id or ""))
    found.claims |= _hands_that_name(connection, found.claims)
    found.eids.discard("")
    return found


def _rows(
    connection: sqlite3.Connection, reach: Reach, eids: Set[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows whose key or owner lies within reach, whatever their session."""
    span = _span(reach)
    for seq, fact_id, at, payload, key in connection.execute(_SQL["rows_of_keys"], span):
        yield seq, fact_id, at, orjson.loads(payload), _owner_in(key)
    for seq, fact_id, at, payload in connection.execute(_SQL["rows_without_key"]):
        document = orjson.loads(payload)
        if document["owner"].startswith(span["low"]):
            yield seq, fact_id, at, document, document["owner"]
        elif fact_id is None and document["eid"] in eids and _is_of_nobody(document["owner"]):
            yield seq, None, at, document | {"session": reach.session}, document["owner"]


def _is_of_nobody(owner: str) -> bool:
    return owner.startswith(OF_NOBODY)


def _prefix(reach: Reach) -> str:
    user = f"{escape(reach.user)}/"
    return user if reach.agent is None else f"{user}{escape(reach.agent)}/"


def _span(reach: Reach) -> dict[str, str]:
    low = _prefix(reach)
    return {"low": low, "high": f"{low[:-1]}0"}


def _owner_in(key: str) -> str:
    user, agent, channel, _ = key.split("/", 3)
    return f"{user}/{agent}/{channel}/"


def _hands_that_name(
    connection: sqlite3.Connection, claims: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return the claims of hands that took facts out: they repeat what those said."""
    found = set()
    asked = {"ids": _json({fact_id for fact_id, _ in claims})}
    for name, referrer, payload in connection.execute(_SQL["manual_claims_that_refer"], asked):
        owner = orjson.loads(payload)["owner"]
        if (name, owner) in claims:
            found.add((referrer, owner))
    return found


def _numbers(rows: Collection[int]) -> str:
    return orjson.dumps(sorted(rows)).decode()


def _json(values: Collection[str]) -> str:
    return orjson.dumps(sorted(values)).decode()


class Erasing(NamedTuple):
    """What is to be erased.

    Attributes:
        reach: The scope.
        eids: Ids of its episodes, of which the ledger need not know.
        kept: Those of them that an episode of another scope has by now.
        moment: Up to when it is forgotten, microseconds; not before its newest instant.
        at: The moment of asking.
        by: Who asks.
        key: Of the hashes of scopes, where the database has none yet.
    """

    reach: Reach
    eids: frozenset[str]
    kept: frozenset[str]
    moment: int
    at: datetime
    by: str
    key: bytes | None


def erase(connection: sqlite3.Connection, asked: Erasing, *, depth: int) -> Erasure:
    """Erase a scope; inside of a transaction that overwrites what it deletes.

    Args:
        connection: Of facts.db.
        asked: What is to be erased.
        depth: Links of lineage.
    """
    reach, moment = asked.reach, asked.moment
    found = find_scope(connection, reach, asked.eids - asked.kept)
    firing = Firing(FORGET, "", "manual", asked.at, by=asked.by)
    batch = Batch(connection, firing, channels_at(connection), depth)
    head = batch.head.hex()
    digest = remember(connection, reach, moment, asked.key)
    begin(connection, Unfinished(reach, asked.eids | found.eids, moment, asked.by))
    batch.note = {"forgets": digest.hex(), "moment": instant(moment).isoformat()}
    resolution = batch.resolution()
    fact_ids = sorted({fact_id for fact_id, _ in found.claims})
    rows = {*found.rows, *_rows_of(connection, reach, found.claims)}
    histories = batch.loaded.load_histories(fact_ids)
    touched = sorted(batch.loaded.known_state.full)
    resolution.forget(
        {fact_id: history.without(rows).remaining() for fact_id, history in histories.items()}
    )
    stood = _facts(connection)
    counts = {"slumberd_ledger": _erase_rows(connection, rows)}
    batch.note["erased"] = _erased(connection).told()
    outcome = batch.write(resolution, {})
    counts |= _delete_beside(connection, asked, found, rows, touched)
    counts["facts"] = stood + len(outcome.records) - 1 - _facts(connection)
    return Erasure(outcome, counts, found.eids, head)


def _rows_of(
    connection: sqlite3.Connection, reach: Reach, claims: set[tuple[str, str]]
) -> Iterator[int]:
    """Yield the numbers of the rows that some claims left, and of no other owner's rows."""
    owners = {
        number: _owner_in(key)
        for number, key in connection.execute(_SQL["numbers_of_keys"], _span(reach))
    }
    asked = {"ids": _json({fact_id for fact_id, _ in claims})}
    for seq, fact_id, key_id, payload in connection.execute(_SQL["rows_of_facts"], asked):
        owner = orjson.loads(payload).get("owner") if payload else None
        if (fact_id, owner or owners.get(key_id)) in claims:
            yield seq


def _facts(connection: sqlite3.Connection) -> int:
    count: int = connection.execute(_SQL["count_facts"]).fetchone()[0]
    return count


def _erase_rows(connection: sqlite3.Connection, rows: Collection[int]) -> int:
    return connection.execute(_SQL["erase_rows"], {"rows": _numbers(rows)}).rowcount


def _erased(connection: sqlite3.Connection) -> ErasedRows:
    """Return the rows that this erasure and all before it erased."""
    erased = ErasedRows()
    for (seq,) in connection.execute(_SQL["erased"]):
        erased.add(seq)
    return erased


def _delete_beside(
    connection: sqlite3.Connection,
    asked: Erasing,
    found: Scoped,
    rows: Collection[int],
    keys: list[str],
) -> dict[str, int]:
    """Delete what the other tables hold of a scope; return how many rows, by table."""
    reach, eids = asked.reach, found.eids | asked.eids
    ids = {"ids": _json({fact_id for fact_id, _ in found.claims})}
    scope = {"user": reach.user, "agent": reach.agent, "whole": reach.session is None}
    deletions: dict[str, tuple[str, dict[str, Any]]] = {
        "facts": ("drop_facts_of_scope", scope | ids),
        "slumberd_references": ("drop_references", ids),
        "slumberd_keys": ("drop_keys", {"keys": _json(keys)}),
        "slumberd_quarantine": ("drop_quarantine_of_rows", {"rows": _numbers(rows)}),
    }
    # Both databases keep the name of an episode that is there, or its rules would read it again.
    for name in ("blank_firings", "blank_watermarks", "blank_held_batches"):
        connection.execute(_SQL[name], {"eids": _json(eids - asked.kept)})
    with by_us(connection, rows=0):
        return {
            table: connection.execute(_SQL[name], values).rowcount
            for table, (name, values) in deletions.items()
        }
