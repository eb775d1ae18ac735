"""Two ways to call operations: in this process, and through the daemon's control socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any, Protocol

from slumberd.clock import SystemClock
from slumberd.config.rule_loader import RuleSet
from slumberd.config.settings import Settings, load_settings
from slumberd.errors import PermissionDeniedError, UsageError
from slumberd.observability.line_format import json_line
from slumberd.observability.log_writer import LineStream, open_file
from slumberd.observability.logs import DeltaLines, log_events_into
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.service.composition import is_divided, require_postgres, rules_of
from slumberd.service.control_socket import (
    RefusedError,
    ask_asynchronously,
    encode_request,
    own_error,
)
from slumberd.service.daemon import first_store_error
from slumberd.service.interfaces import Served
from slumberd.service.new_state_directory import make_state_directory
from slumberd.service.startup import make_daemon
from slumberd.service.systemd import Notifier
from slumberd.storage.strict_json import read_object

SCHEME = "unix:"
"""How the address of a running daemon begins; its state directory follows."""

LOG_FILE = "slumberd.log"
"""The log of a daemon in a program, in its state directory, unless the settings name a file."""

MOST_CALLS = 32
"""Calls of one program to a daemon at the same time; further ones wait.

The daemon takes twice as many connections from one user."""

DATABASE_SCHEMES = ("postgresql://", "postgres://")

_CONFIGURATION = "slumberd.yaml"
_REMEDY = f"name a directory, {SCHEME} and a directory, or postgresql://"


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
        self._room = asyncio.Semaphore(MOST_CALLS)

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the daemon's answer; each call has a connection of its own.

        Raises:
            SlumberdError: The daemon's own error, of the same class and with the same message.
        """
        try:
            async with self._room:
                return await ask_asynchronously(
                    self._directory, operation, _as_json(operation, request)
                )
        except RefusedError as refused:
            raise own_error(refused) from None


class DatabaseTransport:
    """Calls operations of the daemons that hold a PostgreSQL database, on whichever hosts they run.

    Args:
        address: The address of the database.
        shard: The only shard to ask; None for those that a request concerns.
    """

    def __init__(self, address: str, shard: int | None = None) -> None:
        self._address = address
        self._shard = shard
        self._room = asyncio.Semaphore(MOST_CALLS)

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the answer of the daemons; each call has connections of its own.

        Raises:
            NotRunningError: No daemon holds the database.
            ShardsFailedError: Some shards failed.
            SlumberdError: The daemon's own error, of the same class and with the same message.
        """
        require_postgres()
        from slumberd.service import postgres_stores

        try:
            async with self._room:
                return await asyncio.to_thread(
                    postgres_stores.ask_shards,
                    self._address,
                    self._shard,
                    operation,
                    _as_json(operation, request),
                )
        except RefusedError as refused:
            raise own_error(refused) from None


class ServedTransport:
    """Calls operations of a daemon in this event loop.

    Args:
        served: The daemon.
    """

    def __init__(self, served: Served) -> None:
        self._served = served
        self._caller = Caller.here()

    async def call(self, operation: str, request: dict[str, Any]) -> Answer:
        """Return the answer of the operation."""
        return await self._served.dispatcher.call(
            operation, _as_json(operation, request), self._caller
        )


def _as_json(operation: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as its JSON is read again, so that every way takes the same requests.

    Raises:
        RequestTooLargeError: No interface takes so much.
        UsageError: JSON cannot hold a value: infinity, half a character, a number of over 64 bits;
            or values are nested too deep.
    """
    try:
        # orjson writes null for infinity.
        json.dumps(request, allow_nan=False)
        line = encode_request(operation, request)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error
    except RecursionError:
        raise UsageError("the request is nested too deep to be written as JSON") from None
    try:
        return read_object(line)
    except ValueError as error:
        raise UsageError(f"the request cannot be read: {error}") from None


@asynccontextmanager
async def open_transport(where: str | Path) -> AsyncIterator[Transport]:
    """Open what an address names.

    Args:
        where: ``unix:`` and the state directory of a running daemon; or ``postgresql://`` and a
            database that a running daemon holds, on any host; else a state directory, on which a
            daemon runs in this event loop until the end of the block.

    Raises:
        NotRunningError: By the first call; no daemon runs there.
        StateDirectoryLockedError: A daemon runs there already; ``unix:`` reaches it.
        DatabaseHeldError: A daemon holds the database of the directory's configuration.
        UsageError: The address has another scheme, or names no directory.
    """
    text = _address_of(where)
    if text.startswith(SCHEME):
        yield SocketTransport(_directory_of(text.removeprefix(SCHEME).removeprefix("//")))
        return
    if text.startswith(DATABASE_SCHEMES):
        yield DatabaseTransport(text)
        return
    if "://" in text:
        raise UsageError(f"{text!r} is no address; {_REMEDY}")
    async with _run_daemon(_directory_of(text)) as served:
        yield ServedTransport(served)


def _address_of(where: object) -> str:
    if isinstance(where, str | PathLike):
        return fsdecode(where)
    raise UsageError(f"{where!r:.200} is no address; {_REMEDY}")


def _directory_of(text: str) -> Path:
    if not text or "\0" in text:
        raise UsageError(f"{text!r:.200} names no directory; {_REMEDY}")
    return Path(text)


@asynccontextmanager
async def _run_daemon(directory: Path) -> AsyncIterator[Served]:
    """Run a daemon in this event loop while the block runs."""
    settings, rules = await asyncio.to_thread(_load, directory)
    await asyncio.to_thread(is_divided, settings)  # asks the database, so that nothing below waits
    log = LineStream(await asyncio.to_thread(_open_log, settings))
    clock, stop = SystemClock(), asyncio.Event()
    ready: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
    daemon = make_daemon(
        settings,
        rules,
        lambda: _load(directory),
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


def _load(directory: Path) -> tuple[Settings, RuleSet]:
    """Return the configuration and the rules of a state directory; make a missing one."""
    file = directory / _CONFIGURATION
    try:
        if not directory.exists() or not any(directory.iterdir()):
            make_state_directory(directory)
    except PermissionError as error:
        raise PermissionDeniedError(str(directory), "use") from error
    except OSError as error:
        problem = f"{error.filename!s:.200}: {error.strerror}"
        raise UsageError(f"no state directory can be there: {problem}; {_REMEDY}") from error
    settings = load_settings(
        None, overrides={}, environ={}, system_file=file, state_dir=directory.absolute()
    )
    return settings, rules_of(settings)


def _open_log(settings: Settings) -> Any:  # noqa: ANN401 # what `open_file` returns
    return open_file(settings.log_path or settings.state_dir / LOG_FILE)
