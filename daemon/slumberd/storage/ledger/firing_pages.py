"""Read the firings of a ledger, newest first, and what undid each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice, takewhile
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.graph_promotion import ledger_rule_id
from slumberd.model.episode import instant, microseconds
from slumberd.model.firing import Counts
from slumberd.model.record import FiringPlace, Kind, Record, RecordedFiring
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.rows import EVENTS, KINDS, firing_id_of, record_from
from slumberd.storage.ledger.undo import UNDO, find_firing, undoings_in_force

_RESTORED = EVENTS.index("restored")
_NAMES: dict[Kind, str] = {
    "add": "added",
    "update": "updated",
    "delete": "deleted",
    "noop": "noop",
    "quarantine": "quarantined",
}
"""The name of each kind of row in `Counts`."""


class _Found(NamedTuple):
    """A firing as stored, and the document of its own row."""

    number: int
    rule_id: str
    trigger: str
    at: int
    last_seq: int
    channels: Mapping[str, Mapping[str, int]]
    document: Mapping[str, Any]

    @property
    def id(self) -> str:
        return firing_id_of(self.rule_id, self.number)


def firings_before(
    session: Session,
    place: FiringPlace,
    *,
    rule_id: str | None,
    run: str | None,
    since: datetime | None,
    limit: int,
) -> list[RecordedFiring]:
    """Return firings before a place, newest first.

    Args:
        session: Inside a snapshot.
        place: Where to begin.
        rule_id: Only firings of this rule, for episodes and for a graph; None for all.
        run: Only firings of this run; None for all.
        since: Only firings from this instant on; None for all.
        limit: At most this many.
    """
    if run is None:
        values = {"before": place.number, "upto": place.at, "limit": limit}
        rows = _rows_before(session, values, rule_id)
    else:
        rows = _rows_of_run(session, place, run, rule_id)
    if since is not None:
        first = microseconds(since)
        rows = takewhile(lambda row: row[3] >= first, rows)  # instants never decrease
    found = [_found_from(row) for row in islice(rows, limit)]
    undone = _find_undone(session, found)
    counts = _counts_of(session, found)
    return [_recorded(each, counts[each.number], undone.get(each.id, "")) for each in found]


def _rows_before(session: Session, values: dict[str, int], rule_id: str | None) -> Iterable[Row]:
    if rule_id is None:
        return session.rows("ledger.firings_before", values)
    each = [
        session.rows("ledger.firings_of_rule_before", {**values, "rule": rule})
        for rule in (rule_id, ledger_rule_id(rule_id))
    ]
    return merge(*each, key=lambda row: row[0], reverse=True)


def _rows_of_run(
    session: Session, place: FiringPlace, run: str, rule_id: str | None
) -> Iterator[Row]:
    values = {"before": place.number, "upto": place.at, "run": run}
    rows = session.stream("ledger.firings_of_run_before", values)
    if rule_id is None:
        return rows
    rules = {rule_id, ledger_rule_id(rule_id)}
    return (row for row in rows if row[1] in rules)


def _found_from(row: Row) -> _Found:
    number, rule_id, trigger, at, last_seq, counts, payload = row
    return _Found(number, rule_id, trigger, at, last_seq, _document(counts), _document(payload))


def _document(stored: bytes | None) -> dict[str, Any]:
    """Return a JSON object; empty when another program has left anything else."""
    try:
        document = orjson.loads(stored or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _find_undone(session: Session, firings: Sequence[_Found]) -> dict[str, str]:
    """Return the firing that undid each firing that is undone now, by id."""
    if not firings:
        return {}
    values = {"undo": UNDO, "after": firings[-1].number}
    return undoings_in_force(session.stream("ledger.undone_after", values), UNDO)


def _counts_of(session: Session, firings: Sequence[_Found]) -> dict[int, Counts]:
    """Return the counts of each firing, by its number.

    Edits and undos have no counts by channel, so their rows are counted.
    """
    found = {each.number: _sum_channels(each.channels) for each in firings}
    numbers = [each.number for each in firings if not each.channels and each.last_seq > each.number]
    kinds: dict[int, Counter[str]] = {number: Counter() for number in numbers}
    for number, event, kind, count in session.rows("ledger.kinds_in_firings", {"numbers": numbers}):
        name = "restored" if event == _RESTORED else _NAMES.get(KINDS[kind])
        if name is not None:
            kinds[number][name] += count
    return found | {number: Counts(**counted) for number, counted in kinds.items()}


def _sum_channels(channels: Mapping[str, Mapping[str, int]]) -> Counts:
    total: Counter[str] = Counter()
    for counts in channels.values():
        total.update(counts)
    return Counts(**total)


def _recorded(found: _Found, counts: Counts, undone_by: str) -> RecordedFiring:
    document = found.document
    return RecordedFiring(
        number=found.number,
        firing_id=found.id,
        rule_id=found.rule_id,
        at=instant(found.at),
        trigger=found.trigger,
        by=document.get("by", ""),
        reason=document.get("reason", ""),
        counts=counts,
        run=document.get("run", ""),
        undone_by=undone_by,
        undoes=document.get("undoes", ""),
    )


def records_of_firing(
    session: Session, firing_id: str, *, after: int, limit: int
) -> list[Record] | None:
    """Return the rows that a firing wrote, after a number, without its own row.

    Returns:
        The rows, oldest first; None when the ledger does not have the firing.
    """
    found = find_firing(session, firing_id)
    if found is None:
        return None
    values = {"firing": found[1], "after": after, "limit": limit}
    return [record_from(row) for row in session.rows("ledger.records_of_firing", values)]
