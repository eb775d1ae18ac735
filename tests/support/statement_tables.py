"""Small databases in which every condition counts, and oracles of the statements that run on them.

The rows are random, from few values: for each condition of a statement some rows differ in what it
compares only. Named statements run on these databases. Oracles compute the same in plain Python.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import orjson

from slumberd.sql_statements import statements
from slumberd.storage.engine import Row
from slumberd.storage.sqlite.session import SQLiteSession
from tests.support.sample_sizes import amount

SEEDS = range(amount(4, full=4))
RULES = ["a", "b", "c", "@undo", "@quarantine", "@erasure", "@clock"]
FACTS = ["f1", "f2", "f3", "f4", "f5", "f6", "@/m1", "@/m2", "@x/m3", "f1#1", "f1#12"]
KEYS = [f"k{number}" for number in range(1, 10)]
WITHOUT_WHOLE_SLOT = "k3"
"""A key whose other slots only are known."""

SLOTS = ["", "@", "@f1", "@f2", '"o"', "A"]
EPISODES = ["e1", "e2", "e3", "e4", ""]
LINEAGES = [
    b"[]", b"no JSON", "[]", b'["e1", 5]', b'{"source_episode_ids": ["e4"]}',
    b'[{"source_episode_ids": ["e1"]}, {"source_episode_ids": ["e2", "e3"]}]',
    '[{"rule_id": "r1"}, {"source_episode_ids": ["e2"]}]',
    b'[{"source_episode_ids": "e3"}, {"source_episode_ids": [["e4"], 5]}]',
]  # fmt: skip

Values = Mapping[str, Any] | Sequence[Any]
Oracle = Callable[..., list[Any]]


_SELECTED = {
    "facts": "* FROM facts",
    "rowids_of_facts": "rowid AS rid, * FROM facts",
    "external_changes": "*, 1 FROM slumberd_external_changes",
    "episodes": "rowid AS rid, * FROM episodes",
    "schema": "* FROM sqlite_master",
}
"""What is read of the tables that have other names."""


class Tables:
    """A database, the rows of its tables in plain Python, and the statements that run on it.

    An attribute is a table: ``tables.ledger`` is ``slumberd_ledger``, in the order of its key.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._session = SQLiteSession(connection, "")
        self._known: dict[str, list[SimpleNamespace]] = {}

    def __getattr__(self, name: str) -> list[SimpleNamespace]:
        if name not in self._known:
            self._known[name] = [SimpleNamespace(**row) for row in self._read(name)]
        return self._known[name]

    def _read(self, name: str) -> list[dict[str, Any]]:
        selected = _SELECTED.get(name, f"* FROM slumberd_{name}")
        cursor = self._connection.execute(f"SELECT {selected} ORDER BY 1, 2")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    @property
    def own_firings(self) -> list[SimpleNamespace]:
        """Return the firings that were not moved from another shard."""
        return [firing for firing in self.firings if firing.generation >= 0]

    def firing(self, row: SimpleNamespace) -> SimpleNamespace:
        """Return the firing of a row of the ledger."""
        return next(firing for firing in self.firings if firing.n == row.firing)

    def row(self, seq: int) -> SimpleNamespace:
        """Return the row of the ledger with a number."""
        return next(row for row in self.ledger if row.seq == seq)

    def run(self, sql: str) -> None:
        """Run SQL that no file of the engine holds, to change the rows."""
        self._connection.execute(sql)
        self._known.clear()

    def rows(self, name: str, values: Values) -> list[Row]:
        """Return the rows of a statement."""
        return self._session.rows(name, values)

    def rows_after(self, name: str, values: Values, table: str) -> list[Row]:
        """Run a statement, return the rows of a table then, and undo the statement."""
        self._connection.execute("SAVEPOINT statement")
        try:
            self._session.do(name, values)
            return [tuple(row.values()) for row in self._read(table)]
        finally:
            self._connection.execute("ROLLBACK TO statement")
            self._connection.execute("RELEASE statement")


