"""Rewrite facts after a setting changed: the depth of lineages, or the multi-valued predicates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

import orjson

from slumberd.consolidation.decision import Decision
from slumberd.consolidation.precedence import MultiValued, order_in_change
from slumberd.consolidation.resolution import Resolution
from slumberd.model.firing import CHANNELS, START, Firing, HeldBatch
from slumberd.model.predicates import ChannelPlan
from slumberd.model.record import Outcome
from slumberd.storage.engine import Session
from slumberd.storage.facts.transactions import set_number
from slumberd.storage.ledger.batch import Batch, number
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.storage.ledger.state_loader import LoadedState

_KEYS_PER_BATCH = 2_000
"""Keys whose facts are rewritten, or resolved again, at a time."""

_SHARES = 1_000_000
"""Into how many parts the keys are divided, in the order of `order_in_change`."""


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


def is_set(session: Session, target: MultiValued) -> bool:
    """Return whether a setting of channels is in force for every key."""
    known = channels_at(session)
    return known.former is None and known.channels == target.channels


def change_channels(session: Session, target: MultiValued, depth: int, at: datetime) -> Outcome:
    """Put a setting of channels in force for the next keys, and resolve these again.

    The setting is complete when no key is left; until then `channels_at` returns both settings.

    Args:
        session: In a transaction.
        target: The multi-valued predicates from now on.
        depth: How many replaced assertions a fact's lineage names.
        at: The moment.
    """
    before = channels_at(session)
    keys, after = _next_step(session, before, target)
    firing = Firing(CHANNELS, "", "manual", at, START, START)
    batch = Batch(session, firing, depth, multi=after)
    batch.note = {"multi_valued": after.document()}
    session.do("ledger.add_channels", (batch.number, orjson.dumps(after.document())))
    if after.former is None:
        session.do("ledger.drop_held_batch", {"rule": CHANNELS, "seq": 0})
    batch.loaded.load_in_full(keys)
    resolution = batch.resolution()
    resolution.resolve_again(keys, before)
    return batch.write(Decision.of(resolution, {}))


def _next_step(
    session: Session, before: MultiValued, target: MultiValued
) -> tuple[set[str], MultiValued]:
    """Return the keys to resolve next, and the setting that then holds."""
    former, done = before, 0.0
    if before.former is not None and before.channels == target.channels:
        former, done = before.former, before.share
    changed = _changed_keys(session, former, target)
    found = sorted((order_in_change(key), key) for key in changed)
    left = [(order, key) for order, key in found if order >= done]
    if len(left) <= _KEYS_PER_BATCH:
        return {key for _, key in left}, target
    # Rounded: the ledger keeps this number, and it must not tell which key it is.
    share = math.floor(left[_KEYS_PER_BATCH][0] * _SHARES) / _SHARES
    keys = {key for order, key in left if order < share}
    return keys, MultiValued(target.channels, former, share)


def _changed_keys(session: Session, before: MultiValued, after: MultiValued) -> list[str]:
    return [key for (key,) in session.rows("ledger.keys") if (key in before) != (key in after)]


def plan_channels(session: Session, target: MultiValued, depth: int) -> ChannelPlan | None:
    """Return what a change of the setting would do; None when it is in force. Writes nothing."""
    if is_set(session, target):
        return None
    before = channels_at(session)
    changed = sorted(_changed_keys(session, before, target))
    appear = go = 0
    for first in range(0, len(changed), _KEYS_PER_BATCH):
        keys = set(changed[first : first + _KEYS_PER_BATCH])
        loaded = LoadedState(session, target, depth)
        loaded.load_in_full(keys)
        resolution = Resolution(loaded.known_state, firing=0, at=0)
        resolution.resolve_again(keys, before)
        # A fact that moves to another slot has a row for each.
        gone = {entry.fact_id for entry in resolution.entries if entry.effect == "delete"}
        come = {entry.fact_id for entry in resolution.entries if entry.effect != "delete"}
        appear += len(come - gone)
        go += len(gone - come)
    current: int = session.value("facts.count_facts")
    return ChannelPlan(target.document(), len(changed), appear, go, current)


def hold_channels(
    session: Session, plan: ChannelPlan, problem: str, depth: int, at: datetime
) -> HeldBatch:
    """Let a change of channels await approval, within the caller's transaction.

    A decision about the same change stays; a change of other content replaces what waits.
    """
    known = {row[0]: row for row in session.rows("ledger.held_batches")}.get(CHANNELS)
    if known is not None and known[3] == plan.content_hash:
        _, n, seq, eid, problem, approved = known
        return HeldBatch(CHANNELS, firing_id_of(CHANNELS, n), (seq, eid), problem, bool(approved))
    session.do("ledger.drop_held_batch", {"rule": CHANNELS, "seq": 0})
    batch = Batch(session, Firing(CHANNELS, "", "manual", at, START, START), depth)
    batch.note = {"held": problem, "held_channels": plan.content_hash}
    outcome = batch.write(Decision.of(batch.resolution(), {}))
    entry = (CHANNELS, batch.number, 0, plan.content_hash, problem)
    session.do("ledger.add_held_batch", entry)
    return HeldBatch(CHANNELS, outcome.firing_id, (0, plan.content_hash), problem, approved=False)
