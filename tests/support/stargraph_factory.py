"""A factory of Stargraph's own two stores, for a daemon in the environment of Stargraph.

A daemon imports this module by its name, so it imports nothing of the tests.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from stargraph.stores.sqlite_fact import SQLiteFactStore
from stargraph.stores.sqlite_memory import SQLiteMemoryStore

FOLDER_VARIABLE = "STARGRAPH_FOLDER"
"""Names the folder with the two files."""

KILL_VARIABLE = "STARGRAPH_KILL"
"""``before:N`` or ``after:N``: the process kills itself at the N-th delta of its life."""


class KillableFactStore(SQLiteFactStore):  # type: ignore[misc]  # Stargraph is not installed here
    """Stargraph's store; it kills the process at a delta, and notes each one that it took."""

    def __init__(self, path: Path, kill: str) -> None:
        super().__init__(path=path)
        self._applied = path.with_suffix(".log")
        self._when, _, number = kill.partition(":")
        self._left = int(number or 0)

    async def apply_delta(self, delta: Any) -> None:
        self._left -= 1
        if (self._when, self._left) == ("before", 0):
            os.kill(os.getpid(), signal.SIGKILL)
        await super().apply_delta(delta)
        with self._applied.open("a") as log:
            log.write(f"{delta.kind} {delta.source_episode_ids[0]}\n")
        if (self._when, self._left) == ("after", 0):
            os.kill(os.getpid(), signal.SIGKILL)


def make_stores() -> tuple[Any, Any]:
    """Return both stores of the folder."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    facts = KillableFactStore(folder / "facts.db", os.environ.get(KILL_VARIABLE, ""))
    return SQLiteMemoryStore(path=folder / "memory.db"), facts
