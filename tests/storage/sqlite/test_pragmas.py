"""Each kind of connection has its settings, and a store is named by its file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from slumberd import SQLiteFactStore, SQLiteMemoryStore
from slumberd.storage.sqlite.connection import Access, connect
from slumberd.storage.sqlite.session import Pragmas

pytestmark = pytest.mark.integration

WANTED = Pragmas(synchronous="full", cache_mebibytes=3, log_pages=7)
COMMON = {"foreign_keys": 1, "temp_store": 2, "cache_size": -3 * 1024, "journal_mode": "wal"}


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        pytest.param(
            "write",
            COMMON
            | {
                "query_only": 0,
                "wal_autocheckpoint": 7,
                "journal_size_limit": 64 * 1024 * 1024,
                "synchronous": 2,
                "secure_delete": 1,
            },
            id="a writer",
        ),
        pytest.param("read", COMMON | {"query_only": 1}, id="a reader"),
    ],
)
def test_connection_has_its_settings(
    tmp_path: Path, access: Access, expected: dict[str, object]
) -> None:
    connect(tmp_path / "a.db", Pragmas(), access="write").close()

    with closing(connect(tmp_path / "a.db", WANTED, access=access)) as connection:
        found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in expected}

    assert found == expected


def test_store_is_named_by_its_file(tmp_path: Path) -> None:
    facts, memory = tmp_path / "facts.db", tmp_path / "memory.db"

    assert SQLiteFactStore(facts).where == str(facts)
    assert SQLiteMemoryStore(memory).where == str(memory)
