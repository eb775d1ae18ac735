"""One daemon per state directory: a lock that the kernel frees with its holder.

The directory's own descriptor is locked. A lock file could be deleted and made anew, which
admits a second daemon; the pid file here is for people to read and decides nothing.
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
    """Holds a state directory while the ``with`` block runs."""

    def __init__(self, directory: Path, *, mounts: Path = MOUNTS) -> None:
        self.directory = directory
        self._mounts = mounts
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Create the directory if need be, and take it.

        Raises:
            StateDirectoryLockedError: Another slumberd has it.
            PermissionDeniedError: It may not be created, or written to.
            StoreError: It is on a network file system, or is no directory.
        """
        with _translated(self.directory):
            make_directory(self.directory)
            refuse_network(self.directory, mounts=self._mounts)
            self._descriptor = _locked(self.directory)
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
        """Let the directory go."""
        # Of the directory that is locked: another one may lie under its name by now.
        with suppress(OSError):
            os.unlink(PID_FILE, dir_fd=self._descriptor)
        self._release()

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder_of(directory: Path) -> str:
    """Return who seems to hold a state directory, as ``pid 4711``; for people to read."""
    try:
        text = (directory / PID_FILE).read_text(errors="replace").strip()
    except OSError:
        text = ""
    return f"pid {text}" if text.isdigit() else "pid unknown"


def file_system_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that an absolute path lies on, as ``ext4``.

    Args:
        path: Without symbolic links.
        mounts: The text of ``/proc/self/mountinfo``.
    """
    found, longest = "unknown", -1
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = Path(_unescaped(left.split()[4]))
        # The last of equals lies on top.
        if path.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = right.split()[0], len(point.parts)
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def refuse_network(directory: Path, *, mounts: Path = MOUNTS) -> None:
    """Refuse a directory of databases where neither locks nor write-ahead logs hold.

    Raises:
        StoreError: It is on a network file system.
    """
    try:
        text = mounts.read_text(errors="surrogateescape")
    except FileNotFoundError:  # no /proc in this container: nothing to go by
        return
    kind = file_system_of(directory.resolve(), text)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"directory {str(directory)!r} is on {kind}, where locks and SQLite's WAL "
            "do not hold: put it on a local disk"
        )


def _locked(directory: Path) -> int:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise StateDirectoryLockedError(directory, holder_of(directory)) from error
        raise
    return descriptor


def _write_pid(directory: int) -> None:
    # One that was left by another user of the group is not ours to write.
    with suppress(FileNotFoundError):
        os.unlink(PID_FILE, dir_fd=directory)
    with os.fdopen(create_file(Path(PID_FILE), os.O_WRONLY, dir_fd=directory), "w") as file:
        file.write(f"{os.getpid()}\n")


@contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise PermissionDeniedError(directory, "write to") from error
    except OSError as error:
        raise StoreError(
            f"state directory {str(directory)!r} cannot be used: {error.strerror}"
        ) from error
