"""Ways to call operations: in this process, or of a daemon by its socket, database or HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from slumberd.client.own_daemons import OWN_DAEMONS, OwnDaemon
from slumberd.client.request_json import as_json
from slumberd.config.settings_schema import LEASE_SECONDS
from slumberd.errors import UsageError
from slumberd.operations.handlers import Answer
from slumberd.service.composition import require_postgres
from slumberd.service.control_socket import RefusedError, ask_asynchronously, own_error

SCHEME = "unix:"
"""How the address of a running daemon begins; its state directory follows."""

MOST_CALLS = 32
"""Calls of one event loop to a daemon at the same time; further ones wait.

The daemon takes twice as many connections from one user."""

HTTP_SCHEMES = ("http://", "https://")
DATABASE_SCHEMES = ("postgresql://", "postgres://")

_PLACE = re.compile(r"(https?:|[^/]*:[0-9]+(/|$))", re.IGNORECASE)
"""An address of a daemon without its scheme, or with half of it."""

_REMEDY = f"name a directory, {SCHEME} and a directory, http://, https:// or postgresql://"


class Transport(Protocol):
    """Calls operations."""

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the answer to a request.

        Args:
            operation: The operation's name.
            request: Its fields.
        """
        ...


class SocketTransport:
    """Calls operations of the daemon of a state directory.

    Args:
        directory: The state directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rooms = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the daemon's answer; each call has a connection of its own.

        Raises:
            SlumberdError: The daemon's own error, of the same class and with the same message.
        """
        try:
            async with self._room():
                return await ask_asynchronously(
                    self._directory, operation, as_json(operation, request)
                )
        except RefusedError as refused:
            raise own_error(refused) from None

    def _room(self) -> asyncio.Semaphore:
        """Return what limits the calls of this event loop; several loops may call."""
        loop = asyncio.get_running_loop()
        return self._rooms.setdefault(loop, asyncio.Semaphore(MOST_CALLS))


class DatabaseTransport:
    """Calls operations of the daemons of a PostgreSQL database, on whichever hosts they run.

    Args:
        address: The address of the database.
        shard: The shard of requests that name neither a user nor a shard; None without one.
        lease_seconds: The lease of the shards.
    """

    def __init__(
        self, address: str, shard: int | None = None, *, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self._address = address
        self._shard = shard
        self._lease_seconds = lease_seconds
        # A call may wait for a minute, and the threads of `asyncio.to_thread` are few.
        self._threads = ThreadPoolExecutor(MOST_CALLS, thread_name_prefix="slumberd-database")

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the answer of the daemon; each call has connections of its own.

        Raises:
            NotRunningError: No daemon holds the shard that the request concerns.
            ShardNotNamedError: The request concerns one of several shards, and names none.
            UserMovingError: The user is being moved to another shard, for longer than a lease.
            SlumberdError: The daemon's own error, of the same class and with the same message.
        """
        require_postgres()
        from slumberd.service import postgres_stores

        requests = postgres_stores.requests_of(self._address, self._shard, self._lease_seconds)
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, requests.call, operation, as_json(operation, request)
        )


class OwnTransport:
    """Calls operations of a daemon of this process.

    Args:
        daemon: The daemon.
    """

    def __init__(self, daemon: OwnDaemon) -> None:
        self._daemon = daemon

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the answer of the operation."""
        return await self._daemon.call(operation, as_json(operation, request))


@asynccontextmanager
async def open_transport(
    where: str | Path, *, token: str | None = None
) -> AsyncIterator[Transport]:
    """Open what an address names.

    Args:
        where: ``unix:`` and the state directory of a running daemon; or ``http://`` or ``https://``
            and the place of a daemon that serves HTTP; or ``postgresql://`` and a
            database that a running daemon holds, on any host; else a state directory, on which one
            daemon runs in this process until the last such block ends.
        token: What a daemon that serves HTTP knows the caller by.

    Raises:
        NotRunningError: By the first call; no daemon runs there.
        OtherSettingsError: The directory is open in this process, with other settings.
        StateDirectoryLockedError: A daemon runs there already; ``unix:`` reaches it.
        DatabaseHeldError: A daemon holds the database of the directory's configuration.
        UsageError: The address has another scheme, names no directory, or takes no token.
    """
    text = _address_of(where)
    if text.startswith(HTTP_SCHEMES):
        from slumberd.client.http_transport import HttpTransport  # only when it is used

        yield HttpTransport(text, token)
        return
    if token is not None:
        raise UsageError(f"{text!r} takes no token; only http:// and https:// do")
    if text.startswith(SCHEME):
        yield SocketTransport(_directory_of(text.removeprefix(SCHEME).removeprefix("//")))
        return
    if text.startswith(DATABASE_SCHEMES):
        yield DatabaseTransport(text)
        return
    if "://" in text or await asyncio.to_thread(_is_place, text):
        raise UsageError(f"{text!r} is no address; {_REMEDY}")
    async with OWN_DAEMONS.open(_directory_of(text)) as daemon:
        yield OwnTransport(daemon)


def _address_of(where: object) -> str:
    if isinstance(where, str | PathLike):
        return fsdecode(where)
    raise UsageError(f"{where!r:.200} is no address; {_REMEDY}")


def _is_place(text: str) -> bool:
    """Return whether a text names a daemon without its scheme, and no directory that is there."""
    return _PLACE.match(text) is not None and "\0" not in text and not Path(text).exists()


def _directory_of(text: str) -> Path:
    if not text or "\0" in text:
        raise UsageError(f"{text!r:.200} names no directory; {_REMEDY}")
    return Path(text)
