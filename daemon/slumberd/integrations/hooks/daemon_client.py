"""Call the daemon's operations over its control socket, with the standard library alone.

The client of the package `daemon` imports the whole daemon, which takes longer than a coding agent
should wait for a hook.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

SOCKET = "control.sock"
VERSION = 1

_FINAL = frozenset({64, 65})
"""Exit codes of errors that the same request gets again."""


class DaemonAnswer(NamedTuple):
    """What became of a call.

    Attributes:
        document: The answer; empty when the call failed.
        problem: Why the call failed; empty when it did not.
        final: Whether the same call would fail again.
    """

    document: dict[str, Any]
    problem: str = ""
    final: bool = False


def call_daemon(directory: Path, operation: str, request: dict[str, Any]) -> DaemonAnswer:
    """Return the daemon's answer to a request, or why there is none.

    Args:
        directory: The state directory of the daemon.
        request: Its fields.

    Raises:
        TimeoutError: The time of the hook is over.
    """
    document = {"version": VERSION, "operation": operation, **request}
    try:
        line = _exchange(directory, json.dumps(document).encode() + b"\n")
    except (FileNotFoundError, ConnectionRefusedError):
        return DaemonAnswer({}, f"no slumberd runs on {str(directory)!r}")
    except TimeoutError:
        raise
    except OSError as error:
        return DaemonAnswer({}, f"slumberd on {str(directory)!r} does not answer: {error}")
    return _read_answer(line)


def _exchange(directory: Path, request: bytes) -> bytes:
    """Return the line that answers a request; empty when the daemon ended before it."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
            # The path of a state directory may be too long for the address of a socket.
            connection.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")
            connection.sendall(request)
            with connection.makefile("rb") as answer:
                return answer.readline()
    finally:
        os.close(descriptor)


def _read_answer(line: bytes) -> DaemonAnswer:
    try:
        document = json.loads(line)
    except ValueError:
        return DaemonAnswer({}, "slumberd ended before it answered")
    if document.pop("ok"):
        return DaemonAnswer(document)
    # A refusal without a class is about the protocol: another version may accept the request.
    final = "kind" in document and document["exit_code"] in _FINAL
    return DaemonAnswer({}, str(document["error"]), final)
