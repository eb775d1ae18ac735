"""The tests copy new files instead of making them; a copy equals what the stores make."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.model.fact import FactPattern
from slumberd.model.scope import ScopeFilter
from tests.support.builders import triple
from tests.support.open_stores import open_stores
from tests.support.providers import (
    EPISODES_FILE,
    FACTS_FILE,
    SQLiteProvider,
    copy_empty_files,
)

pytestmark = pytest.mark.integration


def dump_of(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return [*connection.iterdump(), *map(str, connection.execute("PRAGMA user_version"))]


async def random_values_of(folder: Path) -> set[bytes | int]:
    """Return what the stores of a folder draw: two keys, and the salts of the ledger."""
    async with open_stores(folder) as stores:
        await stores.put(triple("e1", "ada", "likes", "tea"))
        await stores.fire()
        drawn: set[bytes | int] = {await stores.facts.transactions.scope_key()}
        await stores.memory.forget(ScopeFilter("bob", None, None), [], moment=0)
        key, _ = await stores.memory.erased_scopes()
    assert key is not None
    drawn.add(key)
    with closing(sqlite3.connect(folder / FACTS_FILE)) as connection:
        drawn |= {salt for (salt,) in connection.execute("SELECT salt FROM slumberd_ledger")}
    return drawn


async def test_copies_equal_the_files_that_the_stores_make(tmp_path: Path) -> None:
    made, copied = tmp_path / "made", tmp_path / "copied"
    copied.mkdir()
    files = SQLiteProvider(made)

    async with files.memory() as memory, files.facts() as facts:
        await memory.bootstrap()
        await facts.bootstrap()
    copy_empty_files(copied)

    for name in (EPISODES_FILE, FACTS_FILE):
        assert dump_of(copied / name) == dump_of(made / name)
        assert (copied / name).stat().st_mode == (made / name).stat().st_mode


async def test_copy_draws_keys_and_salts_of_its_own(tmp_path: Path) -> None:
    folders = [tmp_path / "1", tmp_path / "2"]
    for folder in folders:
        folder.mkdir()

    first, second = [await random_values_of(folder) for folder in folders]

    assert len(first) == len(second) > 1
    assert not first & second


async def test_copy_replaces_no_file(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.put(triple("e1", "ada", "likes", "tea"))
        await stores.fire()

    copy_empty_files(tmp_path)

    async with open_stores(tmp_path) as stores:
        assert len(await stores.facts.query(FactPattern())) == 1
