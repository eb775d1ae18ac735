"""Which rows of a ledger are blank, what blanked them, and which stores may keep their bytes."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import compress
from typing import Any, get_args

from slumberd.model.record import Break, ErasedRows, Rewrite, StoreName
from slumberd.storage.engine import Session

ERASED = "erased"
"""The key of the erased rows in the document of an erasure."""

FORGETS = "forgets"
"""The key of the keyed hash of the erased scope in the document of an erasure."""

FORGETS_EPISODES = "forgets_episodes"
"""The key of the keyed hashes of single erased episodes in the document of an erasure."""

FORGETS_KEY = "forgets_key"
"""The key of the name of the hash's key in the document of an erasure."""

FOREIGN = "erasure.foreign_blank"
"""The kind of a finding: a row is blank, and no erasure names it."""


def cumulative_document(rows: Iterable[int]) -> dict[str, Any]:
    """Return how slumberd 0.2 named rows: their count, and a hash of their numbers, in order."""
    count, hashed = 0, sha256()
    for seq in rows:
        count += 1
        hashed.update(seq.to_bytes(8, "big", signed=True))
    return {"rows": count, "hash": hashed.hexdigest()}


def document_of(rows: Sequence[int], base: Sequence[int] | None) -> dict[str, Any]:
    """Return how an erasure names the rows that it blanked.

    Args:
        rows: Their numbers, in order.
        base: The rows that the last cumulative hash names, when no erasure named them since.
    """
    named = {"rows": len(rows), "numbers": runs_of(rows)}
    return named if base is None else {**named, "base": runs_of(base)}


def runs_of(rows: Iterable[int]) -> str:
    """Return numbers in order as text, such as ``3-5,258``."""
    runs: list[list[int]] = []
    for seq in rows:
        if runs and runs[-1][1] == seq - 1:
            runs[-1][1] = seq
        else:
            runs.append([seq, seq])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _runs_in(text: str) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of a text.

    Raises:
        ValueError: `runs_of` did not write the text.
    """
    found = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.append((int(first), int(last or first)))
    return found


@dataclass(slots=True)
class _Comparison:
    blank: array[int]
    named: bytearray
    cumulative: tuple[int, Mapping[str, Any]] | None = None
    broken: Break | None = None

    def read(self, seq: int, document: object) -> None:
        """Read the part of an erasure's document that names rows, in the order of the ledger."""
        if isinstance(document, dict) and "hash" in document:
            self.cumulative = seq, document
            return
        try:
            numbers = document["numbers"]  # type: ignore[index] # anything else raises
            base = document.get("base")  # type: ignore[attr-defined] # as above
            if base is not None:
                self._read_base(seq, base)
            self._name(seq, numbers)
        except (TypeError, KeyError, AttributeError, ValueError):
            self._break(seq, "is an erasure whose rows cannot be read")

    def _read_base(self, seq: int, base: str) -> None:
        if self.cumulative is None:
            raise ValueError(base)
        self._name(seq, base)
        rows = [*compress(self.blank, self.named)]
        if not _are_named_by(rows, self.cumulative[1]):
            self._break(seq, "is an erasure that changes which rows earlier erasures name")
        self.cumulative = None

    def _name(self, seq: int, numbers: str) -> None:
        for first, last in _runs_in(numbers):
            low, high = bisect_left(self.blank, first), bisect_right(self.blank, last)
            if high - low != last - first + 1 or last >= seq:
                self._break(first, f"has content, and the erasure of row {seq} names it")
            self.named[low:high] = b"\1" * (high - low)

    def _break(self, seq: int, problem: str) -> None:
        self.broken = self.broken or Break(seq, problem)

    def result(self) -> ErasedRows:
        """Return the blank rows that no erasure names."""
        foreign = [seq for seq, named in zip(self.blank, self.named, strict=True) if not named]
        if self.cumulative is None:
            return ErasedRows(foreign, 0, self.broken)
        seq, document = self.cumulative
        place = bisect_left(foreign, seq)
        base, later = foreign[:place], foreign[place:]
        if _are_named_by(base, document):
            return ErasedRows(later, 0, self.broken, base)
        covered = document.get("rows")
        counts = f"{len(base)} rows before it are erased, and it covers {covered}"
        self._break(seq, f"{counts}; they are not the same rows")
        surplus = len(base) - covered if isinstance(covered, int) else 0
        return ErasedRows(later, max(surplus, 1), self.broken)


def _are_named_by(rows: Iterable[int], document: Mapping[str, Any]) -> bool:
    return cumulative_document(rows) == {key: document.get(key) for key in ("rows", "hash")}


def compare_erasures(blank: Iterable[int], erasures: Iterable[tuple[int, object]]) -> ErasedRows:
    """Compare the blank rows of a ledger with the rows that its erasures name.

    Args:
        blank: The numbers of the blank rows, in order.
        erasures: The number of each erasure's row and what it names, in order.
    """
    rows = array("q", blank)
    comparison = _Comparison(rows, bytearray(len(rows)))
    for seq, document in erasures:
        comparison.read(seq, document)
    return comparison.result()


_PREFIX = "rewrite"
_TO_REWRITE, _REWRITTEN = 0, 1


def begin_rewrites(session: Session, row: int) -> None:
    """Record that both stores have bytes of an erasure; in its transaction.

    Args:
        session: Of the facts.
        row: The ledger row of the erasure.
    """
    for store in get_args(StoreName):
        name = _name_of(Rewrite(store, row))
        session.do("ledger.add_number", {"name": name, "value": _TO_REWRITE})


def read_rewrites(session: Session) -> list[Rewrite]:
    """Return what is left to do, by store and row."""
    found = []
    for name, value in session.rows("rewrites.pending"):
        _, store, row = name.split("/")
        found.append(Rewrite(store, int(row), value == _REWRITTEN))
    return sorted(found)


def note_rewritten(session: Session, rewrites: Collection[Rewrite]) -> None:
    """Record that only the logs of some stores have old bytes."""
    for rewrite in rewrites:
        session.do("ledger.set_number", {"name": _name_of(rewrite), "value": _REWRITTEN})


def end_rewrites(session: Session, rewrites: Collection[Rewrite]) -> None:
    """Record that no old byte is left."""
    session.do_each("rewrites.finish", [(_name_of(rewrite),) for rewrite in rewrites])


def _name_of(rewrite: Rewrite) -> str:
    return f"{_PREFIX}/{rewrite.store}/{rewrite.row}"
