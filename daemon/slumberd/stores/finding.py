"""Find facts: those that stand, and those that stood."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from slumberd.core.episode import microseconds
from slumberd.core.fact import Fact, FactPattern
from slumberd.stores.batch import fact_row
from slumberd.stores.beliefs import facts_then
from slumberd.stores.queries import statements
from slumberd.stores.sqlite import snapshot

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
    found = connection.execute(_FACTS[query], pattern.model_dump()).fetchall()
    return [fact for fact in map(fact_from, found) if _equals(fact, pattern)]


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
    stored = (fact_row(one) for one in standing)
    facts = (
        fact_from((fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata))
        for fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at in stored
    )
    return [fact for fact in facts if _equals(fact, pattern)]


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
