"""Answer the requests of other hosts, which they write into the database.

A request and its answer have the form of the control socket's. Whoever may write into the table has
the rights of an operator, as the users of the control socket have. A host passes on who called it,
so that the daemon enforces the limits of that caller.
"""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import orjson
import structlog

from slumberd.clock import set_within
from slumberd.daemon.control_socket import (
    answer_line,
    decode_answer,
    encode_request,
    refusal,
    refused_by,
)
from slumberd.daemon.database_tenure import process_name
from slumberd.model.errors import RequestTooLargeError, StoreError
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, Handler, for_forwarded
from slumberd.operations.registry import OPERATIONS
from slumberd.storage.postgres.connection import Connection, translate_errors, where
from slumberd.storage.postgres.connection_pool import pool_for
from slumberd.storage.postgres.requests import (
    Request,
    answer_request,
    forget_requests,
    give_back_request,
    send_request,
    take_requests,
)
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.postgres.watch import RequestWatch
from slumberd.storage.strict_json import MOST_REQUEST_BYTES, read_object

T = TypeVar("T")

_log = structlog.get_logger("slumberd")

_FORGET_SECONDS = 600.0
_RETRY_SECONDS = 1.0

_END_SECONDS = 5.0
"""How long requests under way may take when the daemon ends."""

MOST_AT_ONCE = 64
"""Requests under way; further ones wait in the table."""

_MOST_ANSWER_BYTES = 256 * 2**20


def ask_database(shard: Shard, operation: str, fields: dict[str, Any]) -> Answer:
    """Send a request to the daemon that holds a shard, and wait for its answer.

    Raises:
        NotRunningError: No daemon holds the shard.
        UsageError: JSON cannot hold the request.
        RequestTooLargeError: No interface takes so much.
        RefusedError: The daemon refuses the request.
        StoreError: The daemon ended before it answered.
    """
    line = encode_request(operation, fields)
    host = f"{_user()}@{process_name()}"
    return decode_answer(send_request(shard, operation, line, host=host))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "unknown"


