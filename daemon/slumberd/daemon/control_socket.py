"""Exchange requests and answers between commands and the daemon over a unix socket.

Each connection carries one request and one answer, each a line of JSON.
The socket is open to its owner and group. Commands find it in the state directory. Under a
service manager the socket lies in the runtime directory, and the state directory has a link to it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from slumberd.logs.late_log import LateLogger
from slumberd.model import errors
from slumberd.model.errors import (
    NotRunningError,
    PermissionDeniedError,
    RequestTooLargeError,
    SlumberdError,
    StoreBusyError,
    StoreError,
    UsageError,
)
from slumberd.operations.caller import Caller
from slumberd.storage.strict_json import MOST_REQUEST_BYTES, read_object

if TYPE_CHECKING:  # a command that asks the daemon runs no operation itself
    from slumberd.operations.handlers import Answer, Handler

_log = LateLogger()

SOCKET = "control.sock"
VERSION = 1
_CHUNK_BYTES = 2**16
_MOST_ANSWER_BYTES = 256 * 2**20
_MOST_BITS = 63  # of a whole number in JSON
REQUEST_SECONDS = 5.0
MOST_CONNECTIONS = 64
"""Open connections of one user; the bound keeps file descriptors for other users."""
_BACKLOG = 16
"""Connections that wait to be accepted."""
_TOO_MANY = f"you have {MOST_CONNECTIONS} connections open already: try again"
_MODE = 0o660
_NO_DIRECTORY = {errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}

_CREDENTIALS = struct.Struct("3i")


class RefusedError(SlumberdError):
    """The daemon refused a request.

    Attributes:
        exit_code: The exit code that the daemon gives the command.
        kind: The class of the daemon's own error; empty when it has none.
        fields: The fields of that error, as JSON has them.
    """

    def __init__(
        self,
        message: str,
        exit_code: int,
        kind: str = "",
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc] # one for each refusal
        self.kind = kind
        self.fields = dict(fields or {})


def own_error(refused: RefusedError) -> SlumberdError:
    """Return the error that the daemon raised; an unknown class stays a refusal."""
    known = getattr(errors, refused.kind, None)
    if not (isinstance(known, type) and issubclass(known, SlumberdError)):
        return refused
    error = known.__new__(known, str(refused))
    vars(error).update(refused.fields)
    return error


@contextmanager
def short_path(directory: Path, name: str = SOCKET) -> Iterator[str]:
    """Yield a path of a socket in a directory that is short enough for sockaddr_un."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _listen_in(
    directory: Path, operations: dict[str, Handler]
) -> AsyncIterator[asyncio.Server]:
    with short_path(directory) as path:
        await asyncio.to_thread(remove_dead, path, directory / SOCKET)
        responder = _Responder(operations)
        server = await asyncio.start_unix_server(
            responder.respond, path=path, limit=_CHUNK_BYTES, backlog=_BACKLOG
        )
        await asyncio.to_thread(_restrict_mode, Path(path))
        try:
            yield server
        finally:
            server.close()
            await responder.close_idle()
            await asyncio.to_thread(_remove, path)


@asynccontextmanager
async def _listen_with_link(
    directory: Path, operations: dict[str, Handler], runtime: Path
) -> AsyncIterator[asyncio.Server]:
    with short_path(directory) as path:
        await asyncio.to_thread(remove_dead, path, directory / SOCKET)
        async with _listen_in(runtime, operations) as server:
            await asyncio.to_thread(Path(path).symlink_to, runtime / SOCKET)
            try:
                yield server
            finally:
                await asyncio.to_thread(_remove, path)


def _restrict_mode(path: Path) -> None:
    # Connecting needs write permission; the group has it where the umask allows it.
    path.chmod(path.stat().st_mode & _MODE)


def remove_dead(path: str, shown: Path) -> None:
    """Remove a socket that no program listens on.

    Args:
        path: A short path of the socket.
        shown: Its path, for the error.

    Raises:
        StoreError: A program listens on it.
    """
    # The caller holds the lock of the state directory, so the program that answers is no daemon.
    if _is_answered(path):
        raise StoreError(
            f"another program listens on {str(shown)!r}: find it by `ss -xlp`, and end it"
        )
    _remove(path)


