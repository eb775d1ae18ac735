"""Back up a state directory as of one moment, and restore a backup.

A backup is a directory with copies of the databases and a manifest. Until it is complete, its name
ends in ``.incomplete``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from slumberd.clock import Clock
from slumberd.daemon import file_exchange
from slumberd.daemon.composition import backed_up_files, copies_of, tenure_of
from slumberd.daemon.copies.file_copies import (
    LedgerHead,
    Manifest,
    Role,
    SavedFile,
    copy_file,
    describe_copy,
    digest,
)
from slumberd.daemon.stores import (
    facts_of,
    inspections_at,
    inspections_of,
    key_of,
    refuse_host_store,
)
from slumberd.file_modes import make_directory, sync_to_disk
from slumberd.model.errors import (
    BackupBusyError,
    BackupError,
    NoInputError,
    OutputExistsError,
    StoreError,
    UnsupportedByStoreError,
    UsageError,
)
from slumberd.model.record import ForeignBlank
from slumberd.rules.settings import Settings
from slumberd.search.saved_indexes import remove_all_indexes
from slumberd.storage.closed_stores import STORES, StoreCopies, StoreName
from slumberd.storage.inspections import FactInspection, StoreInspections

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

OnStep = Callable[[str], object]
"""Called before each step, with a short description of it."""


class Source(NamedTuple):
    """A file that a backup copies.

    Attributes:
        name: Its name in the backup.
    """

    name: str
    role: Role
    path: Path

    @property
    def store(self) -> StoreName | None:
        """The store that it holds, if it holds one; all stores are copied as of one moment."""
        return self.role if self.role == "memory" or self.role == "facts" else None


class Restored(NamedTuple):
    """What a restore did.

    Attributes:
        manifest: The backup.
        kept: The replaced files, at the paths where they are kept.
        owned: Files that belong to this user, because only root can set their owner.
        newer_erasures: How many erasures happened after the backup.
    """

    manifest: Manifest
    kept: Sequence[Path]
    owned: Sequence[Path]
    newer_erasures: int


async def back_up(
    settings: Settings, folder: Path, clock: Clock, on_step: OnStep, *, key: bool = False
) -> Manifest:
    """Make a backup; the daemon and hosts may run meanwhile, and do not wait.

    Args:
        folder: The absolute path of the backup; it must not exist, or must be empty.
        on_step: Called before each step.
        key: Whether the backup holds the key of the ledger.

    Raises:
        NoInputError: There are no episodes yet.
        OutputExistsError: `folder` is not empty.
        UsageError: The ledger has no key.
        BackupBusyError: A restore ran meanwhile or is not finished, or another backup is being made
            in `folder`.
        StoreError: A database cannot be read, is damaged, or its ledger does not verify; or there
            is too little space.
    """
    sources = _sources(settings, key=key)
    _check_not_existing(folder)
    with _incomplete(folder) as staging:
        _check_free_space(settings, sources, staging)
        on_step("copying the databases")
        at = clock.now()
        with _without_restore(settings.state_dir, sources):
            _copy_all(copies_of(settings), sources, staging)
        on_step("verifying the copies")
        ledger = await _verify_copies(settings, staging, sources, clock)
        files = tuple(_describe(source, staging / source.name) for source in sources)
        manifest = Manifest(slumberd=version("slumberd"), at=at, files=files, ledger=ledger)
        _write_manifest(staging, manifest)
        _rename_to(staging, folder)
    return manifest


@contextmanager
def _without_restore(directory: Path, sources: Sequence[Source]) -> Iterator[None]:
    """Check that no restore replaced files while the block read them.

    Raises:
        BackupBusyError: A restore replaced files, or has begun to.
    """
    before = [_identity(source.path) for source in sources]
    yield
    if file_exchange.is_unfinished(directory):
        problem = "holds a restore that is not finished: start the daemon, or restore again"
        raise BackupBusyError(str(directory), problem)
    for source, identity in zip(sources, before, strict=True):
        if _identity(source.path) != identity and source.store:
            raise BackupBusyError(
                str(source.path), "was replaced while it was backed up: try again"
            )


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _rename_to(staging: Path, folder: Path) -> None:
    try:
        staging.rename(folder)
    except OSError as error:  # the directory was created meanwhile, or is a mount
        raise OutputExistsError(str(folder)) from error
    sync_to_disk(folder.parent)


def _copy_all(copies: StoreCopies, sources: Sequence[Source], staging: Path) -> None:
    targets = {source.store: staging / source.name for source in sources if source.store}
    try:
        copies.copy_together(targets)
    except StoreError as error:
        if copies.is_full(error):
            raise StoreError(f"{str(staging)!r} has too little room: its disk is full") from error
        raise
    for source in sources:
        if source.store is None:
            copy_file(source.path, staging / source.name)


def _refuse_database(settings: Settings) -> None:
    """Refuse to copy a database, which has backups of its own, and a host's own stores."""
    refuse_host_store(settings)
    if settings.store is not None:
        problem = "slumberd makes and restores backups of files only"
        remedy = "use the backups of PostgreSQL; `slumberd copy` writes files from a database"
        raise UnsupportedByStoreError(inspections_of(settings).facts.where, problem, remedy)


