"""Puts that share a transaction are settled by its commit, not before."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from slumberd.stores import episode_log
from slumberd.stores.codec import Row
from slumberd.stores.puts import GroupCommit
from slumberd.stores.sqlite import Pragmas, connect, transaction


async def test_a_put_is_not_settled_until_its_transaction_is_committed(tmp_path: Path) -> None:
    """One that is woken meanwhile, by another's end, must wait on."""
    told: list[tuple[str, bool]] = []
    group = GroupCommit(lambda _: None, lambda: None)

    with closing(connect(tmp_path / "memory.db", Pragmas(), access="write")) as connection:
        with transaction(connection):
            episode_log.install(connection)

        async def write(work: Callable[[sqlite3.Connection], None]) -> None:
            put = group._queue[0]
            connection.set_trace_callback(lambda sql: told.append((sql, put.settled)))
            work(connection)

        await group.put(Row("e1", "/user/u/session/s/agent/a/", b"{}", "", b"{}"), write)

    assert told[-1] == ("COMMIT", False)
