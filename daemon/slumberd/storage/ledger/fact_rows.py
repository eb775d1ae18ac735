"""Find facts by an exact pattern, and read rows of ``facts``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

import orjson

from slumberd.consolidation.claim import user_and_agent
from slumberd.consolidation.state import CurrentFact
from slumberd.model.construct import construct
from slumberd.model.episode import instant
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.stages import MARK_IDS
from slumberd.storage.engine import Session
from slumberd.storage.ledger.batch import lineage_of, metadata_of

_ID = attrgetter("id")

SPECIFIED = frozenset(("subject", "predicate", "object", "user", "agent"))
"""The slots that the specification has."""


def find(session: Session, pattern: FactPattern) -> list[Fact]:
    """Return the facts that equal a pattern, by id, without marks.

    Args:
        session: To the facts.
        pattern: `is_specified` is true of it.
    """
    wanted = {slot: text for slot in SPECIFIED if (text := getattr(pattern, slot)) is not None}
    found = session.rows(f"facts.{_query(wanted)}", wanted)
    return sorted(filter(_equal_to(wanted), readable_facts(found)), key=_ID)


def is_specified(pattern: FactPattern) -> bool:
    """Return whether a pattern has only the specified slots, each with a text.

    A text with NUL is excluded: some versions of SQLite do not read it from JSON to its end.
    """
    given = pattern.model_fields_set
    return given <= SPECIFIED and all(
        text is None or (type(text) is str and "\0" not in text)
        for text in (getattr(pattern, slot) for slot in given)
    )


def _query(wanted: Mapping[str, str]) -> str:
    """Return the name of the query that finds a pattern by an index."""
    if "user" in wanted:
        return f"find_facts_of_user{'_and_agent' if 'agent' in wanted else ''}"
    if "subject" in wanted:
        return f"find_facts_of_subject{'_and_predicate' if 'predicate' in wanted else ''}"
    return "find_facts_of_object" if "object" in wanted else "all_facts"


def readable_facts(rows: Iterable[Sequence[Any]]) -> Iterator[Fact]:
    """Yield the facts of rows, without unreadable rows of other programs."""
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


_instant = lru_cache(maxsize=1_024)(instant)
"""The same, remembered: all facts of a firing have one instant."""


def fact_of(current: CurrentFact) -> Fact:
    """Return a current fact, equal to `fact_from` of its row."""
    claim = current.effective.claim
    user, agent = user_and_agent(claim.owner)
    return construct(
        Fact,
        {
            "id": claim.fact_id,
            "user": user,
            "agent": agent,
            "payload": claim.payload,
            "lineage": lineage_of(current),
            "confidence": claim.confidence,
            "pinned_at": _instant(current.effective.pinned_at),
            "metadata": metadata_of(claim),
        },
    )


def fact_from(row: Sequence[Any]) -> Fact:
    """Return a fact from a row of a query of ``facts``."""
    fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata = row
    return construct(
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


def _equal_to(slots: Mapping[str, str]) -> Callable[[Fact], bool]:
    """Return a test whether a fact equals a pattern."""
    payload = dict(slots)
    owner = [(name, payload.pop(name)) for name in ("user", "agent") if name in payload]

    def equals(fact: Fact) -> bool:
        if fact.id.startswith(MARK_IDS):
            return False
        # Not all(): it takes longer than the rest, and this runs for each row.
        for name, value in owner:
            if getattr(fact, name) != value:
                return False
        for slot, value in payload.items():  # noqa: SIM110 # as above
            if fact.payload.get(slot) != value:
                return False
        return True

    return equals
