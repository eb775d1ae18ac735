"""Ways to call operations: in this process, or of a daemon by its socket, database or HTTP.

The daemons of this process run here, too: one for each state directory, for all that open it.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from slumberd.client.http_transport import as_json
from slumberd.client.portal import Portal
from slumberd.clock import SystemClock
from slumberd.daemon.control_socket import RefusedError, ask_asynchronously, own_error
from slumberd.daemon.daemon import first_store_error
from slumberd.daemon.interfaces import Served
from slumberd.daemon.new_state_directory import make_state_directory
from slumberd.daemon.rules import rules_of
from slumberd.daemon.startup import make_daemon
from slumberd.daemon.stores import is_divided
from slumberd.daemon.systemd import Notifier
from slumberd.logs.lines import LineStream, json_line, open_file
from slumberd.logs.output import DeltaLines, log_events_into
from slumberd.model.errors import (
    OtherSettingsError,
    PermissionDeniedError,
    SlumberdError,
    UsageError,
)
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings, load_settings
from slumberd.rules.settings_schema import LEASE_SECONDS

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
        from slumberd.daemon import postgres_stores

        requests = postgres_stores.requests_of(self._address, self._shard, self._lease_seconds)
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, requests.call, operation, as_json(operation, request)
        )


class OwnTransport:
    """Calls operations of a daemon of this process."""

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


LOG_FILE = "slumberd.log"
"""The log of a daemon in a program, in its state directory, unless the settings name a file."""

_CONFIGURATION = "slumberd.yaml"

_Key = tuple[int, Path]
"""A process and a directory: a forked process has none of its parent's threads."""