class Case(NamedTuple):
    """A statement and its oracle.

    Attributes:
        values: Parameters; the statement runs once with each.
        oracle: Returns the rows of the statement, or of the table that it changes.
        table: The table that it changes; empty when it only reads.
        ordered: Whether the order of the rows counts.
    """

    name: str
    values: tuple[Values, ...]
    oracle: Oracle
    table: str
    ordered: bool

    def check(self, tables: Tables) -> None:
        """Compare the statement with its oracle on one database."""
        for values in self.values:
            wanted = self._wanted(tables, values)
            if self.table:
                found = tables.rows_after(self.name, values, self.table)
            else:
                found = tables.rows(self.name, values)
            assert self._comparable(found) == self._comparable(wanted), values

    def _wanted(self, tables: Tables, values: Values) -> Sequence[Sequence[Any]]:
        if isinstance(values, Mapping):
            return self.oracle(tables, **values)
        return self.oracle(tables, *values)

    def _comparable(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        plain = [[_as_bytes(value) for value in row] for row in rows]
        return plain if self.ordered else sorted(plain, key=repr)


def _as_bytes(value: object) -> object:
    """Return texts as bytes: some statements read texts as bytes, to compare what is stored."""
    return value.encode() if isinstance(value, str) else value


class Oracles:
    """The oracles of the statements of one file.

    Each has the name of its statement, with an underscore after it where Python uses the name.

    Attributes:
        cases: By the name of the statement.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self.cases: dict[str, Case] = {}

    def rows(self, *values: Values, in_any_order: bool = False) -> Callable[[Oracle], Oracle]:
        """Register the oracle of a statement that reads."""
        return self._register(values, "", ordered=not in_any_order)

    def table(self, table: str, *values: Values) -> Callable[[Oracle], Oracle]:
        """Register the oracle of a statement that changes a table: it returns the changed rows."""
        return self._register(values, table, ordered=False)

    def _register(
        self, values: tuple[Values, ...], table: str, *, ordered: bool
    ) -> Callable[[Oracle], Oracle]:
        def register(oracle: Oracle) -> Oracle:
            name = oracle.__name__.rstrip("_")
            case = Case(f"{self._file}.{name}", values or ((),), oracle, table, ordered)
            self.cases[name] = case
            return oracle

        return register

    def without_oracle(self) -> set[str]:
        """Return the names of the statements that have no oracle."""
        return statements(self._file).keys() - self.cases.keys()


def values_of(row: SimpleNamespace, *columns: str) -> Row:
    """Return some columns of a row; all without names."""
    return tuple(getattr(row, column) for column in columns or vars(row))


def recorded_at(t: Tables, firing: SimpleNamespace) -> int:
    """Return the earliest instant of a firing and of all later rows `@clock`."""
    later = (one.at for one in t.firings if one.rule == "@clock" and one.n > firing.n)
    moved = [firing.upto_seq] if firing.generation < 0 else []
    earliest: int = min([firing.at, *moved, *later])
    return earliest


def changed(row: SimpleNamespace, **columns: Any) -> Row:
    """Return all columns of a row, some of them changed."""
    return tuple({**vars(row), **columns}.values())


@contextmanager
def tables_of_facts(seed: int) -> Iterator[Tables]:
    """Yield a database with all tables of a file of facts, in memory."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(statements("facts")["create_facts"])
        for sql in statements("ledger_schema").values():
            connection.execute(sql)
        for name in ("create_erasure_key", "create_erased_scopes"):
            connection.execute(statements("erased_scopes")[name])
        _Writer(connection, random.Random(seed)).write()
        yield Tables(connection)


class _Writer:
    """Writes random rows into every table of a file of facts."""

    def __init__(self, connection: sqlite3.Connection, chance: random.Random) -> None:
        self._connection = connection
        self._chance = chance

    def write(self) -> None:
        for n in self._write_ledger():
            self._insert("channels", n, b"{%d}" % n)
        self._write_keys()
        self._write_facts()
        for referrer in FACTS:
            for referenced in self._chance.sample(FACTS, 3):
                self._insert("references", referenced, referrer)
        for rule in RULES:
            self._write_rule(rule)
        for generation in (1, 2, 3):
            self._insert("generations", generation, 10 - generation)
        for name in ("asserted:b", "asserted:a", "other", "asserted"):
            self._insert("numbers", name, self._chance.randrange(90))
        self._insert("numbers", "rewrite/facts/7", 1)
        self._connection.execute("UPDATE slumberd_numbers SET value = 40 WHERE name = 'logged'")
        self._connection.execute("UPDATE slumberd_numbers SET value = 2 WHERE name = 'ours'")
        for n in (1, 2, 3):
            self._insert("erased_scopes", bytes([n]), 10 * n)
            self._insert("unfinished_erasures", f"s{n}", b"[]", n, f"by{n}")
        self._insert("erasure_key", 1, b"key")

    def _write_ledger(self) -> Iterator[int]:
        seq = 0
        for index in range(24):
            n = seq = seq + 1
            rule = RULES[index % len(RULES)]
            self._insert("ledger", *self._own_row(n, rule))
            for _ in range(self._chance.randrange(8)):
                seq += 1
                self._insert("ledger", *self._row(seq, n))
            self._insert("firings", *self._firing(n, rule, seq))
            if index % 5 == 0:
                yield n

    def _firing(self, n: int, rule: str, last_seq: int) -> Row:
        chance = self._chance
        return (
            n, rule, f"h{chance.randrange(2)}", chance.choice(["every", "cron"]),
            chance.randrange(10), last_seq, chance.choice((-1, 0, 1, 2)), chance.randrange(20),
            chance.choice(EPISODES), chance.choice([b"{}", b'{"facts":%d}' % n]),
        )  # fmt: skip

    def _own_row(self, n: int, rule: str) -> Row:
        contents: list[Any] = [
            {"run": "r1"}, {"run": "r2", "undoes": n - 1}, {"of": {"run": "r1"}, "undoes": n - 2},
            {"approves": 1, "run": "r1"}, {"by": "r1"}, {"text": '"approves":', "run": "r2"},
        ]  # fmt: skip
        payload = b"no JSON" if rule == "c" else orjson.dumps(self._chance.choice(contents))
        salt = self._chance.choice([None, b"s", b"s"])
        return (n, n, n, 0, 0, "", 0, None, None, None, None, salt, payload, b"c", b"%d" % n)

    def _row(self, seq: int, firing: int) -> Row:
        chance = self._chance
        what = chance.choice([1, 1, 1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8])
        key_id = chance.choice([None, None, 1, 2, 3, 4, 5])
        fact_id = chance.choice(
            [None, None, None, *[f"only{seq}", f"pair{seq // 8}"] * 2, "f1", *FACTS]
        )
        if str(fact_id).startswith("pair") and chance.random() < 0.8:
            key_id = 5
        replaces = chance.choice([None, orjson.dumps(chance.sample(FACTS, 2)).decode()])
        return (
            seq, 1000 - seq, firing, what, chance.randrange(5),
            chance.choice(["", "unresolved", "unresolved", "retracted", "known"]),
            chance.randrange(4), key_id, chance.choice([None, *range(9)]), fact_id, replaces,
            chance.choice([None, b"s"]), chance.choice([None, self._claim(), self._claim()]),
            b"c%d" % seq, b"h%d" % seq,
        )  # fmt: skip

    def _claim(self) -> bytes:
        chance = self._chance
        claim: dict[str, Any] = {"asserts": chance.random() < 0.7, "session": chance.choice("st")}
        if chance.random() < 0.7:
            claim["names"] = chance.sample(FACTS, 2)
        if chance.random() < 0.2:
            claim["approves"] = 1
        claim["payload"] = {"object": chance.choice(["o", "p", 1])}
        if chance.random() < 0.2:
            claim["payload"]["extracted"] = {"by": "tea"}
        if chance.random() < 0.5:
            claim["clears"] = True
        return orjson.dumps(claim)

    def _write_keys(self) -> None:
        chance = self._chance
        for number, key in enumerate(KEYS, 1):
            whole = [] if key == WITHOUT_WHOLE_SLOT else [""]
            for slot in [*whole, *chance.sample(SLOTS[1:], 3)]:
                winner = chance.choice([None, *FACTS, *FACTS])
                known = [None] * 4 if winner is None else [chance.randrange(4), chance.randrange(2),
                    chance.choice("xy"), chance.randrange(3)]  # fmt: skip
                object_ = None if winner is None else chance.choice(['"o"', '"p"'])
                retractions = chance.choice([None, b"{}"])
                siblings = [[7, FACTS[number % len(FACTS)], '"q"']] if winner and not slot else []
                replaced = (
                    orjson.dumps({"replaced": [], "siblings": siblings}) if siblings else b"[]"
                )
                self._insert(
                    "keys", key, slot, number, *known, winner, object_, retractions, replaced
                )
        for number, key in enumerate(("erased", "unused"), 90):
            self._insert("keys", key, "", number, *[None] * 8)
        erased = (900, 0, 1, 1, 1, "", 0, 90, *[None] * 5, b"c", b"h")
        self._insert("ledger", *erased)

    def _write_facts(self) -> None:
        chance = self._chance
        for fact_id in chance.sample([*FACTS, "other", "%", "@marks/e1", "@weights/e1"], 9):
            content = {
                slot: chance.choice(["x", "y", "z"])
                for slot in ("subject", "predicate", "object")
                if chance.random() < 0.9
            }
            payload = b"no JSON" if chance.random() < 0.1 else orjson.dumps(content)
            owner = (chance.choice(["alice", "bob", "al"]), chance.choice(["rag", "web", "r"]))
            instant = f"2026-01-0{chance.randrange(1, 9)}T00:00:00+00:00"
            lineage = chance.choice(LINEAGES)
            values = (fact_id, *owner, payload, lineage, 0.5, b"{}", instant)
            self._connection.execute(f"INSERT INTO facts VALUES ({_marks(values)})", values)

    def _write_rule(self, rule: str) -> None:
        chance = self._chance
        eid = chance.choice(EPISODES)
        self._insert("watermark", rule, chance.randrange(20), eid, chance.randrange(20))
        self._insert("successes", rule, chance.randrange(20))
        if chance.random() < 0.7:
            number, upto, approved = (chance.randrange(1, most) for most in (130, 30, 3))
            self._insert("held_batches", rule, number, upto, eid, "why", approved % 2)
        pairs = [(channel, eid) for channel in ("facts", "notes") for eid in EPISODES[:4]]
        for channel, held in chance.sample(pairs, 4):
            reason, seq = chance.choice(["r1", "future"]), chance.randrange(1, 110)
            detail = chance.choice(["d1", "d2", "d3"])
            self._insert("quarantine", rule, channel, held, 1, "alice", reason, detail, seq)

    def _insert(self, table: str, *values: Any) -> None:
        sql = f"INSERT INTO slumberd_{table} VALUES ({_marks(values)})"
        self._connection.execute(sql, values)


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
