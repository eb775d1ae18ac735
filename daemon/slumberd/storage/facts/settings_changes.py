"""Rewrite facts after a change of lineage depth, of multi-valued predicates, or of the law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter

import orjson

from slumberd.consolidation.precedence import MultiValued, order_in_change
from slumberd.consolidation.resolution import Decision, Resolution
from slumberd.model.firing import CHANNELS, START, Firing, HeldBatch, HeldScope, Outcome
from slumberd.model.predicates import ChannelPlan
from slumberd.storage.engine import Row, Session
from slumberd.storage.facts.apply import set_number
from slumberd.storage.facts.review import hold_batch, read_held
from slumberd.storage.ledger.batch import Batch, number
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.state_loader import LAW_RULE_ID, LoadedState, law_at, summary_rows

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


def change_law(session: Session, law: int, depth: int, at: datetime) -> Outcome:
    """Record a new law, and resolve the keys of which it makes something else, in one firing.

    Args:
        session: In a transaction.
        law: The number of the law from now on.
        depth: How many replaced assertions a fact's lineage names.
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
    before, law = channels_at(session), law_at(session)
    changed = sorted(_changed_keys(session, before, target))
    appear = go = 0
    for first in range(0, len(changed), _KEYS_PER_BATCH):
        keys = set(changed[first : first + _KEYS_PER_BATCH])
        loaded = LoadedState(session, target, depth, law)
        loaded.load_in_full(keys)
        resolution = Resolution(loaded.known_state, firing=0, at=0)
        resolution.resolve_again(keys, before)
        # A fact that moves to another slot has a row for each.
        gone = {entry.fact_id for entry in resolution.entries if entry.effect == "delete"}
        come = {entry.fact_id for entry in resolution.entries if entry.effect != "delete"}
        appear += len(come - gone)
        go += len(gone - come)
    current: int = session.value("facts.count_limited_facts")
    return ChannelPlan(target.document(), len(changed), appear, go, current)


def hold_channels(
    session: Session, plan: ChannelPlan, problem: str, depth: int, at: datetime
) -> HeldBatch:
    """Let a change of channels await approval, within the caller's transaction.

    A decision about the same change stays while no more facts would go. Another change, or one
    that deletes more, replaces what waits.
    """
    known = read_held(session).get(CHANNELS)
    if known is not None and known.permits(plan.content_hash, plan.impact):
        return known
    session.do("ledger.drop_held_batch", {"rule": CHANNELS, "seq": 0})
    firing = Firing(CHANNELS, plan.content_hash, "manual", at, START, START)
    hold_batch(session, firing, problem, HeldScope(), plan.impact, depth)
    return read_held(session)[CHANNELS]
