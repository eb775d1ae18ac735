"""The soak finds an index that does not follow the writers, and a hit of another user."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.feed import FeedChanges
from slumberd.search.searcher import Searcher
from slumberd.storage.episodes.index_feed import IndexFeed
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.soak.checks import BrokenPromise
from tests.soak.search_checks import SearchFollower
from tests.support.builders import episode
from tests.support.daemons import Home

pytestmark = pytest.mark.acceptance


def write(home: Home, id: str, content: str) -> None:
    file = home.folder / "put.jsonl"
    file.write_text(episode(id, content=content).model_dump_json())
    home.call("import", file)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    write(home, "e1", "tea for two")
    asyncio.run(SQLiteFactStore(home.state / "facts.db").bootstrap())
    return home


def test_following_index_passes(home: Home) -> None:
    with SearchFollower(home) as follower:
        assert follower.search() == 1
        write(home, "e2", "tea for one")

        follower.check()


def test_index_that_misses_a_change_is_found(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = IndexFeed.changes

    async def forgetful(*args: Any, **options: Any) -> FeedChanges | None:
        found = await changes(*args, **options)
        return found and found._replace(rows=frozenset(), versions=[])

    monkeypatch.setattr(IndexFeed, "changes", forgetful)
    with SearchFollower(home) as follower:
        assert follower.search() == 1
        write(home, "e2", "tea for one")

        with pytest.raises(BrokenPromise, match="the index of alice differs"):
            follower.check()


def test_hit_of_another_user_is_found(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Searcher.search

    async def leaking(*args: Any, **options: Any) -> list[Any]:
        return [replace(hit, user="bob") for hit in await search(*args, **options)]

    monkeypatch.setattr(Searcher, "search", leaking)
    with SearchFollower(home) as follower, pytest.raises(BrokenPromise, match="belongs to another"):
        follower.search()
