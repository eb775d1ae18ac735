"""Rewrite facts after a setting changed: the depth of lineages, or the multi-valued predicates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import orjson

from slumberd.consolidation.decision import Decision
from slumberd.consolidation.precedence import MultiValued
from slumberd.model.firing import START, Firing
from slumberd.model.record import Outcome
from slumberd.storage.engine import Session
from slumberd.storage.facts.transactions import set_number
from slumberd.storage.ledger.batch import Batch, number
from slumberd.storage.ledger.history import channels_at

_KEYS_PER_BATCH = 2_000
"""Keys whose facts are rewritten at a time."""


def rewrite_lineages(session: Session, depth: int, at: datetime) -> int:
    """Rewrite every fact when its lineage has another depth, within the caller's transaction.

    Returns:
        How many keys there are; 0 when the depth is unchanged.
    """
    if number(session, "depth") == depth:
        return 0
    keys = [row[0] for row in session.rows("ledger.keys")]
    for first in range(0, len(keys), _KEYS_PER_BATCH):
        _rewrite(session, keys[first : first + _KEYS_PER_BATCH], depth, at)
    set_number(session, "depth", depth)
    return len(keys)


def _rewrite(session: Session, keys: Sequence[str], depth: int, at: datetime) -> None:
    firing = Firing("@lineage", "", "manual", at)
    batch = Batch(session, firing, depth)
    batch.note = {"lineage_depth": depth}
    batch.loaded.load_in_full(set(keys))
    resolution = batch.resolution()
    resolution.rewrite_facts()
    batch.write(Decision.of(resolution, {}))


def change_channels(session: Session, after: MultiValued, depth: int, at: datetime) -> Outcome:
    """Store which predicates are multi-valued, and resolve the keys that this changes.

    Args:
        session: In a transaction.
        after: The multi-valued predicates from now on.
        depth: How many replaced assertions a fact's lineage names.
        at: The moment.
    """
    before = channels_at(session)
    firing = Firing("@channels", "", "manual", at, START, START)
    batch = Batch(session, firing, depth, multi=after)
    channels = {name: sorted(predicates) for name, predicates in after.channels.items()}
    batch.note = {"multi_valued": channels}
    session.do("ledger.add_channels", (batch.number, orjson.dumps(channels)))
    keys = {key for (key,) in session.rows("ledger.keys") if (key in before) != (key in after)}
    batch.loaded.load_in_full(keys)
    resolution = batch.resolution()
    resolution.resolve_again(keys, before)
    return batch.write(Decision.of(resolution, {}))
