"""Find databases that hold content of erased scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from slumberd.config.settings import Settings
from slumberd.errors import StoreError
from slumberd.model.health import Finding
from slumberd.storage.audit import offline_status
from slumberd.storage.audit.offline_status import Open
from slumberd.storage.sqlite.recovery import look

HURRIED_SECONDS = 1.0
"""The time limit of the search in each database while a daemon starts."""

NAMED = 3
"""How many ids a message lists."""

T = TypeVar("T")


def find_resurfaced(settings: Settings, seconds: float | None) -> Iterator[Finding]:
    """Find databases that hold content of a scope that a database records as erased.

    Args:
        settings: The configuration.
        seconds: The time limit for each database; None sets none.
    """
    paths = [settings.memory_path, settings.facts_path]
    pasts = [
        past
        for path in paths
        if (past := read_or_none(path, offline_status.read_erased_scopes)) is not None
    ]
    for path in paths if pasts else ():
        look_for = partial(offline_status.count_erased_content, pasts=pasts, seconds=seconds)
        if users := read_or_none(path, look_for):
            named = ", ".join(repr(user) for user in sorted(users)[:NAMED])
            what = "episodes" if path == settings.memory_path else "facts"
            problem = f"holds {sum(users.values())} {what} of erased scopes, of {named}"
            remedy = "if it is an older copy, repeat `slumberd forget` or restore a newer copy"
            yield Finding("erasure.contradicted", str(path), problem, remedy)


def read_or_none(path: Path, work: Callable[[Open], T]) -> T | None:
    """Return what `work` finds in a database; None when it cannot be read."""
    try:
        return look(path, work)
    except StoreError:  # another check reports the unreadable database
        return None