def _is_answered(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            connection.connect(path)
        except BlockingIOError:  # its queue is full
            return True
        except OSError:
            return False
        return True


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def caller_of(connection: socket.socket) -> Caller:
    """Return the process at the other end of a unix socket, as the kernel reports it."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return Caller.of_user(uid, pid)


def unix_peer(connection: socket.socket) -> Caller | None:
    """Return the process at the other end of a unix socket; None for a network."""
    return caller_of(connection) if connection.family == socket.AF_UNIX else None


def listen(
    directory: Path, operations: dict[str, Handler], *, runtime: Path | None = None
) -> AbstractAsyncContextManager[asyncio.Server]:
    """Answer requests on a state directory that the caller has locked.

    Args:
        directory: The state directory.
        runtime: The directory of the socket; None for the state directory.

    Raises:
        StoreError: Another program answers there; only a dead socket is replaced.
    """
    if runtime is None:
        return _listen_in(directory, operations)
    return _listen_with_link(directory, operations, runtime)


class _Responder:
    def __init__(self, operations: dict[str, Handler]) -> None:
        self._operations = operations
        self._open: Counter[int | None] = Counter()
        self._idle: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection; refuse when the user has too many open."""
        # The end of the event loop cancels this task, and Python 3.11 logs a traceback for that.
        with closing(writer), suppress(ConnectionError, TimeoutError, asyncio.CancelledError):
            peer = caller_of(writer.get_extra_info("socket"))
            if self._open[peer.uid] >= MOST_CONNECTIONS:
                writer.write(refusal(_TOO_MANY, StoreBusyError.exit_code) + b"\n")
            else:
                await self._exchange_lines(reader, writer, peer)

    async def _exchange_lines(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Caller
    ) -> None:
        self._open[peer.uid] += 1
        try:
            writer.write(await self._answer(reader, writer, peer) + b"\n")
            async with asyncio.timeout(REQUEST_SECONDS):
                await writer.drain()
        finally:
            self._open[peer.uid] -= 1

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Caller
    ) -> bytes:
        try:
            line = await self._read_request(reader, writer)
        except RequestTooLargeError as error:
            return refused_by(error)
        return await answer_line(self._operations, line, peer)

    async def _read_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        task = asyncio.current_task()
        self._idle[task] = writer
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await _read_line(reader)
        finally:
            del self._idle[task]

    async def close_idle(self) -> None:
        """Close the connections without a request yet, and wait until their tasks have ended.

        asyncio logs an error for each such task that the end of the event loop cancels.
        """
        tasks = [task for task in self._idle if task is not None]
        for writer in self._idle.values():
            writer.transport.abort()
        if tasks:
            await asyncio.wait(tasks)


async def answer_line(operations: Mapping[str, Handler], line: bytes, caller: Caller) -> bytes:
    """Return the answer to a request, both as a line of JSON; an error is an answer, too.

    Args:
        line: The request.
    """
    try:
        request = read_object(line)
    except orjson.JSONDecodeError:
        return refusal("the request is not a line of JSON", 64)
    except ValueError as error:  # a duplicate key, or a number that would be rounded
        return refusal(f"the request cannot be read: {error}", 64)
    if request.get("version") != VERSION:
        return refusal(f"this daemon speaks version {VERSION} of the protocol", 64)
    operation = operations.get(str(request.get("operation")))
    if operation is None:
        return refusal(f"unknown operation {request.get('operation')!r}", 64)
    try:
        return orjson.dumps({"ok": True, **await operation(request, caller)})
    except SlumberdError as error:
        return refused_by(error)
    except OSError as error:  # most likely a full disk; the daemon writes the log lines later
        return refusal(f"the daemon cannot write: {error}; what is in the ledger is done", 74)
    except Exception as error:  # noqa: BLE001 - a bug of one operation must not end the daemon
        _log.error("control.failed", operation=request["operation"], error=repr(error)[:500])
        return refusal(f"the daemon failed, which is a bug; see its log: {error!r}", 70)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """Return a line; empty when the other end closes before the end of the line.

    A line that is too long is read to its end, because the sender reads no answer before.

    Raises:
        RequestTooLargeError: The line is too long.
    """
    line, size = bytearray(), 0
    while chunk := await reader.read(_CHUNK_BYTES):
        part, end, _ = chunk.partition(b"\n")
        size += len(part)
        if size <= MOST_REQUEST_BYTES:
            line += part
        if end:
            require_size(size)
            return bytes(line)
    return b""


