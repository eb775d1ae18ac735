"""A private copy of a state directory's databases, to try on it what must not be done to them."""

from __future__ import annotations

import asyncio
import gc
import math
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from slumberd.clock import Clock
from slumberd.config.settings import Settings
from slumberd.errors import NoInputError, StoreError
from slumberd.service.composition import Stores, opened
from slumberd.storage.sqlite.backup import copy_database, is_full, size_of

WRITE_AHEAD = 300_000_000
"""Bytes that the write-ahead log of a long backfill may come to."""

Telling = Callable[[str], object]
"""Hears, in a few words, what is done next."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Episodes and facts, copied.

    Attributes:
        settings: As the originals', but for the places.
        stores: On the copies, to do with as one likes.
        folder: Where they are; gone, with all that is in it, when the copy is closed.
    """

    settings: Settings
    stores: Stores
    folder: Path


@asynccontextmanager
async def copied(settings: Settings, clock: Clock, tell: Telling) -> AsyncIterator[Copy]:
    """Copy the databases that a configuration names, and open the copies; a daemon may run.

    Takes no lock and writes nothing where the originals are. What other programs have changed in
    the facts is recorded in the copy, as it would be by the next firing.

    Raises:
        NoInputError: There are no episodes yet.
        StoreError: There is no room for a copy, or the originals cannot be read.
        ConfigurationError: The key of the ledger cannot be read.
        LedgerKeyError: It is not the ledger's.
    """
    if not settings.memory_path.exists():
        remedy = "there are no episodes yet; `slumberd import` puts some"
        raise NoInputError(settings.memory_path, remedy)
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="slumberd-") as name:
        folder = Path(name)
        try:
            place = await asyncio.to_thread(_copied, settings, folder, tell)
            async with opened(place, clock, place.facts_path) as stores:
                await stores.facts.notice_external()
                yield Copy(place, stores, folder)
        except StoreError as error:
            if is_full(error):
                raise _no_room(folder.parent, "the copies have outgrown it") from error
            raise


def _copied(settings: Settings, folder: Path, tell: Telling) -> Settings:
    place = _placed(settings, folder)
    # Facts first: their watermarks must not lie beyond the end of the log.
    pairs = [
        (settings.facts_path, place.facts_path),
        (settings.memory_path, place.memory_path),
    ]
    needed = room_for(size_of(settings.memory_path), size_of(settings.facts_path))
    refuse_without_room(needed, shutil.disk_usage(folder).free, folder.parent)
    for source, target in pairs:
        if source.exists():
            tell(f"copying {source.name}")
            copy_database(source, target)
    return place


def _placed(settings: Settings, folder: Path) -> Settings:
    """Return the settings of the copies: as they are, but for where the databases lie."""
    return settings.model_copy(
        update={
            "state_dir": folder,
            # Nobody is to be warned of what only a copy reads.
            "memory": settings.memory.model_copy(
                update={"path": Path("memory.db"), "future_tolerance": math.inf}
            ),
            "facts": settings.facts.model_copy(update={"path": Path("facts.db")}),
        }
    )


def room_for(episodes: int, facts: int) -> int:
    """Return how many bytes copies of databases may come to take, from those of the originals.

    Episodes make facts, with their ledger, of twice their size; those facts are kept twice, to be
    compared, and a write-ahead log grows beside them.
    """
    facts = max(facts, 2 * episodes)
    return episodes + 2 * facts + min(2 * facts, WRITE_AHEAD)


def refuse_without_room(needed: int, free: int, folder: Path) -> None:
    """Refuse to copy what would fill a file system.

    Args:
        needed: Bytes that may be needed.
        free: Bytes that the file system has left.
        folder: Where on it the copies would be.

    Raises:
        StoreError: There is too little room.
    """
    if needed > free:
        problem = f"a copy may take {_megabytes(needed)}, {_megabytes(free)} are free"
        raise _no_room(folder, problem)


def _no_room(folder: Path, problem: str) -> StoreError:
    remedy = "name a directory with more room in $TMPDIR"
    return StoreError(f"{str(folder)!r} has too little room: {problem}; {remedy}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
