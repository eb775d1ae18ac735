"""Count the rows of the ledger by firing, kind and owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

import orjson

from slumberd.model.episode import instant
from slumberd.model.record import ChangeGroup, GroupedChanges
from slumberd.model.stages import MARK_IDS
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.rows import KINDS, has_known_owner, owner_in

_ERASURE = "@erasure"
_UNKNOWN = ("", "")


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
