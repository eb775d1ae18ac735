"""The floor: what SQLite alone takes to write the rows that slumberd wrote.

``python -m tests.bench.floor CONSOLIDATED TARGET`` writes the final rows of a database of facts
(facts, ledger, keys, firings) into a new one with the same tables and indexes, ready-made, by
``executemany``, in one transaction for each batch, under the same pragmas. Reading them is not
timed. Prints wall and processor seconds as JSON.

`write_own` and `write_fewest` write episodes, too, 1,000 in a transaction.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from slumberd.storage.sqlite.connection import _configure
from slumberd.storage.sqlite.engine import CheckpointPolicy
from slumberd.storage.sqlite.memory_store import LOG_PAGES
from slumberd.storage.sqlite.session import Pragmas
from tests.bench.measuring import Cost, timed, total

Rows = list[tuple[Any, ...]]

FACTS = Pragmas(synchronous="full", cache_mebibytes=32, log_pages=CheckpointPolicy().backlog_pages)
"""How `SQLiteFactStore` sets up its connection in a backlog."""

MEMORY = Pragmas(log_pages=LOG_PAGES)
"""How `SQLiteMemoryStore` sets up its connection."""

_IMPORTED = 1_000
"""Episodes in one transaction of an import."""

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


def create(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    tables: Collection[str] | None = None,
    *,
    triggers: bool = False,
    indexed: bool = True,
) -> None:
    """Give a new database the tables and indexes of another, and its triggers if asked.

    Args:
        tables: Only these tables, and their indexes; None for all.
        indexed: Whether slumberd's indexes are among them.
    """
    definitions = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    found = source.execute(f"{definitions} AND name NOT LIKE 'sqlite%'").fetchall()
    for kind, name, table, sql in found:
        is_wanted = triggers or kind != "trigger"
        is_wanted &= indexed or kind != "index" or not name.startswith("slumberd_")
        if is_wanted and (tables is None or table in tables):
            target.execute(sql)


def write(target: sqlite3.Connection, rows: dict[str, Rows]) -> None:
    """Write one batch in one transaction."""
    target.execute("BEGIN IMMEDIATE")
    for table, some in rows.items():
        if some:
            values = ", ".join("?" * len(some[0]))
            target.executemany(f"INSERT INTO {table} VALUES ({values})", some)
    target.execute("COMMIT")


def write_fewest(memory: Path, facts: Path, target: Path, *, indexed: bool = True) -> Cost:
    """Write the fewest rows that a user must have: each episode, and each fact as it is now.

    There is nothing that explains a fact, takes it back, or finds what is new: no ledger, keys,
    firings or numbers of episodes.

    Args:
        indexed: Whether the tables have slumberd's indexes, which its reads need.
    """
    costs: list[Cost] = []
    with closing(sqlite3.connect(memory)) as source, _opened(target, "memory.db") as written:
        create(source, written, {"episodes"}, indexed=indexed)
        costs += _copy_episodes(source, written)
    with closing(sqlite3.connect(facts)) as source, _opened(target, "facts.db") as written:
        create(source, written, {"facts"}, indexed=indexed)
        for rows in batches(source):
            costs.append(timed(partial(write, written, {"facts": rows["facts"]}))[1])
        costs.append(_checkpoint(written))
    return total(costs)


def write_own(memory: Path, facts: Path, target: Path) -> Cost:
    """Write the rows that slumberd wrote; triggers number the episodes."""
    with closing(sqlite3.connect(memory)) as source, _opened(target, "memory.db") as written:
        create(source, written, triggers=True)
        costs = [*_copy_episodes(source, written)]
    return total([*costs, write_facts(facts, target / "facts.db")])


def write_facts(facts: Path, target: Path) -> Cost:
    """Write the final rows of a database of facts into a new one."""
    with closing(sqlite3.connect(facts)) as source, _opened(target.parent, target.name) as written:
        create(source, written)
        costs = [timed(partial(write, written, rows))[1] for rows in batches(source)]
        return total([*costs, _checkpoint(written)])


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[sqlite3.Connection]:
    path = folder / name
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        _configure(connection, MEMORY if name == "memory.db" else FACTS, "write")
        yield connection


def _copy_episodes(source: sqlite3.Connection, target: sqlite3.Connection) -> Iterator[Cost]:
    found = source.execute("SELECT * FROM episodes ORDER BY rowid")
    while rows := found.fetchmany(_IMPORTED):
        yield timed(partial(write, target, {"episodes": rows}))[1]
    yield _checkpoint(target)


def _checkpoint(target: sqlite3.Connection) -> Cost:
    return timed(lambda: target.execute("PRAGMA wal_checkpoint = TRUNCATE").fetchall())[1]


def main(consolidated: str, path: str) -> None:
    """Write the facts alone, and print what that took."""
    cost = write_facts(Path(consolidated), Path(path))
    print(json.dumps({"wall": cost.wall, "processor": cost.processor}))


if __name__ == "__main__":
    main(*sys.argv[1:])
