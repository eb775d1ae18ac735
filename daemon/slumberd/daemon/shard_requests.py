"""Find the shard of a request, and let the daemon that holds the shard answer it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from slumberd.daemon.control_socket import RefusedError, own_error
from slumberd.daemon.database_requests import ask_database
from slumberd.model.errors import (
    NotRunningError,
    ShardNotNamedError,
    UsageError,
    UserElsewhereError,
    UserMovingError,
    WrongShardError,
)
from slumberd.operations.caller import Caller
from slumberd.operations.forms import OperatorForm, RequestForm, ScopedForm
from slumberd.operations.handlers import Answer, Handler, Operation, forward, read_form
from slumberd.operations.registry import OPERATIONS
from slumberd.storage.postgres.connection import where
from slumberd.storage.postgres.shard_map import Shard, ShardMap

T = TypeVar("T")

Request = dict[str, Any]
Ask = Callable[[Shard, str, Request], Answer]
"""Asks the daemon that holds a shard: the shard, the operation's name, and its fields."""

SPARE_SECONDS = 2.0
"""How long a host may take to claim a shard whose lease has ended."""

MOST_CALLS = 64
"""Calls of the handlers of one host at the same time; further ones wait."""

Passing = type[Exception] | tuple[type[Exception], ...]

_ASK_AGAIN_SECONDS = 0.1
"""The pause between two attempts."""

_ROUTED = {*OperatorForm.model_fields}
"""Fields that say where a request goes, and that the daemon of its shard does not need."""


def find_shard(
    shards: ShardMap,
    user: str | None,
    number: int | None = None,
    *,
    patience_seconds: float,
) -> Shard:
    """Return the shard of a user, or the shard with a number, or the only shard.

    While a user is being moved, the call waits.

    Args:
        shards: The shards of the database.
        user: The user; None when a request concerns all users of a shard.
        number: The number; None when it is not given.
        patience_seconds: How long to wait.

    Raises:
        ShardNotNamedError: Neither is given, and there are several shards.
        UsageError: There is no such shard.
        WrongShardError: The user lies in another one.
        UserMovingError: The user is still being moved.
        StoreError: The database cannot be read.
    """
    named = None if number is None else shards.shard(number)
    if user is None:
        if named is not None:
            return named
        known = shards.shards()
        if len(known) > 1:
            raise ShardNotNamedError(where(known[0].address), [shard.number for shard in known])
        return known[0]
    found = _patiently(partial(shards.find, user), UserMovingError, patience_seconds)
    if named is not None and named != found:
        raise WrongShardError(user, found.number, named.number)
    return found


def _patiently(attempt: Callable[[], T], passing: Passing, patience_seconds: float) -> T:
    """Repeat an attempt that does nothing when it fails with a passing error."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return attempt()
        except passing:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_ASK_AGAIN_SECONDS)


class ShardRequests:
    """Sends each request to the shard that it concerns.

    Args:
        shards: The shards of the database.
        own: The shard of requests that name none; None without one.
        ask: Asks the daemon that holds a shard; None asks through its database.
    """

    def __init__(
        self,
        shards: ShardMap,
        *,
        lease_seconds: float,
        own: int | None = None,
        ask: Ask | None = None,
    ) -> None:
        self._shards = shards
        self._patience_seconds = lease_seconds + SPARE_SECONDS
        self._own = own
        self._ask = ask or ask_daemon

    def call(self, operation: str, request: Request, caller: Caller | None = None) -> Answer:
        """Return the answer of the daemon that holds the shard of a request.

        Args:
            request: Its fields.
            caller: For whom; None for this process itself.

        Raises:
            NotRunningError: No daemon holds the shard.
            SlumberdError: As `find_shard`, or the daemon's own error.
        """
        known = OPERATIONS.get(operation)
        if known is None:
            raise UsageError(f"unknown operation {operation!r}")
        form = read_form(known, request)
        fields = {name: value for name, value in request.items() if name not in _ROUTED}
        passed = forward(fields, caller)
        if not isinstance(form, (ScopedForm, OperatorForm)):
            return self._ask_any(operation, passed)
        own_user = None if caller is None else caller.user
        user = getattr(form, "user", None) if own_user is None else own_user
        number = getattr(form, "shard", None)
        number = self._own if number is None else number
        # A user may be moved between the look at the map and the answer.
        moved = (UserMovingError, UserElsewhereError, WrongShardError)
        passing = moved if number is None else UserMovingError
        attempt = partial(self._ask_shard_of, user, number, operation, passed)
        return _patiently(attempt, passing, self._patience_seconds)

    def _ask_shard_of(
        self, user: str | None, number: int | None, operation: str, request: Request
    ) -> Answer:
        shard = find_shard(self._shards, user, number, patience_seconds=0.0)
        return self._ask_one(shard, operation, request)

    def _ask_any(self, operation: str, request: Request) -> Answer:
        """Ask the daemon of any shard what concerns all shards."""
        *others, last = self._shards.shards()
        for shard in others:
            with suppress(NotRunningError):
                return self._ask_one(shard, operation, request)
        return self._ask_one(last, operation, request)

    def _ask_one(self, shard: Shard, operation: str, request: Request) -> Answer:
        try:
            return self._ask(shard, operation, request)
        except RefusedError as refused:
            raise own_error(refused) from None


def ask_daemon(shard: Shard, operation: str, request: Request) -> Answer:
    """Ask the daemon that holds a shard, through its database."""
    return ask_database(shard, operation, request)


def ask_patiently(
    shard: Shard, operation: str, request: Request, *, patience_seconds: float
) -> Answer:
    """Ask the daemon of a shard; wait while the shard passes from one host to another."""
    ask = partial(ask_daemon, shard, operation, request)
    return _patiently(ask, NotRunningError, patience_seconds)  # nothing was done


def shard_handlers(requests: ShardRequests) -> dict[str, Handler]:
    """Return handlers that forward each operation to the shard that it concerns.

    Each checks the right of its caller, and passes the caller on: the daemon of the shard checks
    right and scope.
    """
    room = asyncio.Semaphore(MOST_CALLS)
    return {name: _forwarding(operation, requests, room) for name, operation in OPERATIONS.items()}


def _forwarding(
    operation: Operation[RequestForm], requests: ShardRequests, room: asyncio.Semaphore
) -> Handler:
    async def handle(request: Request, caller: Caller) -> Answer:
        caller.require(operation.right)
        await room.acquire()
        call = partial(requests.call, operation.name, request, caller)
        return await _run_in_thread(call, ended=room.release)

    return handle


def _run_in_thread(call: Callable[[], Answer], ended: Callable[[], None]) -> asyncio.Future[Answer]:
    """Call a function in a thread that the end of the process does not wait for.

    A cancelled call leaves the thread behind, since the request is under way.

    Args:
        ended: Called in the event loop when the thread has ended.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = loop.create_future()

    def settle(set_outcome: Callable[[], None]) -> None:
        ended()
        if not answer.done():
            set_outcome()

    def run() -> None:
        try:
            found = call()
        except Exception as error:  # noqa: BLE001 # raised where the answer is awaited
            outcome = partial(answer.set_exception, error)
        else:
            outcome = partial(answer.set_result, found)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, daemon=True, name="slumberd-shards").start()
    return answer
