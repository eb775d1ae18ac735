"""Copy files with their owner and mode, and sync the copies to the disk."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from slumberd.errors import StoreError
from slumberd.model.backup import Role, SavedFile

_CHUNK = 2**20


def copy_file(source: Path, target: Path, saved: SavedFile | None = None) -> bool:
    """Copy a file to a new file and sync it; return whether its owner could be set.

    Args:
        source: The file.
        target: The new file.
        saved: The mode and owner of the new file; None leaves both for later.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _regular(source) as reading, os.fdopen(os.open(target, flags, 0o600), "wb") as writing:
        shutil.copyfileobj(reading, writing, _CHUNK)
        writing.flush()
        # By its descriptor: another member of the group could put a link in its place.
        has_owner = saved is None or _set_owner(writing.fileno(), saved)
        os.fsync(writing.fileno())
    return has_owner


def _regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a pipe in its place does not block."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise StoreError(f"{str(path)!r} is no regular file")
    return file


def _set_owner(descriptor: int, saved: SavedFile) -> bool:
    """Set owner, group and mode as far as this user may; return whether owner and group are set."""
    uid, gid = _ids_of(saved)
    with suppress(PermissionError):
        os.fchown(descriptor, -1, gid)
    with suppress(PermissionError):
        os.fchown(descriptor, uid, -1)
    os.fchmod(descriptor, int(saved.mode, 8) & 0o770)
    status = os.fstat(descriptor)
    return (status.st_uid, status.st_gid) == (uid, gid)


def _ids_of(saved: SavedFile) -> tuple[int, int]:
    """Return the ids of owner and group, by their names: ids differ between machines."""
    uid, gid = saved.uid, saved.gid
    with suppress(KeyError):
        uid = pwd.getpwnam(saved.user).pw_uid if saved.user else uid
    with suppress(KeyError):
        gid = grp.getgrnam(saved.group).gr_gid if saved.group else gid
    return uid, gid


def describe_copy(original: Path, copy: Path, *, name: str, role: Role) -> SavedFile:
    """Describe a copy of a file, and set the owner and mode of the original on it."""
    status = original.stat()
    saved = SavedFile(
        name=name,
        role=role,
        bytes=copy.stat().st_size,
        sha256=digest(copy),
        mode=f"{stat.S_IMODE(status.st_mode) & 0o777:03o}",
        uid=status.st_uid,
        gid=status.st_gid,
        user=_name(pwd.getpwuid, status.st_uid),
        group=_name(grp.getgrgid, status.st_gid),
    )
    with copy.open("rb") as file:
        _set_owner(file.fileno(), saved)
        os.fsync(file.fileno())
    return saved


def _name(known: Callable[[int], Sequence[object]], number: int) -> str:
    try:
        return str(known(number)[0])
    except KeyError:
        return ""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
