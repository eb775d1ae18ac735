"""Read what a batch must know of the ledger before it appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from slumberd.consolidation.precedence import MultiValued
from slumberd.storage.engine import Session
from slumberd.storage.ledger.rows import GENESIS

_BEFORE_ALL = -(2**62)
"""In place of the instant of the last batch: microseconds before any instant."""


class LedgerEnd(NamedTuple):
    """The end of the ledger.

    Attributes:
        seq: The number of the last row; 0 without rows.
        chain: The chain hash of that row.
        at: The instant of the last batch, microseconds.
        key_number: Differs between the keys of ledgers; 0 without a key.
        multi_valued: The multi-valued predicates.
        has_quarantine: Whether any episode is quarantined.
        has_erasures: Whether any scope was ever erased.
        generations: The log row after which each generation of the log begins, and the number of
            that generation; the newest generation first.
    """

    seq: int
    chain: bytes
    at: int
    key_number: int
    multi_valued: MultiValued
    has_quarantine: bool
    has_erasures: bool
    generations: Sequence[tuple[int, int]]


def read_end(session: Session) -> LedgerEnd:
    """Return the end of the ledger."""
    [row] = session.rows("ledger.end")
    seq, chain, at, key_number, multi_valued, quarantine, erasures, generations = row
    found = [(after, generation) for generation, after in orjson.loads(generations)]
    return LedgerEnd(
        seq or 0,
        chain or GENESIS,
        _BEFORE_ALL if at is None else at,
        key_number,
        MultiValued.from_document(orjson.loads(multi_valued) if multi_valued else {}),
        bool(quarantine),
        bool(erasures),
        found,
    )
