"""Small databases of episodes, for the oracles of the statements that run on them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from slumberd.sql_statements import statements
from slumberd.storage.engine import Row
from tests.support.statement_tables import Tables

KEYS_OF_SCOPES = [
    "/user/alice/session/s1/agent/rag/", "/user/alice/session/s1/agent/web/",
    "/user/alice/session/s2/agent/rag/", "/user/alice/session/s10/agent/bag/",
    "/user/alice/session/s2/agent/cab/", "/user/al/session/s1/agent/rag/",
    "/user/bob/session/s1/agent/rag/", "/user/anon/session/default/agent/default/",
    "/user/a/b/session/s1/agent/rag/", "no key",
]  # fmt: skip
CONTENTS = [
    '{"agent":"rag","user":"alice","session":"s1"}',
    '{"agent":"web","user":"alice","session":"s1"}',
    '{"agent":"rag","user":"alice","session":"s2"}',
    '{"agent":"rag","user":"bob","session":"s1"}',
    '{"agent":"rag","user":"alice","session":"s1","n":1}',
    '{"user":"alice","session":"s1"}',
    '{"agent":"rag","user":"\\u0061lice","session":"s1"}',
    '{"agent":"rag","user":"alice"}',
    '{"agent":"rag","user":"alice","other":"s1"}',
    '{"text":"\\u0061","agent":"rag","user":"alice","session":"s1"}',
    "\\ no JSON",
]
FLOORS = ["", "2026-01-01T12:00:00", "2026-01-02T06:00:00Z"]
AT_A_FLOOR = [
    ("/user/alice/session/s1/agent/rag/", FLOORS[2]),
    ("/user/anon/session/default/agent/default/", FLOORS[2]),
    ("/user/bob/session/s1/agent/rag/", "soon"),
]
OFFSETS = ["+00:00", "+00:00", ".250000+00:00", ".000000+00:00", "+05:30", "Z", ""]


@contextmanager
def tables_of_episodes(seed: int) -> Iterator[Tables]:
    """Yield a database with all tables and indexes of a file of episodes, in memory."""
    chance = random.Random(seed)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for sql in _schema():
            connection.execute(sql)
        connection.executemany("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", _episodes(chance))
        # SQLite lets other programs write NULL into a primary key that is a text.
        connection.execute("UPDATE episodes SET id = NULL WHERE id = 'e07'")
        _write_log(connection, chance)
        _write_answers(connection, chance)
        for n in (1, 2, 3):
            connection.execute("INSERT INTO slumberd_erased_scopes VALUES (?, ?)", (bytes([n]), n))
        connection.execute("INSERT INTO slumberd_erasure_key VALUES (1, x'00')")
        yield Tables(connection)


def _schema() -> Iterator[str]:
    """Yield the statements that create every table and index, but no trigger."""
    yield from (sql for sql in statements("episodes").values() if "CREATE" in sql)
    yield statements("accesses")["create_table"]
    yield statements("episode_log")["create_table"]
    yield statements("episode_log")["create_log_index"]
    yield statements("index_feed")["create_table"]
    yield from (sql for sql in statements("extractions").values() if sql.startswith("CREATE"))
    yield statements("erased_scopes")["create_erased_scopes"]
    yield statements("erased_scopes")["create_erasure_key"]


def _write_log(connection: sqlite3.Connection, chance: random.Random) -> None:
    """Write 60 rows of the log, some of rows that are gone, and accesses of the episodes."""
    rows = connection.execute("SELECT rowid, id, scope_key FROM episodes").fetchall()
    for rid, eid, key in chance.choices(rows, k=60):
        noted = chance.choice([(rid, eid), (rid, eid), (rid, eid), (None, eid), (rid, "gone")])
        connection.execute("INSERT INTO slumberd_episode_log (rid, eid) VALUES (?, ?)", noted)
        access = (eid or "gone", chance.choice([key, key, "other"]), chance.randrange(3),
                  chance.choice([None, 5, 9]), chance.randrange(2))  # fmt: skip
        sql = "INSERT OR IGNORE INTO slumberd_accesses VALUES (?, ?, ?, ?, ?)"
        connection.execute(sql, access)
    for number in (None, 1, 2, 3, 4, 5, 6, 7, 8, 9):
        connection.execute("INSERT INTO slumberd_episode_deletions (rid) VALUES (?)", (number,))
    connection.execute("INSERT INTO slumberd_accesses VALUES ('lost', 'k', 1, 1, 1)")


def _write_answers(connection: sqlite3.Connection, chance: random.Random) -> None:
    """Write recorded answers about some episodes, and about one that is gone."""
    for number, eid in enumerate(["e01", "e03", "e03", "e08", "gone"]):
        values = (f"k{number}", eid, "tiny", chance.choice(["ok", "invalid"]), "[]",
                  number, "why", "text", 1 + number, 10 * number)  # fmt: skip
        places = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO slumberd_extractions VALUES ({places})", values)
    for number, eid in enumerate(["e01", "e03", "gone"]):
        summary = (f"s{number}", eid, "tiny", "ok", "text", "", number, number)
        connection.execute(
            "INSERT INTO slumberd_model_summaries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", summary
        )
    shown = [("r1", "e01", "k0"), ("r1", "e05", ""), ("r2", "e03", "k1"), ("r2", "gone", "k4"),
             ("r3", "gone", ""), ("r3", "lost", "k9")]  # fmt: skip
    for id, eid, key in shown:
        request = (eid, id, "k", key, f"text of {id}" if key else "")
        connection.execute("INSERT INTO slumberd_model_requests VALUES (?, ?, ?, ?, ?)", request)
    connection.execute("INSERT INTO slumberd_model_usage VALUES ('2026-01-01', 1, 20, 300, 4000)")


def _episodes(chance: random.Random) -> Iterator[Row]:
    minutes = chance.sample(range(3_000), 40)
    yield from (_episode(chance, number, minute) for number, minute in enumerate(minutes))
    for number, (key, timestamp) in enumerate(AT_A_FLOOR, 40):
        yield f"e{number}", key, CONTENTS[0].encode(), timestamp, b"{}"


def _episode(chance: random.Random, number: int, minute: int) -> Row:
    key: str | bytes = chance.choice(KEYS_OF_SCOPES)
    text = f"2026-01-0{1 + minute // 1440}T{minute // 60 % 24:02}:{minute % 60:02}:00"
    timestamp: str | bytes = text + chance.choice(OFFSETS)
    text_of_content = chance.choice(CONTENTS)
    content: str | bytes = text_of_content.encode()
    match chance.randrange(12):
        case 0:
            timestamp = str(timestamp).encode()
        case 1:
            key = str(key).encode()
        case 2:
            content = text_of_content
        case _:
            pass
    # In another order than the rowids.
    return f"e{(number * 7) % 40:02}", key, content, timestamp, b"{%d}" % number
