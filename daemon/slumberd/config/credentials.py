"""Read the key of a ledger from its file, and find out which optional extras are installed."""

from __future__ import annotations

import os
import stat
from importlib.util import find_spec
from pathlib import Path

from slumberd.errors import ConfigurationError, Mistake

LEAST, MOST = 16, 4096
"""The bounds of the length of a key, in bytes."""

EXTRAS = {
    "fathom": "fathom",
    "fuzzy": "rapidfuzz",
    "graph": "graphglot",
    "regex": "re2",
    "vectors": "wordllama",
}
"""By the name of an extra, as pip takes it: a module that the extra installs."""


def read_key(file: Path, *, credentials: Path | None) -> bytes:
    """Return the key: all bytes of a key file.

    Args:
        file: The key file; a relative path is relative to `credentials`.
        credentials: The directory of secrets of the service manager; files in it may have any mode.
            None without one.

    Raises:
        ConfigurationError: The file cannot be read, others can read it, or its length is wrong.
    """
    path = _locate(file, credentials)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _key_error(path, f"cannot be read: {error.strerror}") from error
    try:
        _check_file(path, os.fstat(descriptor), credentials)
        key = os.read(descriptor, MOST + 1)
    finally:
        os.close(descriptor)
    if not LEAST <= len(key) <= MOST:
        raise _key_error(path, f"a key has {LEAST} to {MOST} bytes; `openssl rand 32` makes one")
    return key


def _locate(file: Path, credentials: Path | None) -> Path:
    if file.is_absolute():
        return file
    if credentials is None:
        problem = "is relative to $CREDENTIALS_DIRECTORY, which is not set; write an absolute path"
        raise _key_error(file, problem)
    return credentials / file


def _check_file(path: Path, status: os.stat_result, credentials: Path | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _key_error(path, "is not a file")
    given = credentials is not None and path.resolve().is_relative_to(credentials.resolve())
    if status.st_mode & 0o077 and not given:
        mode = stat.S_IMODE(status.st_mode)
        raise _key_error(path, f"is open to others than its owner (mode {mode:o}); chmod 600 it")


def _key_error(path: Path, problem: str) -> ConfigurationError:
    return ConfigurationError([Mistake(str(path), 0, 0, "facts.key_file", problem)])


def is_installed(extra: str) -> bool:
    """Return whether an extra is installed, without importing it."""
    try:
        return find_spec(EXTRAS[extra]) is not None
    except ValueError:  # sys.modules holds None for it, so it cannot be imported
        return False
