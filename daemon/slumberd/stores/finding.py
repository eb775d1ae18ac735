"""Find facts: those that stand, and those that stood."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

import orjson

from slumberd.core.episode import instant, microseconds
from slumberd.core.fact import Fact, FactPattern
from slumberd.core.ground import Standing
from slumberd.core.model import made
from slumberd.stores.batch import lineage_of, metadata_of, user_and_agent
from slumberd.stores.beliefs import facts_then
from slumberd.stores.queries import statements
from slumberd.stores.sqlite import snapshot, texts_as

_FACTS = statements("facts")
_ID = attrgetter("id")


def find(connection: sqlite3.Connection, pattern: FactPattern) -> list[Fact]:
    """Return the facts that equal a pattern, by id."""
    found = _fetch(connection, _FACTS[_query(pattern)], pattern.model_dump())
    equals = _equal_to(pattern)
    return sorted(filter(equals, _readable(found)), key=_ID)


def _query(pattern: FactPattern) -> str:
    """Return the name of the query for what an index finds of a pattern."""
    if pattern.user is not None:
        more = "" if pattern.agent is None else "_and_agent"
        return f"find_facts_of_user{more}"
    if pattern.subject is not None:
        more = "" if pattern.predicate is None else "_and_predicate"
        return f"find_facts_of_subject{more}"
    return "all_facts" if pattern.object is None else "find_facts_of_object"


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
        if (
            type(fact.id) is type(fact.user) is type(fact.agent) is str
            and type(fact.payload) is dict
        ):
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
    return list(filter(_equal_to(pattern), map(_fact_of, standing)))


def _fact_of(standing: Standing) -> Fact:
    """Return what stands as `fact_from` returns it of its row."""
    act = standing.counted.act
    user, agent = user_and_agent(act.owner)
    return made(
        Fact,
        {
            "id": act.fact_id,
            "user": user,
            "agent": agent,
            "payload": act.payload,
            "lineage": lineage_of(standing),
            "confidence": act.confidence,
            "pinned_at": instant(standing.counted.pinned_at),
            "metadata": metadata_of(act),
        },
    )


def fact_from(row: Sequence[Any]) -> Fact:
    """Return a fact from a row of a query of ``facts``."""
    fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata = row
    return made(
        Fact,
        {
            "id": fact_id,
            "user": user,
            "agent": agent,
            "payload": orjson.loads(payload),
            "lineage": orjson.loads(lineage),
            "confidence": confidence,
            "pinned_at": datetime.fromisoformat(pinned_at),
            "metadata": orjson.loads(metadata),
        },
    )


def _equal_to(pattern: FactPattern) -> Callable[[Fact], bool]:
    """Return what says whether a fact equals a pattern."""
    said = {name: value for name, value in pattern if value is not None}
    owner = [(name, said.pop(name)) for name in ("user", "agent") if name in said]

    def equals(fact: Fact) -> bool:
        # No all(): it takes longer than the rest, and this is done for each row.
        for name, value in owner:
            if getattr(fact, name) != value:
                return False
        for slot, value in said.items():  # noqa: SIM110 # as above
            if fact.payload.get(slot) != value:
                return False
        return True

    return equals
