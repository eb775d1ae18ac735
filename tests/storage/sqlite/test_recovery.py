"""A store opens after a crash when the write-ahead log beside it is that of its own file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slumberd.model.errors import SchemaError
from tests.support.builders import triple
from tests.support.open_stores import open_stores

pytestmark = pytest.mark.integration

FILES = ("memory.db", "facts.db")


async def crash(folder: Path, image: Path, *ids: str) -> None:
    """Copy the files of open stores, with their logs, as a crash leaves them."""
    image.mkdir()
    async with open_stores(folder) as home:  # at its end the logs are moved into the files
        await home.put(triple(ids[0], ids[0], "is", 1))
        await home.fire()
    async with open_stores(folder) as home:
        await home.put(*(triple(id, id, "is", 1) for id in ids[1:]))
        await home.fire()
        for name in FILES:
            for end in ("", "-wal"):
                shutil.copy(folder / f"{name}{end}", image)
            assert (image / f"{name}-wal").stat().st_size


async def test_stores_open_after_a_crash_and_have_what_their_logs_have(tmp_path: Path) -> None:
    await crash(tmp_path / "home", tmp_path / "image", "e1", "e2")

    async with open_stores(tmp_path / "image") as home:
        await home.memory.bootstrap()

        assert set(await home.objects()) == {"e1", "e2"}
        assert [episode.id for episode in await home.memory.recent("alice", limit=9)] == [
            "e2", "e1",
        ]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
async def test_store_with_the_log_of_another_file_is_refused(tmp_path: Path, name: str) -> None:
    await crash(tmp_path / "home", tmp_path / "image", "e1", "e2")
    await crash(tmp_path / "other", tmp_path / "stranger", "a1", "a2", "a3")
    shutil.copy(tmp_path / "stranger" / f"{name}-wal", tmp_path / "image")

    with pytest.raises(SchemaError, match=f"move {name}-wal away"):
        async with open_stores(tmp_path / "image") as home:
            await home.memory.bootstrap()
