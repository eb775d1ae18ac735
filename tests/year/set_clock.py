"""A wall clock that a file sets: ``python -m tests.year.set_clock FILE WORDS`` runs slumberd by it.

The file holds by how much the clock differs from that of the machine. So a program moves the clock
of a daemon that runs, and time goes on at its usual speed.
"""

from __future__ import annotations

import mmap
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from slumberd.cli import main
from slumberd.clock import SystemClock
from slumberd.daemon.daemon import INTERVALS, Daemon
from slumberd.workers.scheduling.alarm import Alarm

_BYTES = 8
_LOOK_SECONDS = 0.02
"""How often the daemon compares its clocks; 5 s would be most of the time of a simulated day."""

_QUIET_SECONDS = 0.5
"""Between two steps that prune the episode log; in 60 s, several simulated days pass."""


class SetClock:
    """The clock of a file, which this object makes and moves.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_BYTES))
        self.path = path
        self._file = path.open("r+b")
        self._offset = mmap.mmap(self._file.fileno(), _BYTES)
        self._clock = SystemClock()

    def close(self) -> None:
        """Close the file."""
        self._offset.close()
        self._file.close()

    def set(self, instant: datetime) -> None:
        """Move the clock to an instant, forward or back."""
        offset = (instant - self._clock.now()) // timedelta(microseconds=1)
        self._offset[:] = offset.to_bytes(_BYTES, sys.byteorder, signed=True)

    def now(self) -> datetime:
        """Return what the clock says: aware, UTC."""
        return self._clock.now() + _difference(self._offset)


def _difference(offset: mmap.mmap) -> timedelta:
    return timedelta(microseconds=int.from_bytes(offset[:], sys.byteorder, signed=True))


def run_by_clock(path: Path, words: list[str]) -> None:
    """Run slumberd with the clock of a file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), _BYTES, prot=mmap.PROT_READ) as offset:
        real_now = SystemClock.now

        def now(self: SystemClock) -> datetime:
            return real_now(self) + _difference(offset)

        SystemClock.now = now  # type: ignore[method-assign] # only in this process
        heartbeat: Any = Alarm.heartbeat
        assert "every_seconds" in heartbeat.__kwdefaults__
        heartbeat.__kwdefaults__["every_seconds"] = _LOOK_SECONDS
        daemon: Any = Daemon.__init__
        assert daemon.__kwdefaults__["intervals"] is INTERVALS
        daemon.__kwdefaults__["intervals"] = INTERVALS._replace(quiet_seconds=_QUIET_SECONDS)
        main(words)


if __name__ == "__main__":
    run_by_clock(Path(sys.argv[1]), sys.argv[2:])
