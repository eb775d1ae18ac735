"""Carry a state directory of slumberd 0.1.0 over into a new directory."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from slumberd.daemon.rules import PAUSED_FILE
from slumberd.daemon.stores import key_of
from slumberd.file_modes import make_directory, sync_to_disk
from slumberd.model.errors import OutputExistsError, UsageError
from slumberd.rules.settings import Settings
from slumberd.storage.closed_stores import StoreName
from slumberd.storage.sqlite.backup import copy_together
from slumberd.storage.sqlite.carrying_over import (
    NOTHING,
    CarriedOver,
    carry_episodes_over,
    carry_facts_over,
)
from slumberd.storage.sqlite.schemas import find_numbers, holds_facts_of_0_1_0


def carry_over(settings: Settings, target: Path, *, at: datetime, by: str) -> CarriedOver:
    """Write new files from those of slumberd 0.1.0, which stay as they are.

    Args:
        settings: The configuration of the old state directory.
        target: The new state directory, which must be missing or empty.

    Raises:
        OutputExistsError: The new directory holds something.
        UsageError: The old directory has no facts of slumberd 0.1.0.
        SchemaError: The old files are not as slumberd 0.1.0 wrote them; nothing is kept.
        LedgerKeyError: The key of the configuration is not the ledger's.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OutputExistsError(str(target), "name a new directory")
    places: dict[StoreName, Path] = {"memory": settings.memory_path, "facts": settings.facts_path}
    sources = {store: path for store, path in places.items() if path.exists()}
    if not sources or ("facts" in sources and not holds_facts_of_0_1_0(sources["facts"])):
        raise UsageError(
            f"{str(settings.facts_path)!r} is no file of slumberd 0.1.0; files of later releases "
            "need no new directory: `slumberd upgrade` upgrades them in place"
        )
    make_directory(target.parent)
    with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        new = Path(folder)
        carried = _carry_into(new, sources, settings, at=at, by=by)
        for path in [*new.rglob("*"), new]:
            sync_to_disk(path)
        if target.exists():
            target.rmdir()
        new.rename(target)
        new.mkdir()  # the end of the block deletes it
    return carried


def _carry_into(
    new: Path, sources: Mapping[StoreName, Path], settings: Settings, *, at: datetime, by: str
) -> CarriedOver:
    names: dict[StoreName, Path] = {
        store: new / _place_in(settings.state_dir, path) for store, path in sources.items()
    }
    for path in names.values():
        make_directory(path.parent)
    copy_together([(path, names[store]) for store, path in sources.items()])
    carried = NOTHING
    if "memory" in names:
        carry_episodes_over(names["memory"], source=sources["memory"])
    if "facts" in names:
        carried = carry_facts_over(
            names["facts"], key_of(settings), source=sources["facts"], at=at, by=by
        )
    find_numbers(names)
    if (settings.state_dir / PAUSED_FILE).exists():
        shutil.copy2(settings.state_dir / PAUSED_FILE, new / PAUSED_FILE)
    return carried


def _place_in(state_dir: Path, path: Path) -> Path:
    """Return the path of a file below the state directory, or its name when it lies elsewhere."""
    inside = path.is_relative_to(state_dir)
    return path.relative_to(state_dir) if inside else Path(path.name)
