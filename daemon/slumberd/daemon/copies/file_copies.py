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
from typing import Annotated, BinaryIO, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from slumberd.model.errors import StoreError

_CHUNK = 2**20


def copy_file(source: Path, target: Path, saved: SavedFile | None = None) -> bool:
    """Copy a file to a new file and sync it; return whether its owner could be set.

    Args:
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


Role = Literal["memory", "facts", "paused", "key"]


class SavedFile(BaseModel):
    """One file of a backup.

    Attributes:
        name: In the directory of the backup.
        role: Its content: episodes, facts, the paused rules, or the key of the ledger.
        bytes: Its size.
        sha256: The SHA-256 of its bytes, in hexadecimal.
        mode: The permissions of the original, as `chmod` takes them.
        uid: The number of its owner.
        gid: The number of its group.
        user: The name of its owner; empty when the owner has none.
        group: The name of its group; empty when the group has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    # A plain name: a restored file must not leave its directory.
    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.(db|json|key)$")]
    role: Role
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    mode: Annotated[str, Field(pattern=r"^[0-7]{3}$")]
    uid: Annotated[int, Field(ge=0)]
    gid: Annotated[int, Field(ge=0)]
    user: str = ""
    group: str = ""


class LedgerHead(BaseModel):
    """How long a ledger is, and the head of its chain."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rows: int
    head: str


class Manifest(BaseModel):
    """The manifest of a backup; it is written last, so a backup without one is incomplete.

    Attributes:
        format: The version of this document.
        slumberd: The version that made the backup.
        at: The instant of the databases' content.
        files: All files.
        ledger: The head of the ledger; None when there is no ledger yet.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    format: Literal[1] = 1
    slumberd: str
    at: AwareDatetime
    files: tuple[SavedFile, ...]
    ledger: LedgerHead | None
