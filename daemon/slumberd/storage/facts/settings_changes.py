"""Rewrite facts after a change of lineage depth, of multi-valued predicates, or of the law."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter

import orjson

from slumberd.consolidation.decision import Decision
from slumberd.consolidation.precedence import MultiValued
from slumberd.model.firing import START, Firing
from slumberd.model.record import Outcome
from slumberd.storage.engine import Row, Session
from slumberd.storage.facts.transactions import set_number
from slumberd.storage.ledger.batch import Batch, number
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.ledger_end import LAW_RULE_ID, law_at
from slumberd.storage.ledger.state_loader import LoadedState, summary_rows

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


def change_law(session: Session, law: int, depth: int, at: datetime) -> Outcome:
    """Record a new law, and resolve the keys of which it makes something else, in one firing.

    Args:
        session: In a transaction.
        law: The number of the law from now on.
        depth: How many replaced assertions a fact's lineage names.
        at: The moment.
    """
    multi, former = channels_at(session), law_at(session)
    changed = _find_changed_keys(session, multi, depth, (former, law))
    batch = Batch(session, Firing(LAW_RULE_ID, "", "manual", at, START, START), depth, law=law)
    batch.loaded.load_in_full(changed)
    resolution = batch.resolution()
    resolution.resolve_again(changed, multi, former)
    return batch.write(Decision.of(resolution, {}))


def _find_changed_keys(
    session: Session, multi: MultiValued, depth: int, laws: tuple[int, int]
) -> set[str]:
    """Return the keys whose stored summaries differ between two laws, read a part at a time."""
    keys = [key for (key,) in session.rows("ledger.keys")]
    found: set[str] = set()
    for first in range(0, len(keys), _KEYS_PER_BATCH):
        former, latter = (LoadedState(session, multi, depth, law) for law in laws)
        some = keys[first : first + _KEYS_PER_BATCH]
        for loaded in (former, latter):
            loaded.load_in_full(set(some))
        found |= {key for key in some if _summary(former, key) != _summary(latter, key)}
    return found


def _summary(loaded: LoadedState, key: str) -> list[Row]:
    return sorted(summary_rows(loaded.known_state, key, loaded.key_ids[key]), key=itemgetter(1))


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
