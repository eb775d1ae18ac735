"""What the daemon gives to the interfaces that run in its event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from slumberd.clock import Clock
from slumberd.config.settings import Settings
from slumberd.model.health import DaemonHealth
from slumberd.operations.commit_signal import CommitSignal
from slumberd.operations.handlers import Dispatcher
from slumberd.operations.writes.put_once import PutsOnce


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
        shards: Returns the numbers of the shards; None where this daemon is of one shard only.
    """

    dispatcher: Dispatcher
    settings: Settings
    putter: PutsOnce
    commits: CommitSignal
    clock: Clock
    health: Callable[[], Awaitable[DaemonHealth]]
    shards: Callable[[], list[int]] | None = None


Interface = Callable[[Served], AbstractAsyncContextManager[object]]
"""Serves in the daemon's event loop from the entry of the block to its end."""
