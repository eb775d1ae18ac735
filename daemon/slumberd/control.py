"""The control socket: how a command speaks to the daemon that runs on a state directory.

One request and one answer a connection, each a line of JSON of at most 64 KiB, with a version.
The socket lies in the state directory; its mode lets owner and group in.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import structlog

from slumberd.errors import NotRunningError, SlumberdError, StoreError

_log = structlog.get_logger(__name__)

SOCKET = "control.sock"
VERSION = 1
MOST_BYTES = 65_536
REQUEST_SECONDS = 5.0
_MODE = 0o660

Answer = dict[str, Any]


class Peer(NamedTuple):
    """Who asks, as the kernel knows it.

    Attributes:
        uid: The user's number.
        gid: The group's number.
        pid: The process; 0 when it is not known.
    """

    uid: int
    gid: int
    pid: int

    @classmethod
    def here(cls) -> Peer:
        """Return this process."""
        return cls(os.getuid(), os.getgid(), os.getpid())

    @classmethod
    def of(cls, connection: socket.socket) -> Peer:
        """Return the process at the other end of a unix socket."""
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, gid = _CREDENTIALS.unpack(found)
        return cls(uid, gid, pid)

    def __str__(self) -> str:
        """Return it as the audit names it, as ``uid 1000``."""
        return f"uid {self.uid}"


_CREDENTIALS = struct.Struct("3i")

Operation = Callable[[dict[str, Any], Peer], Awaitable[Answer]]


class RefusedError(SlumberdError):
    """The daemon answered that it cannot do what was asked.

    Attributes:
        exit_code: The daemon's own, for the command to end with.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc] # of this refusal, not of the class


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """Give a directory's socket a path that fits sockaddr_un, however deep it lies."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _listening(
    directory: Path, operations: dict[str, Operation]
) -> AsyncIterator[asyncio.Server]:
    with _short(directory) as path:
        await asyncio.to_thread(_remove, path)
        server = await asyncio.start_unix_server(
            _Responder(operations).respond, path=path, limit=MOST_BYTES
        )
        await asyncio.to_thread(Path(path).chmod, _MODE)
        try:
            yield server
        finally:
            server.close()
            await asyncio.to_thread(_remove, path)


def _remove(path: str) -> None:
    # The state directory is locked by us, so whatever lies there is a dead daemon's, or ours.
    Path(path).unlink(missing_ok=True)


def listen(
    directory: Path, operations: dict[str, Operation]
) -> AbstractAsyncContextManager[asyncio.Server]:
    """Answer requests on a state directory that the caller has locked.

    Args:
        directory: The state directory.
        operations: What is answered, by name; each gets the request and returns the answer.
    """
    return _listening(directory, operations)


class _Responder:
    def __init__(self, operations: dict[str, Operation]) -> None:
        self._operations = operations

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, answer it, hang up."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(REQUEST_SECONDS):
                line = await _line(reader)
            peer = Peer.of(writer.get_extra_info("socket"))
            writer.write(orjson.dumps(await self._answer(line, peer)) + b"\n")
            async with asyncio.timeout(REQUEST_SECONDS):
                await writer.drain()
        writer.close()

    async def _answer(self, line: bytes, peer: Peer) -> Answer:
        try:
            request = orjson.loads(line)
        except orjson.JSONDecodeError:
            return _refusal("the request is no line of JSON of at most 64 KiB", 64)
        if not isinstance(request, dict) or request.get("version") != VERSION:
            return _refusal(f"this daemon speaks version {VERSION} of the protocol", 64)
        operation = self._operations.get(str(request.get("operation")))
        if operation is None:
            return _refusal(f"unknown operation {request.get('operation')!r}", 64)
        try:
            return {"ok": True, **await operation(request, peer)}
        except SlumberdError as error:
            return _refusal(str(error), error.exit_code)
        except Exception as error:  # noqa: BLE001 - a bug of one operation; the daemon goes on
            _log.error("control.failed", operation=request["operation"], error=repr(error)[:500])
            return _refusal(f"the daemon failed, which is a bug; see its log: {error!r}", 70)


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""


def _refusal(message: str, exit_code: int) -> Answer:
    return {"ok": False, "error": message, "exit_code": exit_code}


def ask(directory: Path, operation: str, **fields: Any) -> Answer:
    """Ask the daemon that runs on a state directory; waits as long as it works.

    Raises:
        NotRunningError: None does.
        RefusedError: It answers that it cannot.
        StoreError: It hung up, or its socket may not be used.
    """
    request = orjson.dumps({"version": VERSION, "operation": operation, **fields}) + b"\n"
    answer: Answer = orjson.loads(_exchange(directory, request))
    if not answer.pop("ok"):
        raise RefusedError(answer["error"], answer["exit_code"])
    return answer


def _exchange(directory: Path, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with _short(directory) as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NotRunningError(f"no slumberd runs on {str(directory)!r}") from error
        except PermissionError as error:
            raise StoreError(
                f"the control socket in {str(directory)!r} is not for you: join its group"
            ) from error
        connection.sendall(request)
        answer = connection.makefile("rb").readline()
    if not answer:
        raise StoreError("the daemon ended before it answered; see its log")
    return answer
