"""Search while others write: an index that has followed all of it equals a new one at the end."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from slumberd.search.hits import Hit
from slumberd.search.searcher import Searcher
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.soak.checks import BrokenPromise
from tests.support.daemons import Home

QUESTION = "tea dog object value content one two"
"""Words of the writers."""

_MOST_USERS = 30


class SearchFollower:
    """Searches for the users of a soak. Its indexes follow all writers, kills and erasures."""

    def __init__(self, home: Home) -> None:
        self._state = home.state
        self._runner = asyncio.Runner()
        self._memory = SQLiteMemoryStore(home.state / "memory.db")
        self._facts = SQLiteFactStore(home.state / "facts.db")
        self._searcher = Searcher(self._memory, self._facts, language="english")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self._memory.close())
        self._runner.run(self._facts.close())
        self._runner.close()

    def search(self) -> int:
        """Search for each user; return how many hits there were.

        Raises:
            BrokenPromise: A hit belongs to another user.
        """
        found = 0
        for user in users_of(self._state / "memory.db"):
            hits = self._found(self._searcher, user)
            if any(hit.user != user for hit in hits):
                raise BrokenPromise(f"a search for {user} found what belongs to another user")
            found += len(hits)
        return found

    def check(self) -> None:
        """Compare with new indexes; nobody may write meanwhile.

        Raises:
            BrokenPromise: An index does not equal a new one.
        """
        new = Searcher(self._memory, self._facts, language="english")
        for user in users_of(self._state / "memory.db"):
            if self._found(self._searcher, user) != self._found(new, user):
                raise BrokenPromise(f"the index of {user} differs from a new one")

    def _found(self, searcher: Searcher, user: str) -> list[Hit]:
        return self._runner.run(searcher.search(QUESTION, user=user, limit=1_000))


def users_of(path: Path) -> list[str]:
    """Return some users with episodes; all of those that have the most."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT content ->> '$.user', count(*) FROM episodes GROUP BY 1"
            f" ORDER BY 2 DESC LIMIT {_MOST_USERS}"
        )
        return sorted(user for user, _ in rows if user)
