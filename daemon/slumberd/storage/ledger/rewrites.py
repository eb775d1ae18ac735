"""Keep on record which stores may still have bytes of erased rows.

The record is made in the transaction of the erasure, and deleted when the last byte is gone. It
names a row of the ledger, and nothing of the erased scope.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from slumberd.model.erasures import Rewrite, StoreName
from slumberd.storage.engine import Session

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
