"""Back up a state directory as of one moment, and put a backup in its place.

A backup is a directory with copies of the databases and a manifest. It gets its name when it is
complete; before, its name ends in ``.incomplete``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from slumberd.clock import Clock
from slumberd.config.settings import Settings
from slumberd.errors import (
    BackupBusyError,
    BackupError,
    NoInputError,
    OutputExistsError,
    StoreError,
    UsageError,
)
from slumberd.file_modes import make_directory
from slumberd.service.composition import facts_of, key_of, places_of
from slumberd.service.state_lock import StateLock
from slumberd.storage.audit.offline_status import erasures_in
from slumberd.storage.ledger.schema import has_ledger
from slumberd.storage.sqlite import file_exchange
from slumberd.storage.sqlite.backup import copy_together, is_full, refuse_in_use, size_of
from slumberd.storage.sqlite.file_copies import (
    LedgerHead,
    Manifest,
    Role,
    SavedFile,
    copy_file,
    described,
    digest,
)
from slumberd.storage.sqlite.recovery import damage_in, look

MANIFEST = "backup.json"
KEY = "ledger.key"
_NAMES: Mapping[Role, str] = {
    "memory": "memory.db",
    "facts": "facts.db",
    "paused": "paused.json",
    "key": KEY,
}
_INCOMPLETE = ".incomplete"
_CHUNK = 2**20

Tell = Callable[[str], object]
"""Hears, in a few words, what is done next."""


class Source(NamedTuple):
    """A file that a backup takes: its name there, what it is, and where it lies."""

    name: str
    role: Role
    path: Path

    @property
    def is_database(self) -> bool:
        """Whether it is a database, and is copied as of one moment with the others."""
        return self.role in ("memory", "facts")


class Restored(NamedTuple):
    """What a restore did.

    Attributes:
        manifest: The backup.
        kept: What was replaced, where it is kept.
        owned: Files that belong to this user, because only root can give them to their owner.
        forgotten: How many erasures are newer than the backup, which knows nothing of them.
    """

    manifest: Manifest
    kept: Sequence[Path]
    owned: Sequence[Path]
    forgotten: int


async def back_up(
    settings: Settings, folder: Path, clock: Clock, tell: Tell, *, key: bool = False
) -> Manifest:
    """Make a backup; the daemon and hosts may run, and do not wait.

    Args:
        settings: The configuration.
        folder: Of the backup, absolute; it must not be there yet, or be empty.
        clock: The time.
        tell: Hears what is done next.
        key: Whether the backup holds the key of the ledger.

    Raises:
        NoInputError: There are no episodes yet.
        OutputExistsError: Something is in `folder`.
        UsageError: The ledger has no key.
        BackupBusyError: A restore came in between, or is not finished.
        StoreError: A database cannot be read, is damaged, or its ledger does not verify; there is
            too little room; another backup is being made there.
    """
    sources = _sources(settings, key=key)
    _refuse_existing(folder)
    with _incomplete(folder) as place:
        _refuse_without_room(sources, place)
        tell("copying the databases")
        at = clock.now()
        with _nothing_exchanged(settings.state_dir, sources):
            _copy_all(sources, place)
        tell("verifying the copies")
        ledger = await _verified(settings, place, sources, clock)
        files = tuple(_saved(one, place / one.name) for one in sources)
        manifest = Manifest(slumberd=version("slumberd"), at=at, files=files, ledger=ledger)
        _write_manifest(place, manifest)
        _give_name(place, folder)
    return manifest


@contextmanager
def _nothing_exchanged(directory: Path, sources: Sequence[Source]) -> Iterator[None]:
    """Make sure that no restore exchanges files while the block reads them.

    Raises:
        BackupBusyError: One did, or has begun to.
    """
    before = [_identity(one.path) for one in sources]
    yield
    if file_exchange.is_unfinished(directory):
        problem = "holds a restore that is not finished: start the daemon, or restore again"
        raise BackupBusyError(directory, problem)
    for one, identity in zip(sources, before, strict=True):
        if _identity(one.path) != identity and one.is_database:
            raise BackupBusyError(one.path, "was replaced while it was backed up: try again")


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _give_name(place: Path, folder: Path) -> None:
    try:
        place.rename(folder)
    except OSError as error:  # somebody has put something there, or it is a mount
        raise OutputExistsError(folder) from error
    file_exchange.sync_directory(folder.parent)


def _copy_all(sources: Sequence[Source], place: Path) -> None:
    databases = [one for one in sources if one.is_database]
    try:
        copy_together([(one.path, place / one.name) for one in databases])
    except StoreError as error:
        if is_full(error):
            raise StoreError(f"{str(place)!r} has too little room: its disk is full") from error
        raise
    for one in sources:
        if not one.is_database:
            copy_file(one.path, place / one.name)


def _sources(settings: Settings, *, key: bool) -> list[Source]:
    if not settings.memory_path.exists():
        remedy = "there is nothing to back up yet; `slumberd import` puts some episodes"
        raise NoInputError(settings.memory_path, remedy)
    places = places_of(settings)
    if key:
        places["key"] = _key_file(settings)
    return [
        Source(name, role, places[role])
        for role, name in _NAMES.items()
        if role in places and (role == "key" or places[role].exists())
    ]


def _key_file(settings: Settings) -> Path:
    file = settings.facts.key_file
    if file is None:
        raise UsageError("the ledger has no key; leave out --with-key")
    return file if file.is_absolute() else (settings.credentials_dir or Path()) / file


def _refuse_existing(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not _is_empty(folder)):
        raise OutputExistsError(folder)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


@contextmanager
def _incomplete(folder: Path) -> Iterator[Path]:
    """Yield the directory that a backup is made in, empty; delete it unless it gets its name."""
    partial = folder.with_name(folder.name + _INCOMPLETE)
    partial.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        partial.mkdir(0o700)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = "is being written by another backup: name another directory"
            raise BackupBusyError(folder, problem) from error
        for left in partial.iterdir():  # of one that was killed
            left.unlink()
        yield partial
    except BaseException as error:
        if not isinstance(error, BackupBusyError):
            shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _refuse_without_room(sources: Sequence[Source], folder: Path) -> None:
    needed = sum(size_of(one.path) for one in sources)
    free = shutil.disk_usage(folder).free
    if needed > free:
        problem = f"{needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free"
        raise StoreError(f"{str(folder)!r} has too little room: {problem}")


def _saved(source: Source, copy: Path) -> SavedFile:
    return described(source.path, copy, name=source.name, role=source.role)


async def _verified(
    settings: Settings, folder: Path, sources: Sequence[Source], clock: Clock
) -> LedgerHead | None:
    """Verify copies of databases; return the head of the ledger, if there is one.

    Raises:
        StoreError: One is damaged, or the ledger is broken.
    """
    ledger = None
    for one in filter(attrgetter("is_database"), sources):
        copy, problem = folder / one.name, ""
        if damage := look(copy, partial(damage_in, seconds=None)):
            problem = f"is damaged: {damage}"
        elif one.role == "facts":
            ledger, problem = await _ledger(settings, copy, clock)
        if problem:
            raise StoreError(f"{str(one.path)!r} {problem}; it was not backed up")
    return ledger


async def _ledger(settings: Settings, path: Path, clock: Clock) -> tuple[LedgerHead | None, str]:
    """Verify the ledger of a copy; return its head, none without a ledger, and what is wrong."""
    if not look(path, has_ledger):
        return None, ""
    async with facts_of(settings, clock, path, key=key_of(settings), traceless=True) as facts:
        rows, head, broken = await facts.verify(())
    problem = f"has a ledger that is broken at row {broken.seq}: {broken.problem}" if broken else ""
    return LedgerHead(rows=rows, head=head), problem


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    file = folder / MANIFEST
    with file.open("xb") as writing:
        writing.write(manifest.model_dump_json(indent=2).encode() + b"\n")
        writing.flush()
        os.fsync(writing.fileno())
    file_exchange.sync_directory(folder)


async def checked(settings: Settings, folder: Path, clock: Clock, tell: Tell) -> Manifest:
    """Read a backup whole, and return what it says of itself.

    Raises:
        NoInputError: There is no such directory.
        BackupError: It is not complete, or damaged.
    """
    manifest = _manifest_in(folder)
    tell("verifying the backup")
    for one in manifest.files:
        _check_file(folder, one)
    if manifest.ledger is not None:
        name = _NAMES["facts"]
        head, problem = await _ledger(settings, folder / name, clock)
        if problem or head != manifest.ledger:
            raise BackupError(folder, f"is damaged: {name} {problem or 'has another ledger'}")
    return manifest


def _manifest_in(folder: Path) -> Manifest:
    if not folder.is_dir():
        raise NoInputError(folder, "name the directory of a backup")
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise BackupError(folder, f"is not complete: it has no {MANIFEST}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise BackupError(folder, f"cannot be read: {MANIFEST}: {problem}") from error


def _check_file(folder: Path, saved: SavedFile) -> None:
    path = folder / saved.name
    if not path.is_file():
        raise BackupError(folder, f"is not complete: {saved.name} is missing")
    if path.stat().st_size != saved.bytes or digest(path) != saved.sha256:
        raise BackupError(folder, f"is damaged: {saved.name} is not what was backed up")


async def restore(settings: Settings, folder: Path, clock: Clock, tell: Tell) -> Restored:
    """Put a backup in the place of a state directory's databases.

    Everything is verified and copied before anything is replaced. A restore that is killed changes
    nothing before that, and is finished by whatever writes in the state directory next after it.

    Args:
        settings: The configuration.
        folder: Of the backup.
        clock: The time.
        tell: Hears what is done next.

    Raises:
        BackupError: The backup is not whole.
        StateDirectoryLockedError: A daemon runs on the state directory.
        StoreBusyError: Another program has a database open.
        StoreError: There is too little room, or a database is a link.
    """
    manifest = await checked(settings, folder, clock, tell)
    directory, places = settings.state_dir, places_of(settings)
    _make_directories(places)
    with StateLock(directory):
        file_exchange.finish(directory, places)
        for path in places.values():
            _refuse_unfit(path)
        file_exchange.discard(places.values())
        tell("copying the backup")
        owned = _stage(folder, manifest, places)
        saved = {one.role for one in manifest.files}
        changes = {name: name in saved for name in places if name in saved or places[name].exists()}
        forgotten = _forgotten_since(settings.facts_path, manifest.ledger)
        file_exchange.begin(directory, _precedence(clock, places), changes)
        kept = file_exchange.finish(directory, places)
    return Restored(manifest, kept, owned, forgotten)


def _make_directories(places: Mapping[str, Path]) -> None:
    for path in places.values():
        make_directory(path.parent)


def _refuse_unfit(path: Path) -> None:
    if path.is_symlink():
        problem = "is a link; name the file itself in the configuration, and restore again"
        raise StoreError(f"{str(path)!r} {problem}")
    if path.suffix != ".json" and path.exists():
        refuse_in_use(path)


def _stage(folder: Path, manifest: Manifest, places: Mapping[str, Path]) -> list[Path]:
    """Copy each file beside the one that it is to replace; return those that change owner."""
    saved = [one for one in manifest.files if one.role != "key"]
    owned = []
    try:
        for one in saved:
            target = places[one.role]
            if not copy_file(folder / one.name, file_exchange.staged(target), one):
                owned.append(target)
    except OSError as error:
        file_exchange.discard(places.values())
        raise StoreError(f"{str(error.filename or folder)!r}: {error.strerror}") from error
    for parent in {places[one.role].parent for one in saved}:
        file_exchange.sync_directory(parent)
    return owned


def _precedence(clock: Clock, places: Mapping[str, Path]) -> str:
    """Return a name for this moment that no file which is kept has."""
    at = clock.now()
    while True:
        precedence = f"{at:%Y%m%dT%H%M%SZ}"
        if not any(file_exchange.kept(path, precedence).exists() for path in places.values()):
            return precedence
        at += timedelta(seconds=1)


def _forgotten_since(facts: Path, saved: LedgerHead | None) -> int:
    """Count the erasures that the present ledger knows, and that of the backup does not."""
    with suppress(StoreError):  # one that is damaged cannot tell
        if facts.exists():
            return look(facts, partial(erasures_in, after=saved.rows if saved else 0))
    return 0
