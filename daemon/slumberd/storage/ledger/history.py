"""Compute the facts that were current at an instant, from the claims of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import orjson

from slumberd.consolidation.precedence import Evaluation, MultiValued
from slumberd.consolidation.state import CurrentFact, KnownState
from slumberd.model.scope import escape
from slumberd.storage.engine import Session
from slumberd.storage.ledger.arrivals import arrivals_in, first_row_of
from slumberd.storage.ledger.rows import evaluation_from, evaluations_from
from slumberd.storage.ledger.state_loader import law_at, whole_known_state

_EVERYTHING = 2**63 - 1


def channels_at(session: Session, seq: int = _EVERYTHING) -> MultiValued:
    """Return the predicates that were multi-valued when a ledger row was written."""
    row = session.one("ledger.channels", (seq,))
    return MultiValued.from_document(orjson.loads(row[0]) if row else {})


def seq_at(session: Session, believed_at: int | None) -> int:
    """Return the number of the last ledger row at an instant in microseconds."""
    if believed_at is None:
        return _EVERYTHING
    # Instants never decrease, so the query finds the last firing from the end.
    found = session.one("ledger.last_seq_by", (believed_at,))
    return found[0] if found else 0


def facts_at(
    session: Session,
    *,
    user: str | None,
    depth: int,
    valid_at: int | None = None,
    believed_at: int | None = None,
) -> list[CurrentFact]:
    """Return the facts that were current, of one user or of all, by fact id.

    Args:
        session: Inside a snapshot.
        user: The user; None for all users.
        depth: Links of lineage.
        valid_at: Claims later than this instant, in microseconds, do not count.
        believed_at: Rows recorded after this instant, in microseconds, do not count.
    """
    found: list[CurrentFact] = []
    for part in _parts_at(session, user, believed_at):
        evaluations, referrers = _known(session, user, part)
        multi, law = channels_at(session, part.upto), law_at(session, part.upto)
        state = whole_known_state(evaluations, referrers, multi, depth, law=law, until=valid_at)
        found += current_facts_on(state)
    return sorted(found, key=lambda fact: fact.fact_id)


class _Part(NamedTuple):
    """Rows that were recorded by an instant, from the first to the last."""

    first: int
    upto: int


def _parts_at(session: Session, user: str | None, believed_at: int | None) -> list[_Part]:
    """Return the rows that were recorded by an instant: those of a user, or of all.

    The rows of a user who came later than the instant were recorded in another shard.
    """
    upto = seq_at(session, believed_at)
    own = _Part(0, upto)
    if believed_at is None:
        return [own]
    moved = [
        (arrival, _Part(arrival.first, _last_moved_by(session, arrival.first, n, believed_at)))
        for n, arrival in arrivals_in(session)
        if n > upto
    ]
    if user is None:
        return [own, *(part for _, part in moved)]
    first = first_row_of(session, user) if moved else None
    later = [part for arrival, part in moved if arrival.first <= (first or 0)]
    # The newest of them comes first; the user came with the newest that begins before the row.
    return [later[0]] if first is not None and first > upto and later else [own]


def _last_moved_by(session: Session, first: int, arrival: int, believed_at: int) -> int:
    values = {"first": first, "arrival": arrival, "at": believed_at}
    found = session.one("ledger.last_moved_by", values)
    return found[0] if found else 0


def _known(
    session: Session, user: str | None, part: _Part
) -> tuple[dict[str, list[Evaluation]], list[tuple[str, str]]]:
    if user is None:
        parameters = {"first": part.first, "upto": part.upto}
        evaluations = evaluations_from(session.stream("ledger.all_evaluations", parameters))
    else:
        evaluations = _known_of(session, user, part.upto)
    names = {"values": list(evaluations)}
    return evaluations, session.rows("ledger.referrers", names)


def _known_of(session: Session, user: str, upto: int) -> dict[str, list[Evaluation]]:
    low = f"{escape(user)}/"
    between = {"low": low, "high": f"{low[:-1]}0", "upto": upto}
    found: dict[str, list[Evaluation]] = {}
    again: set[str] = set()
    for *evaluation, others in session.stream("ledger.evaluations_between", between):
        if others:
            again.add(evaluation[0])
        else:
            found[evaluation[0]] = [evaluation_from(evaluation)]
    if again:
        parameters = {"values": list(again)}
        rows = session.stream("ledger.evaluations", parameters)
        # Rows after that instant must not count: an undo among them has no effect yet.
        found |= evaluations_from(row for row in rows if row[1] <= upto)
    return found


def current_facts_on(known_state: KnownState) -> Iterator[CurrentFact]:
    """Yield the current facts of every fully loaded key."""
    for key in known_state.complete_keys:
        for slot, top in known_state.current_assertions(key):
            yield known_state.current(key, slot, top)
