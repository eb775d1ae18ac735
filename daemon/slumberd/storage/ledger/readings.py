"""Count what became of the episodes that rules read last, from their batches in the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from slumberd.model.stages import STAGE_CHANNELS
from slumberd.model.store_status import LATEST, Readings, Share
from slumberd.storage.engine import Session
from slumberd.storage.ledger.batch import GENERATION_BITS

_LOG_NUMBER = (1 << GENERATION_BITS) - 1


class _Batches(NamedTuple):
    """The last batches of a rule.

    Attributes:
        places: The number of each batch's own row, and of its last row.
        upto: The number of the last log row that they read.
        filtered: How many versions the filter did not select.
    """

    places: list[tuple[int, int]]
    upto: int
    filtered: int


def readings_of(session: Session, rule_ids: Iterable[str]) -> dict[str, Readings]:
    """Return the latest readings of rules that have fired, by rule.

    Args:
        session: Inside a snapshot.
        rule_ids: The rules, as the ledger names them.
    """
    found = {rule_id: _read(session, _last_batches(session, rule_id)) for rule_id in rule_ids}
    return {rule_id: readings for rule_id, readings in found.items() if readings.read}


def share_of(session: Session, rule_ids: Iterable[str]) -> Share:
    """Return how many of the last episodes that some rules read became facts.

    Args:
        session: Inside a snapshot.
        rule_ids: The rules, as the ledger names them.
    """
    batches = [_last_batches(session, rule_id) for rule_id in rule_ids]
    places = [place for one in batches for place in one.places]
    if not places:
        return Share()
    newest = max(one.upto for one in batches)
    rows = session.rows("ledger.learned_versions", {"batches": places})
    learned = {version & _LOG_NUMBER for (version,) in rows}
    first = max(0, newest - LATEST)
    return Share(newest - first, sum(first < version <= newest for version in learned))


def _last_batches(session: Session, rule_id: str) -> _Batches:
    """Return the last batches of a rule that together read `LATEST` versions."""
    places: list[tuple[int, int]] = []
    read = filtered = newest = 0
    rows = session.rows("ledger.latest_batches", {"rule": rule_id, "limit": LATEST})
    for number, last, upto, counts in rows:
        channels = orjson.loads(counts)
        of_facts = [each for name, each in channels.items() if name not in STAGE_CHANNELS]
        if not of_facts:
            continue  # a batch that marks episodes
        # Each channel counts every version, and every further claim of one.
        filtered += max(each["filtered"] for each in of_facts)
        read += max(each["read"] for each in of_facts)
        newest = max(newest, upto)
        places.append((number, last))
        if read >= LATEST:
            break
    return _Batches(places, newest, filtered)


def _read(session: Session, batches: _Batches) -> Readings:
    if not batches.places:
        return Readings()
    rows = session.rows("ledger.readings", {"batches": batches.places})
    evaluated, learned, said_nothing, quarantined = map(int, rows[0])
    unchanged = evaluated - learned - said_nothing - quarantined
    read, filtered = evaluated + batches.filtered, batches.filtered
    return Readings(read, learned, said_nothing, filtered, quarantined, unchanged)
