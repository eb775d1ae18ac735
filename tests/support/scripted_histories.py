"""Histories of a state directory, and its state at the end of each."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.support.builders import at, triple


def says(intent: str, replaces: Any = None) -> dict[str, Any]:
    """Return metadata with an intent."""
    return {"intent": intent, "replaces": replaces}


FIRST = [
    triple("e1", "alice", "lives_in", "Porto", timestamp=at(1)),
    triple("e2", "alice", "lives_in", "Braga", timestamp=at(2)),
    triple("e3", "alice", "likes", "tea", timestamp=at(3)),
    triple("e4", "alice", "likes", "cake", timestamp=at(4)),
    triple("e5", "alice", "owns", "a pan", timestamp=at(5)),
    triple("e6", "alice", "owns", "a cat", timestamp=at(6), metadata=says("remember")),
    triple("e7", "bob", "lives_in", "Faro", timestamp=at(7), user="bob"),
    triple("e8", "bob", "likes", "figs", timestamp=at(8), user="bob"),
    triple("e9", "bob", "owns", "a boat", timestamp=at(9), user="bob"),
    triple("e10", "alice", "reads", "Pessoa", timestamp=at(10)),
    triple("e11", "alice", "reads", "Lispector", timestamp=at(11), metadata=says("noop")),
]
"""Adds, updates, a noop, and an episode for the quarantine."""

LATER = [
    triple("f1", "alice", "lives_in", "Lisbon", timestamp=at(21)),
    triple("f2", "alice", "owns", "a pot", timestamp=at(22), metadata=says("update", "e5")),
    triple("f3", "alice", "likes", None, timestamp=at(23), metadata=says("delete")),
    triple(
        "f4", "alice", "reads", "Saramago", timestamp=at(24), metadata=says("delete", ["e10", "?"])
    ),
    triple("f5", "alice", "lives_in", "Evora", timestamp=at(0)),
    triple("e6", "alice", "owns", "a cat", timestamp=at(6)),
    triple("e9", "bob", "owns", "a ship", timestamp=at(9), user="bob"),
    triple("f6", "alice", "is", "x", timestamp=at(26), metadata=says("update", 7)),
    triple("f7", "bob", "likes", "dates", timestamp=at(27), user="bob"),
    triple("f8", "bob", "likes", "plums", timestamp=at(8.5), user="bob"),
    triple("f9", "bob", "reads", "Camoes", timestamp=at(29), user="bob"),
]
"""Updates, deletes, late episodes, edits (one repairs a quarantined episode), more quarantine."""

MEANWHILE = [
    triple("g1", "carol", "lives_in", "Tavira", timestamp=at(31), user="carol"),
    triple("g2", "alice", "reads", "Peixoto", timestamp=at(3.5)),
    triple("g3", "carol", "likes", "olives", timestamp=at(33), user="carol"),
    triple("g4", "alice", "owns", "nothing", timestamp=at(34), metadata=says("delete")),
]
"""What a writer puts while the command runs and is killed."""

EDIT = triple("e1", "alice", "lives_in", "Sintra", timestamp=at(1))
"""An edit of an episode that was evaluated before."""


@dataclass(frozen=True)
class State:
    """The state of a state directory, without the instants of the firings.

    Attributes:
        facts: Every column of each fact, by id.
        ledger: The number of rows by rule, event, fact id and version.
        marks: The watermark of each rule.
        accounts: How many versions the firings of each rule have read.
    """

    facts: dict[str, Any]
    ledger: Counter[tuple[Any, ...]]
    marks: dict[str, tuple[int, str]]
    accounts: dict[str, int]

    @classmethod
    def of(cls, path: Path) -> State:
        """Read the state of a store of facts."""
        with closing(sqlite3.connect(path)) as connection:
            return cls(
                {row[0]: _timeless(row) for row in connection.execute(_FACTS)},
                Counter(connection.execute(_LEDGER)),
                {rule: (seq, eid) for rule, seq, eid in connection.execute(_MARKS)},
                _accounts(connection),
            )


_FACTS = "SELECT fact_id, user, agent, payload, lineage, confidence, metadata FROM facts"
_LEDGER = """
SELECT f.rule, l.what, l.fact_id, l.version FROM slumberd_ledger AS l
JOIN slumberd_firings AS f ON f.n = l.firing WHERE l.what <> 0
"""
_MARKS = "SELECT rule, seq, eid FROM slumberd_watermark"
_LEAST = "SELECT count(*), min(seq) FROM slumberd_watermark"
_VARYING = ("promotion_ts", "pid", "by")


def _timeless(row: tuple[Any, ...]) -> tuple[Any, ...]:
    _, user, agent, payload, lineage, confidence, metadata = row
    entries = [
        {name: value for name, value in entry.items() if name not in _VARYING}
        for entry in orjson.loads(lineage)
    ]
    return user, agent, orjson.loads(payload), entries, confidence, orjson.loads(metadata)


def _accounts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many versions each rule has read, in all channels."""
    found: Counter[str] = Counter()
    for rule, counts in connection.execute("SELECT rule, counts FROM slumberd_firings"):
        found[rule] += sum(channel["read"] for channel in orjson.loads(counts).values())
    return dict(found)


def unlogged(facts: Path, log: Path) -> list[str]:
    """Return the rows of a ledger that have no line in the log; a line may be there twice."""
    with closing(sqlite3.connect(facts)) as connection:
        rows = {seq for (seq,) in connection.execute("SELECT seq FROM slumberd_ledger WHERE kind")}
    for line in log.read_bytes().splitlines():
        if b'"delta.applied"' in line and line.endswith(b"}"):
            rows.discard(orjson.loads(line)["seq"])
    return [f"row {seq} is not in the log" for seq in sorted(rows)]


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)


def newest_in(memory: Path) -> int:
    """Return the last number of an episode log."""
    with closing(sqlite3.connect(memory)) as connection:
        found: int = connection.execute("SELECT max(seq) FROM slumberd_episode_log").fetchone()[0]
        return found


def lowest_watermark_in(facts: Path, rules: int) -> int:
    """Return up to where all of so many rules have read; 0 when a rule has not begun."""
    with suppress(sqlite3.OperationalError), closing(_reading(facts)) as connection:
        count, least = connection.execute(_LEAST).fetchone()
        return int(least) if count == rules else 0
    return 0


def last_firing_in(path: Path) -> int:
    """Return the number of the last firing of a store of facts."""
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT max(n) FROM slumberd_firings").fetchone()[0]
        return found
