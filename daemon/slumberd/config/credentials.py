"""Read the key of a ledger from a file that nobody else can read.

The optional parts of slumberd, and whether they are installed.
"""

from __future__ import annotations

import os
import stat
from importlib.util import find_spec
from pathlib import Path

from slumberd.errors import ConfigurationError, Mistake

LEAST, MOST = 16, 4096
"""Bytes of a key."""


def read_key(file: Path, *, credentials: Path | None) -> bytes:
    """Return the bytes of a key file, all of them.

    Args:
        file: Relative to `credentials`.
        credentials: Where the service manager put files for us alone, whatever their mode; None
            when it did not.

    Raises:
        ConfigurationError: It cannot be read, others can read it, or it holds no key.
    """
    path = _located(file, credentials)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _mistaken(path, f"cannot be read: {error.strerror}") from error
    try:
        _check_file(path, os.fstat(descriptor), credentials)
        key = os.read(descriptor, MOST + 1)
    finally:
        os.close(descriptor)
    if not LEAST <= len(key) <= MOST:
        raise _mistaken(path, f"a key has {LEAST} to {MOST} bytes; `openssl rand 32` makes one")
    return key


def _located(file: Path, credentials: Path | None) -> Path:
    if file.is_absolute():
        return file
    if credentials is None:
        problem = "is relative to $CREDENTIALS_DIRECTORY, which is not set; write an absolute path"
        raise _mistaken(file, problem)
    return credentials / file


def _check_file(path: Path, status: os.stat_result, credentials: Path | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _mistaken(path, "is not a file")
    given = credentials is not None and path.resolve().is_relative_to(credentials.resolve())
    if status.st_mode & 0o077 and not given:
        mode = stat.S_IMODE(status.st_mode)
        raise _mistaken(path, f"is open to others than its owner (mode {mode:o}); chmod 600 it")


def _mistaken(path: Path, problem: str) -> ConfigurationError:
    return ConfigurationError([Mistake(str(path), 0, 0, "facts.key_file", problem)])


EXTRAS = {
    "fathom": "fathom",
    "graph": "graphglot",
    "regex": "re2",
    "vectors": "wordllama",
}
"""By its name, as pip takes it, a package that comes with each."""


def is_installed(extra: str) -> bool:
    """Say whether an optional part can be used; nothing of it is imported."""
    try:
        return find_spec(EXTRAS[extra]) is not None
    except ValueError:  # it stands among the modules as one that must not be imported
        return False
