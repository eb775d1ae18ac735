"""Name the file of the notes that the stages of rules keep, delete it, and check its content."""

from __future__ import annotations

import asyncio
import math
import time
import unicodedata
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from slumberd.clock import SystemClock
from slumberd.consolidation.incoming import Bounds
from slumberd.consolidation.stage_runs import Marking
from slumberd.daemon.stores import open_facts, open_memory
from slumberd.model.errors import StoppedError, StoreError
from slumberd.model.firing import START, Window
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.settings import Settings
from slumberd.storage.sqlite.stage_file import StageFile


def stage_file_of(settings: Settings) -> StageFile | None:
    """Return the file of the notes; None where a process may not read its own version.

    Notes of another version of slumberd must not be used.
    """
    try:
        own_version = version("slumberd")
    except PackageNotFoundError:
        return None
    memory = settings.memory
    # Other tables of Unicode, and another local time, let the same episodes read otherwise. Other
    # versions of the libraries may compare the same texts otherwise.
    zone = (*time.tzname, time.timezone, time.altzone)
    parts = (
        own_version,
        unicodedata.unidata_version,
        memory.scope_mismatch,
        memory.naive_timestamps,
        memory.future_tolerance,
        sorted(memory.person),
        zone,
        [_version_of(name) for name in ("numpy", "rapidfuzz", "wordllama")],
    )
    return StageFile(settings.stages_path, repr(parts))


def _version_of(distribution: str) -> str:
    """Return the version of what an extra installs; empty when it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


@asynccontextmanager
async def stage_notes_of(
    settings: Settings, *, dry_run: bool = False
) -> AsyncIterator[StageFile | None]:
    """Yield the file of the notes to a process that has the stores open.

    Notes on a shard of a database go before and after the block: an erasure on another host could
    not remove them.

    Raises:
        StoreError: They cannot be deleted before it.
    """
    file = stage_file_of(settings)
    is_shared = not dry_run and settings.store is not None
    if is_shared:
        delete_shared_notes(settings)
    try:
        yield file
    finally:
        if is_shared:
            with suppress(StoreError):
                delete_shared_notes(settings)


def delete_shared_notes(settings: Settings, name: str | None = None) -> None:
    """Delete the notes on a shard of a database that this process does not hold.

    Args:
        name: A pattern for the files; None means that of the shard of the configuration.

    Raises:
        StoreError: They cannot be deleted.
    """
    if settings.store is not None:
        for path in settings.state_dir.glob(name or settings.stages_path.name):
            StageFile(path, "").delete()


def find_wrong_notes(
    settings: Settings, rules: Sequence[ConsolidationRule], at: datetime, seconds: float | None
) -> list[str] | None:
    """Return for each rule the first note that a look at all episodes would not write.

    It writes nothing. Call it outside of any event loop.

    Args:
        at: Now.
        seconds: How long it may take; None sets no limit.

    Returns:
        None when it took longer.

    Raises:
        StoreError: A store cannot be read.
    """
    clock = SystemClock()
    ends_at = math.inf if seconds is None else clock.monotonic() + seconds
    bounds = Bounds(cancelled=lambda: clock.monotonic() >= ends_at)
    try:
        return asyncio.run(_find_wrong(settings, rules, at, bounds))
    except StoppedError:
        return None


async def _find_wrong(
    settings: Settings, rules: Sequence[ConsolidationRule], at: datetime, bounds: Bounds
) -> list[str]:
    found: list[str] = []
    async with open_memory(settings) as memory, open_facts(settings) as facts:
        marking = Marking(memory, facts, settings.facts.batch)
        marking.index = stage_file_of(settings)
        for rule in rules:
            mark = await facts.watermarks.position(rule.id) or START
            window = Window(mark, mark.seq, at=at, dry_run=True)
            if problem := await marking.find_wrong_note(rule, window, bounds):
                found.append(f"rule {rule.id!r}: {problem}")
    return found
