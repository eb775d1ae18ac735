"""Read what a batch must know of the ledger before it appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from slumberd.consolidation.precedence import FIRST_LAW, LAWS, MultiValued, newest_law
from slumberd.errors import SchemaError
from slumberd.storage.engine import Session
from slumberd.storage.ledger.rows import GENESIS

LAW_RULE_ID = "@law"
"""The rule id of the firing that changes the law."""

_LAW_KEY = b'"law":'
"""It is in the document of a firing under a later law than the first."""

_EVERYTHING = 2**63 - 1
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
        law: The number of the law that rows are resolved under.
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
    law: int
    has_quarantine: bool
    has_erasures: bool
    generations: Sequence[tuple[int, int]]

    @property
    def has_batches(self) -> bool:
        """Whether `at` is the instant of a batch."""
        return self.at != _BEFORE_ALL


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
        law_at(session),
        bool(quarantine),
        bool(erasures),
        found,
    )


def law_at(session: Session, seq: int = _EVERYTHING) -> int:
    """Return the number of the law that was in force when a ledger row was written.

    The row of each firing names it. A ledger without rows begins with the newest law.

    Raises:
        SchemaError: A newer slumberd wrote the row, under a law that is unknown here.
    """
    row = session.one("ledger.firing_document", (seq,))
    return newest_law() if row is None else law_of(session, row[0])


def law_of(session: Session, document: bytes | None) -> int:
    """Return the number of the law that the document of a firing names.

    Raises:
        SchemaError: The law is unknown here.
    """
    if not document or _LAW_KEY not in document:
        return FIRST_LAW
    law = orjson.loads(document).get("law", FIRST_LAW)
    if law not in LAWS:
        problem = f"was written under a newer law ({law!r}, ours is {newest_law()})"
        raise SchemaError(session.where, problem, "use the slumberd that wrote it, or a newer one")
    return int(law)
