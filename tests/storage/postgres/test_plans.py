"""A statement with many values reads only their rows, also while a table has no statistics."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from slumberd.storage.postgres.connection import Connection, connect
from slumberd.storage.postgres.session import PostgresSession

pytestmark = pytest.mark.integration

ROWS = 20_000
WANTED = 5_000
LIMIT = b"SET LOCAL statement_timeout = '5s'"
"""A statement that compares each row with each value takes a minute; others take 0.1 s."""

FILL = (
    b"""
    INSERT INTO slumberd_0.slumberd_keys (key, slot, key_id)
    SELECT 'key' || n, '', n FROM generate_series(1, $1::integer) AS n
    """,
    b"""
    INSERT INTO slumberd_0.slumberd_ledger
      (seq, delta, firing, what, kind, reason, version, key_id, fact_id, salt, payload,
       commitment, chain)
    SELECT n, 0, 1, 1, 1, '', n, n, 'f' || n, '', '{}', '', ''
    FROM generate_series(1, $1::integer) AS n
    """,
    b"""
    INSERT INTO slumberd_0.slumberd_firings
      (n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts)
    SELECT n, 'r', '', 'every', n, n, 0, n, '', '{}'
    FROM generate_series(1, $1::integer) AS n
    """,
    b"""
    INSERT INTO slumberd_0.slumberd_references (referenced, referrer)
    SELECT 'f' || n, 'f' || n + 1 FROM generate_series(1, $1::integer) AS n
    """,
)
FACT_IDS = [f"f{number}" for number in range(1, WANTED + 1)]
KEYS = [f"key{number}" for number in range(1, WANTED + 1)]


@pytest.fixture(params=["custom", "generic"])
def unanalyzed(request: pytest.FixtureRequest, postgres_address: str) -> Iterator[Connection]:
    """Provide a transaction that has filled the tables; the server knows nothing of the rows."""
    with (
        connect(postgres_address, "slumberd_0") as connection,
        psycopg.RawCursor(connection) as cursor,
    ):
        for statement in FILL:
            cursor.execute(statement, (ROWS,))
        cursor.execute(LIMIT)
        cursor.execute(f"SET LOCAL plan_cache_mode = force_{request.param}_plan".encode())
        yield connection
        connection.rollback()


@pytest.mark.cases(8)
@pytest.mark.parametrize(
    ("name", "parameters", "found"),
    [
        pytest.param("ledger.evaluations", {"values": FACT_IDS}, WANTED, id="evaluations"),
        pytest.param("ledger.referrers", {"values": FACT_IDS}, WANTED, id="referrers"),
        pytest.param("ledger.parts", {"values": FACT_IDS}, 0, id="parts"),
        pytest.param("ledger.last_of_rule", {"ids": FACT_IDS, "rule": "r"}, WANTED, id="waiting"),
        pytest.param("ledger.promoted_by", {"ids": FACT_IDS, "rule": "r"}, WANTED, id="promoted"),
        pytest.param("ledger.states_of_keys", {"keys": KEYS}, WANTED, id="states"),
        pytest.param("ledger.whole_states", {"values": KEYS}, WANTED, id="whole-states"),
        pytest.param("ledger.declared_states", {"values": KEYS}, 0, id="declared-states"),
        pytest.param(
            "ledger.states_of_slots", {"values": [(key, "") for key in KEYS]}, WANTED, id="slots"
        ),
        pytest.param("ledger.facts_of_keys", {"values": KEYS}, WANTED, id="facts-of-keys"),
        pytest.param(
            "ledger.fact_ids_of_keys", {"key_ids": [*range(1, WANTED + 1)]}, WANTED, id="fact-ids"
        ),
        pytest.param(
            "ledger.kinds_in_firings", {"numbers": [*range(1, WANTED + 1)]}, 0, id="kinds"
        ),
        pytest.param("ledger.facts_by_id", {"ids": FACT_IDS}, 0, id="facts-by-id"),
        pytest.param("ledger.detailed_records", {"ids": FACT_IDS}, WANTED, id="records"),
        pytest.param("partition.keys_of_parts", {"values": FACT_IDS}, 0, id="keys-of-parts"),
    ],
)
def test_a_statement_with_many_values_reads_only_their_rows(
    unanalyzed: Connection, name: str, parameters: dict[str, list[str]], found: int
) -> None:
    session = PostgresSession(unanalyzed, "postgresql:///test")

    rows = session.rows(name, parameters)

    assert len(rows) == found


@pytest.mark.cases(1)
def test_states_are_dropped_by_their_keys_alone(unanalyzed: Connection) -> None:
    session = PostgresSession(unanalyzed, "postgresql:///test")

    session.do_each("ledger.drop_states", [(key,) for key in KEYS])

    left = session.rows("ledger.whole_states", {"values": KEYS})
    assert len(left) == WANTED  # only the states of slots are dropped, and there is none
