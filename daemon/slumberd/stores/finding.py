"""Find facts: those that stand, and those that stood."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import orjson

from slumberd.core.episode import instant, microseconds
from slumberd.core.fact import Fact, FactPattern
from slumberd.core.ground import Standing
from slumberd.stores.batch import lineage_of, user_and_agent
from slumberd.stores.beliefs import facts_then
from slumberd.stores.queries import statements
from slumberd.stores.sqlite import snapshot, texts_as

_FACTS = statements("facts")


def find(connection: sqlite3.Connection, pattern: FactPattern) -> list[Fact]:
    """Return the facts that equal a pattern, by id."""
    if pattern.user is not None:
        query = "find_facts_of_user"
    elif pattern.subject is not None:
        query = "find_facts_of_subject"
    elif pattern.object is not None:
        query = "find_facts_of_object"
    else:
        query = "all_facts"
    found = _fetch(connection, _FACTS[query], pattern.model_dump())
    return [fact for fact in _readable(found) if _equals(fact, pattern)]


def _fetch(
    connection: sqlite3.Connection, sql: str, values: dict[str, Any]
) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(sql, values).fetchall()
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error):
            raise
    with texts_as(connection, _unicode_or_none):
        return connection.execute(sql, values).fetchall()


def _unicode_or_none(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _readable(rows: Iterable[Sequence[Any]]) -> Iterator[Fact]:
    """Yield the facts of rows; what another program wrote and nobody can read is left out."""
    for row in rows:
        try:
            fact = fact_from(row)
        except (ValueError, TypeError):
            continue
        names = row[:3]
        if all(type(name) is str for name in names) and isinstance(fact.payload, dict):
            yield fact


def find_then(
    connection: sqlite3.Connection,
    pattern: FactPattern,
    depth: int,
    valid_at: datetime | None,
    believed_at: datetime | None,
) -> list[Fact]:
    """Return the facts that equaled a pattern, by id, on either clock or on both."""
    with snapshot(connection):
        standing = facts_then(
            connection,
            user=pattern.user,
            depth=depth,
            valid_at=None if valid_at is None else microseconds(valid_at),
            believed_at=None if believed_at is None else microseconds(believed_at),
        )
    return [fact for fact in map(_fact_of, standing) if _equals(fact, pattern)]


def _fact_of(standing: Standing) -> Fact:
    """Return what stands as `fact_from` returns it of its row."""
    act = standing.counted.act
    user, agent = user_and_agent(act.owner)
    return Fact.model_construct(
        id=act.fact_id,
        user=user,
        agent=agent,
        payload=act.payload,
        lineage=lineage_of(standing),
        confidence=act.confidence,
        pinned_at=instant(standing.counted.pinned_at),
        metadata=act.metadata or {},
    )


def fact_from(row: Sequence[Any]) -> Fact:
    """Return a fact from a row of a query of ``facts``."""
    fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata = row
    return Fact.model_construct(
        id=fact_id,
        user=user,
        agent=agent,
        payload=orjson.loads(payload),
        lineage=orjson.loads(lineage),
        confidence=confidence,
        pinned_at=datetime.fromisoformat(pinned_at),
        metadata=orjson.loads(metadata),
    )


def _equals(fact: Fact, pattern: FactPattern) -> bool:
    return all(
        wanted is None or found == wanted
        for wanted, found in (
            (pattern.user, fact.user),
            (pattern.agent, fact.agent),
            (pattern.subject, fact.payload.get("subject")),
            (pattern.predicate, fact.payload.get("predicate")),
            (pattern.object, fact.payload.get("object")),
        )
    )
