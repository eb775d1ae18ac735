"""Create files and directories for their owner, or for a group that shares them, and sync them."""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path

_OWNER, _GROUP, _SHARED = 0o700, 0o750, 0o770


def create_file(path: Path, flags: int = os.O_RDWR, *, dir_fd: int | None = None) -> int:
    """Create a file, and return its descriptor.

    The group may read and write the file if the umask lets the group write, or if the directory is
    shared. Otherwise only the owner may, even if the umask lets the group read.

    Args:
        path: The file, which must not exist.
        flags: How it is opened.
        dir_fd: The directory that `path` is relative to; None for the working directory.

    Raises:
        FileExistsError: The path exists.
    """
    # The mode of the new file shows whether the umask lets the group write. Until it is changed,
    # no group can read the file.
    flags |= os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o620, dir_fd=dir_fd)
    try:
        if os.fstat(descriptor).st_mode & stat.S_IWGRP or is_shared(path.parent, dir_fd=dir_fd):
            os.fchmod(descriptor, 0o660)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_shared(directory: Path, *, dir_fd: int | None = None) -> bool:
    """Return whether a directory is shared: its group may write, and owns new files."""
    mode = os.stat(directory, dir_fd=dir_fd).st_mode
    return bool(mode & stat.S_ISGID and mode & stat.S_IWGRP)


def make_directory(path: Path) -> None:
    """Create a missing directory, with a mode by the same rule as `create_file`.

    Raises:
        FileExistsError: The path exists and is not a directory.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(0o720)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    mode = path.stat().st_mode
    wanted = _SHARED if is_shared(path.parent) else _GROUP if mode & stat.S_IWGRP else _OWNER
    path.chmod(wanted | (mode & stat.S_ISGID))


def sync_to_disk(path: Path) -> None:
    """Sync a file, or the names in a directory, so that they survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def group_to_join(path: str | bytes | int | None) -> str | None:
    """Return the group whose members may use a path, when this process is no member of it.

    Returns:
        Its name; None when the group has no more rights than others, or the path is unknown.
    """
    if not isinstance(path, str):
        return None
    for place in (Path(path).absolute(), *Path(path).absolute().parents):
        try:
            status = place.stat()
        except OSError:  # a directory above it is closed
            continue
        for_group, for_others = (status.st_mode >> 3) & 0o7, status.st_mode & 0o7
        is_member = status.st_gid in {os.getegid(), *os.getgroups()}
        if is_member or for_group | for_others == for_others:
            return None
        try:
            return grp.getgrgid(status.st_gid).gr_name
        except KeyError:
            return None
    return None