def _sources(settings: Settings, *, key: bool) -> list[Source]:
    _refuse_database(settings)
    if not inspections_of(settings).episodes.exists():
        remedy = "there is nothing to back up yet; `slumberd import` puts some episodes"
        raise NoInputError(str(settings.memory_path), remedy)
    files = backed_up_files(settings)
    if key:
        files["key"] = _key_file(settings)
    return [
        Source(name, role, files[role])
        for role, name in _NAMES.items()
        if role in files and (role == "key" or files[role].exists())
    ]


def _key_file(settings: Settings) -> Path:
    file = settings.facts.key_file
    if file is None:
        raise UsageError("the ledger has no key; leave out --with-key")
    return file if file.is_absolute() else (settings.credentials_dir or Path()) / file


def _check_not_existing(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not _is_empty(folder)):
        raise OutputExistsError(str(folder))


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


@contextmanager
def _incomplete(folder: Path) -> Iterator[Path]:
    """Yield the empty directory in which a backup is made; delete it when the block fails."""
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
            raise BackupBusyError(str(folder), problem) from error
        for left in partial.iterdir():  # a killed backup left it
            left.unlink()
        yield partial
    except BaseException as error:
        if not isinstance(error, BackupBusyError):
            shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _check_free_space(settings: Settings, sources: Sequence[Source], folder: Path) -> None:
    others = [source.path.stat().st_size for source in sources if source.store is None]
    needed = sum(store.sizes().total for store in inspections_of(settings)) + sum(others)
    free = shutil.disk_usage(folder).free
    if needed > free:
        problem = f"{needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free"
        raise StoreError(f"{str(folder)!r} has too little room: {problem}")


def _describe(source: Source, copy: Path) -> SavedFile:
    return describe_copy(source.path, copy, name=source.name, role=source.role)


async def _verify_copies(
    settings: Settings, folder: Path, sources: Sequence[Source], clock: Clock
) -> LedgerHead | None:
    """Verify copies of databases; return the head of the ledger, if there is one.

    Raises:
        StoreError: A copy is damaged, or its ledger is broken.
    """
    ledger = None
    copies = _copies_in(folder, settings)
    for source in sources:
        problem = ""
        copy = None if source.store is None else copies.of(source.store).on_disk
        if copy is not None and (damage := copy.damage(None)):
            problem = f"is damaged: {damage}"
        elif source.store == "facts":
            ledger, problem = await _verify_ledger(settings, folder / source.name, clock)
        if problem:
            raise StoreError(f"{str(source.path)!r} {problem}; it was not backed up")
    return ledger


def _copies_in(folder: Path, settings: Settings) -> StoreInspections:
    """Return what looks at the copies of a backup."""
    return inspections_at(settings, folder / _NAMES["memory"], folder / _NAMES["facts"])


async def _verify_ledger(
    settings: Settings, path: Path, clock: Clock
) -> tuple[LedgerHead | None, str]:
    """Verify the ledger of a copy; return its head, None without a ledger, and the problem."""
    if not _copies_in(path.parent, settings).facts.has_ledger():
        return None, ""
    async with facts_of(settings, clock, path, key=key_of(settings), traceless=True) as facts:
        rows, head, broken = await facts.verify(())
    if broken is None or isinstance(broken, ForeignBlank):
        return LedgerHead(rows=rows, head=head), ""
    problem = f"has a ledger that is broken at row {broken.seq}: {broken.problem}"
    return LedgerHead(rows=rows, head=head), problem


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    file = folder / MANIFEST
    with file.open("xb") as writing:
        writing.write(manifest.model_dump_json(indent=2).encode() + b"\n")
        writing.flush()
        os.fsync(writing.fileno())
    sync_to_disk(folder)


