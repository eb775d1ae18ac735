"""Compute the facts that were current at an instant, from the claims of the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import orjson

from slumberd.consolidation.precedence import Evaluation, MultiValued
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.model.scope import escape
from slumberd.sql_statements import statements
from slumberd.storage.ledger.rows import evaluation_from, evaluations_from
from slumberd.storage.ledger.state_loader import whole_known_state

_SQL = statements("ledger")
_EVERYTHING = 2**63 - 1


def channels_at(connection: sqlite3.Connection, seq: int = _EVERYTHING) -> MultiValued:
    """Return the predicates that were multi-valued when a ledger row was written."""
    row = connection.execute(_SQL["channels"], (seq,)).fetchone()
    return MultiValued(orjson.loads(row[0]) if row else {})


def seq_at(connection: sqlite3.Connection, believed_at: int | None) -> int:
    """Return the number of the last ledger row at an instant in microseconds."""
    if believed_at is None:
        return _EVERYTHING
    # Instants never decrease, so the query finds the last firing from the end.
    found = connection.execute(_SQL["last_seq_by"], (believed_at,)).fetchone()
    return found[0] if found else 0


def facts_at(
    connection: sqlite3.Connection,
    *,
    user: str | None,
    depth: int,
    valid_at: int | None = None,
    believed_at: int | None = None,
) -> list[CurrentFact]:
    """Return the facts that were current, of one user or of all, by fact id.

    Args:
        connection: Inside a snapshot.
        user: The user; None for all users.
        depth: Links of lineage.
        valid_at: Claims later than this instant, in microseconds, do not count.
        believed_at: Rows recorded after this instant, in microseconds, do not count.
    """
    upto = seq_at(connection, believed_at)
    evaluations, referrers = _known(connection, user, upto)
    multi = channels_at(connection, upto)
    known_state = whole_known_state(evaluations, referrers, multi, depth, until=valid_at)
    return sorted(current_facts_on(known_state), key=lambda fact: fact.fact_id)


def _known(
    connection: sqlite3.Connection, user: str | None, upto: int
) -> tuple[dict[str, list[Evaluation]], list[tuple[str, str]]]:
    if user is None:
        evaluations = evaluations_from(connection.execute(_SQL["all_evaluations"], {"upto": upto}))
    else:
        evaluations = _known_of(connection, user, upto)
    parameters = {"ids": orjson.dumps(list(evaluations)).decode()}
    return evaluations, connection.execute(_SQL["referrers"], parameters).fetchall()


def _known_of(connection: sqlite3.Connection, user: str, upto: int) -> dict[str, list[Evaluation]]:
    low = f"{escape(user)}/"
    between = {"low": low, "high": f"{low[:-1]}0", "upto": upto}
    found: dict[str, list[Evaluation]] = {}
    again: set[str] = set()
    for *evaluation, others in connection.execute(_SQL["evaluations_between"], between):
        if others:
            again.add(evaluation[0])
        else:
            found[evaluation[0]] = [evaluation_from(evaluation)]
    if again:
        parameters = {"ids": orjson.dumps(list(again)).decode()}
        rows = connection.execute(_SQL["evaluations"], parameters)
        # Rows after that instant must not count: an undo among them has no effect yet.
        found |= evaluations_from(row for row in rows if row[1] <= upto)
    return found


def current_facts_on(known_state: KnownState) -> Iterator[CurrentFact]:
    """Yield the current facts of every fully loaded key."""
    for key in known_state.complete_keys:
        for slot, top in known_state.current_assertions(key).items():
            yield known_state.current(key, slot, top)
