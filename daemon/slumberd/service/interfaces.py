"""What the daemon gives to the interfaces that run in its event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple

from slumberd.clock import Clock
from slumberd.config.settings import Settings
from slumberd.model.health import DaemonHealth
from slumberd.operations.commit_signal import CommitSignal
from slumberd.operations.handlers import Dispatcher
from slumberd.operations.writes.put_once import PutsOnce


class AllShards(NamedTuple):
    """The shards of a database; both functions may ask the database.

    Attributes:
        numbers: Returns their numbers.
        find: Returns the number of the shard of a user.
    """

    numbers: Callable[[], list[int]]
    find: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Served:
    """The running daemon, as an interface sees it.

    Attributes:
        dispatcher: Calls operations.
        settings: The configuration at the start.
        putter: Puts episodes, of which a stored one stays.
        commits: Tells when something was committed.
        clock: The time.
        health: Returns the figures of the heartbeat as of now.
        shards: The shards of the database; None where this daemon is of one shard only.
    """

    dispatcher: Dispatcher
    settings: Settings
    putter: PutsOnce
    commits: CommitSignal
    clock: Clock
    health: Callable[[], Awaitable[DaemonHealth]]
    shards: AllShards | None = None


Interface = Callable[[Served], AbstractAsyncContextManager[object]]
"""Serves in the daemon's event loop from the entry of the block to its end."""
