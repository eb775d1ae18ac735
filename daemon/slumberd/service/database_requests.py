"""Answer the requests of other hosts, which they write into the database.

A request and its answer have the form of the control socket's. Whoever may write into the table has
the rights of an operator, as the users of the control socket have.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import structlog

from slumberd.errors import StoreError
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, Handler
from slumberd.service.control_socket import answer_line, decode_answer, encode_request
from slumberd.service.database_tenure import process_name
from slumberd.storage.connection_thread import ConnectionThread
from slumberd.storage.postgres.address import where
from slumberd.storage.postgres.connection import Connection, connect, translate_errors
from slumberd.storage.postgres.requests import (
    Request,
    RequestQueue,
    answer_request,
    send_request,
)

_log = structlog.get_logger("slumberd")

_WAIT_SECONDS = 0.5
"""How long one look for requests waits for a notification."""

_RETRY_SECONDS = 1.0


def ask_database(address: str, shard: int, operation: str, fields: dict[str, Any]) -> Answer:
    """Send a request to the daemon that holds a shard, and wait for its answer.

    Raises:
        NotRunningError: No daemon holds the shard.
        UsageError: JSON cannot hold the request.
        RefusedError: The daemon refuses the request.
        StoreError: The daemon ended before it answered.
    """
    line = encode_request(operation, fields)
    host = f"{_user()}@{process_name()}"
    return decode_answer(send_request(address, shard, operation, line, host=host))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "unknown"


@asynccontextmanager
async def answer_requests(address: str, operations: Mapping[str, Handler]) -> AsyncIterator[None]:
    """Answer the requests in a database while the block runs.

    Args:
        address: The address of the database.
        operations: The operations, by name.
    """
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(_Answerer(address, operations).run(stop))
        try:
            yield
        finally:
            stop.set()
            answering.cancel()


class _Answerer:
    def __init__(self, address: str, operations: Mapping[str, Handler]) -> None:
        self._address = address
        self._operations = operations

    async def run(self, stop: asyncio.Event) -> None:
        """Answer requests until `stop` is set; a lost connection is opened again."""
        while not stop.is_set():
            try:
                async with _connection(self._address) as taking, _connection(self._address) as own:
                    await self._answer_from(taking, own, stop)
            except* StoreError as errors:
                _log.warning("requests.failed", message=str(errors.exceptions[0]))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _answer_from(
        self,
        taking: ConnectionThread[Connection],
        own: ConnectionThread[Connection],
        stop: asyncio.Event,
    ) -> None:
        place = where(self._address)
        with translate_errors(place):
            queue = await taking.run(partial(RequestQueue, holder=process_name()))
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                with translate_errors(place):
                    found = await taking.run(partial(_take, queue))
                for request in found:
                    group.create_task(self._answer(request, own))

    async def _answer(self, request: Request, own: ConnectionThread[Connection]) -> None:
        answer = await answer_line(self._operations, request.line, Caller(name=request.host))
        with suppress(StoreError), translate_errors(where(self._address)):
            await own.run(partial(answer_request, number=request.number, answer=answer))


def _take(queue: RequestQueue, _: Connection) -> list[Request]:
    return queue.take(wait_seconds=_WAIT_SECONDS)


@asynccontextmanager
async def _connection(address: str) -> AsyncIterator[ConnectionThread[Connection]]:
    opened = await ConnectionThread(
        partial(connect, address, autocommit=True), "slumberd-requests"
    ).open()
    try:
        yield opened
    finally:
        with suppress(StoreError):
            await opened.close()
