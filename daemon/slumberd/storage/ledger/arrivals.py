"""Rows of a ledger that say from where users or rows came, and which users left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import orjson

from slumberd.model.scope import ScopeFilter
from slumberd.storage.engine import Session
from slumberd.storage.ledger.erasure_search import key_range

ARRIVAL = "@arrival"
"""The rule id of the row that ends the rows of a user who came."""

DEPARTURE = "@departure"
"""The rule id of the row that names the rows of a user who left."""

ARRIVED, DEPARTED = "arrived", "departed"
"""The keys of `Arrival` and `Departure` in the documents of these rows."""

MOVED = "moved"
"""The key of the origin in the document of a firing that was moved."""

MOVED_GENERATION = -1

FORGETS_SCOPES = "forgets_scopes"
"""The key of the erased scopes that came along: their keyed hashes and moments."""


class Arrival(NamedTuple):
    """What the row of an arrival says.

    Attributes:
        source: The shard that the user left.
        head: The chain hash of the last row of its ledger, in hexadecimal.
        first: The number of the first row that arrived.
        rows: How many rows arrived, without those of firings.
        unclear: The first firing that may depend on rows that were erased; None without one.
    """

    source: int
    head: str
    first: int
    rows: int
    unclear: int | None = None


class Departure(NamedTuple):
    """What the row of a departure says.

    Attributes:
        target: The shard that has the user now.
        head: The chain hash of its row ``@arrival``, in hexadecimal.
    """

    target: int
    head: str


def arrivals_in(session: Session) -> Iterator[tuple[int, Arrival]]:
    """Yield the number and the content of each readable arrival, the newest first."""
    for seq, payload in session.rows("ledger.firing_rows_of_rule", (ARRIVAL,)):
        with suppress(ValueError, KeyError, TypeError):
            yield seq, Arrival(**orjson.loads(payload)[ARRIVED])


def first_row_of(session: Session, user: str) -> int | None:
    """Return the number of the first row that a user has in the ledger; None without one."""
    found = session.one("ledger.first_key_between", key_range(ScopeFilter(user, None, None)))
    return None if found is None else found[0]


def find_unclear(session: Session) -> int | None:
    """Return the first firing that may depend on erased rows; None when nothing was erased."""
    erased = session.one("replay.first_erased") or ()
    arrivals = [arrival.unclear for _, arrival in arrivals_in(session)]
    return min((n for n in (*erased, *arrivals) if n is not None), default=None)


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
