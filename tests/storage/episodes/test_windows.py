"""The number of episodes that a filter selects: each is counted once, page by page."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from slumberd.model.errors import StoppedError
from slumberd.model.firing import START as START_OF_LOG
from slumberd.rules.filters import sandbox
from slumberd.rules.vocabulary_loader import conversation_extraction
from slumberd.storage.episodes.extracting import MOST_TURNS
from slumberd.storage.episodes.windows import FIRST_PAGE, Matching, Reader
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import at, episode, rule
from tests.support.open_stores import stream
from tests.support.sessions import session_of

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        pytest.param("", Matching(25, 25), id="no filter"),
        pytest.param("object < 12", Matching(25, 12), id="some"),
        pytest.param("predicate = 'has'", Matching(25, 0), id="none"),
        pytest.param(
            "CASE WHEN object = 11 THEN json_extract(subject, '$.x') ELSE 1 END",
            Matching(25, 24, 1, "malformed JSON"),
            id="one that fails",
        ),
    ],
)
async def test_every_page_is_counted(tmp_path: Path, filter: str, found: Matching) -> None:
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(path) as memory:
        await memory.put_many(stream(25))
        edited = [episode.model_copy(update={"content": "x"}) for episode in stream(5)]
        await memory.put_many(edited)
    reader = Reader(
        rule(when_filter=filter),
        mismatch="quarantine",
        naive="local",
        stop=Event(),
        seconds=60,
        page_rows=10,
    )

    with closing(sqlite3.connect(path)) as connection:
        sandbox.prepare(connection)
        session = session_of(connection)
        matching = Matching()
        after: int | None = FIRST_PAGE
        while after is not None:
            matching, after = reader.match_page(session, matching, after)

    assert matching == found


async def test_a_store_without_episodes_matches_none(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        assert await memory.matching(rule()) == Matching()


async def test_counting_ends_when_the_store_is_stopped(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as memory:
        await memory.put_many(stream(3))
        memory.stop()

        with pytest.raises(StoppedError):
            await memory.matching(rule())


@pytest.mark.parametrize("speakers", [("desk", "guest"), ("guest",)])
async def test_turns_before_are_read_together(tmp_path: Path, speakers: tuple[str, ...]) -> None:
    path, count = tmp_path / "memory.db", 200
    async with SQLiteMemoryStore(path) as memory:
        await memory.put_many(
            [
                episode(f"e{n:03}", timestamp=at(n), source_node=speakers[n % len(speakers)])
                for n in range(count)
            ]
        )
    extracting = rule(extract=conversation_extraction({}))
    reader = Reader(extracting, mismatch="quarantine", naive="local", stop=Event(), seconds=60)

    with closing(sqlite3.connect(path)) as connection:
        sandbox.prepare(connection)
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        found = reader.window(session_of(connection), START_OF_LOG, count)

    assert len(found.versions) == count
    assert len(statements) < 20 + MOST_TURNS
