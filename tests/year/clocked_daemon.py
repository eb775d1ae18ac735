"""A daemon whose clock is set, the commands beside it, and what both cost."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from slumberd.daemon.control_socket import ask
from tests.bench.measuring import Cost, run
from tests.soak.checks import BrokenPromise
from tests.support.daemons import Home
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.year.set_clock import SetClock

_READY = b'"event":"daemon.ready"'


class Use(NamedTuple):
    """What a process uses.

    Attributes:
        resident: Memory in MiB.
        anonymous: Memory in MiB, without files.
        peak: The most memory since its start, in MiB.
    """

    resident: float
    anonymous: float
    peak: float
    open_files: int
    threads: int


class ClockedDaemon:
    """A daemon, its state directory and its clock.

    Args:
        home: The settings name the log file ``slumberd.log``.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self.clock = SetClock(home.folder / "clock")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.home.state / "slumberd.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start the daemon; return its processor milliseconds until it is ready."""
        offset = self.log.stat().st_size if self.log.exists() else 0
        self._process = subprocess.Popen(self.command("run"), stderr=subprocess.PIPE)

        def is_ready() -> bool:
            if not self.log.exists():
                return False
            with self.log.open("rb") as log:
                log.seek(offset)
                return _READY in log.read()

        self.wait(is_ready)
        return self.milliseconds()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon, if it runs.

        Raises:
            BrokenPromise: It ends with an error after SIGTERM.
        """
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(how)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        if how == signal.SIGTERM and (process.returncode or errors):
            raise BrokenPromise(f"the daemon ended with {process.returncode}: {errors[-500:]!r}")

    def close(self) -> None:
        """Kill the daemon, if it runs, and close the clock."""
        self.end(signal.SIGKILL)
        self.clock.close()

    def command(self, *words: str | Path) -> list[str]:
        """Return the words of a command that has the same clock."""
        program = [sys.executable, "-m", "tests.year.set_clock", str(self.clock.path)]
        return [*program, *self.home.words(words)]

    def call(self, *words: str | Path) -> Cost:
        """Run a command to its end in a process of its own."""
        return run(self.command(*words))

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Return the daemon's answer to a request on its socket."""
        answer = ask(self.home.state, operation, **fields)
        assert isinstance(answer, dict), answer
        return answer

    def wait(self, condition: Callable[[], bool]) -> None:
        """Return as soon as a condition holds; the databases may be locked meanwhile."""

        def holds() -> bool:
            if self._process is not None and self._process.poll() is not None:
                raise BrokenPromise(f"the daemon ended with {self._process.poll()}")
            try:
                return condition()
            except sqlite3.OperationalError:  # no table yet, or the file is rewritten
                return False

        wait_until(holds)

    @contextmanager
    def reading(self, name: str) -> Iterator[sqlite3.Connection]:
        """Open one of the databases, to read only."""
        path = f"file:{self.home.state / name}?mode=ro"
        with closing(sqlite3.connect(path, uri=True, timeout=60)) as connection:
            yield connection

    def rotate_log(self) -> Path:
        """Rename the log, as logrotate does, and wait for a new one; return the old one."""
        old = self.log.with_name("slumberd.log.1")
        self.log.rename(old)
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)
        self.wait(self.log.exists)
        return old

    # costs

    def milliseconds(self) -> float:
        """Return the processor time that the daemon has used, with all of its threads."""
        return time.clock_gettime(~self.pid << 3 | 2) * 1e3

    def cost_of(self, operation: str, **fields: Any) -> float:
        """Return the processor milliseconds that the daemon needs for a request."""
        before = self.milliseconds()
        self.ask(operation, **fields)
        return self.milliseconds() - before

    def search(self, user: str) -> float:
        """Search for a user; return the processor milliseconds of the daemon.

        Raises:
            BrokenPromise: A hit belongs to another user.
        """
        before = self.milliseconds()
        hits = self.ask("recall", user=user, query=f"What does {user} say of p3?")["hits"]
        cost = self.milliseconds() - before
        if any(hit["user"] != user for hit in hits):
            raise BrokenPromise(f"a search for {user} found what belongs to another user")
        return cost

    def use(self) -> Use:
        """Return what the daemon uses now."""
        process = Path(f"/proc/{self.pid}")
        lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        resident, anonymous, peak = (
            int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "VmHWM")
        )
        counts = (len(list((process / name).iterdir())) for name in ("fd", "task"))
        return Use(resident, anonymous, peak, *counts)
