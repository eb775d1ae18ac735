"""The floor: what SQLite alone takes to write the rows that slumberd wrote.

``python -m tests.bench.floor CONSOLIDATED TARGET`` writes the final rows of a database of facts
(facts, ledger, keys, firings) into a new one with the same tables and indexes, ready-made, by
``executemany``, in one transaction for each batch, under the same pragmas. Reading them is not
timed. Prints wall and processor seconds as JSON.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from slumberd.storage.sqlite.connection import _configure
from slumberd.storage.sqlite.engine import CheckpointPolicy
from slumberd.storage.sqlite.session import Pragmas
from tests.bench.measuring import timed

Rows = list[tuple[Any, ...]]

FACTS = Pragmas(synchronous="full", cache_mebibytes=32)
"""How `SQLiteFactStore` sets up its connection."""

_FACTS = """
    SELECT f.* FROM slumberd_ledger l JOIN facts f ON f.fact_id = l.fact_id
    WHERE l.seq BETWEEN ? AND ? AND l.kind IN (1, 2) ORDER BY l.seq
"""


def batches(source: sqlite3.Connection) -> Iterator[dict[str, Rows]]:
    """Yield the final rows of every batch, by table, in the order of the ledger."""
    firings = source.execute("SELECT * FROM slumberd_firings ORDER BY n").fetchall()
    keys: dict[int, Rows] = defaultdict(list)
    first = {seq: row[0] for row in firings for seq in range(row[0], row[5] + 1)}
    for row in source.execute("SELECT * FROM slumberd_keys ORDER BY key_id"):
        keys[first[row[2]]].append(row)
    for firing in firings:
        span = (firing[0], firing[5])
        ledger = "SELECT * FROM slumberd_ledger WHERE seq BETWEEN ? AND ? ORDER BY seq"
        yield {
            "slumberd_firings": [firing],
            "slumberd_ledger": source.execute(ledger, span).fetchall(),
            "slumberd_keys": keys[firing[0]],
            "facts": source.execute(_FACTS, span).fetchall(),
        }


def create(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Give a new database the tables and indexes of another; not its triggers."""
    definitions = (
        "SELECT sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql IS NOT NULL"
    )
    for (sql,) in source.execute(f"{definitions} AND name NOT LIKE 'sqlite%'").fetchall():
        target.execute(sql)


def write(target: sqlite3.Connection, rows: dict[str, Rows]) -> None:
    """Write one batch in one transaction."""
    target.execute("BEGIN IMMEDIATE")
    for table, some in rows.items():
        if some:
            values = ", ".join("?" * len(some[0]))
            target.executemany(f"INSERT INTO {table} VALUES ({values})", some)
    target.execute("COMMIT")


def main(consolidated: str, path: str) -> None:
    """Write all of it, and print what that took."""
    Path(path).unlink(missing_ok=True)
    with (
        closing(sqlite3.connect(consolidated)) as source,
        closing(sqlite3.connect(path, isolation_level=None)) as target,
    ):
        _configure(target, FACTS, "write")
        target.execute(f"PRAGMA wal_autocheckpoint = {CheckpointPolicy().backlog_pages:d}")
        create(source, target)
        costs = [timed(partial(write, target, rows))[1] for rows in batches(source)]
        costs.append(
            timed(lambda: target.execute("PRAGMA wal_checkpoint = TRUNCATE").fetchall())[1]
        )
    print(
        json.dumps(
            {"wall": sum(c.wall for c in costs), "processor": sum(c.processor for c in costs)}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
