"""Save the indexes of scopes in files, and load them: each file holds one index of one scope.

The files of a user are in a directory of its own. Who saves opens that directory before it reads
the store. An erasure moves the directory away and removes it, so that nobody can write into it any
more: no index that was read before an erasure is saved after it.

A file is replaced as a whole. One that is damaged, or was made with other settings, is not used.
Its time is that of its last use: the files that were used longest ago go when all take too much.
"""

from __future__ import annotations

import os
import shutil
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import orjson

from slumberd.file_modes import create_file, is_shared, make_directory
from slumberd.model.errors import StoreError
from slumberd.model.feed import Deletion, FeedPlace, are_unknown
from slumberd.model.scope import ScopeFilter
from slumberd.search.columns import VECTOR_ROWS, Parts, SavedParts, read_array
from slumberd.search.hits import Kind

if TYPE_CHECKING:
    from typing_extensions import Buffer

DIRECTORY = "search"
"""The directory of the indexes, in the state directory."""

LEAST_TEXTS = 1_000
"""The index of a smaller scope is built in a twentieth of a second, so it is not saved."""

EPISODE_ROWS = "episode_rows"
"""The part with the rows of the episodes that an index has."""

_FORMAT = 4
_BEGINNING = b"slumberd index\n\0"
_ALIGNMENT = 64
_LONGEST_HEADER = 2**24
_GONE, _NEW, _INDEX = ".gone-", ".new", ".index"
"""In the names of directories that are being removed, of files that are being written, of files."""


class _Checked(NamedTuple):
    """Up to which deletion a file was checked.

    Attributes:
        version: Its inode, and its time.
        is_usable: Whether an index can be loaded from it.
        deletion: The number of the deletion of an episode; None for an index of facts.
    """

    version: tuple[int, int]
    is_usable: bool
    deletion: int | None


class SavedIndexes:
    """The saved indexes of a store of episodes and a store of facts.

    Args:
        state: The state directory. The indexes are in a directory in it.
        store: What tells the stores from others.
        made_with: The settings that an index depends on. Another version of slumberd, of Python or
            of the stemmer makes another index, too.
        most_bytes: How many bytes all files may take.
    """

    def __init__(
        self,
        state: Path,
        *,
        store: Sequence[object],
        made_with: Sequence[object],
        most_bytes: int = 2**40,
    ) -> None:
        self._state = state
        self._most_bytes = most_bytes
        stamp = [_FORMAT, *store, *made_with, *_versions()]
        self._stamp = blake2b(orjson.dumps(stamp), digest_size=16).hexdigest()
        self._checked: dict[Path, _Checked] = {}
        self._unfinished: dict[Path, int] = {}

    def load(self, kind: Kind, scope: ScopeFilter) -> tuple[list[Any], Parts] | None:
        """Return the place up to which the index of a scope knows its store, and what it loads.

        None when there is none that can be used.
        """
        path = _directory_of(self._state, scope.user) / _name_of(kind, scope)
        try:
            with path.open("rb") as file:
                header = _read_header(file)
                if header["stamp"] != self._stamp or header["index"] != _parts_of(kind, scope):
                    return None
                parts = dict(_read_parts(file, header, unchecked=(VECTOR_ROWS,)))
            with suppress(OSError):  # only the owner notes a use
                os.utime(path)
            return header["place"], parts
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def remove_oldest(self) -> int:
        """Remove the files that were used longest ago when all take too much; return how many."""
        files = sorted(_files_in(self._state), key=lambda one: one[1].st_mtime_ns, reverse=True)
        taken = removed = 0
        for path, status in files:
            taken += status.st_size
            if taken > self._most_bytes:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                    removed += 1
                    path.parent.rmdir()  # unless it has other files
        return removed

    def remove_unfinished(self) -> None:
        """Remove the files that were not written since the last call: a process was killed."""
        found = {path: status.st_mtime_ns for path, status in _files_in(self._state, _NEW)}
        for path, _ in found.items() & self._unfinished.items():
            with suppress(OSError):
                path.unlink()
        self._unfinished = found

    def find_deletions(self) -> dict[Path, int]:
        """Return by file the number of the last deletion that it knows of, or was checked for.

        A file that cannot be used is removed: nobody would bring it up to date.
        """
        checked: dict[Path, _Checked] = {}
        for path, status in _files_in(self._state):
            version = status.st_ino, status.st_mtime_ns
            with suppress(OSError):  # it has just been removed
                found = self._checked.get(path)
                if found is None or found.version != version:
                    found = self._check(path, version)
                if found.is_usable:
                    checked[path] = found
                else:
                    path.unlink()
        self._checked = checked
        return {path: one.deletion for path, one in checked.items() if one.deletion is not None}

    def _check(self, path: Path, version: tuple[int, int]) -> _Checked:
        """Return whether a file can be used, and the last deletion that it knows of.

        Raises:
            OSError: It cannot be read.
        """
        with path.open("rb") as file:
            try:
                header = _read_header(file)
                is_of_episodes = header["index"][0] == "episode"
                deletion = FeedPlace.of_saved(header["place"]).deletion if is_of_episodes else None
                return _Checked(version, header["stamp"] == self._stamp, deletion)
            except (ValueError, LookupError, TypeError):
                return _Checked(version, is_usable=False, deletion=None)

    def remove_gone(self, known: Mapping[Path, int], deletions: Sequence[Deletion]) -> int:
        """Remove the files that hold a deleted episode, or may hold one; return how many.

        Args:
            known: What `find_deletions` returned.
            deletions: The deletions after the least number in it, 1 or more.
        """
        removed = 0
        for path, number in known.items():
            after = [one for one in deletions if one.number > number]
            with suppress(OSError):
                if after and (are_unknown(after, number) or _has_row(path, after)):
                    path.unlink()
                    removed += 1
                elif path in self._checked:
                    last = deletions[-1].number
                    self._checked[path] = self._checked[path]._replace(deletion=last)
        return removed

    @contextmanager
    def writing(self, user: str) -> Iterator[IndexWriter | None]:
        """Open the directory of a user before the store is read.

        Yields:
            What saves the user's indexes; None when this process may not write there. A process of
            another user than the owner of the state directory would make files that the daemon
            cannot remove.
        """
        try:
            descriptor = _open_directory(self._state, user)
        except OSError:
            yield None
            return
        try:
            yield IndexWriter(descriptor, self._stamp, self._most_bytes)
        finally:
            os.close(descriptor)


