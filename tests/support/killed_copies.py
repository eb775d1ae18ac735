"""Copies that end as by ``kill -9``, each in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slumberd.clock import SystemClock
from slumberd.daemon.copies import store_transfer
from slumberd.rules.settings import Settings
from tests.support.failpoints import KILLED
from tests.support.forked_commands import FORKS
from tests.support.waiting import PATIENCE_SECONDS


def is_killed(folder: Path, address: str, *, into_database: bool, event: str, number: int) -> bool:
    """Run a copy that ends at an event; return whether it did, False when the copy was complete.

    Args:
        folder: The state directory.
        address: The address of the database.
        into_database: Whether the database is the target.
        event: ``page`` for a page of rows, or the audit event of a call of the system.
        number: The how manyth such event; the first is 1.
    """
    arguments = (folder, address, into_database, event, number)
    child = FORKS.Process(target=_copy, args=arguments, daemon=True)
    child.start()
    child.join(PATIENCE_SECONDS)
    assert child.exitcode in (0, KILLED), child.exitcode
    return child.exitcode == KILLED


def _copy(folder: Path, address: str, into_database: bool, event: str, number: int) -> None:
    end = _ending(number)
    if event != "page":
        sys.addaudithook(lambda name, values: end() if _is_meant(event, name, values) else None)

    def show(*_: Any) -> None:
        if event == "page":
            end()

    settings, clock = Settings(state_dir=folder, rules_dir=folder), SystemClock()
    copying = (
        store_transfer.copy_into_database(folder, address, settings, clock, show)
        if into_database
        else store_transfer.copy_into_files(address, folder, settings, clock, show)
    )
    asyncio.run(copying)


def _is_meant(event: str, name: str, values: tuple[Any, ...]) -> bool:
    return name == event and "slumberd.pid" not in str(values)


def _ending(number: int) -> Callable[[], None]:
    seen = 0

    def end() -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os._exit(KILLED)

    return end
