"""Run one operation that reads in this process, without a trace, and without the daemon.

A command that reads answers beside a daemon that hangs. It imports the operation that it needs; the
other operations are not imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from slumberd.clock import SystemClock
from slumberd.daemon.stores import (
    open_facts,
    open_facts_if_present,
    open_memory,
    open_memory_if_present,
    searcher_of,
)
from slumberd.model.errors import StoreError
from slumberd.operations.caller import Caller
from slumberd.rules.settings import Settings

if TYPE_CHECKING:
    from slumberd.rules.rule_loader import RuleSet

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
async def _cadences(settings: Settings, _: object) -> AsyncIterator[object]:
    """Read the rules of the files; a store that cannot be read has served nothing."""
    from slumberd.operations.rules import CadenceReads, served_instants

    async def served() -> Mapping[str, datetime]:
        try:
            if settings.host_store is not None:
                from slumberd.daemon.host_store import read_served

                return await asyncio.to_thread(read_served, settings)
            async with open_facts_if_present(settings) as facts:
                return {} if facts is None else await served_instants(facts)
        except StoreError:  # another command reports the unreadable store
            return {}

    paused = _paused_by(settings)
    rules = _rules_of(settings)
    yield CadenceReads(lambda: (rules, settings.timezone), lambda: paused, served)


@asynccontextmanager
async def _episodes(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.episodes import EpisodeReads

    async with open_memory(settings) as memory:
        yield EpisodeReads(memory)


@asynccontextmanager
async def _facts(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.facts import FactReads

    async with open_facts(settings) as facts:
        yield FactReads(facts)


@asynccontextmanager
async def _held(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.ledger import HeldReads

    async with open_facts_if_present(settings) as facts:
        yield HeldReads(facts)


@asynccontextmanager
async def _ledger(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.clock import CommitSignal
    from slumberd.operations.ledger import LedgerReads

    async with open_facts(settings) as facts:
        yield LedgerReads(facts, CommitSignal())


@asynccontextmanager
async def _outcomes(settings: Settings, request: Any) -> AsyncIterator[object]:  # noqa: ANN401 # any form
    """Open the stores for a fact; or for an episode, which either of the stores may know."""
    from slumberd.clock import CommitSignal
    from slumberd.operations.outcomes import Outcomes
    from slumberd.operations.stores import StoresThere

    new = partial(
        Outcomes,
        clock=SystemClock(),
        tolerance=timedelta(seconds=settings.memory.future_tolerance),
        commits=CommitSignal(),
    )
    if request.kind == "fact":
        async with open_facts(settings) as facts, open_memory_if_present(settings) as memory:
            yield new(StoresThere(memory, facts), rules=partial(_rules_of, settings))
        return
    rules, paused = _rules_of(settings), _paused_by(settings)
    async with (
        open_memory_if_present(settings) as memory,
        open_facts_if_present(settings) as found,
    ):
        yield new(StoresThere(memory, found), rules=lambda: rules, paused=lambda: paused)


def _rules_of(settings: Settings) -> RuleSet:
    from slumberd.daemon.rules import rules_of

    return rules_of(settings)


def _paused_by(settings: Settings) -> Mapping[str, str]:
    """Return who paused each paused rule, by the rule's id."""
    from slumberd.daemon.rules import paused_rules_of

    return paused_rules_of(settings).read()


@asynccontextmanager
async def _quarantine(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.quarantine import QuarantineReads

    async with open_facts(settings) as facts:
        yield QuarantineReads(facts)


@asynccontextmanager
async def _report(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.report import Reports

    async with open_facts_if_present(settings) as facts:
        yield Reports(facts, SystemClock(), most_days=None)


@asynccontextmanager
async def _search(settings: Settings, _: object) -> AsyncIterator[object]:
    from slumberd.operations.search import Search

    async with open_memory(settings) as memory, open_facts_if_present(settings) as facts:
        searcher = searcher_of(settings, memory, facts, SystemClock())
        yield Search(searcher)
        await searcher.save()


_OPEN: dict[str, Callable[[Settings, Any], AbstractAsyncContextManager[object]]] = {
    "changes": _ledger,
    "context": _search,
    "episodes": _episodes,
    "explain": _outcomes,
    "facts": _facts,
    "held": _held,
    "next": _cadences,
    "quarantined": _quarantine,
    "recall": _search,
    "report": _report,
}
"""What opens the stores of each operation, by its name."""
