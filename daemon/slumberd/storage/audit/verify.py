"""Verify a ledger: the chain, the tables beside it, the heads in a log, and the facts.

The chain shows any row that was changed, removed, inserted or reordered. Numbers of rows have gaps
only before a row of a copy, which counts the rows before it. The chain cannot show that rows at its
end are missing. Other places may still refer to such rows: a firing, the last line logged,
the quarantine, a key, a fact. When all these agree, only a checkpoint that is kept outside of the
database shows the loss.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import orjson

from slumberd.model.episode import microseconds
from slumberd.model.record import Break, Checkpoint, ErasedList, ErasedRows, ForeignBlank
from slumberd.storage.audit.table_check import (
    compare_keys,
    divide_keys,
    first_changed_fact,
    first_changed_schema,
    first_changed_table,
)
from slumberd.storage.engine import Session, SharedWork, run_missing
from slumberd.storage.erased_scopes import read_erased_list
from slumberd.storage.ledger.arrivals import copies_in
from slumberd.storage.ledger.erased_rows import ERASED, FOREIGN, compare_erasures, runs_of
from slumberd.storage.ledger.erasure import document_in, read_recorded_erasures
from slumberd.storage.ledger.rows import (
    CLAIM,
    FIRING,
    GENESIS,
    HASH_BYTES,
    LEAST,
    MOST,
    SALT_BYTES,
    LedgerRow,
    chain_of,
    commitment_of,
    fixed_part,
    is_usable_name,
    require_key,
)


class FiringRow(NamedTuple):
    """One row of ``slumberd_firings``, as stored; texts are bytes."""

    n: int
    rule: bytes
    rule_hash: bytes
    cause: bytes
    at: int
    last_seq: int
    generation: int
    upto_seq: int
    counts: bytes


_OUT_OF_ORDER = "follows row {}: a row is missing or out of order"
_OTHER_CONTENT = "its content does not match its commitment"
_OTHER_CHAIN = "its chain hash does not follow from the row before"

_MOST_NAMED = 100
_NAMES_ROWS = b'"erased":'
"""It is in the document of an erasure; few firings have it, so few are parsed."""

NOT_COMPARED = ErasedRows()
"""In place of the blank rows of a ledger whose chain is broken."""

_NO_FIRING = FiringRow(0, b"", b"", b"", 0, 0, 0, 0, b"")

_PARTS_PER_PROCESS = 4
"""Parts of the rows for each process: the last ones keep all processes at work until the end."""


class RowRange(NamedTuple):
    """A part of the ledger that is verified on its own.

    Attributes:
        before: The number of the row before it; 0 before the first row.
        chain: The stored chain hash of that row, which the part before verifies.
        first: No row of the part has a lower number.
        last: No row of the part has a higher number.
    """

    before: int = 0
    chain: bytes = GENESIS
    first: int = LEAST
    last: int = MOST


class VerifiedRows(NamedTuple):
    """What the verification of a part of the ledger found.

    Attributes:
        seq: The last row before the first break.
        head: Its chain hash.
        broken: The first break; None without one.
        blank: The numbers of the blank rows.
        erasures: The rows of erasures, and what each of them names.
        firing: The last firing that began.
        next: The firing after it, which has no row; None without one.
        channels: The rows of ``slumberd_channels`` in the part that no firing has.
    """

    seq: int
    head: bytes
    broken: Break | None
    blank: array[int] = array("q")
    erasures: Sequence[tuple[int, object]] = ()
    firing: FiringRow = _NO_FIRING
    next: FiringRow | None = None
    channels: Sequence[int] = ()


def verify(
    session: Session,
    depth: int,
    against: Iterable[Checkpoint] = (),
    *,
    chain_only: bool = False,
    episodes: ErasedList | None = None,
) -> tuple[int, str, Break | None]:
    """Verify a ledger; return the number of the last row read, the head and the first break.

    The processes of the session share the work, and find the same as one process.

    Args:
        session: A session that may read only.
        depth: Links of lineage.
        against: Checkpoints that a log has of this ledger.
        chain_only: Verify only the chain and the checkpoints; skip the commitments of the rows'
            contents, the tables beside the ledger and the facts.
        episodes: The list of erased scopes of the store of episodes; None skips it.

    Raises:
        LedgerKeyError: The key of the session is not the key of the ledger.
    """
    require_key(session)
    check: Callable[..., VerifiedRows] = check_links if chain_only else check_rows
    rows = [partial(check, part=part) for part in divide_rows(session)]
    keys = [partial(compare_keys, depth=depth, keys=part) for part in divide_keys(session)]
    if chain_only:
        found = run_missing(session, rows, session.share(rows))
        count, head, broken, _ = _join(session, found)
        return count, head.hex(), broken or _check_against(session, count, against)
    # A part of the keys takes the longest.
    works: list[SharedWork[Any]] = [*keys, *rows]
    shared = session.share(works)
    parts = run_missing(session, rows, shared[len(keys) :])
    count, head, broken, erased = _join(session, parts)
    if broken is None:
        broken = _with_foreign(
            erased,
            erased.broken
            or _check_against(session, count, against)
            or first_changed_schema(session)
            or _first_changed_name(session)
            or first_changed_table(session)
            or first_changed_fact(session, depth, run_missing(session, keys, shared))
            or _changed_list(session, episodes),
        )
    return count, head.hex(), broken


def _with_foreign(erased: ErasedRows, broken: Break | None) -> Break | None:
    """Return a break that says which blank rows no erasure names, beside another break."""
    foreign = foreign_break(erased)
    if foreign is None or broken is None:
        return foreign or broken
    place = f"row {broken.seq} " if broken.seq else ""
    return Break(foreign.seq, f"{foreign.problem}; besides, {place}{broken.problem}")


def _changed_list(session: Session, episodes: ErasedList | None) -> Break | None:
    """Compare the lists of erased scopes with the erasures of the ledger."""
    recorded = read_recorded_erasures(session)
    problem = recorded.describe_fault(read_erased_list(session))
    if not problem and episodes is not None:
        problem = recorded.finished().describe_fault(episodes)
        problem = problem and f"beside the episodes, {problem}"
    return Break(0, problem) if problem else None


def foreign_break(erased: ErasedRows) -> Break | None:
    """Return which blank rows no erasure names; None when there are none of a known number."""
    if not erased.foreign:
        return None
    problem = f"is erased, and no erasure names it ({FOREIGN})"
    if erased.foreign_rows > 1:
        rows = runs_of(erased.foreign[:_MOST_NAMED])
        problem += f"; there are {erased.foreign_rows} such rows: {rows}"
    return ForeignBlank(erased.foreign[0], problem)


def divide_rows(session: Session) -> list[RowRange]:
    """Return parts of the ledger, in order, for the processes of a session to share."""
    whole = RowRange()
    newest = session.one("ledger.link_before", {"seq": MOST})
    if session.processes == 1 or newest is None:
        return [whole]
    count = _PARTS_PER_PROCESS * session.processes
    places = {newest[0] * part // count for part in range(1, count)}
    found = [session.one("ledger.link_before", {"seq": place}) for place in sorted(places)]
    parts = [whole]
    for before, chain in dict.fromkeys(row for row in found if row is not None):
        parts[-1] = parts[-1]._replace(last=before)
        parts.append(RowRange(before, chain, before + 1))
    return parts


def check_links(session: Session, part: RowRange) -> VerifiedRows:
    """Recompute the chain of a part of the ledger."""
    key = session.key
    before, previous = part.before, part.chain
    numbering = _Numbering(session, part)
    between = {"first": part.first, "last": part.last}
    for *numbers, reason, commitment, chain in session.stream("ledger.hash_links", between):
        seq = numbers[0]
        if problem := numbering.find_problem(seq):
            return VerifiedRows(before, previous, Break(seq, problem))
        if chain != _chain(numbers, reason, previous, commitment, key):
            return VerifiedRows(before, previous, Break(seq, _OTHER_CHAIN))
        previous, before = chain, seq
    return VerifiedRows(before, previous, None)


def check_rows(session: Session, part: RowRange) -> VerifiedRows:
    """Recompute the chain of a part of the ledger, and check its content and its firings."""
    key = session.key
    firings, erasures, numbering = _Firings(session, part), _Erasures(), _Numbering(session, part)
    seq, previous = part.before, part.chain
    between = {"first": part.first, "last": part.last}
    rows = map(LedgerRow[bytes]._make, session.stream("ledger.rows_to_export", between))
    for row in rows:
        problem = numbering.find_problem(row.seq) or _find_problem(row, previous, key, firings)
        if problem:
            return VerifiedRows(seq, previous, Break(row.seq, problem))
        seq, previous = row.seq, row.chain
        erasures.read(row)
    return VerifiedRows(
        seq, previous, None, erasures.blank, erasures.named, firings.current, firings.next,
        [*firings.channels],
    )  # fmt: skip


def first_break(session: Session) -> tuple[int, bytes, Break | None, ErasedRows]:
    """Recompute the chain and check the firings, in this process.

    Returns:
        The last row, the head, the first break, and how the blank rows compare with the erasures.
    """
    require_key(session)
    return _join(session, [check_rows(session, RowRange())])


def _join(
    session: Session, parts: Iterable[VerifiedRows]
) -> tuple[int, bytes, Break | None, ErasedRows]:
    """Return what the parts of a ledger, in order, say together: up to the first break."""
    blank = array("q")
    erasures: list[tuple[int, object]] = []
    channels: list[int] = []
    part = VerifiedRows(0, GENESIS, None)
    for part in parts:  # the last part says how the ledger ends
        if part.broken is not None:
            return part.seq, part.head, part.broken, NOT_COMPARED
        blank += part.blank
        erasures += part.erasures
        channels += part.channels
    broken = _find_missing_end(session, part, channels)
    return part.seq, part.head, broken, compare_erasures(blank, erasures)


def _find_missing_end(
    session: Session, last: VerifiedRows, channels: Sequence[int]
) -> Break | None:
    """Return what refers to rows after the last one; None when nothing does."""
    mentions = {
        last.firing.last_seq: f"firing {last.firing.n} reaches",
        **{firing.n: "slumberd_firings goes on" for firing in [last.next] if firing},
        max(channels, default=0): "slumberd_channels goes on",
        session.value("ledger.last_mentioned"): "there was a row",
    }
    for seq, how in mentions.items():
        if seq and seq > last.seq:
            return Break(last.seq, f"the ledger ends here, but {how} to row {seq}")
    if channels:
        return Break(min(channels), "slumberd_channels has this firing, the ledger does not")
    return None


def _find_problem(
    row: LedgerRow[bytes], previous: bytes, key: bytes | None, firings: _Firings
) -> str:
    """Return what is wrong with a row; an empty text when nothing is."""
    (
        seq, first, firing, event, kind, reason, version,
        key_id, at, fact_id, replaces, payload, salt, commitment, chain,
    ) = row  # fmt: skip
    if salt is None:
        if not _is_validly_erased(row):
            return _OTHER_CONTENT
    elif len(salt) != SALT_BYTES or commitment != commitment_of(
        salt, key_id, at, fact_id, replaces, payload
    ):
        return _OTHER_CONTENT
    numbers = seq, first, firing, version, event, kind
    if chain != _chain(numbers, reason, previous, commitment, key):
        return _OTHER_CHAIN
    if event == CLAIM and key_id is None and salt is not None:
        return "is a claim without a key"
    return firings.check_row(row)


def _chain(
    numbers: Sequence[int],
    reason: bytes,
    previous: bytes,
    commitment: bytes,
    key: bytes | None,
) -> bytes:
    try:
        fixed = fixed_part(*numbers)
    except struct.error:  # a number out of range, which slumberd never writes
        return b""
    return chain_of(key, previous, commitment, fixed, reason)


def _is_validly_erased(row: LedgerRow[bytes]) -> bool:
    """Return whether a row without a salt lost all personal content, and may lose it."""
    content = (row.key_id, row.at, row.fact_id, row.replaces, row.payload)
    # The row of a firing holds nothing personal, so it is never erased.
    erased = all(value is None for value in content) and row.event != FIRING
    return erased and len(row.commitment) == HASH_BYTES


class _Numbering:
    """Checks that no row of a part is missing, by the numbers of the rows."""

    def __init__(self, session: Session, part: RowRange) -> None:
        newest = next(copies_in(session), None)
        self._copied_at = newest[0] if newest else 0
        self._kept = newest[1].kept if newest else 0
        counts = part.before < self._copied_at
        parameters = {"seq": part.first}
        self._rows = session.value("ledger.count_rows_before", parameters) if counts else 0
        self._before = part.before

    def find_problem(self, seq: int) -> str:
        """Return what is wrong with the number of the next row; an empty text when nothing is."""
        before, rows = self._before, self._rows
        self._before, self._rows = seq, rows + 1
        if seq != before + 1 and seq > self._copied_at:
            return _OUT_OF_ORDER.format(before)
        if seq == self._copied_at and rows != self._kept:
            return f"counts {self._kept} rows before it, and there are {rows}"
        return ""


class _Erasures:
    """Collects the blank rows, and the rows that the erasures name.

    Attributes:
        blank: The numbers of the blank rows.
        named: The number of the row of each erasure, and what it names.
    """

    def __init__(self) -> None:
        self.blank = array("q")
        self.named: list[tuple[int, object]] = []

    def read(self, row: LedgerRow[bytes]) -> None:
        """Read the next row of the ledger."""
        if row.salt is None:
            self.blank.append(row.seq)
        elif row.event == FIRING and _NAMES_ROWS in (row.payload or b""):
            document = document_in(row.payload)
            if ERASED in document:
                self.named.append((row.seq, document[ERASED]))


class _Firings:
    """Compares the tables of firings and of channels with the ledger, row by row.

    Attributes:
        current: The firing whose rows are read.
        next: The firing after it; None without one.
        channels: By number the multi-valued predicates of firings whose rows are not read yet.
    """

    def __init__(self, session: Session, part: RowRange) -> None:
        values = {"first": part.first}
        before = session.one("ledger.last_firing_before", values)
        self.current = _NO_FIRING if before is None else FiringRow._make(before)
        self._firings = map(FiringRow._make, session.stream("ledger.firings_from", values))
        self.next = next(self._firings, None)
        between = {"first": part.first, "last": part.last}
        self.channels: dict[int, bytes] = dict(session.stream("ledger.channels_between", between))

    def check_row(self, row: LedgerRow[bytes]) -> str:
        """Return what contradicts the next row of the ledger; an empty text when nothing does."""
        if row.event == FIRING:
            return self._begin(row.seq, row.payload)
        if self.next is not None and self.next.n <= row.seq:
            return f"slumberd_firings has a firing {self.next.n} that the ledger lacks"
        if row.firing != self.current.n or row.seq > self.current.last_seq:
            return f"is not a row of its firing {row.firing}"
        return ""

    def _begin(self, seq: int, payload: bytes | None) -> str:
        if self.current.last_seq != seq - 1:
            return f"comes before the last row of firing {self.current.n}"
        if self.next is None or self.next.n != seq:
            return "slumberd_firings does not have this firing"
        self.current, self.next = self.next, next(self._firings, None)
        return self._compare(self.current, document_in(payload))

    def _compare(self, row: FiringRow, document: dict[str, Any]) -> str:
        for column, value in _columns(document).items():
            if getattr(row, column) != value:
                return f"slumberd_firings has another {column} for this firing"
        multi = orjson.dumps(document["multi_valued"]) if "multi_valued" in document else None
        if self.channels.pop(row.n, None) != multi:
            return "slumberd_channels has other predicates for this firing"
        return ""


def _columns(document: dict[str, Any]) -> dict[str, object]:
    """Return the columns of ``slumberd_firings`` that a firing's document determines.

    The id of the last episode read is not among them, because an erasure may remove it.
    """
    return {
        "rule": _text(document.get("rule")),
        "rule_hash": _text(document.get("rule_hash")),
        "cause": _text(document.get("trigger")),
        "at": _instant(document.get("at")),
        "last_seq": document.get("last_seq"),
        "generation": document.get("generation"),
        "upto_seq": document.get("upto"),
        "counts": orjson.dumps(document.get("counts")),
    }


def _text(value: object) -> bytes | None:
    return value.encode() if isinstance(value, str) else None


def _instant(value: object) -> int | None:
    return microseconds(datetime.fromisoformat(value)) if isinstance(value, str) else None


def _check_against(session: Session, count: int, against: Iterable[Checkpoint]) -> Break | None:
    """Compare the heads that a log has with the chain.

    The rows before the row of a copy have other chain hashes than in their source. For them, the
    log needs to have the head that the copy names.
    """
    copied_at, copied = next(copies_in(session), (0, None))
    source = (copied.rows, copied.head) if copied else None
    is_known, unknown = False, None
    for rows, head, logged in against:
        if rows > count:
            return Break(count, f"the ledger ends here, the log of {logged} saw row {rows}")
        if 0 < rows < copied_at:
            is_known = is_known or (rows, head.hex()) == source
            unknown = unknown or Break(
                copied_at, f"the log of {logged} is of another ledger than the one that was copied"
            )
            continue
        found = session.value("ledger.chain", (rows,)) if rows else GENESIS
        if found != head:
            return Break(rows, f"the log of {logged} has another head")
    return None if is_known else unknown


def _first_changed_name(session: Session) -> Break | None:
    stored = set(session.stream("ledger.all_references"))
    expected = {
        (name, fact_id)
        for fact_id, payload in session.stream("ledger.claims_with_references")
        for name in orjson.loads(payload).get("names", ())
    }
    differing = sorted(stored ^ expected)
    # An older slumberd also stored names that no episode can have.
    for name, referrer in (pair for pair in differing if is_usable_name(pair[0])):
        problem = f"slumberd_references is not what the ledger says of {referrer!r} and {name!r}"
        return Break(0, problem)
    return None
