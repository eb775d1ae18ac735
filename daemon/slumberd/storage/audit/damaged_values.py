"""Find stored values that slumberd never writes, in the tables of a store of facts.

The ledger's chain shows every change of its rows. This check also reads the tables beside it, and
needs no valid row to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from slumberd.consolidation.precedence import FORMER
from slumberd.model.episode import EARLIEST, LATEST
from slumberd.storage.engine import Session

_NEVER = -(2**62)
"""Stands for an instant before every other one."""

_MOST = 2**62


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _MOST


def _is_instant(value: object) -> bool:
    return isinstance(value, int) and (value == _NEVER or EARLIEST <= value <= LATEST)


def _is_object(value: object) -> bool:
    return isinstance(_parse(value), dict)


def _is_list(value: object) -> bool:
    return isinstance(_parse(value), list)


def _is_counts(value: object) -> bool:
    document = _parse(value)
    return isinstance(document, dict) and all(
        isinstance(counts, dict) and all(map(_is_number, counts.values()))
        for counts in document.values()
    )


def _is_multi_valued(value: object) -> bool:
    return _is_setting(_parse(value))


def _is_setting(document: object) -> bool:
    """Return whether `MultiValued.document` could have written a value."""
    if not isinstance(document, dict):
        return False
    former = document.pop(FORMER, None)
    if former is not None:
        is_share = isinstance(former, dict) and isinstance(former.get("share"), int)
        if not (is_share and _is_setting(former.get("channels"))):
            return False
    return all(map(_is_several, document.values()))


def _is_several(value: object) -> bool:
    names = value.get("single_valued") if isinstance(value, dict) else value
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _parse(value: object) -> object:
    try:
        return orjson.loads(value) if isinstance(value, bytes | str) else None
    except orjson.JSONDecodeError:
        return None


def _is_anything(_: object) -> bool:
    return True


def _or_none(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or test(value)


_Columns = Mapping[str, Callable[[object], bool]]

_TABLES: Mapping[str, _Columns] = {
    "firings": {
        "n": _is_number, "rule": _is_text, "rule_hash": _is_text, "cause": _is_text,
        "at": _is_instant, "last_seq": _is_number, "generation": _is_number,
        "upto_seq": _is_number, "upto_eid": _is_anything, "counts": _is_counts,
    },
    "keys": {
        "key": _is_anything, "slot": _is_anything, "key_id": _is_number,
        "winner_at": _or_none(_is_instant), "winner_rank": _or_none(_is_number),
        "winner_id": _is_anything, "winner_part": _or_none(_is_number),
        "winner_fact": _is_anything, "winner_object": _is_anything,
        "retractions": _or_none(_is_anything), "replaced": _or_none(_is_anything),
    },
    "watermark": {
        "rule": _is_text, "seq": _is_number, "eid": _is_anything, "served": _is_instant,
    },
    "successes": {"rule": _is_text, "at": _is_instant},
    "quarantine": {
        "rule": _is_text, "channel": _is_text, "eid": _is_anything, "version": _is_number,
        "owner": lambda value: isinstance(value, str) and value.count("/") > 1,
        "reason": _is_text, "detail": _is_anything, "seq": _is_number,
    },
    "channels": {"seq": _is_number, "multi_valued": _is_multi_valued},
    "generations": {"generation": _is_number, "after": _is_number},
    "held_batches": {
        "rule": _is_text, "n": _is_number, "upto_seq": _is_number, "upto_eid": _is_anything,
        "problem": _is_anything, "approved": _is_number,
    },
    "unfinished_erasures": {
        "scope": _is_list, "eids": _is_list, "moment": _is_instant, "by": _is_anything,
    },
}  # fmt: skip
"""The columns of each table in the order of its statement, and what each value must be."""

_LEDGER: _Columns = {
    "seq": _is_number, "delta": _is_number, "firing": _is_number, "what": _is_number,
    "kind": _is_number, "reason": _is_text, "version": _is_number,
    "key_id": _or_none(_is_number), "at": _or_none(_is_instant), "fact_id": _is_anything,
    "replaces": _or_none(_is_list), "salt": _is_anything, "payload": _or_none(_is_object),
}  # fmt: skip


class DamagedValue(NamedTuple):
    """A value that slumberd never writes.

    Attributes:
        table: Its table, as copies call it.
        row: The first value of its row.
    """

    table: str
    row: object
    column: str
    value: object

    def words(self) -> str:
        """Return where it is, and what it is, in words."""
        value = repr(self.value)
        shown = value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}..."
        return f"table {self.table}, row {self.row!r}: {self.column} is {shown}"


_MOST_SHOWN = 60


def find_damaged_values(session: Session) -> Iterator[DamagedValue]:
    """Yield the values in the tables of a store of facts that slumberd never writes."""
    for table, columns in (*_TABLES.items(), ("ledger", _LEDGER)):
        for row in session.stream(f"whole_tables.read_{table}"):
            yield from _damaged_in(table, row, columns)


def _damaged_in(table: str, row: tuple[Any, ...], columns: _Columns) -> Iterator[DamagedValue]:
    # A statement may return further columns, which are checked elsewhere.
    for (column, is_valid), value in zip(columns.items(), row, strict=False):
        if not is_valid(value):
            yield DamagedValue(table, row[0], column, value)
