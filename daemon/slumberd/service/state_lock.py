"""Lock a state directory for one slumberd; the kernel frees the lock when its process ends.

The lock is on the directory itself: a lock file could be deleted and created again, which would
admit a second daemon. The pid file is for people to read and decides nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from slumberd.errors import PermissionDeniedError, StateDirectoryLockedError, StoreError
from slumberd.file_modes import create_file, make_directory

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
