"""Read the rows of a user in one shard, write them into another one, and blank them.

In the target the rows have new numbers, in the order that they had: rows of the ledger, keys and
versions of episodes. They keep their salts. So who knows both shards can compute the commitments
of the source again.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.precedence import MultiValued
from slumberd.consolidation.resolution import Decision
from slumberd.model.episode import instant, microseconds
from slumberd.model.errors import (
    ChangedRowsError,
    IdTakenInTargetError,
    ShardSettingsDifferError,
    UnsupportedByStoreError,
)
from slumberd.model.firing import CHANNELS, Firing
from slumberd.model.record import name_of
from slumberd.model.scope import ScopeFilter, escape
from slumberd.storage.engine import Row, Session
from slumberd.storage.episodes.erasure import drop_episodes
from slumberd.storage.erased_scopes import read_erased_list, record_erased_hash
from slumberd.storage.facts.apply import set_number
from slumberd.storage.ledger.arrivals import (
    ARRIVAL,
    ARRIVED,
    DEPARTED,
    DEPARTURE,
    FORGETS_SCOPES,
    MOVED,
    MOVED_GENERATION,
    Arrival,
    Departure,
    arrivals_in,
    find_unclear,
    first_row_of,
)
from slumberd.storage.ledger.batch import GENERATION_BITS, Batch, number
from slumberd.storage.ledger.erased_rows import ERASED, FORGETS, FORGETS_KEY, document_of
from slumberd.storage.ledger.erasure import FORGET, read_erased_rows, rows_of_claims
from slumberd.storage.ledger.erasure_search import find_scope, key_range
from slumberd.storage.ledger.firings import REMOVED
from slumberd.storage.ledger.rows import (
    EVENTS,
    FIRING,
    FIRING_KIND,
    GENESIS,
    SALT_BYTES,
    UNDONE,
    LedgerRow,
    chain_of,
    check_key,
    commitment_of,
    fixed_part,
    record_key,
)
from slumberd.storage.ledger.state_loader import LAW_RULE_ID, LedgerEnd, law_of, read_end
from slumberd.storage.postgres.session import MOST_NUMBERED, slots_of
from slumberd.storage.postgres.shard_copies import find_added_columns
from slumberd.storage.strict_json import written as as_json

QUARANTINE = EVENTS.index("quarantine")
_MOST_NAMED = 10


class MovedFiring(NamedTuple):
    """A firing with rows of the user.

    Attributes:
        rule_hash: The content hash of the rule.
        cause: Why it fired.
        at: Its instant, microseconds.
        recorded_at: Its instant, corrected by later changes of the clock.
        payload: Its document.
    """

    n: int
    rule: str
    rule_hash: str
    cause: str
    at: int
    recorded_at: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class UserRows:
    """All rows of a user in a shard.

    Attributes:
        source: The number of the shard.
        head: The chain hash of the last row of its ledger.
        episodes: Of the table of episodes, by number.
        versions: Of the log of episodes: number, number of the episode, id.
        ledger: Of the ledger, in order, without rows of firings.
        firings: The firings that wrote these rows.
        keys: The summaries of the keys.
        facts: The current facts.
        beside: Rows of other tables, by the statement that writes them.
        quarantine: The quarantined episodes.
        settings: The settings of channels by the row from which they held.
        multi: The setting of channels that holds.
        law: The number of the law that holds.
        depth: Links of lineage.
        generations: The rows of the log after which each generation begins; the newest first.
        watermarks: The number of the last log row that each rule has read.
        skipped: Rows of the log that a rule has read in another shard: rule, first and last.
        unclear_from: The first firing that may depend on erased rows; None without one.
        erasure_key: The key of their hashes.
        erased: The erased scopes with their moments.
    """

    user: str
    source: int
    head: bytes
    episodes: Sequence[Row]
    versions: Sequence[Row]
    ledger: Sequence[LedgerRow[str]]
    firings: Sequence[MovedFiring]
    keys: Sequence[Row]
    facts: Sequence[Row]
    beside: Mapping[str, Sequence[Row]]
    quarantine: Sequence[Row]
    settings: Sequence[tuple[int, MultiValued]]
    multi: MultiValued
    law: int
    depth: int
    generations: Sequence[tuple[int, int]]
    watermarks: Mapping[str, int]
    skipped: Sequence[tuple[str, int, int]]
    unclear_from: int | None
    erasure_key: bytes | None
    erased: Mapping[bytes, int]

    def ids(self) -> set[str]:
        """Return the ids that must not exist in the target."""
        facts = {row.fact_id for row in self.ledger if row.fact_id}
        return facts | {row[1] for row in self.episodes} | {row[2] for row in self.quarantine}

    def check_ids(self, session: Session, target: int) -> None:
        """Check that no other user of the target has an id of the user.

        Raises:
            IdTakenInTargetError: One has.
        """
        taken = session.rows("moves.taken_ids", {"ids": sorted(self.ids())})
        if taken:
            raise IdTakenInTargetError(self.user, target, sorted(id for (id,) in taken))

    def setting_at(self, seq: int) -> MultiValued:
        """Return the setting of channels that held at a row of the source."""
        place = bisect_right(self.settings, seq, key=lambda found: found[0])
        return self.settings[place - 1][1] if place else MultiValued()

    def is_read(self, rule_id: str, seq: int) -> bool:
        """Return whether a rule has read a row of the log."""
        return seq <= self.watermarks.get(rule_id, 0) or any(
            rule == rule_id and first <= seq <= last for rule, first, last in self.skipped
        )

    def version_of(self, seq: int) -> int:
        """Return the version of an episode that a row of the log stands for."""
        found = (generation for after, generation in self.generations if after < seq)
        return seq | next(found, 0) << GENERATION_BITS


class _Content(NamedTuple):
    """What a user has in the ledger: the numbers of rows, and the ids of facts."""

    rows: list[int]
    fact_ids: list[str]


def _content_of(session: Session, user: str, eids: Iterable[str]) -> _Content:
    """Return what a user has in the ledger.

    Args:
        session: Of the shard.
        eids: The ids of the user's episodes.
    """
    scope = ScopeFilter(user, None, None)
    found = find_scope(session, scope, frozenset(eids))
    rows = {*found.rows, *rows_of_claims(session, scope, found.claims)}
    return _Content(sorted(rows), sorted({fact_id for fact_id, _ in found.claims}))


def read_rows(session: Session, user: str, source: int) -> UserRows:
    """Return all rows of a user.

    Raises:
        ChangedRowsError: Another program changed one of them.
        UnsupportedByStoreError: The tables have columns that programs added.
    """
    if added := find_added_columns(session):
        problem = f"programs added {', '.join(added)}, and a move would lose what they hold"
        raise UnsupportedByStoreError(session.where, problem, "drop the columns, or move nobody")
    names = {"user": user, "escaped": escape(user)}
    episodes = session.rows("moves.episodes", names)
    rids, eids = [row[0] for row in episodes], [row[1] for row in episodes]
    numbers = _content_of(session, user, eids).rows
    found = session.rows("moves.rows", {"rows": numbers})
    ledger = [LedgerRow[str]._make(row) for row in found]
    changed = [row.seq for row in ledger if row.commitment != _commitment(row)]
    if changed:
        raise ChangedRowsError(session.where, changed[:_MOST_NAMED])
    wanted = {"rows": numbers, "eids": eids, "rids": rids}
    ids = {"ids": sorted({row.fact_id for row in ledger if row.fact_id})}
    end, erased = read_end(session), read_erased_list(session)
    return UserRows(
        user=user,
        source=source,
        head=end.chain,
        episodes=episodes,
        versions=session.rows("moves.versions", wanted),
        ledger=ledger,
        firings=[
            MovedFiring(*row)
            for row in session.rows(
                "moves.firings", {"firings": sorted({row.firing for row in ledger})}
            )
        ],
        keys=session.rows("moves.keys", key_range(ScopeFilter(user, None, None))),
        facts=session.rows("moves.facts", names),
        beside={
            "whole_tables.write_accesses": session.rows("moves.accesses", wanted),
            "moves.add_extraction": session.rows("moves.extractions", wanted),
            "moves.add_summary": session.rows("moves.summaries", wanted),
            "moves.add_request": session.rows("moves.requests", wanted),
            "moves.add_reference": session.rows("moves.references", ids),
        },
        quarantine=session.rows("moves.quarantine", wanted),
        settings=[
            (seq, MultiValued.from_document(orjson.loads(document)))
            for seq, document in session.rows("moves.channels")
        ],
        multi=end.multi_valued,
        law=end.law,
        depth=number(session, "depth"),
        generations=end.generations,
        watermarks={rule: seq for rule, seq, *_ in session.rows("ledger.watermarks")},
        skipped=session.rows("moves.skipped"),
        unclear_from=find_unclear(session),
        erasure_key=erased.key,
        erased=erased.moments,
    )


def _commitment(row: LedgerRow[str]) -> bytes:
    fact_id = None if row.fact_id is None else row.fact_id.encode()
    replaces = None if row.replaces is None else row.replaces.encode()
    return commitment_of(row.salt or b"", row.key_id, row.at, fact_id, replaces, row.payload)


class Arrived(NamedTuple):
    """The circumstances of a move.

    Attributes:
        target: The shard that gets the user.
        by: Who requested the move.
        depth: Links of lineage.
    """

    target: int
    at: datetime
    by: str
    depth: int


class _Numbers:
    """The numbers that rows of the source get in the target.

    Attributes:
        rows: Of rows of the ledger; `firings` of firings, `keys` of keys, `versions` of versions.
    """

    def __init__(self, rows: UserRows, end: LedgerEnd, log_end: int) -> None:
        self.rows: dict[int, int] = {}
        self.firings: dict[int, int] = {}
        self.keys: dict[int, int] = {}
        self.next = end.seq + 1
        for firing, found in groupby(rows.ledger, attrgetter("firing")):
            self.firings[firing] = self.next
            self.next += 1
            for row in found:
                self.rows[row.seq] = self.next
                if row.key_id is not None:
                    self.keys.setdefault(row.key_id, self.next)
                self.next += 1
        wanted = {rows.version_of(seq) for seq, *_ in rows.versions}
        wanted |= {row.version for row in rows.ledger} | {row[3] for row in rows.quarantine}
        wanted |= {_covers(row) for row in rows.ledger}
        generation = (end.generations[0][1] if end.generations else 0) << GENERATION_BITS
        self._log = {version: log_end + n for n, version in enumerate(sorted(wanted - {0}), 1)}
        self.log_end = log_end + len(self._log)
        self._generation = generation

    def version(self, version: int) -> int:
        """Return the version in the target."""
        return self._log[version] | self._generation if version else 0

    def log_row(self, version: int) -> int:
        """Return the row of the log in the target."""
        return self._log[version]


def _covers(row: LedgerRow[str]) -> int:
    if row.payload is None or b'"covers":' not in row.payload:
        return 0
    return int(orjson.loads(row.payload).get("covers") or 0)


def write_rows(session: Session, rows: UserRows, arrived: Arrived) -> None:
    """Write the rows of a user into the target, in its transaction.

    Raises:
        IdTakenInTargetError: Another user has an id of the user.
        ShardSettingsDifferError: The target resolves claims in another way.
    """
    rows.check_ids(session, arrived.target)
    end = read_end(session)
    key = check_key(session, end.key_number) if end.seq else record_key(session)
    multi, law = _common_settings(session, rows, end, arrived.target)
    while session.value("inbox.number", {"most": MOST_NUMBERED}) == MOST_NUMBERED:
        pass
    log_end: int = session.value("moves.log_end")
    numbers = _Numbers(rows, end, log_end)
    _write_episodes(session, rows, numbers)
    _write_ledger(session, rows, numbers, end, key)
    keys = [_with_key(row, numbers) for row in rows.keys if row[2] in numbers.keys]
    session.insert("whole_tables.write_keys", keys)
    session.insert("whole_tables.write_facts", [(*row, *slots_of(row[3])) for row in rows.facts])
    for name, found in rows.beside.items():
        session.insert(name, found)
    session.insert("whole_tables.write_quarantine", [*_quarantine(rows, numbers)])
    _skip_versions(session, rows, numbers)
    erased = _add_erased_scopes(session, rows, arrived.target)
    _write_arrival(session, rows, numbers, (end, multi, law), arrived, erased)


def _common_settings(
    session: Session, rows: UserRows, end: LedgerEnd, target: int
) -> tuple[MultiValued, int]:
    """Return the settings of both shards; an empty ledger takes those of the source."""
    if not end.seq:
        set_number(session, "depth", rows.depth)
        return rows.multi, rows.law
    differ = (
        end.multi_valued.document() != rows.multi.document()
        or end.law != rows.law
        or number(session, "depth") != rows.depth
    )
    if differ or rows.multi.former is not None:
        raise ShardSettingsDifferError(rows.user, rows.source, target)
    return end.multi_valued, end.law


def _write_episodes(session: Session, rows: UserRows, numbers: _Numbers) -> None:
    new = session.rows("moves.new_rids", {"count": len(rows.episodes)})
    rids = {row[0]: rid for row, (rid,) in zip(rows.episodes, new, strict=True)}
    session.insert(
        "whole_tables.write_episodes", [(rids[row[0]], *row[1:]) for row in rows.episodes]
    )
    # The log has these versions from below, and not from the inbox.
    session.do("moves.drop_inbox", {"rids": [*rids.values()]})
    session.insert(
        "whole_tables.write_episode_log",
        [
            (numbers.log_row(rows.version_of(seq)), None if rid is None else rids[rid], eid)
            for seq, rid, eid in rows.versions
        ],
    )
    session.do("moves.end_log", {"seq": numbers.log_end})


def _write_ledger(
    session: Session, rows: UserRows, numbers: _Numbers, end: LedgerEnd, key: bytes | None
) -> None:
    """Write the rows of the ledger, and their firings."""
    firings = {firing.n: firing for firing in rows.firings}
    known, law, head = end.multi_valued.document(), end.law, end.chain
    written: list[LedgerRow[str]] = []
    of_firings: list[Row] = []
    for n, found in groupby(rows.ledger, attrgetter("firing")):
        own = [_renumbered(row, numbers) for row in found]
        firing, seq = firings[n], numbers.firings[n]
        multi, its_law = rows.setting_at(n).document(), law_of(session, firing.payload)
        document = _document(firing, rows, seq, own[-1].seq)
        is_change = multi != known or its_law != law or firing.rule in (CHANNELS, LAW_RULE_ID)
        if is_change or not written:
            document["multi_valued"] = multi
            session.do("ledger.add_channels", (seq, orjson.dumps(multi)))
        known, law = multi, its_law
        of_firings.append(
            (
                seq, firing.rule, firing.rule_hash, firing.cause, firing.at, own[-1].seq,
                MOVED_GENERATION, firing.recorded_at, "", b"{}",
            )
        )  # fmt: skip
        payload = orjson.dumps(document)
        row = LedgerRow(
            seq, seq, seq, FIRING, FIRING_KIND, "", 0, None, None, None, None, payload,
            os.urandom(SALT_BYTES),
        )  # fmt: skip
        for one in (row, *own):
            commitment = _commitment(one)
            fixed = fixed_part(one.seq, one.first, one.firing, one.version, one.event, one.kind)
            head = chain_of(key, head, commitment, fixed, one.reason.encode())
            written.append(one._replace(commitment=commitment, chain=head))
    session.insert("whole_tables.write_firings", of_firings)
    session.insert("ledger.add_row", written)


def _document(firing: MovedFiring, rows: UserRows, seq: int, last: int) -> dict[str, Any]:
    """Return the document of a firing in the target."""
    known = orjson.loads(firing.payload)
    kept = {name: known[name] for name in ("by", "reason", "run", "law") if name in known}
    if firing.rule == FORGET:
        kept[FORGETS] = None  # a recomputation never saw what it removed
    return {
        "rule": firing.rule,
        "rule_hash": firing.rule_hash,
        "trigger": firing.cause,
        "at": instant(firing.at).isoformat(),
        "upto": firing.recorded_at,
        "generation": MOVED_GENERATION,
        "last_seq": last,
        "counts": {},
        MOVED: {"shard": rows.source, "firing": firing.n},
        **kept,
    }


def _renumbered(row: LedgerRow[str], numbers: _Numbers) -> LedgerRow[str]:
    """Return a row with the numbers of the target, without its hashes."""
    seq = numbers.rows[row.seq]
    return row._replace(
        seq=seq,
        first=numbers.rows.get(row.first, seq),
        firing=numbers.firings[row.firing],
        version=numbers.version(row.version),
        key_id=None if row.key_id is None else numbers.keys[row.key_id],
        payload=_renumbered_payload(row, numbers),
    )


def _renumbered_payload(row: LedgerRow[str], numbers: _Numbers) -> bytes | None:
    covered = _covers(row)
    if row.event != UNDONE and not covered:
        return row.payload
    document = orjson.loads(row.payload or b"{}")
    if covered:
        document["covers"] = numbers.version(covered)
    else:
        document["undoes"] = numbers.firings.get(document["undoes"], 0)
    return as_json(document)


def _with_key(row: Row, numbers: _Numbers) -> Row:
    key, slot, key_id, *values = row
    return (key, slot, numbers.keys[key_id], *values)


def _quarantine(rows: UserRows, numbers: _Numbers) -> Iterator[Row]:
    for rule, channel, eid, version, owner, reason, detail, seq in rows.quarantine:
        its = numbers.version(version), owner, reason, detail, numbers.rows[seq]
        yield (rule, channel, eid, *its)


def _skip_versions(session: Session, rows: UserRows, numbers: _Numbers) -> None:
    """Let no rule of the target read a version that it has read in the source."""
    session.do("moves.drop_skipped")
    new = {seq: numbers.log_row(rows.version_of(seq)) for seq, *_ in rows.versions}
    skipped: list[Row] = []
    for rule_id in sorted({*rows.watermarks, *(rule_id for rule_id, *_ in rows.skipped)}):
        runs = groupby(sorted(new, key=new.__getitem__), partial(rows.is_read, rule_id))
        for is_read, found in runs:
            run = [new[seq] for seq in found]
            if is_read:
                skipped.append((rule_id, run[0], run[-1]))
    session.insert("moves.skip", skipped)


def _add_erased_scopes(session: Session, rows: UserRows, target: int) -> list[tuple[bytes, int]]:
    """Add the erased scopes of the source; return those that the target did not have."""
    known = read_erased_list(session)
    if known.key is not None and rows.erased and known.key != rows.erasure_key:
        raise ShardSettingsDifferError(rows.user, rows.source, target)
    new = [
        (digest, moment)
        for digest, moment in sorted(rows.erased.items())
        if known.moments.get(digest, -1) < moment
    ]
    for digest, moment in new:
        record_erased_hash(session, rows.erasure_key or b"", digest, moment)
    return new


def _write_arrival(
    session: Session,
    rows: UserRows,
    numbers: _Numbers,
    settings: tuple[LedgerEnd, MultiValued, int],
    arrived: Arrived,
    erased: Sequence[tuple[bytes, int]],
) -> None:
    """Write the row that ends what has arrived."""
    end, multi, law = settings
    at = max(microseconds(arrived.at), end.at)
    firing = Firing(ARRIVAL, "", "manual", instant(at), by=arrived.by)
    batch = Batch(session, firing, arrived.depth, multi=multi, law=law)
    unclear = rows.unclear_from
    later = [new for n, new in numbers.firings.items() if unclear is not None and n >= unclear]
    arrival = Arrival(
        rows.source, rows.head.hex(), end.seq + 1, len(rows.ledger), min(later, default=None)
    )
    waiting = {row[7] for row in rows.quarantine}
    batch.note = {
        ARRIVED: arrival._asdict(),
        # Those that people removed from the quarantine, or that an undo removed.
        "rows": [
            numbers.rows[row.seq]
            for row in rows.ledger
            if row.event == QUARANTINE and row.seq not in waiting
        ],
    }
    if rows.ledger:
        batch.note["multi_valued"] = multi.document()
        session.do("ledger.add_channels", (batch.number, orjson.dumps(multi.document())))
    if erased:
        batch.note[FORGETS_SCOPES] = [
            (digest.hex(), instant(moment).isoformat()) for digest, moment in erased
        ]
        batch.note[FORGETS_KEY] = name_of(rows.erasure_key or b"")
    batch.write(Decision.of(batch.resolution(), {}))


def arrival_head(session: Session, user: str) -> bytes:
    """Return the chain hash of the row that ended what arrived of a user."""
    first = first_row_of(session, user)
    for n, arrival in arrivals_in(session):
        if first is None or arrival.first <= first < n:
            head: bytes = session.value("ledger.chain_at", (n,))
            return head
    return GENESIS


def blank_rows(session: Session, user: str, arrived: Arrived, head: bytes) -> None:
    """Blank the rows of a user who has left, and delete all else that the source has of the user.

    Args:
        session: Of the source, in a transaction.
        arrived: The move.
        head: The head of the target's ledger after the arrival.
    """
    names = {"user": user, "escaped": escape(user)}
    episodes = session.rows("moves.episodes", names)
    eids = sorted(row[1] for row in episodes)
    scope = ScopeFilter(user, None, None)
    rows, fact_ids = _content_of(session, user, eids)
    earlier = read_erased_rows(session)
    firing = Firing(DEPARTURE, "", "manual", arrived.at, by=arrived.by)
    batch = Batch(session, firing, arrived.depth)
    keys = sorted({row[0] for row in session.rows("moves.keys", key_range(scope))})
    ids = {"ids": fact_ids}
    columns = {"user": user, "agent": None, "whole": True, **ids}
    batch.note = {
        DEPARTED: Departure(arrived.target, head.hex())._asdict(),
        ERASED: document_of(rows, earlier.base),
        REMOVED: session.value("erasure.count_facts_of_scope", columns),
    }
    session.do("erasure.erase_rows", {"rows": rows})
    batch.write(Decision.of(batch.resolution(), {}))
    for name in ("erasure.blank_firings", "erasure.blank_watermarks", "erasure.blank_held_batches"):
        session.do(name, {"eids": eids})
    session.do("erasure.drop_facts_of_scope", columns)
    session.do("erasure.drop_references", ids)
    session.do("erasure.drop_keys", {"keys": keys})
    session.do("erasure.drop_quarantine_of_rows", {"rows": rows})
    drop_episodes(session, [row[0] for row in episodes], eids)
