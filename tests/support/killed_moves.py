"""A move of a user in a process of its own, which ends at a boundary as by ``kill -9``.

``python -m tests.support.killed_moves ADDRESS USER POINT`` ends before the POINTth boundary, and
prints the number of boundaries when it passes all. A boundary lies before each statement, and
before and after each commit.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from slumberd.storage.postgres.session import PostgresSession
from tests.support.failpoints import KILLED
from tests.support.two_shards import two_shards


def move_in_process(address: str, user: str, point: int = 0) -> int:
    """Move a user in a new process; return how many boundaries it passed, or `KILLED`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_moves", address, user, str(point)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == KILLED:
        return KILLED
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def main(address: str, user: str, point: int) -> None:
    """Move the user, up to a boundary."""
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
    sys.stdout.write(f"{passed}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