class ServedShards:
    """The operations of the shards that this process serves now.

    Attributes:
        changed: Set when a shard is added.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._operations: dict[Shard, Mapping[str, Handler]] = {}
        self._answering: dict[Shard, set[asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def serve(self, shard: Shard, operations: Mapping[str, Handler]) -> AsyncIterator[None]:
        """Serve a shard while the block runs; then requests under way get some seconds to end."""
        self._operations[shard] = {name: for_forwarded(one) for name, one in operations.items()}
        answering = self._answering[shard] = set()
        self.changed.set()
        try:
            yield
        finally:
            del self._operations[shard], self._answering[shard]
            if answering:
                await asyncio.wait(answering, timeout=_END_SECONDS)

    def shards(self, address: str) -> list[Shard]:
        """Return the shards of a database that are served; from any thread."""
        served = [*self._operations]  # a copy: it may change meanwhile
        return [shard for shard in served if shard.address == address]

    def addresses(self) -> set[str]:
        """Return the addresses of the databases whose shards are served."""
        return {shard.address for shard in self._operations}

    def operations(self, shard: Shard) -> Mapping[str, Handler] | None:
        """Return the operations of a shard; None when it is served no more."""
        return self._operations.get(shard)

    def note(self, shard: Shard, task: asyncio.Task[None]) -> None:
        """Note that a task answers a request for a shard."""
        if (tasks := self._answering.get(shard)) is not None:
            tasks.add(task)
            task.add_done_callback(tasks.discard)


@asynccontextmanager
async def answer_requests(served: ServedShards, *, holder: str) -> AsyncIterator[None]:
    """Answer the requests for the shards that this process serves while the block runs.

    Args:
        served: These shards.
        holder: The name under which this daemon holds them.
    """
    answerers: dict[str, _Answerer] = {}

    async def follow(group: asyncio.TaskGroup) -> None:
        """Begin to answer on each server with a shard that is served."""
        while True:
            served.changed.clear()
            for address in served.addresses() - answerers.keys():
                answerers[address] = _Answerer(address, served, holder)
                answering.append(group.create_task(answerers[address].run()))
            for answerer in answerers.values():
                answerer.look_again()
            await served.changed.wait()

    answering: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(group))
        try:
            yield
        finally:
            following.cancel()
            for answerer in answerers.values():
                answerer.stop()
            if answering:
                await asyncio.wait(answering, timeout=_END_SECONDS)
            for task in answering:
                task.cancel()


class _Answerer:
    """Answers the requests on one server.

    Args:
        address: The address of its database.
        served: The shards that this process serves.
        holder: The name under which this daemon holds them.
    """

    def __init__(self, address: str, served: ServedShards, holder: str) -> None:
        self._address = address
        self._place = where(address)
        self._served = served
        self._holder = holder
        self._pool = pool_for(address)
        self._waiting: set[Shard] = set()
        self._woken = asyncio.Event()
        self._is_over = False
        self._is_failing = False
        self._forgotten_at = float("-inf")
        self._answering: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        self._watch = RequestWatch(
            address,
            partial(served.shards, address),
            lambda shards: loop.call_soon_threadsafe(self._note, shards),
        )

    async def run(self) -> None:
        """Answer requests until `stop`; a lost connection is opened again.

        The end of a connection ends no request: what is under way is done, and answered later.
        """
        async with asyncio.TaskGroup() as group:
            with self._watch:
                while not self._is_over:
                    await self._take(group)
                    await set_within(self._woken, _FORGET_SECONDS)
                    self._woken.clear()
        await self._pool.leave()

    def look_again(self) -> None:
        """Look for requests: a shard was added."""
        self._watch.look_again()

    def stop(self) -> None:
        """Take no more requests."""
        self._is_over = True
        self._woken.set()

    def _note(self, shards: list[Shard]) -> None:
        """Note for which shards requests wait."""
        self._waiting.update(shards)
        self._woken.set()

    async def _take(self, group: asyncio.TaskGroup) -> None:
        """Take the requests that wait; the watch tells of them again after an error."""
        try:
            await self._forget()
            while self._waiting and not self._is_over:
                if (room := MOST_AT_ONCE - len(self._answering)) <= 0:
                    await asyncio.wait(self._answering, return_when=asyncio.FIRST_COMPLETED)
                    continue
                await self._take_from(self._waiting.pop(), room, group)
        except StoreError as error:
            self._warn(error)
        else:
            self._is_failing = False

    async def _take_from(self, shard: Shard, room: int, group: asyncio.TaskGroup) -> None:
        work = partial(take_requests, shard=shard, most=room, holder=self._holder)
        taken = await self._run(work)
        if len(taken) == room:
            self._waiting.add(shard)
        for request in taken:
            task = group.create_task(self._answer(request))
            self._served.note(shard, task)
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _forget(self) -> None:
        now = time.monotonic()
        if now - self._forgotten_at < _FORGET_SECONDS:
            return
        shards = self._served.shards(self._address)
        await self._run(partial(forget_requests, shards=shards, holder=self._holder))
        self._forgotten_at = now

    async def _answer(self, request: Request) -> None:
        give_back = partial(give_back_request, request=request, holder=self._holder)
        operations = self._served.operations(request.shard)
        if operations is None:  # another host gets the shard, and then the request
            await self._repeat(give_back)
            return
        caller = Caller(name=request.host)
        if request.line:
            answer = await answer_line(operations, request.line, caller)
            ended = self._served.operations(request.shard) is not operations
            if ended and _is_failed_read(request.line, answer):
                await self._repeat(give_back)
                return
        else:  # the queue has left it out
            answer = refused_by(RequestTooLargeError(MOST_REQUEST_BYTES))
        if len(answer) > _MOST_ANSWER_BYTES:
            problem = (
                f"the answer has {len(answer):,} bytes, and a table holds {_MOST_ANSWER_BYTES:,}"
            )
            answer = refusal(f"{problem}: ask for less", RequestTooLargeError.exit_code)
        await self._repeat(
            partial(answer_request, request=request, answer=answer, holder=self._holder)
        )

    async def _repeat(self, work: Callable[[Connection], None]) -> None:
        """Run a work; try until the server has taken it."""
        while True:
            try:
                return await self._run(work)
            except StoreError as error:
                self._warn(error)
            await asyncio.sleep(_RETRY_SECONDS)

    def _warn(self, error: StoreError) -> None:
        if not self._is_failing:
            _log.warning("requests.failed", message=str(error))
        self._is_failing = True

    async def _run(self, work: Callable[[Connection], T]) -> T:
        with translate_errors(self._place):
            return await self._pool.run("requests", work)


def _is_failed_read(line: bytes, answer: bytes) -> bool:
    """Return whether a request that changes nothing failed; another daemon may repeat it."""
    if orjson.loads(answer)["ok"]:
        return False
    operation = OPERATIONS.get(str(read_object(line).get("operation")))
    return operation is not None and operation.read_only
