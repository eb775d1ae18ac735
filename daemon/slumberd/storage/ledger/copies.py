"""The row of a ledger that says from where the rows before it were copied.

The ledger of a part of a store has such a row after the copied rows. Before it, the numbers of rows
may have gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import orjson

from slumberd.storage.engine import Session

COPY = "@copy"
"""In place of a rule."""

COPIED = "copied"
"""The key of `Copied` in the document of the row."""


class Copied(NamedTuple):
    """What was copied.

    Attributes:
        head: The chain hash of the last row of the source, in hexadecimal.
        rows: The number of that row.
        kept: How many rows of the source the shard has.
        shard: The shard.
        shards: How many shards the database had.
    """

    head: str
    rows: int
    kept: int
    shard: int
    shards: int


def copies_in(session: Session) -> Iterator[tuple[int, Copied]]:
    """Yield the number and the content of each readable row of a copy, the newest first."""
    for seq, payload in session.rows("ledger.firing_rows_of_rule", (COPY,)):
        with suppress(ValueError, KeyError, TypeError):
            yield seq, Copied(**orjson.loads(payload)[COPIED])