@dataclass
class OwnDaemon:
    """A daemon of this process, in a thread of its own.

    Attributes:
        portal: Runs coroutines in its event loop.
        running: Ends the daemon when it is closed.
        holders: How many have opened its directory, and not closed it.
    """

    served: Served
    portal: Portal
    running: AsyncExitStack
    holders: int = 0

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the answer of an operation; from any event loop."""
        work = partial(self.served.dispatcher.call, operation, request, Caller.here())
        return await self.portal.call_asynchronously(work)


class OwnDaemons:
    """Starts and ends the daemons of this process; from any thread."""

    def __init__(self) -> None:
        self._daemons: dict[_Key, OwnDaemon] = {}
        self._turns: dict[_Key, threading.Lock] = {}

    @asynccontextmanager
    async def open(self, directory: Path) -> AsyncIterator[OwnDaemon]:
        """Yield the daemon of a directory: the one that runs, or a new one.

        The last block to end ends the daemon.

        Raises:
            OtherSettingsError: A daemon of this process has read another configuration there.
            SlumberdError: The daemon cannot start.
        """
        key = _key_of(directory)  # before the program moves to another directory
        taking = asyncio.ensure_future(asyncio.to_thread(self._take, key))
        try:
            daemon = await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(SlumberdError):
                await taking
                await asyncio.to_thread(self._release, key)
            raise
        try:
            yield daemon
        finally:
            await asyncio.shield(asyncio.to_thread(self._release, key))

    def _take(self, key: _Key) -> OwnDaemon:
        _, directory = key
        with self._turns.setdefault(key, threading.Lock()):
            settings, rules = load_directory(directory)
            daemon = self._daemons.get(key)
            if daemon is None:
                daemon = self._daemons[key] = _start(directory, settings, rules)
            else:
                _check_settings(directory, daemon, settings, rules)
            daemon.holders += 1
        return daemon

    def _release(self, key: _Key) -> None:
        with self._turns[key]:
            daemon = self._daemons[key]
            daemon.holders -= 1
            if not daemon.holders:
                del self._daemons[key]
                daemon.portal.close(daemon.running.aclose)


def _key_of(directory: Path) -> _Key:
    return os.getpid(), directory.resolve()


def _check_settings(directory: Path, daemon: OwnDaemon, settings: Settings, rules: RuleSet) -> None:
    """Refuse a configuration or rules other than those that a daemon has read.

    Raises:
        OtherSettingsError: They differ.
    """
    outdated, status = (
        daemon.portal.call(partial(daemon.served.dispatcher.call, name, {}, Caller.here()))
        for name in ("outdated", "status")
    )
    differing = sorted({*outdated["reload"], *outdated["restart"]})
    # A daemon follows published rules by itself.
    if not settings.are_rules_published and status["rules_hash"] != rules.content_hash:
        differing.append("the rules")
    if differing:
        raise OtherSettingsError(str(directory), differing)


def _start(directory: Path, settings: Settings, rules: RuleSet) -> OwnDaemon:
    portal, running = Portal(str(directory)), AsyncExitStack()
    try:
        opening = run_daemon(directory, settings, rules)
        served = portal.call(partial(running.enter_async_context, opening))
    except BaseException:
        portal.close(running.aclose)
        raise
    return OwnDaemon(served, portal, running)


@asynccontextmanager
async def run_daemon(directory: Path, settings: Settings, rules: RuleSet) -> AsyncIterator[Served]:
    """Run a daemon in this event loop while the block runs."""
    await asyncio.to_thread(is_divided, settings)  # asks the database, so that nothing below waits
    log = LineStream(await asyncio.to_thread(_open_log, settings))
    clock, stop = SystemClock(), asyncio.Event()
    ready: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
    daemon = make_daemon(
        settings,
        rules,
        lambda: load_directory(directory),
        clock=clock,
        logs=_delta_lines(log, settings, clock),
        notifier=Notifier(None),
        interfaces=[lambda served: _announce(served, ready)],
        waits=False,
    )
    # The end of the block waits for the task; a group of tasks could not end in another task.
    with log_events_into(log, clock.now):
        task = asyncio.create_task(daemon.run(stop), name="slumberd")  # noqa: TID251
    try:
        waited: list[asyncio.Future[Any]] = [task, ready]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await _finish(task)
        yield ready.result()
    finally:
        stop.set()
        try:
            await _finish(task)
        finally:
            log.close()


def _delta_lines(log: LineStream, settings: Settings, clock: SystemClock) -> DeltaLines:
    """Return what writes the line of each delta into the log."""
    return DeltaLines(
        log,
        level=settings.logging.level,
        now=clock.now,
        render=json_line,
        scope=settings.logging.scope,
    )


@asynccontextmanager
async def _announce(served: Served, ready: asyncio.Future[Served]) -> AsyncIterator[None]:
    ready.set_result(served)
    yield


async def _finish(task: asyncio.Task[None]) -> None:
    """Wait for a daemon to end.

    Raises:
        SlumberdError: Why it ended, if it failed.
    """
    try:
        await task
    except ExceptionGroup as errors:
        raise first_store_error(errors) from errors


def load_directory(directory: Path) -> tuple[Settings, RuleSet]:
    """Return the configuration and the rules of a state directory; make a missing one."""
    file = directory / _CONFIGURATION
    try:
        if not directory.exists() or not any(directory.iterdir()):
            make_state_directory(directory)
    except PermissionError as error:
        raise PermissionDeniedError(str(directory), "use") from error
    except OSError as error:
        problem = f"{error.filename!s:.200}: {error.strerror}"
        raise UsageError(
            f"no state directory can be there: {problem}; name a directory that can be made"
        ) from error
    settings = load_settings(
        None, overrides={}, environ={}, system_file=file, state_dir=directory.absolute()
    )
    return settings, rules_of(settings)


def _open_log(settings: Settings) -> Any:  # noqa: ANN401 # what `open_file` returns
    return open_file(settings.log_path or settings.state_dir / LOG_FILE)


OWN_DAEMONS = OwnDaemons()
"""The daemons of this process. The lock on a directory is the process's, and so is this."""
