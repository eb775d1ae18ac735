"""Reads of episodes end when their store is stopped, also within a page."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from slumberd.model.errors import StoppedError
from slumberd.model.firing import START
from slumberd.rules.filters import sandbox
from slumberd.storage.episodes.windows import Reader
from tests.support.builders import rule
from tests.support.open_stores import open_stores, stream
from tests.support.sessions import session_of
from tests.support.stop_events import ThreadStopAfter

pytestmark = pytest.mark.integration

EPISODES = 6
Read = Callable[[Reader, sqlite3.Connection], Any]


def selected(reader: Reader, connection: sqlite3.Connection) -> list[str]:
    return [version.id for version in reader.selected(session_of(connection))]


def named(reader: Reader, connection: sqlite3.Connection) -> list[str]:
    ids = [f"e{number}" for number in range(EPISODES)]
    return [version.id for version in reader.named(session_of(connection), ids, EPISODES)]


def window(reader: Reader, connection: sqlite3.Connection) -> list[str]:
    return [version.id for version in reader.window(session_of(connection), START, 100).versions]


READS = [pytest.param(read, id=read.__name__) for read in (selected, named, window)]


@pytest.fixture
async def connection(tmp_path: Path) -> Any:
    async with open_stores(tmp_path) as home:
        await home.put(*stream(EPISODES))
    with closing(sqlite3.connect(tmp_path / "memory.db")) as opened:
        yield opened


def reader_of(stop: Event, when_filter: str = "") -> Reader:
    fired = rule(when_filter=when_filter)
    return Reader(
        fired,
        mismatch="quarantine",
        naive="local",
        stop=stop,
        seconds=60,
        page_rows=4,
        decoded_rows=2,
    )


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("when_filter", ["", "predicate = 'is'"], ids=["plain", "filtered"])
async def test_read_returns_every_episode_once(
    connection: sqlite3.Connection, read: Read, when_filter: str
) -> None:
    reader = reader_of(Event(), when_filter)
    sandbox.prepare(connection)

    assert read(reader, connection) == ["e0", "e1", "e2", "e3", "e4", "e5"]


@pytest.mark.parametrize("read", READS)
async def test_read_of_a_stopped_store_returns_nothing(
    connection: sqlite3.Connection, read: Read
) -> None:
    with pytest.raises(StoppedError):
        read(reader_of(ThreadStopAfter(0)), connection)


@pytest.mark.parametrize("read", READS)
async def test_read_that_is_stopped_within_a_page_ends_there(
    connection: sqlite3.Connection, read: Read
) -> None:
    stop = ThreadStopAfter(1)

    with pytest.raises(StoppedError):
        read(reader_of(stop), connection)

    assert stop.left == -1, "nothing asks again"


def test_connection_that_filters_run_on_trusts_no_schema_and_writes_nothing() -> None:
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript("CREATE TABLE episodes (id, scope_key, content, timestamp, metadata)")

        sandbox.prepare(memory)

        pragmas = ("trusted_schema", "query_only")
        assert [memory.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in pragmas] == [0, 1]
