"""Read text files that people wrote: bounded, without hanging, and from where they seem to lie."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from slumberd.errors import ConfigurationError, Mistake

MOST_BYTES = 256 * 1024


class Text(NamedTuple):
    """What a file holds, and what is wrong with the file itself."""

    text: str
    mistakes: list[Mistake]


class Place(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


_NOWHERE = Place(0, 0)


def unreadable(file: Path | str, problem: str, place: Place = _NOWHERE) -> ConfigurationError:
    """Return the error for a file that cannot be read, or not to its end."""
    return ConfigurationError([Mistake(str(file), *place, "", problem)])


def runs_as_root() -> bool:
    """Say whether this process may do everything."""
    return os.geteuid() == 0


def read_text(path: Path, *, inside: Path | None = None, by_root: bool | None = None) -> Text:
    """Return the text of a regular file.

    Args:
        path: May be a link.
        inside: A directory, resolved, that the file must really lie in; None lets it lie anywhere.
        by_root: Whether root reads it, who must not obey everybody; None looks.

    Raises:
        ConfigurationError: It cannot be read, is too large, or is no text.
    """
    try:
        # Without O_NONBLOCK, a FIFO would hold us until somebody writes to it; without O_NOCTTY, a
        # terminal could become ours.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mistakes = list(_refused(path, descriptor, inside, by_root))
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        problem = _REASONS.get(type(error), f"cannot be read: {error.strerror}")
        raise unreadable(path, problem) from error
    return Text(_decoded(path, content), mistakes)


_REASONS: dict[type[OSError], str] = {
    FileNotFoundError: "does not exist",
    IsADirectoryError: "is a directory, not a file",
    PermissionError: "no permission to read it; check owner and mode",
}


def _refused(
    path: Path, descriptor: int, inside: Path | None, by_root: bool | None
) -> Iterator[Mistake]:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise unreadable(path, "is no regular file")
    if inside is not None:
        real = _place_of(path, descriptor)
        if not real.is_relative_to(inside):
            problem = f"leads out of its directory, to {str(real)!r}; put the file itself here"
            raise unreadable(path, problem)
        for directory in real.parents[: len(real.parents) - len(inside.parents) - 1]:
            yield from open_to_everybody(directory, by_root=by_root)
    yield from open_to_everybody(path, by_root=by_root, descriptor=descriptor)


def _place_of(path: Path, descriptor: int) -> Path:
    # Asked of what is open, not of the path: that may lead elsewhere by now.
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError as error:
        raise unreadable(path, "where it really lies cannot be told without /proc") from error


def open_to_everybody(
    path: Path, *, by_root: bool | None, descriptor: int | None = None
) -> Iterator[Mistake]:
    """Yield a mistake when root is to obey what everybody may write.

    Args:
        path: A file or a directory; there, everybody could put a file of theirs.
        by_root: Whether root reads it; None looks.
        descriptor: Of the path, when it is open already.
    """
    if not (runs_as_root() if by_root is None else by_root):
        return
    status = path.stat() if descriptor is None else os.fstat(descriptor)
    # Configuration is mounted into containers so: of mode 777, and yet nobody can write there.
    mount = os.statvfs(path if descriptor is None else descriptor)
    read_only = mount.f_flag & os.ST_RDONLY
    if status.st_mode & stat.S_IWOTH and not read_only:
        mode = f"mode {stat.S_IMODE(status.st_mode):o}"
        problem = f"everybody can write to it ({mode}), and root would obey; run `chmod o-w` on it"
        yield Mistake(str(path), 0, 0, "", problem)


def _decoded(path: Path, content: bytes) -> str:
    if len(content) > MOST_BYTES:
        raise unreadable(path, f"is larger than {MOST_BYTES // 1024} KiB; split it")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise unreadable(path, "is in UTF-16; save it as UTF-8")
    if b"\0" in content:
        place = _place_at(content, content.index(b"\0"))
        raise unreadable(path, "is no text file: it holds a NUL byte here", place)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # What follows a byte order mark is counted without it.
        start = error.start + len(content) - len(error.object)
        place = _place_at(content, start)
        raise unreadable(path, "is not in UTF-8 from here on; save it as UTF-8", place) from error


def _place_at(content: bytes, position: int) -> Place:
    before = content[:position].removeprefix(b"\xef\xbb\xbf")
    line = before[before.rfind(b"\n") + 1 :]
    return Place(before.count(b"\n") + 1, len(line.decode(errors="replace")) + 1)
