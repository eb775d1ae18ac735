"""Timestamps without an offset: all programs follow `memory.naive_timestamps`."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import orjson
import pytest

from slumberd.model.episode import Episode, NaiveTimestamps
from slumberd.model.errors import InputError
from slumberd.model.firing import START as BEGINNING
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import episode, rule, triple
from tests.support.daemons import Home
from tests.support.stargraph_rows import INSERT, row_of

pytestmark = pytest.mark.integration

WALL = datetime(2026, 7, 1, 12)  # noqa: DTZ001 # as a host has it
READINGS: list[tuple[NaiveTimestamps, str]] = [
    ("local", "2026-07-01T10:00:00+00:00"),
    ("utc", "2026-07-01T12:00:00+00:00"),
]
SCOPE = {"user": "alice", "session": "s1", "agent": "rag"}


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time zone: UTC+2, in winter UTC+1."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def insert(folder: Path, *episodes: Episode) -> None:
    with closing(sqlite3.connect(folder / "memory.db")) as host, host:
        host.executemany(INSERT, [row_of(given_episode) for given_episode in episodes])


def store(folder: Path, naive: NaiveTimestamps) -> SQLiteMemoryStore:
    return SQLiteMemoryStore(folder / "memory.db", naive_timestamps=naive)


@pytest.mark.parametrize(("naive", "instant"), READINGS)
async def test_a_put_and_a_row_of_another_program_mean_the_same_instant(
    tmp_path: Path, naive: NaiveTimestamps, instant: str
) -> None:
    async with store(tmp_path, naive) as memory:
        await memory.put(episode("ours", timestamp=WALL), **SCOPE)
        insert(tmp_path, episode("theirs", timestamp=WALL))

        found = await memory.recent("alice", limit=9)
        window = await memory.select(rule(), after=BEGINNING, limit=9)

    assert [(item.id, item.timestamp.isoformat()) for item in found] == [
        ("theirs", instant), ("ours", instant),
    ]  # fmt: skip
    assert len({version.at for version in window.versions}) == 1
    assert {version.fault for version in window.versions} == {""}


CHANGES = [
    pytest.param(datetime(2026, 10, 25, 2, 30), "00:30", id="the first of two"),  # noqa: DTZ001
    pytest.param(datetime(2026, 10, 25, 2, 30, fold=1), "01:30", id="the second"),  # noqa: DTZ001
    pytest.param(datetime(2026, 3, 29, 2, 30), "01:30", id="one that is left out"),  # noqa: DTZ001
]


@pytest.mark.parametrize(("wall", "utc"), CHANGES)
async def test_put_during_a_clock_change_is_read_as_python_reads_it(
    tmp_path: Path, wall: datetime, utc: str
) -> None:
    async with store(tmp_path, "local") as memory:
        await memory.put(episode(timestamp=wall), **SCOPE)

        [found] = await memory.recent("alice", limit=9)

    assert found.timestamp.isoformat()[11:16] == utc
    assert found.timestamp.timestamp() == wall.timestamp()


async def test_rows_with_and_without_offset_are_ordered_by_instant(tmp_path: Path) -> None:
    async with store(tmp_path, "local") as memory:
        await memory.bootstrap()
        insert(
            tmp_path,
            episode("third", timestamp=datetime.fromisoformat("2026-07-01T11:00:00+00:00")),
            episode("second", timestamp=WALL),
            episode("first", timestamp=datetime.fromisoformat("2026-07-01T09:00:00+00:00")),
        )

        for limit in (1, 2, 3):
            found = await memory.recent("alice", limit=limit)
            assert [item.id for item in found] == ["third", "second", "first"][:limit]


@pytest.mark.parametrize(("naive", "instant"), READINGS)
@pytest.mark.parametrize("way", ["put", "insert"])
async def test_a_filter_compares_the_instant(
    tmp_path: Path, naive: NaiveTimestamps, instant: str, way: str
) -> None:
    source = triple("e1", "s", "is", 1, timestamp=WALL)
    async with store(tmp_path, naive) as memory:
        await memory.bootstrap()
        if way == "put":
            await memory.put(source, **SCOPE)
        else:
            insert(tmp_path, source)

        for when_filter in (f"timestamp = '{instant}'", f"unixepoch(timestamp) = {_unix(instant)}"):
            deltas = await memory.consolidate(rule(when_filter=when_filter))
            assert [delta.source_episode_ids for delta in deltas] == [["e1"]]


def _unix(instant: str) -> int:
    return int(datetime.fromisoformat(instant).timestamp())


async def test_the_same_episode_again_is_no_new_version(tmp_path: Path) -> None:
    async with store(tmp_path, "local") as memory:
        await memory.bootstrap()
        insert(tmp_path, episode("e1", timestamp=WALL))

        await memory.put(episode("e1", timestamp=WALL), **SCOPE)
        await memory.put(episode("e1", timestamp=WALL.astimezone()), **SCOPE)

        assert (await memory.newest()).seq == 1


async def test_store_that_refuses_naive_timestamps_neither_puts_nor_reads_them(
    tmp_path: Path,
) -> None:
    async with store(tmp_path, "refuse") as memory:
        await memory.bootstrap()
        insert(tmp_path, episode("theirs", timestamp=WALL))

        with pytest.raises(InputError, match=r"has no time zone; .*`memory.naive_timestamps`"):
            await memory.put(episode("ours", timestamp=WALL), **SCOPE)

        assert await memory.recent("alice", limit=9) == []
        [version] = (await memory.select(rule(), after=BEGINNING, limit=9)).versions
        assert version.fault.startswith("timestamp_naive: '2026-07-01T12:00:00' has no offset")


def home_with(folder: Path, naive: str) -> Home:
    home = Home(folder, {"memory": {"naive_timestamps": naive}})
    home.rule("all", cadence={"every": 1})
    return home


@pytest.mark.slow
def test_quarantined_rows_are_read_once_the_setting_allows_them(tmp_path: Path) -> None:
    home = home_with(tmp_path, "refuse")
    home.call("fire", "--all")
    insert(home.state, triple("e1", "s", "is", 1, timestamp=WALL))
    home.call("fire", "--all")
    [line] = home.call("quarantine", "ls", "--json").stdout.splitlines()
    home = home_with(tmp_path, "utc")

    home.call("quarantine", "retry")

    assert "timestamp_naive" in line
    assert [fact["id"] for fact in home.facts()] == ["e1"]
    assert home.call("quarantine", "ls", "--json").stdout == ""


@pytest.mark.slow
def test_daemon_reads_naive_timestamps_as_the_library_does(tmp_path: Path) -> None:
    home = home_with(tmp_path, "local")
    just_before = datetime.fromisoformat("2026-07-01T09:59:59+00:00")
    with home.daemon(TZ="Europe/Berlin") as daemon:
        insert(
            home.state,
            triple("naive", "s", "is", "newer", timestamp=WALL),
            triple("aware", "s", "is", "older", timestamp=just_before),
        )
        daemon.wait_until_read(2)
        [fact] = home.facts()

    assert fact["id"] == "naive"


LINE = triple("e1", "s", "is", 1).model_dump(mode="json") | {"timestamp": "2026-07-01T12:00:00"}


@pytest.mark.parametrize(
    ("naive", "expected"), [("local", 0), ("utc", 0), ("refuse", InputError.exit_code)]
)
def test_import_follows_the_setting(tmp_path: Path, naive: str, expected: int) -> None:
    home = home_with(tmp_path, naive)
    file = tmp_path / "episodes.jsonl"
    file.write_bytes(orjson.dumps(LINE))

    ended = home.call("import", file, check=False)

    assert ended.returncode == expected
    assert ("line 1: episode 'e1': the timestamp has no time zone" in ended.stderr) == bool(
        expected
    )