def require_size(size: int) -> None:
    """Refuse a request that is too large.

    Args:
        size: Its bytes, without the end of the line.

    Raises:
        RequestTooLargeError: It has more than every interface takes.
    """
    if size > MOST_REQUEST_BYTES:
        raise RequestTooLargeError(MOST_REQUEST_BYTES, size)


def refused_by(error: SlumberdError) -> bytes:
    """Return the answer to a request that fails by an error of slumberd."""
    return refusal(str(error), error.exit_code, type(error).__name__, error.context)


def refusal(
    message: str, exit_code: int, kind: str = "", fields: Mapping[str, Any] | None = None
) -> bytes:
    """Return the answer to a request that is refused."""
    document = {"ok": False, "error": valid_text(message), "exit_code": exit_code}
    if kind:
        document |= {"kind": kind, "fields": {k: plain_field(v) for k, v in (fields or {}).items()}}
    return orjson.dumps(document)


def plain_field(value: object) -> object:
    """Return a field of an error as JSON can hold it."""
    fits = not isinstance(value, int) or value.bit_length() <= _MOST_BITS
    if fits and isinstance(value, bool | int | float | None):
        return value
    return valid_text(str(value))


def valid_text(text: str) -> str:
    """Return a text that JSON can hold."""
    # A message may name a path that is not valid Unicode, which JSON cannot hold.
    return text.encode(errors="backslashreplace").decode()


def ask(directory: Path, operation: str, **fields: Any) -> Answer:
    """Send a request to the daemon of a state directory, and wait for its answer.

    Raises:
        NotRunningError: No daemon runs on the directory.
        RequestTooLargeError: No interface takes so much.
        UsageError: JSON cannot hold the request; a text may be invalid Unicode.
        RefusedError: The daemon refuses the request.
        PermissionDeniedError: The user may not connect to the socket.
        StoreError: The daemon ended before it answered.
    """
    request = encode_request(operation, fields)
    with _connect(directory) as connection:
        # A daemon that refuses, or that ends, does not wait for the request.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request)
        answer = b""
        with suppress(ConnectionResetError):
            answer = connection.makefile("rb").readline()
    return decode_answer(answer)


async def ask_asynchronously(directory: Path, operation: str, fields: dict[str, Any]) -> Answer:
    """Send a request as `ask` does, without blocking the event loop."""
    request = encode_request(operation, fields)
    # When many programs connect at once, only a blocking socket waits until there is room.
    connection = await asyncio.to_thread(_connect, directory)
    connection.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_MOST_ANSWER_BYTES)
    try:
        with suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        answer = b""
        with suppress(ConnectionError):
            answer = await reader.readline()
    finally:
        writer.close()
    return decode_answer(answer)


def encode_request(operation: str, fields: dict[str, Any]) -> bytes:
    """Return a request as a line of JSON.

    Raises:
        RequestTooLargeError: No interface takes so much.
        UsageError: JSON cannot hold it.
    """
    try:
        line = orjson.dumps({"version": VERSION, "operation": operation, **fields})
    except TypeError as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error
    require_size(len(line))
    return line + b"\n"


def _connect(directory: Path) -> socket.socket:
    """Return a connection to the socket of a directory."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _translate_errors(directory), short_path(directory) as path:
            connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _translate_errors(directory: Path) -> Iterator[None]:
    """Translate the errors of a connection."""
    try:
        yield
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotRunningError(f"no slumberd runs on {str(directory)!r}") from error
    except PermissionError as error:
        raise PermissionDeniedError(str(directory / SOCKET), "connect to") from error
    except OSError as error:
        if error.errno not in _NO_DIRECTORY:
            raise
        problem = f"no slumberd runs on {str(directory)!r:.200}: {error.strerror}"
        raise NotRunningError(problem) from error


def decode_answer(answer: bytes) -> Answer:
    """Return the answer in a line of JSON.

    Raises:
        RefusedError: The daemon refused the request.
        StoreError: The line is empty: the daemon ended before it answered.
    """
    if not answer:
        raise StoreError("the daemon ended before it answered; see its log")
    document: Answer = orjson.loads(answer)
    if not document.pop("ok"):
        raise RefusedError(
            document["error"],
            document["exit_code"],
            document.get("kind", ""),
            document.get("fields"),
        )
    return document
