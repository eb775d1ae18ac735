"""Erase a scope from facts.db: facts, and all that is personal in the ledger beside them.

A row of the ledger that is erased keeps its number, its commitment and its link of the chain;
what the commitment covers goes, with the salt, so nothing can be guessed back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from slumberd.core.act import HAND, episode_id_of
from slumberd.core.episode import instant
from slumberd.core.firing import Firing
from slumberd.core.record import Outcome
from slumberd.core.scope import Reach, escape
from slumberd.stores.batch import Batch
from slumberd.stores.beliefs import channels_at
from slumberd.stores.forgetting import remember
from slumberd.stores.ours import by_us
from slumberd.stores.queries import statements

FORGET = "@forget"
"""The rule id of what erases a scope."""

_SQL = {**statements("facts"), **statements("erasure")}


@dataclass(slots=True)
class Scoped:
    """What facts.db holds of a scope.

    Attributes:
        fact_ids: Every fact id that an act of it speaks under.
        rows: Numbers of ledger rows of it that speak under no fact id.
        eids: Ids of its episodes.
        newest: The latest instant that it speaks of, microseconds.
    """

    fact_ids: set[str] = field(default_factory=set)
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


def find_scope(connection: sqlite3.Connection, reach: Reach) -> Scoped:
    """Return what the ledger knows of a scope."""
    found = Scoped()
    for seq, fact_id, at, payload in _rows(connection, reach):
        document = orjson.loads(payload) if payload else {}
        if reach.session is not None and document.get("session") != reach.session:
            continue
        if fact_id is None:
            found.rows.append(seq)
        else:
            found.fact_ids.add(fact_id)
        if document.get("rank") != HAND:
            found.eids.add(document.get("eid") or episode_id_of(fact_id or ""))
        found.newest = max(found.newest, at or 0)
    found.fact_ids |= _hands_that_name(connection, found.fact_ids)
    found.eids.discard("")
    return found


def _rows(connection: sqlite3.Connection, reach: Reach) -> Iterator[tuple[Any, ...]]:
    """Yield the rows whose key or owner lies within reach, whatever their session."""
    low = _prefix(reach)
    yield from connection.execute(_SQL["rows_of_keys"], {"low": low, "high": f"{low[:-1]}0"})
    for seq, fact_id, at, payload in connection.execute(_SQL["rows_without_key"]):
        owner = orjson.loads(payload).get("owner", "")
        if owner.startswith(low):
            yield seq, fact_id, at, payload


def _prefix(reach: Reach) -> str:
    user = f"{escape(reach.user)}/"
    return user if reach.agent is None else f"{user}{escape(reach.agent)}/"


def _hands_that_name(connection: sqlite3.Connection, fact_ids: set[str]) -> set[str]:
    """Return the ids of hands that took facts out: they repeat what those said."""
    asked = {"ids": orjson.dumps(sorted(fact_ids)).decode()}
    return {row[0] for row in connection.execute(_SQL["hands_that_name"], asked)}


class Erasing(NamedTuple):
    """What is to be erased.

    Attributes:
        reach: The scope.
        eids: Ids of its episodes, of which the ledger need not know.
        moment: Up to when it is forgotten, microseconds; not before its newest instant.
        at: The moment of asking.
        by: Who asks.
    """

    reach: Reach
    eids: frozenset[str]
    moment: int
    at: datetime
    by: str


def erase(connection: sqlite3.Connection, asked: Erasing, *, depth: int) -> Erasure:
    """Erase a scope; inside of a transaction that overwrites what it deletes.

    Args:
        connection: Of facts.db.
        asked: What is to be erased.
        depth: Links of lineage.
    """
    reach, moment = asked.reach, asked.moment
    found = find_scope(connection, reach)
    firing = Firing(FORGET, "", "manual", asked.at, by=asked.by)
    batch = Batch(connection, firing, channels_at(connection), depth)
    head = batch.head.hex()
    digest = remember(connection, reach, moment)
    batch.note = {"forgets": digest.hex(), "moment": instant(moment).isoformat()}
    settlement = batch.settlement()
    batch.loaded.load_histories(sorted(found.fact_ids))
    touched = sorted(batch.loaded.ground.full)
    settlement.forget(found.fact_ids)
    ids = {"ids": orjson.dumps(sorted(found.fact_ids)).decode()}
    stood = _facts(connection)
    counts = {"slumberd_ledger": _erase_rows(connection, ids, found.rows)}
    outcome = batch.write(settlement, {})
    counts |= _delete_beside(connection, reach, ids, found.eids | asked.eids, touched)
    counts["facts"] = stood + len(outcome.records) - 1 - _facts(connection)
    return Erasure(outcome, counts, found.eids, head)


def _facts(connection: sqlite3.Connection) -> int:
    count: int = connection.execute(_SQL["count_facts"]).fetchone()[0]
    return count


def _erase_rows(connection: sqlite3.Connection, ids: dict[str, str], rows: list[int]) -> int:
    erased = connection.execute(_SQL["erase_facts"], ids).rowcount
    asked = {"rows": orjson.dumps(rows).decode()}
    return erased + connection.execute(_SQL["erase_rows"], asked).rowcount


def _delete_beside(
    connection: sqlite3.Connection,
    reach: Reach,
    ids: dict[str, str],
    eids: set[str],
    keys: list[str],
) -> dict[str, int]:
    """Delete what the other tables hold of a scope; return how many rows, by table."""
    scope = {"user": reach.user, "agent": reach.agent}
    owner = {"owner": _prefix(reach), "eids": orjson.dumps(sorted(eids)).decode()}
    whole = reach.session is None
    deletions = {
        "facts": ("drop_facts_of_scope", scope) if whole else ("drop_facts", ids),
        "slumberd_names": ("drop_names", ids),
        "slumberd_keys": ("drop_keys", {"keys": orjson.dumps(keys).decode()}),
        "slumberd_quarantine": ("drop_quarantine_of_scope", owner | {"whole": whole}),
    }
    for name in ("blank_firings", "blank_watermarks", "blank_held"):
        connection.execute(_SQL[name], {"eids": owner["eids"]})
    with by_us(connection, rows=0):
        counts = {
            table: connection.execute(_SQL[name], values).rowcount
            for table, (name, values) in deletions.items()
        }
    connection.execute(_SQL["drop_touched"], ids)
    return counts
