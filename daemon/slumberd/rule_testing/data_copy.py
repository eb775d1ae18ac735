"""Copy the databases of a state directory, so that rules can run on the copy."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from slumberd.clock import Clock
from slumberd.config.settings import Settings
from slumberd.errors import NoInputError, StoreError
from slumberd.operations.stores import Stores
from slumberd.service.composition import copies_of, open_stores
from slumberd.service.stores import inspections_of
from slumberd.storage.closed_stores import StoreName

WRITE_AHEAD = 300_000_000
"""The largest size of the write-ahead log of a long backfill, in bytes."""

ProgressCallback = Callable[[str], object]
"""Receives a few words about the next step, for a progress display."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies of the episode and fact databases.

    Attributes:
        settings: The settings of the originals, with the paths of the copies.
        stores: The stores on the copies; a caller may change them.
        folder: The directory of the copies; it is deleted when the copy is closed.
    """

    settings: Settings
    stores: Stores
    folder: Path


@asynccontextmanager
async def copy_data(
    settings: Settings, clock: Clock, show_step: ProgressCallback
) -> AsyncIterator[Copy]:
    """Copy the databases of a configuration, and open the copies. A daemon may run.

    The function takes no lock and writes nothing in the directory of the originals. It records
    changes of other programs to the facts in the copy, as the next firing would.

    Raises:
        NoInputError: There are no episodes yet.
        StoreError: The disk has no space for a copy, or the originals cannot be read.
        ConfigurationError: The key of the ledger cannot be read.
        LedgerKeyError: The key is not that of the ledger.
    """
    episodes = inspections_of(settings).episodes
    if not episodes.exists():
        remedy = "there are no episodes yet; `slumberd import` puts some"
        raise NoInputError(episodes.where, remedy)
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="slumberd-") as name:
        folder = Path(name)
        try:
            copied = await asyncio.to_thread(_copy_databases, settings, folder, show_step)
            async with open_stores(copied, clock, copied.facts_path) as stores:
                await stores.facts.ledger.notice_external()
                yield Copy(copied, stores, folder)
        except StoreError as error:
            if copies_of(settings).is_full(error):
                raise _space_error(folder.parent, "the copies need more") from error
            raise


def _copy_databases(settings: Settings, folder: Path, show_step: ProgressCallback) -> Settings:
    copied = _settings_of_copy(settings, folder)
    stores, copies = inspections_of(settings), copies_of(settings)
    # Facts first: their watermarks must not lie beyond the end of the log.
    targets: dict[StoreName, Path] = {"facts": copied.facts_path, "memory": copied.memory_path}
    needed = room_for(stores.episodes.sizes().total, stores.facts.sizes().total)
    refuse_without_room(needed, shutil.disk_usage(folder).free, folder.parent)
    for name, target in targets.items():
        store = stores.of(name)
        if store.exists():
            show_step(f"copying {target.name}")
            copies.copy(name, target)
    return copied


def _settings_of_copy(settings: Settings, folder: Path) -> Settings:
    """Return the settings with the paths of the copies."""
    return settings.model_copy(
        update={
            "state_dir": folder,
            "store": None,
            "memory": settings.memory.model_copy(update={"path": Path("memory.db")}),
            "facts": settings.facts.model_copy(update={"path": Path("facts.db")}),
        }
    )


def room_for(episodes: int, facts: int) -> int:
    """Return the space that copies may need, in bytes, from the sizes of the originals.

    Facts and their ledger take up to twice the size of their episodes. A comparison keeps them
    twice, and a write-ahead log grows beside them.
    """
    facts = max(facts, 2 * episodes)
    return episodes + 2 * facts + min(2 * facts, WRITE_AHEAD)


def refuse_without_room(needed: int, free: int, folder: Path) -> None:
    """Refuse a copy that could fill its file system.

    Args:
        needed: The bytes that the copy may need.
        free: The free bytes of the file system.
        folder: The directory of the copies, for the message.

    Raises:
        StoreError: `needed` is more than `free`.
    """
    if needed > free:
        problem = f"a copy may take {_megabytes(needed)}, {_megabytes(free)} are free"
        raise _space_error(folder, problem)


def _space_error(folder: Path, problem: str) -> StoreError:
    remedy = "name a directory with more room in $TMPDIR"
    return StoreError(f"{str(folder)!r} has too little room: {problem}; {remedy}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
