"""`SQLiteCopies` copies the stores that it names, and tells which one is in use."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.model.errors import StoreBusyError, StoreError
from slumberd.storage.closed_stores import STORES, StoreCopies, StoreName
from slumberd.storage.sqlite.backup import SQLiteCopies

pytestmark = pytest.mark.integration


@pytest.fixture
def paths(tmp_path: Path) -> dict[StoreName, Path]:
    """Create a database for each store; it holds the store's name."""
    found: dict[StoreName, Path] = {store: tmp_path / f"{store}.db" for store in STORES}
    for store, path in found.items():
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE names (name)")
            connection.execute("INSERT INTO names VALUES (?)", (store,))
    return found


@pytest.fixture
def copies(paths: dict[StoreName, Path]) -> StoreCopies:
    return SQLiteCopies(paths)


def name_in(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT name FROM names").fetchone()[0])


@pytest.mark.parametrize("store", STORES)
def test_copy_is_of_the_named_store(copies: StoreCopies, tmp_path: Path, store: StoreName) -> None:
    copies.copy(store, tmp_path / "copy.db")

    assert name_in(tmp_path / "copy.db") == store


def test_stores_are_copied_together_each_to_its_target(copies: StoreCopies, tmp_path: Path) -> None:
    targets: dict[StoreName, Path] = {store: tmp_path / f"{store}.copy" for store in STORES}

    copies.copy_together(targets)

    assert {store: name_in(target) for store, target in targets.items()} == {
        store: store for store in STORES
    }


@pytest.mark.parametrize("store", STORES)
def test_only_the_store_that_a_program_has_open_is_in_use(
    copies: StoreCopies, paths: dict[StoreName, Path], store: StoreName
) -> None:
    (other,) = set(STORES) - {store}
    with closing(sqlite3.connect(paths[store])) as connection:
        connection.execute("SELECT name FROM names").fetchall()

        copies.check_not_in_use(other)
        with pytest.raises(StoreBusyError):
            copies.check_not_in_use(store)

    copies.check_not_in_use(store)


def test_store_that_does_not_exist_is_not_in_use_and_cannot_be_copied(tmp_path: Path) -> None:
    copies = SQLiteCopies({"memory": tmp_path / "missing.db"})

    copies.check_not_in_use("memory")

    with pytest.raises(StoreError) as error:
        copies.copy("memory", tmp_path / "copy.db")
    assert not copies.is_full(error.value)
    assert not (tmp_path / "missing.db").exists()
