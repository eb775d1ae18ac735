"""LangGraph's store, with facts beneath. Needs the extra ``langgraph``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, assert_never

from slumberd.client.memory import Memory
from slumberd.client.portal import Portal
from slumberd.client.transports import Transport, open_transport
from slumberd.clock import Clock, SystemClock
from slumberd.integrations.contract.records import json_problem
from slumberd.integrations.langgraph_items import (
    WILDCARD,
    Namespace,
    StoredItem,
    item_of,
    matches,
    passes,
    prefix_of,
    subject_of,
)
from slumberd.integrations.named_facts import NamedFacts
from slumberd.model.errors import (
    ExtraMissingError,
    NoInputError,
    RecordRefusedError,
    UsageError,
    VersionConflictError,
)
from slumberd.operations.facts import KnownFact
from slumberd.operations.forms import MOST

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        validate_op_namespace,
    )
except ImportError as error:
    raise ExtraMissingError("langgraph", "LangGraph cannot use this store") from error

PREDICATE = "langgraph_item"
"""The predicate of all facts that keep items; the subject is ``/label/label/key``."""

MOST_TTL_MINUTES = 1_000_000_000
"""The longest time to live: some 1,900 years."""

_PUT, _DELETE = "LangGraph: put", "LangGraph: delete"
_READ, _SWEEP = "LangGraph: read", "LangGraph: time to live is over"


class _Found(NamedTuple):
    """An item, with the fact that keeps it."""

    fact: KnownFact
    item: StoredItem


class SlumberdStore(BaseStore):
    """Items of LangGraph as facts: the ledger keeps each change, and can undo it.

    Any thread and any event loop may call the store. Its work runs in one loop, in a thread of its
    own.

    Args:
        transport: Calls the operations, in the portal's loop.
        portal: Runs the work.
        user: Whose memory keeps the items.
        agent: Which agent keeps them.
        user_at: The place of the label that names the user, from 1; None keeps all namespaces in
            the memory of `user`.
        ttl: The time to live of items that are put without one, and whether a read extends it.
    """

    supports_ttl = True

    def __init__(  # noqa: PLR0913 # what `open` takes, and two resources
        self,
        transport: Transport,
        portal: Portal,
        *,
        user: str,
        agent: str = "default",
        user_at: int | None = None,
        ttl: TTLConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.ttl_config = ttl
        self._transport = transport
        self._portal = portal
        self._user = user
        self._agent = agent
        self._user_at = user_at
        self._clock = clock or SystemClock()

    @classmethod
    @contextmanager
    def open(  # noqa: PLR0913 # what a store is told
        cls,
        where: str | Path,
        *,
        user: str,
        agent: str = "default",
        token: str | None = None,
        user_at: int | None = None,
        ttl: TTLConfig | None = None,
        clock: Clock | None = None,
    ) -> Iterator[Self]:
        """Open a store on a state directory, or on a running daemon.

        Args:
            where: As `slumberd.Memory.open` takes it.
            user: Whose memory keeps the items.
            agent: Which agent keeps them.
            token: What a daemon that serves HTTP knows the caller by.
            user_at: The place of the label that names the user, from 1: with 2, items of
                ``("memories", "ada")`` are in the memory of ada. Then each call must name that
                label. None keeps all namespaces in the memory of `user`.
            ttl: As LangGraph defines it: ``default_ttl`` in minutes, and ``refresh_on_read``.

        Raises:
            ConfigurationError: The configuration or the rules in the directory have mistakes.
            StateDirectoryLockedError: A daemon runs there already; ``unix:`` reaches it.
            UsageError: The address has another scheme.
        """
        portal, stack = Portal(str(where)), AsyncExitStack()
        try:
            opening = open_transport(where, token=token)
            transport = portal.call(partial(stack.enter_async_context, opening))
            yield cls(
                transport, portal, user=user, agent=agent, user_at=user_at, ttl=ttl, clock=clock
            )
        finally:
            portal.close(stack.aclose)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: all reads in their order, then the last put of each key.

        The batch is no transaction: each put is committed by itself.

        Raises:
            RecordRefusedError: JSON would change a value, or a time to live is impossible. Nothing
                is written.
            UsageError: A namespace does not name the user, and `user_at` says that it must.
            ValueError: A namespace or a filter is malformed.
        """
        return self._portal.call(partial(self._run, [*ops]))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations as `batch` does, without blocking the event loop."""
        return await asyncio.to_thread(self.batch, [*ops])

    def sweep_ttl(self, namespace_prefix: Namespace = ()) -> int:
        """Retract the items whose time to live is over; return how many.

        A retracted value stays in the history until its scope is erased.

        Args:
            namespace_prefix: Only in namespaces that begin with these labels.
        """
        return self._portal.call(partial(self._sweep, namespace_prefix))

    async def asweep_ttl(self, namespace_prefix: Namespace = ()) -> int:
        """Retract expired items as `sweep_ttl` does, without blocking the event loop."""
        return await asyncio.to_thread(self.sweep_ttl, namespace_prefix)

    async def _run(self, ops: list[Op]) -> list[Result]:
        for position, op in enumerate(ops):
            validate_op_namespace(op)
            if isinstance(op, PutOp) and (problem := _problem_of(op)):
                raise RecordRefusedError(position, problem)
        results = [await self._read(op) for op in ops]
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        for put in puts.values():
            await self._put(put)
        return results

    async def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                return await self._get(op)
            case SearchOp():
                return await self._search(op)
            case ListNamespacesOp():
                return await self._list_namespaces(op)
            case PutOp():
                self._user_of(op.namespace)
                return None
            case _:
                assert_never(op)

    def _user_of(self, namespace: Namespace) -> str:
        """Return whose memory keeps a namespace, and those below it."""
        if self._user_at is None:
            return self._user
        if len(namespace) < self._user_at:
            raise UsageError(
                f"the namespace {namespace} names no user: its label {self._user_at} must"
            )
        return namespace[self._user_at - 1]

    def _memory(self, namespace: Namespace) -> Memory:
        user = self._user_of(namespace)
        return Memory(self._transport, user=user, agent=self._agent, session="langgraph")

    def _facts(self, namespace: Namespace) -> NamedFacts:
        return NamedFacts(self._memory(namespace), PREDICATE)

    async def _get(self, op: GetOp) -> Item | None:
        found = await self._find(op.namespace, op.key)
        if found is None:
            return None
        if op.refresh_ttl:
            await self._extend(found)
        return Item(**_fields(found.item))

    async def _find(self, namespace: Namespace, key: str) -> _Found | None:
        fact = await self._facts(namespace).get(subject_of(namespace, key))
        return next(iter(_living([fact] if fact else [], self._clock.now()).values()), None)

    async def _put(self, op: PutOp) -> None:
        facts, subject = self._facts(op.namespace), subject_of(op.namespace, op.key)
        if op.value is None:
            with suppress(NoInputError):  # there is no such item
                await facts.remove(subject, reason=_DELETE)
            return
        before, now = await self._find(op.namespace, op.key), self._clock.now()
        item = StoredItem(
            namespace=op.namespace,
            key=op.key,
            value={**op.value},
            created_at=before.item.created_at if before else now,
            updated_at=now,
            is_searched=op.index is not False,
            ttl_minutes=op.ttl,
        )
        await facts.put(subject, item.extended(now).document(), reason=_PUT)

    async def _extend(self, found: _Found) -> None:
        """Extend the time to live of an item that was read."""
        fact, item = found
        if item.ttl_minutes is None:
            return
        document = item.extended(self._clock.now()).document()
        with suppress(NoInputError, VersionConflictError):  # another program has put it meanwhile
            await self._facts(item.namespace).put(item.subject, document, reason=_READ, known=fact)

    async def _under(self, prefix: Namespace) -> dict[str, _Found]:
        """Return the living items of the namespaces that begin with some labels, by fact id."""
        return _living(await self._facts(prefix).under(prefix_of(prefix)), self._clock.now())

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        living = await self._under(op.namespace_prefix)
        wanted = {id: one for id, one in living.items() if passes(one.item.value, op.filter)}
        scores = await self._scores(op, wanted) if op.query else _latest_first(wanted)
        chosen = [*scores.items()][op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            for id, _ in chosen:
                await self._extend(wanted[id])
        return [SearchItem(**_fields(wanted[id].item), score=score) for id, score in chosen]

    async def _scores(self, op: SearchOp, wanted: dict[str, _Found]) -> dict[str, float | None]:
        """Return the scores of the items that answer the query of a search, best first."""
        memory = self._memory(op.namespace_prefix)
        hits = await memory.recall(op.query or "", kinds=["fact"], limit=MOST)
        searched = {id for id, one in wanted.items() if one.item.is_searched}
        return {hit.id: hit.score for hit in hits if hit.id in searched}

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        prefixes = [one.path for one in conditions if one.match_type == "prefix"]
        living = await self._under(_labels(prefixes[0] if prefixes else ()))
        found = {one.item.namespace for one in living.values()}
        chosen = {
            namespace[: op.max_depth]
            for namespace in found
            if all(matches(namespace, one.match_type, one.path) for one in conditions)
        }
        return sorted(chosen)[op.offset : op.offset + op.limit]

    async def _sweep(self, prefix: Namespace) -> int:
        facts, now, swept = self._facts(prefix), self._clock.now(), 0
        for fact in await facts.under(prefix_of(prefix)):
            item = item_of(fact)
            if item is not None and item.is_expired(now):
                with suppress(NoInputError, VersionConflictError):  # it was put again meanwhile
                    await facts.remove(item.subject, reason=_SWEEP, known=fact)
                    swept += 1
        return swept


def _problem_of(op: PutOp) -> str:
    """Return why an item cannot be put; empty when it can."""
    if op.ttl is not None and not 0 <= op.ttl <= MOST_TTL_MINUTES:
        return f"ttl is {op.ttl}; it must be 0 to {MOST_TTL_MINUTES} minutes"
    return "" if op.value is None else json_problem({**op.value}, "value")


def _fields(item: StoredItem) -> dict[str, Any]:
    """Return the fields that LangGraph's items have."""
    names = ("namespace", "key", "value", "created_at", "updated_at")
    return {name: getattr(item, name) for name in names}


def _living(facts: Iterable[KnownFact], now: datetime) -> dict[str, _Found]:
    """Return the items that facts keep and that are not expired, by fact id."""
    return {
        fact.id: _Found(fact, item)
        for fact in facts
        if (item := item_of(fact)) is not None and not item.is_expired(now)
    }


def _latest_first(wanted: dict[str, _Found]) -> dict[str, float | None]:
    """Return the ids of items without scores, the latest first; equal ones by subject."""
    by_subject = sorted(wanted, key=lambda id: wanted[id].item.subject)
    by_time = sorted(by_subject, key=lambda id: wanted[id].item.updated_at, reverse=True)
    return dict.fromkeys(by_time)


def _labels(path: tuple[str, ...]) -> Namespace:
    """Return the labels of a path before its first star."""
    return path[: path.index(WILDCARD)] if WILDCARD in path else path
