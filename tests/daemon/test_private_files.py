"""Only the owner, or a group that may write, can use files, even before SQLite opens them."""

from __future__ import annotations

import gc
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli import main
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import episode, triple
from tests.support.cli_runner import restored_logging
from tests.support.installation import Installation

pytestmark = pytest.mark.integration

OTHERS = 0o007


def modes(folder: Path) -> dict[str, int]:
    found = [path for path in folder.rglob("*") if not path.is_symlink()]
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


@pytest.fixture
def umask(request: pytest.FixtureRequest, site: Installation) -> Iterator[None]:
    """Set a umask for the files that the test creates; restore the process at the end."""
    before, thresholds = os.umask(request.param), gc.get_threshold()
    yield
    os.umask(before)
    gc.set_threshold(*thresholds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("umask", "mode", "directory"),
    [
        pytest.param(0o022, 0o600, 0o700, id="as shells have it"),
        pytest.param(0o027, 0o600, 0o700, id="for reading"),
        pytest.param(0o077, 0o600, 0o700, id="strict"),
        pytest.param(0o007, 0o660, 0o750, id="as the unit has it"),
        pytest.param(0o002, 0o660, 0o750, id="a group for each user"),
        pytest.param(0, 0o660, 0o750, id="none"),
    ],
    indirect=["umask"],
)
@pytest.mark.usefixtures("umask")
def test_only_the_owner_or_a_writing_group_can_use_the_files(
    site: Installation, mode: int, directory: int
) -> None:
    with pytest.raises(SystemExit), restored_logging():
        main(["fire", "--all", "--config", str(site.config)])

    found = modes(site.state)
    assert found["memory.db"] == found["facts.db"] == mode
    assert not any(bits & OTHERS for bits in found.values()), found
    assert stat.S_IMODE(site.state.stat().st_mode) == directory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("umask", "file", "directory"),
    [
        pytest.param(0o022, 0o600, 0o700, id="as shells have it"),
        pytest.param(0o027, 0o600, 0o700, id="for reading"),
        pytest.param(0o007, 0o660, 0o750, id="as the unit has it"),
        pytest.param(0, 0o660, 0o750, id="none"),
    ],
    indirect=["umask"],
)
@pytest.mark.usefixtures("umask")
async def test_only_the_owner_or_a_writing_group_can_use_the_stores_of_a_host(
    tmp_path: Path, file: int, directory: int
) -> None:
    state = tmp_path / "host"
    async with (
        SQLiteMemoryStore(state / "memory.db") as memory,
        SQLiteFactStore(state / "facts.db") as facts,
    ):
        await memory.put(episode(), user="alice", session="s1", agent="rag")
        await facts.bootstrap()
        found = modes(state)

    assert {"memory.db-wal", "memory.db-shm"} <= found.keys()
    assert set(found.values()) == {file}, found
    assert stat.S_IMODE(state.stat().st_mode) == directory


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("umask", [0o022], indirect=True)
async def test_group_can_use_the_files_in_its_shared_directory(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)

    async with SQLiteMemoryStore(shared / "below" / "memory.db") as memory:
        await memory.put(episode(), user="alice", session="s1", agent="rag")
        found = modes(shared)

    assert found.pop("below") == 0o2770
    assert set(found.values()) == {0o660}, found


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o022], ids=["as shells have it"], indirect=True)
@pytest.mark.usefixtures("umask")
def test_other_users_can_use_no_file_of_the_daemon(site: Installation) -> None:
    with site.daemon():
        site.call("pause", "profile")
        found = modes(site.state)

    assert {"memory.db-wal", "facts.db-wal", "control.sock", "slumberd.pid"} <= found.keys()
    assert {"paused.json", "slumberd.log"} <= found.keys()
    assert not any(bits & ~0o700 for bits in found.values()), found


@pytest.fixture
def modes_at_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Record the mode of each database just before SQLite opens it to write."""
    found: dict[str, int] = {}
    connect = sqlite3.connect

    def record_mode(database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
        path = Path(str(database).removeprefix("file://").split("?")[0])
        if path.is_absolute() and "mode=ro" not in str(database):
            found.setdefault(path.name, stat.S_IMODE(path.stat().st_mode))
        connection: sqlite3.Connection = connect(database, *arguments, **options)
        return connection

    monkeypatch.setattr(sqlite3, "connect", record_mode)
    before = os.umask(0)
    yield found
    os.umask(before)


@pytest.mark.slow
def test_database_exists_with_private_mode_before_sqlite_opens_it(
    site: Installation, tmp_path: Path, modes_at_open: dict[str, int]
) -> None:
    site.put(triple("e1", "s", "is", "here"))
    for words in (["fire", "--all"], ["check", "--against-data"]):
        assert site.call(*words).returncode == 0
    assert site.call("audit", "replay", str(tmp_path / "again.db")).returncode == 0

    assert {"memory.db", "facts.db", "again.db"} <= modes_at_open.keys()
    assert set(modes_at_open.values()) <= {0o600, 0o660}, modes_at_open
