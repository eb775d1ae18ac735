"""Run one operation that reads in this process, without a trace, and without the daemon.

A command that reads answers beside a daemon that hangs. It imports the operation that it needs; the
other operations are not imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from slumberd.clock import SystemClock
from slumberd.daemon.stores import open_facts, open_facts_if_present, open_memory, searcher_of
from slumberd.operations.caller import Caller
from slumberd.rules.settings import Settings

P = ParamSpec("P")
F = TypeVar("F")
A = TypeVar("A")

Read = Callable[[Any, F, Caller], Awaitable[A]]
"""An operation that reads, as a method of its class."""


def unbounded(form: Callable[P, F], *_: P.args, **fields: P.kwargs) -> F:
    """Return a form whose fields are not checked.

    The bounds of a form are for interfaces. The command line has read its options, and one read
    of all rows sees one snapshot where several pages would not.
    """
    made: F = form.model_construct(**fields)  # type: ignore[attr-defined] # each form is a model
    return made


def read_operation(settings: Settings, operation: Read[F, A], request: F) -> A:
    """Return the answer of an operation that reads.

    Args:
        operation: Its method, such as ``FactReads.facts``.
    """

    async def read() -> A:
        async with _opened(settings, operation.__name__, request) as reads:
            return await operation(reads, request, Caller.here())

    return asyncio.run(read())


async def read_pages(
    settings: Settings, operation: Read[F, A], request: F, following: Callable[[A], F | None]
) -> AsyncIterator[A]:
    """Yield the pages of an operation that reads; each is a snapshot of its own.

    Args:
        operation: Its method.
        following: Returns the request of the page after an answer; None at the end.
    """
    async with _opened(settings, operation.__name__, request) as reads:
        wanted: F | None = request
        while wanted is not None:
            answer = await operation(reads, wanted, Caller.here())
            yield answer
            wanted = following(answer)


def _opened(settings: Settings, name: str, request: Any) -> AbstractAsyncContextManager[object]:  # noqa: ANN401 # any form
    """Open the stores that an operation reads, and return the object that runs it."""
    return _OPEN[name](settings, request)


@asynccontextmanager
async def _episodes(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.episodes import EpisodeReads

    async with open_memory(settings) as memory:
        yield EpisodeReads(memory)


@asynccontextmanager
async def _ledger(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.commit_signal import CommitSignal
    from slumberd.operations.ledger import LedgerReads

    async with open_facts(settings) as facts:
        yield LedgerReads(facts, CommitSignal())


@asynccontextmanager
async def _quarantine(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.quarantine import QuarantineReads

    async with open_facts(settings) as facts:
        yield QuarantineReads(facts)


@asynccontextmanager
async def _search(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.search import Search

    async with open_memory(settings) as memory, open_facts_if_present(settings) as facts:
        yield Search(searcher_of(settings, memory, facts, SystemClock()))


_OPEN: dict[str, Callable[[Settings, Any], AbstractAsyncContextManager[object]]] = {
    "changes": _ledger,
    "context": _search,
    "episodes": _episodes,
    "quarantined": _quarantine,
    "recall": _search,
}
"""What opens the stores of each operation, by its name."""
