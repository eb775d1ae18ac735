"""Start commands of slumberd by forks of a process that has imported it already.

An import takes a second of processor time, and most tests of daemons are not about it. A forked
command is a process with its own environment, streams, signals and exit code, like any other.
Paths and ``--nightly`` start commands as users do.
"""

from __future__ import annotations

import atexit
import marshal
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, NamedTuple

from slumberd.cli import main
from tests.support.catalogue_check import problems_of_lines
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["__main__", __name__, "tests.support.failpoints", "tests.support.preloaded"]
)
"""Makes the forks, with these modules in memory."""


_PATH = tuple(sys.path)
"""Where modules are imported from. A test may change the path of this process."""

_ERRORS = 2

_SIZE_BYTES = 4

_PROGRAM = 3
"""How many words name the program."""


class _Run:
    by_forks = False


def start_by_forks(*, by_forks: bool) -> None:
    """Choose how the next test starts commands: by forks, or as users do.

    Coverage cannot measure a fork. So nothing is forked while coverage measures processes.
    """
    _Run.by_forks = by_forks and "COVERAGE_PROCESS_START" not in os.environ


class _Call(NamedTuple):
    words: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    umask: int


class ForkedCommand:
    """A command that runs, with the part of `subprocess.Popen` that the tests of daemons use.

    Args:
        words: The words of the command, without the program.
        environment: All its variables.
        streams: The files of some of its standard streams, by their descriptors.

    Attributes:
        stderr: What it writes there; None if `streams` has a file for it.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        streams: Mapping[int, IO[bytes]] = MappingProxyType({}),
    ) -> None:
        self.stderr: IO[bytes] | None = None
        descriptors = {number: os.dup(file.fileno()) for number, file in streams.items()}
        if _ERRORS not in streams:
            reading, descriptors[_ERRORS] = os.pipe()
            self.stderr = os.fdopen(reading, "rb")
        call = _Call(words, dict(environment), str(Path.cwd()), _umask())
        self._process = _fork(call, descriptors)
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code of an ended command; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; minus the number of the signal that ended it, if one did.

        Args:
            timeout: In seconds.

        Raises:
            subprocess.TimeoutExpired: The command still runs.
        """
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired("slumberd", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal; an ended command gets none."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | ForkedCommand
"""A command that runs."""


def start_command(command: Sequence[str], environment: Mapping[str, str]) -> Process:
    """Start a command; its log goes to a pipe.

    Args:
        command: Its words, which begin with ``PYTHON -m slumberd``.
        environment: All its variables.
    """
    if _may_fork(command, environment):
        return ForkedCommand(command[_PROGRAM:], environment)
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)


def run_command(
    command: Sequence[str], environment: Mapping[str, str], stdin: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; a traceback or an unknown line of the log fails the test.

    Args:
        command: Its words, which begin with ``PYTHON -m slumberd``.
        environment: All its variables.
        stdin: What it reads.
    """
    if _may_fork(command, environment):
        done = _run_forked(command[_PROGRAM:], environment, stdin)
    else:
        done = subprocess.run(
            command, input=stdin, capture_output=True, env=environment, timeout=PATIENCE_SECONDS
        )
    output, errors = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in errors, errors
    assert not problems_of_lines(done.stderr.splitlines())
    return subprocess.CompletedProcess(command, done.returncode, output, errors)


def _may_fork(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    return (
        _Run.by_forks
        and command[:_PROGRAM] == [sys.executable, "-m", "slumberd"]
        and "LD_PRELOAD" not in environment
    )


def _run_forked(
    words: Sequence[str], environment: Mapping[str, str], stdin: bytes
) -> subprocess.CompletedProcess[bytes]:
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb") as given,
        os.fdopen(writing, "wb") as giving,
        TemporaryFile() as output,
        TemporaryFile() as errors,
    ):
        command = ForkedCommand(words, environment, dict(enumerate((given, output, errors))))
        given.close()
        with suppress(BrokenPipeError), giving:
            giving.write(stdin)
        try:
            code = command.wait(PATIENCE_SECONDS)
        finally:
            command.kill()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def words_of_program() -> list[str]:
    """Return words that run ``slumberd``, for a shell and other programs that start it."""
    return _forking_program() if _Run.by_forks else [sys.executable, "-m", "slumberd"]


@cache
def _forking_program() -> list[str]:
    """Return words that run ``slumberd`` as a fork; a thread of this process makes it."""
    folder = TemporaryDirectory(prefix="forks")
    atexit.register(folder.cleanup)
    place = Path(folder.name, "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen()
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    client = Path(__file__).with_name("fork_client.py")
    return [sys.executable, "-I", "-S", str(client), str(place)]


def _accept(listener: socket.socket) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_fork_for, args=(client,), daemon=True).start()


def _fork_for(client: socket.socket) -> None:
    """Run what a client asks for, and tell it the pid and the exit code."""
    with client:
        size, descriptors, *_ = socket.recv_fds(client, _SIZE_BYTES, 3)
        with client.makefile("rb") as asked:
            call = _Call(*marshal.loads(asked.read(int.from_bytes(size))))  # noqa: S302 # is ours
        process = _fork(call, dict(enumerate(descriptors)))
        try:
            client.sendall(f"{process.pid}\n".encode())
            if client in wait([process.sentinel, client]):  # the client has been killed
                process.kill()
            process.join()
            client.sendall(f"{process.exitcode}\n".encode())
        except OSError:
            process.kill()


def _fork(call: _Call, descriptors: Mapping[int, int]) -> ForkServerProcess:
    """Start a command; close the descriptors, which it has from now on."""
    # A Connection can be sent to the fork server.
    streams = {name: Connection(number) for name, number in descriptors.items()}
    process: ForkServerProcess = FORKS.Process(
        target=_run, args=(call, _PATH, streams), daemon=True
    )
    process.start()
    for stream in streams.values():
        stream.close()
    return process


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _run(call: _Call, path: Sequence[str], streams: Mapping[int, Connection]) -> None:
    for stream, file in streams.items():
        os.dup2(file.fileno(), stream)
        file.close()
    # The old objects may believe that they write to files.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(_ERRORS, "w", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(call.environment)
    os.chdir(call.folder)
    os.umask(call.umask)
    sys.path[:] = [*call.environment.get("PYTHONPATH", "").split(os.pathsep), *path]
    main(call.words)
