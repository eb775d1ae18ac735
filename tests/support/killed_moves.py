"""A move of a user in a process of its own, which ends at a boundary as by ``kill -9``.

A boundary lies before each statement, and before and after each commit.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psycopg
import pytest

from slumberd.storage.postgres.session import PostgresSession
from tests.support.failpoints import KILLED
from tests.support.forked_commands import FORKS
from tests.support.two_shards import two_shards
from tests.support.waiting import PATIENCE_SECONDS


def move_in_process(address: str, user: str, point: int = 0) -> int:
    """Move a user in a new process; return how many boundaries it passed, or `KILLED`.

    Args:
        address: The address of the database.
        user: The user.
        point: The process ends before this boundary; 0 lets it pass all.
    """
    receiving, sending = FORKS.Pipe(duplex=False)
    with receiving, sending:
        child = FORKS.Process(target=_move, args=(address, user, point, sending), daemon=True)
        child.start()
        child.join(PATIENCE_SECONDS)
        assert child.exitcode in (0, KILLED), child.exitcode
        return KILLED if child.exitcode == KILLED else int(receiving.recv())


def _move(address: str, user: str, point: int, sending: Connection) -> None:
    passed = 0

    def cross() -> None:
        nonlocal passed
        passed += 1
        if passed == point:
            os._exit(KILLED)

    def crossing(method: Callable[..., Any], *, twice: bool = False) -> Callable[..., Any]:
        def run(*values: Any, **named: Any) -> Any:
            cross()
            result = method(*values, **named)
            if twice:
                cross()
            return result

        return run

    async def move() -> None:
        async with two_shards(address) as world:
            patch = pytest.MonkeyPatch()
            for name in ("_execute", "insert"):
                patch.setattr(PostgresSession, name, crossing(getattr(PostgresSession, name)))
            commit = psycopg.Connection.commit
            patch.setattr(psycopg.Connection, "commit", crossing(commit, twice=True))
            await world.move(user)

    asyncio.run(move())
    sending.send(passed)
