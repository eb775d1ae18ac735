"""What a store does about its file: whose locks are on it, and what lies in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slumberd.core.episode import Episode
from slumberd.stores import sqlite
from slumberd.stores.memory import SQLiteMemoryStore
from tests.builders import episode

LOOKS_IN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(*[id for (id,) in connection.execute("SELECT id FROM episodes ORDER BY id")])
connection.close()
"""


def seen_by_another(path: Path) -> list[str]:
    """Return the episodes that another program finds; its end empties a log that nobody holds."""
    words = [sys.executable, "-c", LOOKS_IN, str(path)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()


async def put(memory: SQLiteMemoryStore, *episodes: Episode) -> None:
    for one in episodes:
        await memory.put(one, user=one.user, session=one.session, agent=one.agent)


async def acknowledged_and_found(path: Path) -> tuple[list[str], list[str]]:
    """Use two stores of one file, as hosts do; return what was put, and what another finds."""
    async with SQLiteMemoryStore(path) as first, SQLiteMemoryStore(path) as second:
        await put(first, episode("e1"))
        await put(second, episode("e2"))
        seen_by_another(path)
        await put(first, episode("e3"))
        return ["e1", "e2", "e3"], seen_by_another(path)


async def test_two_stores_of_one_file_lose_nothing_when_another_program_ends(
    tmp_path: Path,
) -> None:
    put, found = await acknowledged_and_found(tmp_path / "memory.db")

    assert found == put


async def test_a_file_that_is_opened_beside_sqlite_loses_an_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: this is how files were created once."""

    def create(path: Path) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660))

    monkeypatch.setattr(sqlite, "_create", create)

    put, found = await acknowledged_and_found(tmp_path / "memory.db")

    assert put == [*found, "e3"]
