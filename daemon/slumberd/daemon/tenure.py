"""Hold the right to write a state directory: its lock, and the epoch of its facts.

The kernel frees the lock when its process ends. The lock is on the directory itself: a lock file
could be deleted and created again, which would admit a second daemon. The pid file is for people to
read and decides nothing.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from slumberd.daemon.file_exchange import finish
from slumberd.file_modes import create_file, make_directory
from slumberd.model.errors import PermissionDeniedError, StateDirectoryLockedError, StoreError
from slumberd.storage.facts.apply import FactTransactions


class Tenure(Protocol):
    """The right to write a state: while it is entered, no other slumberd may enter it.

    Attributes:
        name: Under which name this process has the right, for other processes.
    """

    name: str

    def describe(
        self, details: Callable[[], dict[str, Any]], notice_rules: Callable[[int], None]
    ) -> None:
        """Show details of this process to those who ask who has the right, or waits for it.

        Args:
            notice_rules: Called every few seconds with the newest version of the published rules.
        """
        ...

    async def wait(
        self,
        stop: asyncio.Event,
        begin_waiting: Callable[[str], None],
        still_waiting: Callable[[str], None],
    ) -> bool:
        """Take the right as soon as it is free, where a process may wait for it.

        Args:
            stop: Ends the waiting.
            begin_waiting: Called once with the name of the holder, if the right is not free.
            still_waiting: Called with the name of the holder, at least every second.

        Returns:
            Whether the process may go on; False when `stop` was set first.
        """
        ...

    async def __aenter__(self) -> Self:
        """Take the right, and finish what its last holder left half done.

        Raises:
            StateDirectoryLockedError: Another slumberd has the right.
            StoreError: The state cannot be used.
        """
        ...

    async def __aexit__(self, *_: object) -> None:
        """Give the right back."""
        ...

    async def hold(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set, or at once when nobody can take the right away.

        Raises:
            LeaseLostError: Another slumberd has the right.
        """
        ...

    async def fence(self, transactions: FactTransactions) -> None:
        """Shut out every earlier writer of an open store, even one that is only suspended.

        Raises:
            StoreError: The store cannot be written.
        """
        ...


class DirectoryTenure:
    """Locks a state directory in the file system; implements `Tenure`.

    The lock refuses a second daemon. The epoch in the facts refuses a writer that the lock did not
    see, such as a daemon of another state directory that shares the database.

    Args:
        directory: The state directory.
        files: By name, the files that a restore replaces.

    Attributes:
        name: This process, for people.
    """

    def __init__(self, directory: Path, files: Mapping[str, Path]) -> None:
        self.name = f"pid {os.getpid()}"
        self._lock = StateLock(directory)
        self._files = files
        self._held = ExitStack()

    def describe(
        self, details: Callable[[], dict[str, Any]], notice_rules: Callable[[int], None]
    ) -> None:
        """Do nothing: the lock shows its process only, and files have no published rules."""
        del details, notice_rules

    async def wait(
        self,
        stop: asyncio.Event,
        begin_waiting: Callable[[str], None],
        still_waiting: Callable[[str], None],
    ) -> bool:
        """Return True: a second daemon of a directory does not wait; entering refuses it."""
        del stop, begin_waiting, still_waiting
        return True

    async def __aenter__(self) -> Self:
        """Lock the directory, and finish a restore that was begun in it.

        Raises:
            StateDirectoryLockedError: Another slumberd holds the lock.
            PermissionDeniedError: The user may not create the directory, or write to it.
            StoreError: The directory is on a network file system, or the restore cannot be
                finished.
        """
        with ExitStack() as entered:
            entered.enter_context(self._lock)
            finish(self._lock.directory, self._files)
            self._held = entered.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Unlock the directory."""
        self._held.close()

    async def hold(self, stop: asyncio.Event) -> None:
        """Return at once: the lock stays until it is given back."""
        del stop

    async def fence(self, transactions: FactTransactions) -> None:
        """Begin a new epoch, in which earlier writers of the facts can commit no more."""
        await transactions.take_over()


PID_FILE = "slumberd.pid"
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs"})
MOUNTS = Path("/proc/self/mountinfo")


class StateLock:
    """Locks a state directory while the ``with`` block runs."""

    def __init__(self, directory: Path, *, mounts: Path = MOUNTS) -> None:
        self.directory = directory
        self._mounts = mounts
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Create the directory if it is missing, and lock it.

        Raises:
            StateDirectoryLockedError: Another slumberd holds the lock.
            PermissionDeniedError: The user may not create the directory, or write to it.
            StoreError: The path is on a network file system, or is not a directory.
        """
        with _translate_errors(self.directory):
            make_directory(self.directory)
            refuse_network(self.directory, mounts=self._mounts)
            self._descriptor = _lock(self.directory)
            try:
                _write_pid(self._descriptor)
            except BaseException:
                self._release()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Unlock the directory."""
        # By the descriptor: another directory may have taken the name of the locked one.
        with suppress(OSError):
            os.unlink(PID_FILE, dir_fd=self._descriptor)
        self._release()

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder_of(directory: Path) -> str:
    """Return the process that the pid file names, as ``pid 4711``; for people to read."""
    try:
        text = (directory / PID_FILE).read_text(errors="replace").strip()
    except OSError:
        text = ""
    return f"pid {text}" if text.isdigit() else "pid unknown"


def file_system_of(path: Path, mounts: str) -> str:
    """Return the type of the file system of an absolute path, such as ``ext4``.

    Args:
        path: A path without symbolic links.
        mounts: The text of ``/proc/self/mountinfo``.
    """
    found, longest = "unknown", -1
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = Path(_unescape(left.split()[4]))
        # Of several mounts on one point, the last is visible.
        if path.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = right.split()[0], len(point.parts)
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def refuse_network(directory: Path, *, mounts: Path = MOUNTS) -> None:
    """Refuse a directory on a network file system, where locks and write-ahead logs fail.

    Raises:
        StoreError: The directory is on a network file system.
    """
    try:
        text = mounts.read_text(errors="surrogateescape")
    except FileNotFoundError:  # no /proc in this container
        return
    kind = file_system_of(directory.resolve(), text)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"directory {str(directory)!r} is on {kind}, where locks and SQLite's WAL "
            "do not hold: put it on a local disk"
        )


def _lock(directory: Path) -> int:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise StateDirectoryLockedError(str(directory), holder_of(directory)) from error
        raise
    return descriptor


def _write_pid(directory: int) -> None:
    # Another user of the group may own a pid file that was left behind.
    with suppress(FileNotFoundError):
        os.unlink(PID_FILE, dir_fd=directory)
    with os.fdopen(create_file(Path(PID_FILE), os.O_WRONLY, dir_fd=directory), "w") as file:
        file.write(f"{os.getpid()}\n")


@contextmanager
def _translate_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise PermissionDeniedError(str(directory), "write to") from error
    except OSError as error:
        raise StoreError(
            f"state directory {str(directory)!r} cannot be used: {error.strerror}"
        ) from error
