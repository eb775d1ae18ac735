"""Undo a firing: whatever it met first is again what it was before, and the law runs on that."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from slumberd.core.act import episode_id_of
from slumberd.core.firing import Firing
from slumberd.core.ground import Incoming
from slumberd.core.law import History, Undone
from slumberd.core.record import Outcome
from slumberd.core.settle import Settlement
from slumberd.errors import UsageError
from slumberd.stores.batch import Batch
from slumberd.stores.beliefs import channels_at
from slumberd.stores.queries import statements

UNDO = "@undo"
"""The rule id of what undoes a firing."""

_SQL = statements("ledger")


def undo(
    connection: sqlite3.Connection, firing_id: str, depth: int, *, at: datetime, by: str
) -> Outcome:
    """Withdraw what a firing met; inside of a transaction.

    Raises:
        UsageError: There is no such firing, or it erased what it speaks of.
    """
    rule_id, number = _checked(connection, firing_id)
    firing = Firing(UNDO, "", "manual", at, by=by)
    batch = Batch(connection, firing, channels_at(connection), depth)
    batch.note = {"undoes": firing_id}
    asked = {"rule": rule_id, "firing": number}
    met = [row[0] for row in connection.execute(_SQL["met_in_firing"], asked)]
    histories = batch.loaded.load_histories(met)
    settlement = batch.settlement()
    for fact_id in met:
        withdraw(settlement, fact_id, histories[fact_id], (number, batch.number), at=batch.at)
    connection.execute(_SQL["drop_quarantine_of_firing"], asked)
    return batch.write(settlement, {})


def withdraw(
    settlement: Settlement, fact_id: str, history: History, firings: tuple[int, int], *, at: int
) -> None:
    """Let a fact id be again what it was without what a firing met of it.

    Args:
        settlement: Of the firing that undoes.
        fact_id: The fact id.
        history: All that was known of it before.
        firings: The number of the firing that is undone, and of the one that undoes it.
        at: The instant of the latter, microseconds since 1970 UTC.
    """
    number, by = firings
    owner = history.owner_in(number)
    left = History(history.meetings, [*history.undone, Undone(by + 1, number, by, owner)])
    met = Incoming(fact_id, owner, UNDO, 0, at, episode_id_of(fact_id), None, undoes=number)
    settlement.undo(met, left.remaining())


def find_firing(connection: sqlite3.Connection, firing_id: str) -> tuple[str, int] | None:
    """Return the rule and the number of a firing; None when there is none of that id."""
    rule_id, _, number = firing_id.rpartition("@")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return None
    found = connection.execute(_SQL["firing"], (int(number),)).fetchone()
    return (rule_id, int(number)) if found and found[0] == rule_id else None


def _checked(connection: sqlite3.Connection, firing_id: str) -> tuple[str, int]:
    found = find_firing(connection, firing_id)
    if found is None:
        raise UsageError(f"no firing {firing_id!r}; `slumberd audit ls --kind firing` lists them")
    if found[0] == "@forget":
        raise UsageError(f"{firing_id!r} erased what it speaks of; a forget cannot be undone")
    return found
