"""What the daemon gives to the interfaces that run in its event loop, and traces of their calls."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from slumberd.clock import Clock, CommitSignal
from slumberd.model.health import DaemonHealth
from slumberd.operations.handlers import Answer, CallObserver, Dispatcher
from slumberd.operations.writes.put_once import PutsOnce
from slumberd.rules.settings import Settings


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


_API = "opentelemetry.trace"


class TracedCalls:
    """Makes spans of operations, from the moment on when the program has loaded OpenTelemetry.

    A program that has a tracer provider has loaded it. So slumberd need not load it, which takes
    time and is impossible where it is not installed.
    """

    def __init__(self) -> None:
        self._spans: CallObserver | None = None

    def observe(
        self, name: str, request: Mapping[str, Any]
    ) -> AbstractContextManager[Callable[[Answer], None]]:
        """Enclose the call of an operation in a span, if the program traces."""
        if self._spans is None and _API in sys.modules:
            from slumberd.logs.memory_spans import MemorySpans

            self._spans = MemorySpans()
        return nullcontext(_ignore) if self._spans is None else self._spans.observe(name, request)


def _ignore(_: Answer) -> None:
    pass
