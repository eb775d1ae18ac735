"""Read which facts of the channels of stages changed after a row of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from slumberd.consolidation.precedence import EXTERNAL, MANUAL_RULE_ID
from slumberd.model.feed import LedgerChanges
from slumberd.model.record import Checkpoint
from slumberd.model.scope import channel_of
from slumberd.model.stages import STAGE_CHANNELS
from slumberd.storage.engine import Session
from slumberd.storage.facts.apply import has_row, head_of
from slumberd.storage.facts.review import CLOCK
from slumberd.storage.ledger.erasure import FORGET
from slumberd.storage.ledger.undo import UNDO

_TELLING = frozenset({MANUAL_RULE_ID, EXTERNAL, UNDO, CLOCK, FORGET})
"""Firings that are no rule's, and whose rows name each fact that they change.

An erasure names none; `read_erasures` returns these.
"""


def read_stage_changes(session: Session, place: Checkpoint | None) -> LedgerChanges:
    """Return which facts changed after a place; None only asks for the last row."""
    now = head_of(session)
    generations = session.rows("ledger.generations")
    generation = generations[0][1] if generations else 0
    if place is None:
        return LedgerChanges(now, generation)
    if not _tells_all(session, place):
        return LedgerChanges(now, generation, known=False)
    rows = session.rows("ledger.rows_of_channels_after", {"after": place.rows})
    found = frozenset(
        text
        for fact_id, replaces, payload in rows
        for text in (fact_id, *_texts_in(replaces), *_texts_in(payload))
        if isinstance(text, str) and text[:1] == "@" and channel_of(text) in STAGE_CHANNELS
    )
    return LedgerChanges(now, generation, found)


def read_erasures(session: Session, after: int) -> dict[int, bytes]:
    """Return the chain hash of each erasure after a row of the ledger, by its row."""
    return dict(session.rows("ledger.erasures_after", {"rule": FORGET, "after": after}))


def _tells_all(session: Session, place: Checkpoint) -> bool:
    """Return whether the ledger has the row of a place, and names each fact that changed since."""
    if not has_row(session, place) or session.value("external_changes.any_change"):
        return False
    rules = session.rows("ledger.rules_after", {"after": place.rows})
    return all(rule[:1] != "@" or rule in _TELLING for (rule,) in rules)


def _texts_in(document: bytes | str | None) -> Iterator[str]:
    """Yield the texts in a JSON document, wherever they stand."""
    waiting: list[Any] = [] if document is None else [orjson.loads(document)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
