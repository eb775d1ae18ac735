"""Count what became of the episodes that rules read last, from their batches in the ledger."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from slumberd.model.readings import LATEST, Readings
from slumberd.model.stages import STAGE_CHANNELS
from slumberd.storage.engine import Session


def readings_of(session: Session, rule_ids: Iterable[str]) -> dict[str, Readings]:
    """Return the latest readings of rules that have fired, by rule.

    Args:
        session: Inside a snapshot.
        rule_ids: The rules, as the ledger names them.
    """
    found = {rule_id: _read(session, rule_id) for rule_id in rule_ids}
    return {rule_id: readings for rule_id, readings in found.items() if readings.read}


def _read(session: Session, rule_id: str) -> Readings:
    batches: list[tuple[int, int]] = []
    read = filtered = 0
    rows = session.rows("ledger.latest_batches", {"rule": rule_id, "limit": LATEST})
    for number, last, counts in rows:
        channels = orjson.loads(counts)
        of_facts = [each for name, each in channels.items() if name not in STAGE_CHANNELS]
        if not of_facts:
            continue  # a batch that marks episodes
        # Each channel counts every version, and every further claim of one.
        filtered += max(each["filtered"] for each in of_facts)
        read += max(each["read"] for each in of_facts)
        batches.append((number, last))
        if read >= LATEST:
            break
    if not batches:
        return Readings()
    evaluated, learned, said_nothing, quarantined = map(
        int, session.rows("ledger.readings", {"batches": batches})[0]
    )
    unchanged = evaluated - learned - said_nothing - quarantined
    return Readings(evaluated + filtered, learned, said_nothing, filtered, quarantined, unchanged)
