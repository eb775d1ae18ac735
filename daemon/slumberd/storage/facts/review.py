"""Hold back a batch over a deletion limit, record the decision about it, and clear quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from slumberd.consolidation.claim import user_and_agent
from slumberd.consolidation.decision import Decision
from slumberd.model.firing import CHANNELS, START, Firing, HeldBatch, Position
from slumberd.model.record import Outcome
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.batch import Batch


def hold_batch(session: Session, firing: Firing, problem: str, depth: int) -> Outcome:
    """Leave a batch unwritten and its watermark in place until a person decides.

    Args:
        session: In a transaction.
        firing: The batch's.
        problem: Why it is held back.
        depth: How many replaced assertions a fact's lineage names.
    """
    unmoved = replace(firing, upto=firing.after)
    batch = Batch(session, unmoved, depth)
    batch.note = {"held": problem, "held_upto": firing.upto.seq}
    outcome = batch.write(Decision.of(batch.resolution(), {}))
    session.do("ledger.add_held_batch", (firing.rule_id, batch.number, *firing.upto, problem))
    held = HeldBatch(firing.rule_id, outcome.firing_id, firing.upto, problem, approved=False)
    return replace(outcome, held=held)


def record_decision(  # noqa: PLR0913 # the fields of its ledger row
    session: Session,
    held: HeldBatch,
    *,
    approve: bool,
    at: datetime,
    by: str,
    depth: int,
    reason: str = "",
) -> Firing:
    """Record the decision about a held batch, within the caller's transaction.

    Returns:
        The firing; a rejected batch's watermark still has to move to its ``upto``.
    """
    watermark = START
    if held.rule_id != CHANNELS:
        [mark] = session.rows("ledger.watermark", (held.rule_id,))
        watermark = Position(*mark)
    upto = watermark if approve else Position(*held.upto)
    firing = Firing(held.rule_id, "", "manual", at, watermark, upto, by, reason=reason)
    batch = Batch(session, firing, depth)
    batch.note = {"approves" if approve else "rejects": held.firing_id}
    batch.write(Decision.of(batch.resolution(), {}))
    if approve:
        session.do("ledger.approve_held_batch", (held.rule_id,))
    elif held.rule_id == CHANNELS:
        session.do("ledger.drop_held_batch", {"rule": CHANNELS, "seq": 0})
    return firing


_ENTRY = ("rule_id", "channel", "episode_id", "reason", "detail", "seq")
"""The columns of an entry of the quarantine."""


def list_quarantine(session: Session) -> list[dict[str, Any]]:
    """Return the quarantined episodes, by rule, channel and id."""
    found = session.rows("ledger.list_quarantine")
    return [dict(zip(_ENTRY, row, strict=True)) for row in found]


def read_quarantine_page(
    session: Session,
    rule: str | None,
    after: tuple[str, str, str] | None,
    limit: int,
    episodes: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Return a page of the quarantined episodes, by rule, channel and id.

    Args:
        session: A session of the facts.
        rule: Only entries of this rule; None for all.
        after: Rule, channel and episode of the entry before the page; None for the first page.
        limit: At most this many.
        episodes: Only entries of these episodes, which needs a rule; None for all.
    """
    last_rule, channel, eid = after or ("", "", "")
    values = {"rule": last_rule, "channel": channel, "eid": eid, "limit": limit}
    if rule is None:
        found = session.rows("ledger.quarantine_after", values)
    elif episodes is None:
        found = session.rows("ledger.quarantine_of_rule_after", {**values, "rule": rule})
    else:
        of_episodes = {**values, "rule": rule, "ids": [*episodes]}
        found = session.rows("ledger.quarantine_of_episodes_after", of_episodes)
    return [_entry_with_owner(row) for row in found]


def _entry_with_owner(row: Row) -> dict[str, Any]:
    """Return an entry, and whose the episode is; a scope that cannot be read belongs to nobody."""
    *entry, owner = row
    user, agent = user_and_agent(owner) if owner.count("/") > 1 else ("", "")
    return {**dict(zip(_ENTRY, entry, strict=True)), "user": user, "agent": agent}


def drop_entries(
    session: Session,
    entries: Sequence[Mapping[str, Any]],
    *,
    at: datetime,
    by: str,
    depth: int,
    reason: str = "",
) -> Outcome:
    """Remove entries from the quarantine, within the caller's transaction."""
    firing = Firing("@quarantine", "", "manual", at, by=by, reason=reason)
    batch = Batch(session, firing, depth)
    rows = sorted(entry["seq"] for entry in entries)
    batch.note = {"dropped": len(entries), "rows": rows}
    names = [(entry["rule_id"], entry["channel"], entry["episode_id"]) for entry in entries]
    session.do_each("ledger.drop_quarantine", names)
    return batch.write(Decision.of(batch.resolution(), {}))
