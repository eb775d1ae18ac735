"""Read and count what firings recorded: pages of them, their rows, and what rules read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from heapq import merge
from itertools import islice, takewhile
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import user_and_agent
from slumberd.consolidation.graph_promotion import ledger_rule_id
from slumberd.model.episode import instant, microseconds
from slumberd.model.firing import Counts, Kind, Record
from slumberd.model.record import (
    ChangeGroup,
    FiringGrowth,
    FiringPlace,
    GroupedChanges,
    RecordedFiring,
    Retraction,
    Shrinkage,
    shrinkage_of,
)
from slumberd.model.stages import MARK_IDS, STAGE_CHANNELS
from slumberd.model.store_status import LATEST, Readings, Share
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.batch import GENERATION_BITS
from slumberd.storage.ledger.rows import (
    EVENTS,
    KINDS,
    firing_id_of,
    has_known_owner,
    owner_in,
    record_from,
)
from slumberd.storage.ledger.undo import UNDO, find_firing, undoings_in_force

_ERASURE = "@erasure"

_UNKNOWN = ("", "")

REMOVED = "removed"
"""The key of the number of removed facts in the document of an erasure."""

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


def records_after(session: Session, after: int, limit: int) -> list[Record]:
    """Return the ledger rows after a number, oldest first."""
    found = session.rows("ledger.records", {"after": after, "limit": limit})
    return [record_from(row) for row in found]


def group_changes(
    session: Session, after: int, *, limit: int, upto: int | None = None
) -> GroupedChanges:
    """Return the rows after a number, in groups.

    Args:
        session: Inside a snapshot.
        after: The number of the last row of a firing; 0 for all rows.
        limit: About how many rows are read; the firing that the last of them is of is read whole.
        upto: The number of the last row of a firing; no later rows are read. None for all.
    """
    erasure = session.value("ledger.last_of_firings", (_ERASURE,)) or 0
    found = session.one("ledger.end_of_firing", (after + limit,))
    last = max(after, found[0]) if found else after
    if upto is not None:
        last = min(last, upto)
    rows = session.stream("ledger.owned_rows", {"after": after, "upto": last})
    counted = Counter(_groups_of(rows))
    groups = [
        ChangeGroup(firing, rule_id, _instant(at), KINDS[kind], marks, user, agent, count)
        for (firing, rule_id, at, kind, marks, (user, agent)), count in counted.items()
    ]
    return GroupedChanges(groups, last, erasure)


def _groups_of(rows: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    """Yield the group of each row."""
    by_key: dict[int, tuple[str, str]] = {}
    for firing, rule_id, at, kind, reason, fact_id, sibling, payload, key_id in rows:
        stored = sibling or payload
        if not stored or not has_known_owner(fact_id, reason):
            owner = _UNKNOWN
        elif key_id is None:
            owner = owner_in(orjson.loads(stored))
        else:
            # A key is of one user and agent, and has many rows: reading each takes longest.
            owner = by_key.get(key_id) or owner_in(orjson.loads(stored))
            by_key[key_id] = owner
        marks = fact_id is not None and fact_id.startswith(MARK_IDS)
        yield firing, rule_id, at, kind, marks, owner


@lru_cache(maxsize=1_024)
def _instant(at: int) -> datetime:
    return instant(at)


_LAST = 2**63 - 1
_MOST_RETRACTIONS = 10_000
_LOG_NUMBER = (1 << GENERATION_BITS) - 1


class _Batches(NamedTuple):
    """The last batches of a rule.

    Attributes:
        places: The number of each batch's own row, and of its last row.
        upto: The number of the last log row that they read.
        filtered: How many versions the filter did not select.
    """

    places: list[tuple[int, int]]
    upto: int
    filtered: int


def readings_of(session: Session, rule_ids: Iterable[str]) -> dict[str, Readings]:
    """Return the latest readings of rules that have fired, by rule.

    Args:
        session: Inside a snapshot.
        rule_ids: The rules, as the ledger names them.
    """
    found = {rule_id: _read(session, _last_batches(session, rule_id)) for rule_id in rule_ids}
    return {rule_id: readings for rule_id, readings in found.items() if readings.read}


def share_of(session: Session, rule_ids: Iterable[str]) -> Share:
    """Return how many of the last episodes that some rules read became facts.

    Args:
        session: Inside a snapshot.
        rule_ids: The rules, as the ledger names them.
    """
    batches = [_last_batches(session, rule_id) for rule_id in rule_ids]
    places = [place for one in batches for place in one.places]
    if not places:
        return Share()
    newest = max(one.upto for one in batches)
    rows = session.rows("ledger.learned_versions", {"batches": places})
    learned = {version & _LOG_NUMBER for (version,) in rows}
    first = max(0, newest - LATEST)
    return Share(newest - first, sum(first < version <= newest for version in learned))


def _last_batches(session: Session, rule_id: str) -> _Batches:
    """Return the last batches of a rule that together read `LATEST` versions."""
    places: list[tuple[int, int]] = []
    read = filtered = newest = 0
    rows = session.rows("ledger.latest_batches", {"rule": rule_id, "limit": LATEST})
    for number, last, upto, counts in rows:
        channels = orjson.loads(counts)
        of_facts = [each for name, each in channels.items() if name not in STAGE_CHANNELS]
        if not of_facts:
            continue  # a batch that marks episodes
        # Each channel counts every version, and every further claim of one.
        filtered += max(each["filtered"] for each in of_facts)
        read += max(each["read"] for each in of_facts)
        newest = max(newest, upto)
        places.append((number, last))
        if read >= LATEST:
            break
    return _Batches(places, newest, filtered)


def _read(session: Session, batches: _Batches) -> Readings:
    if not batches.places:
        return Readings()
    rows = session.rows("ledger.readings", {"batches": batches.places})
    evaluated, learned, said_nothing, quarantined = map(int, rows[0])
    unchanged = evaluated - learned - said_nothing - quarantined
    read, filtered = evaluated + batches.filtered, batches.filtered
    return Readings(read, learned, said_nothing, filtered, quarantined, unchanged)


def read_retractions(session: Session, after: int) -> list[Retraction]:
    """Return what each firing retracted whose own row is after a number, oldest first."""
    values = {"before": _LAST, "upto": _LAST, "limit": _MOST_RETRACTIONS}
    rows = session.rows("ledger.firings_before", values)
    found = [_found_from(row) for row in takewhile(lambda row: row[0] > after, rows)]
    counts = _counts_of(session, [_without_marks(each) for each in found])
    return [
        Retraction(each.id, each.rule_id, each.document.get("run", ""), deleted)
        for each in reversed(found)
        if (deleted := counts[each.number].deleted)
    ]


def _without_marks(found: _Found) -> _Found:
    """Return a firing without the counts of the channels of stages."""
    kept = {name: each for name, each in found.channels.items() if name not in STAGE_CHANNELS}
    return found._replace(channels=kept or {name: {} for name in found.channels})


def read_shrinkage(session: Session, since: int) -> Shrinkage:
    """Return how the number of facts changed since an instant, microseconds since 1970 UTC."""
    now: dict[str, int] = dict(session.rows("inspection.facts_by_user"))
    found = session.one("inspection.first_firing_since", {"since": since})
    if found is None:
        return shrinkage_of(now, ())
    first = {"first": found[0]}
    if not session.value("inspection.any_loss", first):
        return shrinkage_of(now, ())  # no user had more facts than now
    changes = [
        FiringGrowth(firing, _user_of(of_payload, owner, of_fact), asserted - removed)
        for firing, of_payload, owner, of_fact, asserted, removed in session.rows(
            "inspection.changes_by_user", first
        )
    ]
    for seq, payload in session.rows("inspection.erasures_since", first):
        with suppress(orjson.JSONDecodeError, AttributeError, TypeError):
            changes.append(FiringGrowth(seq, "", -int(orjson.loads(payload).get(REMOVED, 0))))
    return shrinkage_of(now, changes)


def _user_of(of_payload: object, owner: object, of_fact: object) -> str:
    """Return whose a change is; an empty text when that is unknown or erased."""
    if isinstance(of_payload, str):
        return of_payload
    if isinstance(owner, str) and owner.count("/") > 1:
        return user_and_agent(owner)[0]
    return of_fact if isinstance(of_fact, str) else ""
