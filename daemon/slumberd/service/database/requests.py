"""Answer the requests of other hosts, which they write into the database.

A request and its answer have the form of the control socket's. Whoever may write into the table has
the rights of an operator, as the users of the control socket have. A host passes on who called it,
so that the daemon enforces the limits of that caller.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import structlog

from slumberd.clock import set_within
from slumberd.errors import RequestTooLargeError, StoreError
from slumberd.operations.caller import Caller
from slumberd.operations.forwarded_caller import for_forwarded
from slumberd.operations.handlers import Answer, Handler
from slumberd.service.control_socket import (
    answer_line,
    decode_answer,
    encode_request,
    refusal,
    refused_by,
)
from slumberd.service.database.tenure import process_name
from slumberd.storage.connection_thread import ConnectionThread
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import Connection, connect, translate_errors
from slumberd.storage.postgres.hosts.requests import (
    Request,
    RequestQueue,
    answer_request,
    give_back_request,
    send_request,
    wake_queue,
)
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.strict_json import MOST_REQUEST_BYTES

_log = structlog.get_logger("slumberd")

_WAIT_SECONDS = 0.5
"""How long one look for requests waits for a notification."""

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
        """Serve a shard while the block runs; then requests under way get some seconds to end.

        Args:
            shard: The shard.
            operations: The operations, by name.
        """
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
        """Return the shards of a database that are served."""
        return [shard for shard in self._operations if shard.address == address]

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
        """Begin to answer in each database with a shard that is served."""
        while True:
            served.changed.clear()
            for address in served.addresses() - answerers.keys():
                answerers[address] = _Answerer(address, served, holder)
                answering.append(group.create_task(answerers[address].run()))
            await served.changed.wait()

    answering: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(group))
        try:
            yield
        finally:
            following.cancel()
            for answerer in answerers.values():
                await answerer.stop()
            if answering:
                await asyncio.wait(answering, timeout=_END_SECONDS)
            for task in answering:
                task.cancel()


class _Answerer:
    """Answers the requests in one database."""

    def __init__(self, address: str, served: ServedShards, holder: str) -> None:
        self._address = address
        self._place = where(address)
        self._served = served
        self._holder = holder
        self._stop = asyncio.Event()
        self._writer = _AnswerWriter(address, holder)
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer requests until `stop`; a lost connection is opened again.

        The end of a connection ends no request: what is under way is done, and answered later.
        """
        is_failing = False
        async with asyncio.TaskGroup() as group:
            while not self._stop.is_set():
                try:
                    async with _connection(self._address) as taking:
                        await self._take_from(taking, group)
                        is_failing = False
                except StoreError as error:
                    if not is_failing:
                        _log.warning("requests.failed", message=str(error))
                    is_failing = True
                    await set_within(self._stop, _RETRY_SECONDS)
        await self._writer.close()

    async def stop(self) -> None:
        """Take no more requests."""
        self._stop.set()
        await self._writer.wake_queue()

    async def _take_from(
        self, taking: ConnectionThread[Connection], group: asyncio.TaskGroup
    ) -> None:
        with translate_errors(self._place):
            make = partial(RequestQueue, holder=self._holder)
            queue = await taking.run(make)
            while not self._stop.is_set():
                if (room := MOST_AT_ONCE - len(self._answering)) <= 0:
                    await asyncio.wait(self._answering, return_when=asyncio.FIRST_COMPLETED)
                    continue
                shards = self._served.shards(self._address)
                for request in await taking.run(partial(_take, queue, shards, room)):
                    task = group.create_task(self._answer(request))
                    self._served.note(request.shard, task)
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)

    async def _answer(self, request: Request) -> None:
        operations = self._served.operations(request.shard)
        if operations is None:  # another host gets the shard, and then the request
            await self._writer.give_back(request)
            return
        caller = Caller(name=request.host)
        if request.line:
            answer = await answer_line(operations, request.line, caller)
        else:  # the queue has left it out
            answer = refused_by(RequestTooLargeError(MOST_REQUEST_BYTES))
        if len(answer) > _MOST_ANSWER_BYTES:
            problem = (
                f"the answer has {len(answer):,} bytes, and a table holds {_MOST_ANSWER_BYTES:,}"
            )
            answer = refusal(f"{problem}: ask for less", RequestTooLargeError.exit_code)
        await self._writer.write(request, answer)


class _AnswerWriter:
    """Writes answers, one after another; a lost connection is opened again.

    Args:
        address: The address of the database.
        holder: The name under which this daemon holds it.
    """

    def __init__(self, address: str, holder: str) -> None:
        self._address = address
        self._holder = holder
        self._alone = asyncio.Lock()
        self._opened: ConnectionThread[Connection] | None = None

    async def write(self, request: Request, answer: bytes) -> None:
        """Write an answer; try until the server has taken it."""
        await self._repeat(
            partial(answer_request, request=request, answer=answer, holder=self._holder)
        )

    async def give_back(self, request: Request) -> None:
        """Leave a request to the next holder of its shard; try until the server has taken it."""
        await self._repeat(partial(give_back_request, request=request, holder=self._holder))

    async def wake_queue(self) -> None:
        """End the waiting of the queue, if the server answers."""
        if self._opened is not None:
            with suppress(StoreError):
                await self._run(wake_queue)

    async def close(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.release()
            self._opened = None

    async def _repeat(self, work: Callable[[Connection], None]) -> None:
        async with self._alone:
            while True:
                try:
                    return await self._run(work)
                except StoreError as error:
                    _log.warning("requests.failed", message=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _run(self, work: Callable[[Connection], None]) -> None:
        if self._opened is None:
            self._opened = await ConnectionThread(
                partial(connect, self._address, autocommit=True), "slumberd-answers"
            ).open()
        try:
            with translate_errors(where(self._address)):
                await self._opened.run(work)
        except StoreError:
            await self.close()
            raise


def _take(queue: RequestQueue, shards: Sequence[Shard], room: int, _: Connection) -> list[Request]:
    return queue.take(shards, room, wait_seconds=_WAIT_SECONDS)


@asynccontextmanager
async def _connection(address: str) -> AsyncIterator[ConnectionThread[Connection]]:
    opened = await ConnectionThread(
        partial(connect, address, autocommit=True), "slumberd-requests"
    ).open()
    try:
        yield opened
    finally:
        opened.release()
