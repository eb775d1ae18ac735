"""Hold back a batch over a deletion limit, record the decision about it, and clear quarantine."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from slumberd.model.firing import Firing, HeldBatch, Position
from slumberd.model.record import Outcome
from slumberd.sql_statements import statements
from slumberd.storage.ledger.batch import Batch
from slumberd.storage.ledger.history import channels_at

_SQL = statements("ledger")


def hold_batch(connection: sqlite3.Connection, firing: Firing, problem: str, depth: int) -> Outcome:
    """Leave a batch unwritten and its watermark in place until a person decides.

    Args:
        connection: In a transaction.
        firing: The batch's.
        problem: Why it is held back.
        depth: How many replaced assertions a fact's lineage names.
    """
    unmoved = replace(firing, upto=firing.after)
    batch = Batch(connection, unmoved, channels_at(connection), depth)
    batch.note = {"held": problem, "held_upto": firing.upto.seq}
    outcome = batch.write(batch.resolution(), {})
    connection.execute(
        _SQL["add_held_batch"], (firing.rule_id, batch.number, *firing.upto, problem)
    )
    held = HeldBatch(firing.rule_id, outcome.firing_id, firing.upto, problem, approved=False)
    return replace(outcome, held=held)


def record_decision(
    connection: sqlite3.Connection,
    held: HeldBatch,
    *,
    approve: bool,
    at: datetime,
    by: str,
    depth: int,
) -> Firing:
    """Record the decision about a held batch, within the caller's transaction.

    Returns:
        The firing; a rejected batch's watermark still has to move to its ``upto``.
    """
    watermark = Position(*connection.execute(_SQL["watermark"], (held.rule_id,)).fetchone())
    upto = watermark if approve else Position(*held.upto)
    firing = Firing(held.rule_id, "", "manual", at, watermark, upto, by)
    batch = Batch(connection, firing, channels_at(connection), depth)
    batch.note = {"approves" if approve else "rejects": held.firing_id}
    batch.write(batch.resolution(), {})
    if approve:
        connection.execute(_SQL["approve_held_batch"], (held.rule_id,))
    return firing


def list_quarantine(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return the quarantined episodes, by rule, channel and id."""
    names = ("rule_id", "channel", "episode_id", "reason", "detail", "seq")
    found = connection.execute(_SQL["list_quarantine"]).fetchall()
    return [dict(zip(names, row, strict=True)) for row in found]


def drop_entries(
    connection: sqlite3.Connection,
    entries: Sequence[Mapping[str, Any]],
    *,
    at: datetime,
    by: str,
    depth: int,
) -> Outcome:
    """Remove entries from the quarantine, within the caller's transaction."""
    firing = Firing("@quarantine", "", "manual", at, by=by)
    batch = Batch(connection, firing, channels_at(connection), depth)
    rows = sorted(entry["seq"] for entry in entries)
    batch.note = {"dropped": len(entries), "rows": rows}
    names = [(entry["rule_id"], entry["channel"], entry["episode_id"]) for entry in entries]
    connection.executemany(_SQL["drop_quarantine"], names)
    return batch.write(batch.resolution(), {})
