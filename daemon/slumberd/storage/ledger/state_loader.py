"""Load from facts.db the ground that a batch is settled on, and write its heads back."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from slumberd.consolidation.claim import ALL, Act, Stamp, deletes_by_key
from slumberd.consolidation.incoming import Incoming
from slumberd.consolidation.precedence import (
    DELETIONS,
    Assertion,
    Head,
    History,
    Meeting,
    MultiValued,
    slot_of_declared,
)
from slumberd.consolidation.resolution import keys_to_load
from slumberd.consolidation.state import Ground
from slumberd.sql_statements import statements
from slumberd.storage.ledger.bulk_write import insert
from slumberd.storage.ledger.rows import WHATS, histories_from, meetings_from
from slumberd.storage.sqlite.strict_json import written

_SQL = statements("ledger")
_GATED = WHATS.index("gated")

_HeadRow = tuple[Any, ...]


class LoadedGround:
    """A ground, and what is needed to write its heads back.

    Attributes:
        ground: What a settlement works on.
        key_ids: The number of each key that the ledger knows.
    """

    def __init__(self, connection: sqlite3.Connection, multi: MultiValued, depth: int) -> None:
        self._connection = connection
        self._stored: dict[tuple[str, str], _HeadRow] = {}
        self.key_ids: dict[str, int] = {}
        self.ground = Ground(multi, depth)

    def load(self, incoming: Sequence[Incoming]) -> None:
        """Load all that settling these can need."""
        arriving = {one.fact_id for one in incoming}
        acts = [one.act for one in incoming if one.act is not None]
        self._load_meetings(arriving | {name for act in acts for name in act.names})
        self._load_namers(arriving)
        acts += self._known_acts(arriving)
        referrers = {one for fact_id in arriving for one in self.ground.namers.get(fact_id, ())}
        acts += self._known_acts(referrers - arriving)
        self._load_meetings({name for act in acts for name in act.names})
        self._load_heads(self._slots(acts))
        self._load_declared({act.key for act in acts if deletes_by_key(act)})
        self.load_in_full(keys_to_load(incoming, self.ground))

    def load_waiting(self, rule_id: str, fact_ids: Sequence[str]) -> None:
        """Load which of some fact ids a rule's gate held back when it came by last."""
        asked = {"rule": rule_id, "ids": orjson.dumps(fact_ids).decode()}
        for fact_id, what, version in self._connection.execute(_SQL["last_of_rule"], asked):
            if what == _GATED:
                self.ground.waiting[fact_id] = version
            else:
                self.ground.waiting.pop(fact_id, None)

    def load_histories(self, fact_ids: Sequence[str]) -> dict[str, History]:
        """Load all that a change of what counts of some fact ids can need; return what is known."""
        histories = histories_from(self._ask("meetings", fact_ids))
        for fact_id, history in histories.items():
            self.ground.meetings[fact_id] = history.remaining()
        known = [met.act for one in histories.values() for met in one.meetings]
        acts = [act for act in known if act is not None]
        self._load_namers(histories)
        self._load_referrers(set(histories))
        self._load_meetings({name for act in acts for name in act.names})
        targets = [target for act in acts for target in self.ground.targets(act)]
        self._load_heads(self._slots(acts))
        self.load_in_full({act.key for act in (*acts, *targets)})
        return histories

    def load_named(self, fact_ids: Sequence[str]) -> None:
        """Load what is known of some fact ids."""
        self._load_meetings(fact_ids)

    def load_in_full(self, keys: set[str]) -> None:
        """Load every act that speaks of some keys."""
        if not keys:
            return
        self._load_heads((key, ALL) for key in keys)
        self.ground.full |= {key: set() for key in keys}
        for fact_id, meetings in self.ground.meetings.items():
            for meeting in meetings:
                if meeting.act is not None and meeting.act.key in keys:
                    self.ground.full[meeting.act.key].add(fact_id)
        for key, fact_id in self._ask("facts_of_keys", keys):
            self.ground.full[key].add(fact_id)
        fact_ids = {fact_id for key in keys for fact_id in self.ground.full[key]}
        self._load_meetings(fact_ids)
        self._load_namers(fact_ids)
        self._load_referrers(fact_ids)
        for key in keys:
            self.ground.fold(key)

    def _load_referrers(self, fact_ids: set[str]) -> None:
        """Load the claims that name some fact ids, and what the lineage of all of these needs."""
        referrers = {one for fact_id in fact_ids for one in self.ground.namers.get(fact_id, ())}
        acts = self._known_acts(fact_ids | referrers)
        self._load_meetings({name for act in acts for name in act.names})
        self._load_heads(self._slots(self._known_acts(referrers)))

    def _known_acts(self, fact_ids: set[str]) -> list[Act]:
        known = self.ground.meetings
        return [
            meeting.act
            for fact_id in known.keys() & fact_ids
            for meeting in known[fact_id]
            if meeting.act is not None
        ]

    def _slots(self, acts: Sequence[Act]) -> set[tuple[str, str]]:
        ground = self.ground
        spoken_of = [
            *acts,
            *(target for act in acts if act.names for target in ground.targets(act)),
        ]
        wanted = {(one.key, ALL) for one in spoken_of}
        for one in spoken_of:
            if ground.multi.channels or one.declared or one.clears:
                wanted |= {(one.key, slot) for slot in ground.multi.slots_of(one)}
        return wanted

    def _ask(self, query: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        asked = list(values)
        if not asked:
            return []
        sql = _SQL[query]
        # Each query takes one JSON array; its parameter is the only one.
        parameter = sql[sql.index("json_each(:") + 11 : sql.index(")", sql.index("json_each(:"))]
        return self._connection.execute(sql, {parameter: orjson.dumps(asked).decode()}).fetchall()

    def _load_meetings(self, fact_ids: Iterable[str]) -> None:
        missing = [fact_id for fact_id in fact_ids if fact_id not in self.ground.meetings]
        if missing:
            self.ground.meetings |= meetings_from(self._ask("meetings", missing))

    def _load_namers(self, fact_ids: Iterable[str]) -> None:
        found = self._ask("namers", fact_ids)
        for name, namer in found:
            self.ground.namers.setdefault(name, set()).add(namer)
        self._load_meetings({namer for _, namer in found})

    def _load_heads(self, slots: Iterable[tuple[str, str]]) -> None:
        # What was folded from all of its claims is not what is stored any more.
        full = self.ground.full
        wanted = [one for one in slots if one not in self._stored and one[0] not in full]
        parts = {(key, slot_name(slot)): slot for key, slot in wanted if slot != ALL}
        for row in self._ask("whole_heads", [key for key, slot in wanted if slot == ALL]):
            self._take(row, ALL)
        for row in self._ask("heads_of_slots", parts):
            self._take(row, parts[row[0], row[1]])

    def _load_declared(self, keys: set[str]) -> None:
        """Load the heads of all declared facts of some keys."""
        for row in self._ask("declared_heads", keys - self.ground.full.keys()):
            slot = slot_of_declared(row[6])
            if (row[0], slot) not in self._stored:
                self._take(row, slot)

    def _take(self, row: _HeadRow, slot: str) -> None:
        key = row[0]
        self.key_ids[key] = row[2]
        self._stored[(key, slot)] = row
        self.ground.heads.setdefault(key, {})[slot] = _head_from(row)

    def save(self, changed: Sequence[_HeadRow]) -> None:
        """Write the heads that have changed, and forget slots that are no more."""
        self._connection.executemany(_SQL["drop_heads"], [(key,) for key in self.ground.full])
        insert(self._connection, _SQL["put_head"], changed)

    def changed(self) -> Iterator[_HeadRow]:
        """Yield the row of every head that has changed, or will be lost by forgetting slots."""
        folded = self.ground.full
        for key, key_id in self.key_ids.items():
            slots = self.ground.heads.setdefault(key, {})
            if ALL not in slots:
                slots[ALL] = Head()
            for slot, head in slots.items():
                row = _row_of(key, slot, key_id, head, self.ground)
                lost = slot != ALL and key in folded
                if lost or self._stored.get((key, slot)) != row:
                    yield row


def slot_name(slot: str) -> str:
    """Return a slot as the table has it: objects can be long, so they are hashed.

    The name of a declared fact's slot begins with `DELETIONS`, so a range finds all of a key.
    """
    if slot in (ALL, DELETIONS):
        return slot
    hashed = hashlib.sha256(slot.encode()).hexdigest()[:32]
    return f"{DELETIONS}{hashed}" if slot.startswith(DELETIONS) else hashed


def _head_from(row: _HeadRow) -> Head:
    _, _, _, at, rank, stamp_id, fact_id, what, reach, trail = row
    if at is None:
        return Head(None, _reach_from(reach))
    top = Assertion(Stamp(at, rank, stamp_id), fact_id, what)
    return Head(top, _reach_from(reach), orjson.loads(trail) if trail else [])


def _reach_json(head: Head) -> bytes:
    return written({what: tuple(stamp) for what, stamp in head.reach.items()})


def _reach_from(reach: bytes | None) -> dict[str, Stamp]:
    if not reach:
        return {}
    return {what: Stamp(*stamp) for what, stamp in orjson.loads(reach).items()}


def _row_of(key: str, slot: str, key_id: int, head: Head, ground: Ground) -> _HeadRow:
    reach = _reach_json(head) if head.reach else None
    if head.top is None:
        return (key, slot_name(slot), key_id, None, None, None, None, None, reach, None)
    links = head.trail if head.trail is not None else ground.trail(key, slot)
    trail = written(links) if links else None
    stamp = head.top.stamp
    return (
        key, slot_name(slot), key_id, stamp.at, stamp.rank, stamp.id, head.top.fact_id,
        head.top.object, reach, trail,
    )  # fmt: skip


def summary_rows(ground: Ground, key: str, key_id: int) -> Iterator[_HeadRow]:
    """Yield the rows that a key's summary has, of a ground that knows the key in full."""
    for slot, head in ({ALL: Head()} | ground.heads.get(key, {})).items():
        yield _row_of(key, slot, key_id, head, ground)


def whole_ground(
    meetings: dict[str, list[Meeting]],
    namers: Iterable[tuple[str, str]],
    multi: MultiValued,
    depth: int,
    *,
    until: int | None = None,
) -> Ground:
    """Return a ground on which every key is known in full, from meetings alone."""
    ground = Ground(multi, depth, meetings=meetings, until=until)
    for name, namer in namers:
        ground.namers.setdefault(name, set()).add(namer)
    for fact_id, met in meetings.items():
        for meeting in met:
            if meeting.act is not None:
                ground.full.setdefault(meeting.act.key, set()).add(fact_id)
    for key in ground.full:
        ground.fold(key)
    return ground