class IndexWriter:
    """Saves indexes of one user.

    Args:
        directory: The descriptor of the user's directory.
        stamp: What an index must have been made with.
        most_bytes: How many bytes a file may take.
    """

    def __init__(self, directory: int, stamp: str, most_bytes: int) -> None:
        self._directory = directory
        self._stamp = stamp
        self._most_bytes = most_bytes

    def save(
        self, kind: Kind, scope: ScopeFilter, place: Sequence[object], parts: SavedParts
    ) -> bool:
        """Save the index of a scope, and return whether that was done.

        It is not done when the disk is full, when the index is too large, when a text has half of a
        surrogate pair, or when the user was erased since `writing`.
        """
        name = _name_of(kind, scope)
        fresh = f"{name}.{token_hex(8)}{_NEW}"
        try:
            encoded = {name: _bytes_of(part) for name, part in parts.items()}
            if sum(map(len, encoded.values())) > self._most_bytes:
                return False
            self._remove_unfinished(name)
            descriptor = create_file(Path(fresh), os.O_WRONLY, dir_fd=self._directory)
            with os.fdopen(descriptor, "wb") as file:
                header = {"stamp": self._stamp, "index": _parts_of(kind, scope), "place": place}
                _write(file, header, encoded)
            os.replace(fresh, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except (OSError, TypeError):  # orjson refuses half of a surrogate pair
            with suppress(OSError):
                os.unlink(fresh, dir_fd=self._directory)
            return False
        return True

    def remove(self, kind: Kind, scope: ScopeFilter) -> None:
        """Remove the saved index of a scope, if there is one and it may be removed."""
        with suppress(OSError):
            os.unlink(_name_of(kind, scope), dir_fd=self._directory)

    def _remove_unfinished(self, name: str) -> None:
        """Remove what a process left that ended while it saved the same index."""
        for other in os.listdir(self._directory):  # noqa: PTH208 # no path
            if other.startswith(name) and other.endswith(_NEW):
                os.unlink(other, dir_fd=self._directory)


def remove_indexes_of(state: Path, user: str) -> int:
    """Remove all indexes of a user; return how many files there were.

    Raises:
        StoreError: A file cannot be removed.
    """
    place = _directory_of(state, user)
    gone = place.with_name(f"{_GONE}{token_hex(8)}")
    try:
        with suppress(FileNotFoundError):
            place.rename(gone)
        # Also what an erasure left that was killed.
        return sum(_remove(one) for one in state.joinpath(DIRECTORY).glob(f"{_GONE}*"))
    except OSError as error:
        where = error.filename or str(gone)
        raise StoreError(
            f"{where!r} cannot be removed: {error.strerror}; remove {str(state / DIRECTORY)!r}"
        ) from error


def _remove(directory: Path) -> int:
    """Remove a directory and its files; return how many there were."""
    removed = 0
    while directory.exists():
        with suppress(FileNotFoundError):  # another erasure removes the same directory
            for path in [*directory.iterdir()]:
                path.unlink(missing_ok=True)
                removed += 1
            _remove_if_empty(directory)
    parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    return removed


def _remove_if_empty(directory: Path) -> None:
    """Remove a directory, unless somebody has just written a file into it."""
    try:
        directory.rmdir()
    except OSError:
        if not any(directory.iterdir()):
            raise


def remove_all_indexes(state: Path) -> None:
    """Remove the indexes of all users. They are built again when they are needed.

    Raises:
        OSError: A file cannot be removed.
    """
    with suppress(FileNotFoundError):
        shutil.rmtree(state / DIRECTORY)


def size_of_indexes(state: Path) -> int:
    """Return the bytes of all saved indexes."""
    return sum(status.st_size for _, status in _files_in(state))


def _files_in(state: Path, ending: str = _INDEX) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each file of a saved index, or each with another ending."""
    for path in state.glob(f"{DIRECTORY}/*/*{ending}"):
        with suppress(OSError):  # it has just been removed
            yield path, path.stat()


def check_indexes(state: Path) -> Iterator[tuple[Path, str]]:
    """Yield each saved index, and what is wrong with it; empty for one that is whole."""
    for path in sorted(state.glob(f"{DIRECTORY}/*/*{_INDEX}")):
        problem = ""
        try:
            with path.open("rb") as file:
                header = _read_header(file)
                for _ in _read_parts(file, header):
                    pass
        except FileNotFoundError:  # it has just been removed
            continue
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
        except (ValueError, LookupError, TypeError):
            problem = "is damaged"
        yield path, problem


def _versions() -> list[object]:
    """Return what stands for the versions of the code that makes indexes."""
    found: list[object] = [[*sys.version_info[:3]], sys.byteorder]
    specs = map(find_spec, ("snowballstemmer", "wordllama"))
    libraries = [Path(spec.origin) for spec in specs if spec is not None and spec.origin]
    for path in [*sorted(Path(__file__).parent.glob("*.py")), *libraries]:
        status = path.stat()
        found.append([path.name, status.st_mtime_ns, status.st_size])
    return found


def local_time_zone() -> list[float | None]:
    """Return what tells the local time zone from others: its offsets in winter and in summer."""
    offsets = (datetime(2025, month, 1).astimezone().utcoffset() for month in (1, 7))
    return [None if one is None else one.total_seconds() for one in offsets]


def _parts_of(kind: Kind, scope: ScopeFilter) -> list[str | None]:
    return [kind, scope.user, scope.session, scope.agent]


def _name_of(kind: Kind, scope: ScopeFilter) -> str:
    return f"{_hash_of(_parts_of(kind, scope))}{_INDEX}"


def _directory_of(state: Path, user: str) -> Path:
    return state / DIRECTORY / _hash_of([user])


def _hash_of(parts: Sequence[str | None]) -> str:
    encoded = repr([*parts]).encode(errors="surrogatepass")
    return blake2b(encoded, digest_size=16).hexdigest()


def _open_directory(state: Path, user: str) -> int:
    """Open the directory of a user; it is made when it is missing.

    Raises:
        OSError: This process may not write there.
    """
    if state.stat().st_uid != os.geteuid() and not is_shared(state):
        raise PermissionError(f"{str(state)!r} belongs to another user")
    make_directory(state / DIRECTORY)
    place = _directory_of(state, user)
    make_directory(place)
    return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _write(file: BinaryIO, header: Mapping[str, Any], parts: Mapping[str, memoryview]) -> None:
    sums = {name: [len(part), zlib.crc32(part)] for name, part in parts.items()}
    encoded = orjson.dumps({**header, "parts": sums})
    encoded = len(encoded).to_bytes(8, "little") + encoded
    file.write(_BEGINNING + zlib.crc32(encoded).to_bytes(8, "little") + encoded)
    for part in parts.values():
        file.write(bytes(-file.tell() % _ALIGNMENT))
        file.write(part)


def _bytes_of(part: Buffer | Callable[[], Buffer]) -> memoryview:
    view = memoryview(part() if callable(part) else part)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _read_header(file: BinaryIO) -> dict[str, Any]:
    """Return the header of a file.

    Raises:
        ValueError: The file is damaged, or no index.
    """
    first = file.read(len(_BEGINNING) + 16)
    if first[: len(_BEGINNING)] != _BEGINNING:
        raise ValueError("no index")
    checksum, length = (int.from_bytes(first[begin:][:8], "little") for begin in (16, 24))
    if length > _LONGEST_HEADER:
        raise ValueError("no index")
    encoded = file.read(length)
    if zlib.crc32(len(encoded).to_bytes(8, "little") + encoded) != checksum:
        raise ValueError("damaged")
    header: dict[str, Any] = orjson.loads(encoded)
    return header


def _has_row(path: Path, deletions: Iterable[Deletion]) -> bool:
    """Return whether the index in a file has one of some rows, or cannot be read.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        try:
            for name, part in _read_parts(file, _read_header(file)):
                if name == EPISODE_ROWS:
                    return not {one.row for one in deletions}.isdisjoint(read_array("q", part))
        except (ValueError, LookupError, TypeError):
            pass
    return True


def _read_parts(
    file: BinaryIO, header: Mapping[str, Any], unchecked: Collection[str] = ()
) -> Iterator[tuple[str, memoryview]]:
    """Yield the parts of an index, each in memory of its own.

    Args:
        unchecked: Parts whose checksum is not compared.

    Raises:
        ValueError: A part is damaged.
    """
    for name, (length, checksum) in header["parts"].items():
        file.seek(-file.tell() % _ALIGNMENT, os.SEEK_CUR)
        found = file.read(length)
        if len(found) != length:
            raise ValueError("cut")
        if name not in unchecked and zlib.crc32(found) != checksum:
            raise ValueError("damaged")
        yield name, memoryview(found)
