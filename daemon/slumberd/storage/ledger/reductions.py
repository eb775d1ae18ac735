"""Count how many facts went since an instant, whatever caused it."""

from __future__ import annotations

from contextlib import suppress

import orjson

from slumberd.consolidation.claim import user_and_agent
from slumberd.model.record import FiringGrowth, Shrinkage, shrinkage_of
from slumberd.storage.engine import Session

REMOVED = "removed"
"""The key of the number of removed facts in the document of an erasure."""


def read_shrinkage(session: Session, since: int) -> Shrinkage:
    """Return how the number of facts changed since an instant, microseconds since 1970 UTC."""
    now: dict[str, int] = dict(session.rows("inspection.facts_by_user"))
    found = session.one("inspection.first_firing_since", {"since": since})
    if found is None:
        return shrinkage_of(now, ())
    first = {"first": found[0]}
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
