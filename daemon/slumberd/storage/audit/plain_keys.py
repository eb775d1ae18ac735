"""Prove the facts of plain keys right, at less cost than by resolving the claims of the keys.

A plain key has one claim: it asserts a fact and retracts nothing, and no other row has or names the
id of the fact. The fact and the summary of such a key follow from the one row. A key that is not
proved right here may still be right: the comparison of all other keys decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.claim import EPISODE
from slumberd.consolidation.precedence import MultiValued
from slumberd.model.scope import canonical, channel_of, episode_id_of, key_of, owner_of
from slumberd.model.stages import SUMMARISES
from slumberd.storage.engine import Row, Session
from slumberd.storage.ledger.batch import iso
from slumberd.storage.ledger.rows import PLAIN_CLAIM
from slumberd.storage.ledger.state_loader import slot_name

_NUMBER = itemgetter(-1)


class _PlainKey(NamedTuple):
    """A plain key: its number, its text, and the rows that the stores must have of it."""

    number: int
    key: str
    fact: Row
    summary: Row


def proved_keys(
    session: Session, rows: Sequence[Row], multi: MultiValued, touched: Container[str]
) -> dict[int, str]:
    """Return the plain keys whose fact and summary are stored as the ledger says, by number.

    Args:
        session: Inside a snapshot.
        rows: Of ``fact_check.claims_by_key``; they hold whole keys.
        multi: Which keys hold several objects.
        touched: The fact ids that have other rows than those of one key, or that a claim names.
    """
    times = Counter(map(_NUMBER, rows))
    found = [
        plain
        for row in rows
        if times[row[-1]] == 1 and row[0] not in touched and (plain := _plain_key(row, multi))
    ]
    ids, keys = [plain.fact[0] for plain in found], [plain.key for plain in found]
    facts = {row[0]: row for row in session.stream("fact_check.facts_of", {"ids": ids})}
    summaries: dict[str, list[Row]] = {}
    for row in session.stream("ledger.states_of_keys", {"keys": keys}):
        if has_content(row):
            summaries.setdefault(row[0], []).append(row)
    return {
        number: key
        for number, key, fact, summary in found
        if facts.get(fact[0]) == fact and summaries.get(key) == [summary]
    }


def has_content(summary: Row) -> bool:
    """Return whether a summary of a key says anything."""
    return summary[3] is not None or summary[9] is not None


def _plain_key(row: Row, multi: MultiValued) -> _PlainKey | None:
    """Return the key of a row if it is plain, as far as the row shows."""
    fact_id, _, rule_id, _, _, at, stored, promoted_at, _, number = row
    document: dict[str, Any] = orjson.loads(stored) if stored else {}
    if not (document.keys() <= PLAIN_CLAIM and document.get("asserts") is True):
        return None
    payload = document["payload"]
    if SUMMARISES in payload:  # its lineage names all episodes of the summary
        return None
    user, agent = payload["user"], payload["agent"]
    owner = owner_of(user, agent, channel_of(fact_id))
    key, eid = key_of(owner, payload, fact_id), episode_id_of(fact_id)
    object_, pinned_at = canonical(payload.get("object")), iso(promoted_at)
    lineage = [{"rule_id": rule_id, "source_episode_ids": [eid], "promotion_ts": pinned_at}]
    slot = slot_name(multi.slot(key, object_))
    return _PlainKey(
        number,
        key,
        (fact_id, user, agent, orjson.dumps(payload), orjson.dumps(lineage), 1.0, b"{}", pinned_at),
        (key, slot, number, at, EPISODE, eid, 0, fact_id, object_, None, None),
    )