async def check_backup(settings: Settings, folder: Path, clock: Clock, on_step: OnStep) -> Manifest:
    """Read a whole backup and verify it; return its manifest.

    Raises:
        NoInputError: The directory does not exist.
        BackupError: The backup is not complete, or is damaged.
        SchemaError: A database has an unknown schema.
    """
    manifest = _manifest_in(folder)
    on_step("verifying the backup")
    for saved in manifest.files:
        _check_file(folder, saved)
    for copy in _copies_in(folder, settings):
        if copy.on_disk is not None and not copy.on_disk.is_missing():
            copy.on_disk.older_schema()
    if manifest.ledger is not None:
        name = _NAMES["facts"]
        head, problem = await _verify_ledger(settings, folder / name, clock)
        if problem or head != manifest.ledger:
            raise BackupError(str(folder), f"is damaged: {name} {problem or 'has another ledger'}")
    return manifest


def _manifest_in(folder: Path) -> Manifest:
    if not folder.is_dir():
        raise NoInputError(str(folder), "name the directory of a backup")
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise BackupError(str(folder), f"is not complete: it has no {MANIFEST}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise BackupError(str(folder), f"cannot be read: {MANIFEST}: {problem}") from error


def _check_file(folder: Path, saved: SavedFile) -> None:
    path = folder / saved.name
    if not path.is_file():
        raise BackupError(str(folder), f"is not complete: {saved.name} is missing")
    if path.stat().st_size != saved.bytes or digest(path) != saved.sha256:
        raise BackupError(str(folder), f"is damaged: {saved.name} is not what was backed up")


async def restore(settings: Settings, folder: Path, clock: Clock, on_step: OnStep) -> Restored:
    """Replace the databases of a state directory by a backup.

    Everything is verified and copied before anything is replaced. A restore that is killed before
    it replaces a file changes nothing. After that, the next program that locks the state directory
    finishes it.

    Args:
        folder: The directory of the backup.
        on_step: Called before each step.

    Raises:
        BackupError: The backup is not complete, or is damaged.
        StateDirectoryLockedError: A daemon runs on the state directory.
        StoreBusyError: Another program has a database open.
        StoreError: There is too little space, or a database is a link.
    """
    _refuse_database(settings)
    manifest = await check_backup(settings, folder, clock, on_step)
    directory, targets = settings.state_dir, backed_up_files(settings)
    _make_directories(targets)
    async with tenure_of(settings, clock):
        _check_replaceable(targets, copies_of(settings))
        file_exchange.discard(targets.values())
        on_step("copying the backup")
        owned = _stage(folder, manifest, targets)
        saved = {file.role for file in manifest.files}
        changes = {
            name: name in saved for name in targets if name in saved or targets[name].exists()
        }
        newer_erasures = _count_newer_erasures(inspections_of(settings).facts, manifest.ledger)
        file_exchange.begin(directory, _new_stamp(clock, targets), changes)
        replaced = file_exchange.finish(directory, targets)
        # They are of the replaced store, so no search uses them.
        with suppress(OSError):
            remove_all_indexes(directory)
    return Restored(manifest, replaced, owned, newer_erasures)


def _make_directories(targets: Mapping[str, Path]) -> None:
    for path in targets.values():
        make_directory(path.parent)


def _check_replaceable(targets: Mapping[str, Path], copies: StoreCopies) -> None:
    for path in targets.values():
        if path.is_symlink():
            problem = "is a link; name the file itself in the configuration, and restore again"
            raise StoreError(f"{str(path)!r} {problem}")
    for store in STORES:
        copies.check_not_in_use(store)


def _stage(folder: Path, manifest: Manifest, targets: Mapping[str, Path]) -> list[Path]:
    """Copy each file beside its target; return the targets whose owner cannot be set."""
    saved_files = [saved for saved in manifest.files if saved.role != "key"]
    owned = []
    try:
        for saved in saved_files:
            target = targets[saved.role]
            if not copy_file(folder / saved.name, file_exchange.staging_path(target), saved):
                owned.append(target)
    except OSError as error:
        file_exchange.discard(targets.values())
        raise StoreError(f"{str(error.filename or folder)!r}: {error.strerror}") from error
    for parent in {targets[saved.role].parent for saved in saved_files}:
        sync_to_disk(parent)
    return owned


def _new_stamp(clock: Clock, targets: Mapping[str, Path]) -> str:
    """Return a stamp of this moment that no replaced file has yet."""
    at = clock.now()
    while True:
        stamp = f"{at:%Y%m%dT%H%M%SZ}"
        if not any(file_exchange.replaced_path(path, stamp).exists() for path in targets.values()):
            return stamp
        at += timedelta(seconds=1)


def _count_newer_erasures(facts: FactInspection, saved: LedgerHead | None) -> int:
    """Count the erasures that the current ledger has and the ledger of the backup lacks."""
    with suppress(StoreError):  # a damaged ledger cannot be counted
        if facts.exists():
            return facts.count_erasures(saved.rows if saved else 0)
    return 0
