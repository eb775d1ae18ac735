"""Name the file of the notes that the stages of rules keep, and check its content."""

from __future__ import annotations

import asyncio
import math
import time
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from slumberd.clock import SystemClock
from slumberd.consolidation.incoming import Bounds
from slumberd.consolidation.stage_runs import Marking
from slumberd.daemon.stores import open_facts, open_memory
from slumberd.model.errors import StoppedError
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
