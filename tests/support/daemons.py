"""Real daemons: tests start them as users do, and read their log."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import orjson

from slumberd.cli import main
from tests.support.catalogue_check import problems_of_lines
from tests.support.cli_runner import called
from tests.support.forked_commands import FORKS, Process, run_command, start_command
from tests.support.waiting import PATIENCE_SECONDS as PATIENCE_SECONDS

Event = dict[str, Any]


@dataclass
class Home:
    """A state directory with its configuration and rules.

    Attributes:
        folder: Holds the configuration; the state is in ``state`` below it.
        settings: Further lines of the configuration.
        python: Whose slumberd runs.
    """

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    python: Path | str = sys.executable

    def __post_init__(self) -> None:
        self.rules.mkdir(parents=True, exist_ok=True)
        self.configure(self.settings)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the configuration with other further lines."""
        document = {
            "state_dir": str(self.state),
            "rules_dir": str(self.rules),
            "logging": {"format": "json"},
            **settings,
        }
        self.config.write_bytes(orjson.dumps(document))  # JSON is YAML

    @property
    def config(self) -> Path:
        return self.folder / "slumberd.yaml"

    @property
    def rules(self) -> Path:
        return self.folder / "rules.d"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def rule(self, id: str, **fields: Any) -> None:
        """Write a rule file; the fields override a rule that promotes every episode."""
        rule = {"id": id, "when_filter": "", "then_emits": ["facts"], **fields}
        (self.rules / f"{id}.yaml").write_bytes(orjson.dumps({"rules": [rule]}))

    def command(self, *words: str | Path) -> list[str]:
        """Return the words of a slumberd command on this home."""
        return [str(self.python), "-m", "slumberd", *self.words(words)]

    def words(self, words: Sequence[str | Path]) -> list[str]:
        """Return words with those that name this home."""
        return [*map(str, words), "--config", str(self.config)]

    def slumberd(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in a process of its own."""
        ended = run_command(self.command(*words), os.environ)
        assert not check or ended.returncode == 0, ended.stderr
        return ended

    def call(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in this process, which is ten times as quick."""
        ended = called(*self.words(words))
        assert not check or ended.returncode == 0, ended.stderr
        return ended

    def facts(self, *words: str) -> list[dict[str, Any]]:
        """Return the facts that ``slumberd facts --json`` prints."""
        printed = self.call("facts", "--json", *words).stdout
        return [orjson.loads(line) for line in printed.splitlines()]

    @contextmanager
    def daemon(self, **environment: str) -> Iterator[Daemon]:
        """Run the daemon for the block; stop it at the end, and check that it stops."""
        with self.started(**environment) as daemon:
            yield daemon
            if daemon.process.poll() is None:
                assert daemon.stop() == 0, daemon.seen[-5:]

    def forked(self, *words: str | Path) -> ForkServerProcess:
        """Start a command in a forked process, which has imported all modules already."""
        process = FORKS.Process(target=main, args=(self.words(words),), daemon=True)
        process.start()
        return process

    @contextmanager
    def started(self, *, until: str = "daemon.ready", **environment: str) -> Iterator[Daemon]:
        """Run the daemon and wait for an event; kill it at the end of the block."""
        process = start_command(self.command("run"), {**os.environ, **environment})
        daemon = Daemon(process)
        try:
            daemon.wait_for(until)
            yield daemon
        finally:
            process.kill()
            process.wait()
            daemon.close()


class Daemon:
    """A daemon that runs, and what it has logged."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.seen: list[Event] = []
        self._wrong: list[str] = []
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self._events.put(orjson.loads(line))
                self._wrong += problems_of_lines([line])
            except orjson.JSONDecodeError:
                self._events.put({"event": "not json", "line": line.decode(errors="replace")})
        self._events.put(None)

    def wait_for(self, event: str, is_it: Callable[[Event], bool] = lambda _: True) -> Event:
        """Return the next such event, or fail with what was logged instead.

        The patience is for all events: a daemon that works on logs a heartbeat each minute.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                got = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event} came: {self.seen[-10:]}") from None
            assert got is not None, f"the daemon ended before {event}: {self.seen[-10:]}"
            self.seen.append(got)
            if got["event"] == event and is_it(got):
                return got

    def remaining(self) -> Iterator[Event]:
        """Yield what an ended daemon logged after the last event that a test waited for."""
        while (got := self._events.get(timeout=PATIENCE_SECONDS)) is not None:
            yield got

    def wait_until_read(self, upto: int) -> None:
        """Wait until a firing has consolidated the log up to a place."""
        self.wait_for("firing.completed", lambda event: event["window"]["upto"] >= upto)

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        """Read the rest of the log, and close the pipe."""
        self._reader.join(timeout=PATIENCE_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        assert not self._wrong, self._wrong[:3]


def resident_mebibytes(pid: int) -> float:
    """Return the peak of a process's resident memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
