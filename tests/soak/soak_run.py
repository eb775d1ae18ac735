"""Run a soak: writers, rules, reloads, manual edits, kills and clock steps at the same time."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from slumberd.errors import NothingKeptError
from tests.soak.checks import (
    TAGS,
    BrokenPromise,
    Expected,
    Figures,
    check_facts,
    check_files,
    check_ledger,
    check_newest_evaluated,
    check_once_each,
    check_process,
    check_rows,
    count_firings,
    journals,
)
from tests.support.daemons import Daemon, Home

WRITERS = {"ann": "put", "ben": "put", "cyd": "insert"}
MULTI = ("facts", "likes")
STEPS = (0, 0, 3_600, -3_600, 86_400, -7_200, 600, -5)
"""Seconds by which the daemon's clock is wrong."""

_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 120.0


def libfaketime() -> str | None:
    """Return the library that sets a process's clock; None without the package faketime."""
    return next(map(str, Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


class Soak:
    """Runs a soak for a number of seconds, and returns its figures.

    Args:
        folder: An empty folder, for all files.
        seed: The seed of all random choices.
        pace: How often actions are due; 1 is for two minutes or more.
    """

    def __init__(self, folder: Path, *, seed: int = 1, pace: float = 1.0) -> None:
        self.folder = folder
        self.home = self.home_in(folder)
        self.figures = Figures()
        self.expected = Expected()
        self._chance = random.Random(seed)
        self._pace = pace
        self._faketime = libfaketime()
        self._clock = folder / "clock"
        self._daemons = ExitStack()
        self._daemon: Daemon | None = None
        self._edits = 0
        self._due: dict[str, float] = {}

    def home_in(self, folder: Path) -> Home:
        """Return the state directory, and what runs there."""
        return Home(folder, {"facts": {"batch": 200}, "logging": {"format": "json"}})

    def run(self, seconds: float) -> Figures:
        """Run, check, and stop.

        Raises:
            Unsound: A promise is broken.
        """
        self._clock.write_text("+0\n")
        self.write_rules()
        ends = time.monotonic() + seconds
        with self._daemons:
            self.start()
            with self.writing():
                while time.monotonic() < ends:
                    self.live()
                    time.sleep(_LOOK_SECONDS)
            self.end()
        return self.figures

    def live(self) -> None:
        """Run each action that is due."""
        for seconds, what in (
            (5, self.kill), (7, self.reload), (3, self.pin), (11, self.undo),
            (4, self.step), (23, self.forget), (6, self.check),
        ):  # fmt: skip
            name, now = what.__name__, time.monotonic()
            pause = self._chance.uniform(0.5, 1.5) * seconds / self._pace
            if self._due.setdefault(name, now + pause) <= now:
                self._due[name] = now + pause
                what()

    # processes

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the writers during the block; each finishes the write that it has begun."""
        words = [sys.executable, "-m", "tests.soak.writers"]
        writers = [
            subprocess.Popen([*words, name, str(self.folder), how]) for name, how in self.writers()
        ]
        try:
            yield
            (self.folder / "stop").touch()
            if any(writer.wait(_PATIENCE_SECONDS) for writer in writers):
                raise BrokenPromise("a writer failed")
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()

    def writers(self) -> list[tuple[str, str]]:
        """Return each writer with its way of writing."""
        return list(WRITERS.items())

    def start(self) -> None:
        """Start the daemon."""
        environment = {"TZ": "UTC"}
        if self._faketime:
            environment |= {
                "LD_PRELOAD": self._faketime,
                "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        self._daemon = self._daemons.enter_context(self.home.started(**environment))

    @property
    def daemon(self) -> Daemon:
        """The daemon that runs."""
        assert self._daemon is not None
        if self._daemon.process.poll() is not None:
            raise BrokenPromise(f"the daemon ended by itself: {self._daemon.seen[-3:]}")
        return self._daemon

    def kill(self) -> None:
        """Kill the daemon, and start another."""
        self.daemon.kill()
        self._daemons.pop_all().close()  # this compares its log with the catalogue
        self.figures.kills += 1
        self.start()

    # actions of people

    def write_rules(self) -> None:
        """Write other rules; the facts at the end stay predictable."""
        self.expected.filter = self._chance.choice(list(TAGS))
        self.expected.multi = {MULTI} if self._chance.random() < 0.5 else set()
        when_filter, _ = TAGS[self.expected.filter]
        self.home.rule("all", cadence={"every": self._chance.choice([1, 5, 20])})
        self.home.rule(
            "tagged",
            cadence={"cron": "* * * * *"} if self._chance.random() < 0.5 else {"every": 3},
            when_filter=when_filter,
            then_emits=["facts", "notes"],
        )
        channels = {"facts": {"multi_valued": ["likes"] if self.expected.multi else []}}
        document: dict[str, Any] = {"channels": channels, "rules": []}
        if self._chance.random() < 0.5:
            guest = {"id": f"guest-{self._chance.randrange(3)}", "cadence": {"every": 4}}
            document["rules"] = [guest | {"when_filter": "", "then_emits": ["guests"]}]
        (self.home.rules / "channels.yaml").write_bytes(orjson.dumps(document))

    def reload(self) -> None:
        """Reload other rules; sometimes reload invalid rules first."""
        if self._chance.random() < 0.3:
            (self.home.rules / "broken.yaml").write_text("rules: [")
            self.daemon.process.send_signal(signal.SIGHUP)
            time.sleep(self._chance.uniform(0, 0.2))
            (self.home.rules / "broken.yaml").unlink()
        self.write_rules()
        self.daemon.process.send_signal(signal.SIGHUP)
        self.figures.reloads += 1

    def step(self) -> None:
        """Change by how much the clock of the daemon is wrong."""
        if self._faketime:
            spare = self._clock.with_suffix(".new")
            spare.write_text(f"{self._chance.choice(STEPS):+d}\n")
            spare.replace(self._clock)
            self.figures.steps += 1

    def pin(self) -> None:
        """Pin a fact, and take it out again one time in three."""
        self._edits += 1
        id, value = f"edit-{self._edits}", str(self._edits)
        words = ("--user", "people", "--agent", "rag", "--subject", id, "--predicate", "is")
        pinned = self.command("pin", "--id", id, *words, "--object", value, "--reason", "soak")
        self.expected.pinned[id] = orjson.loads(value)
        if not pinned:
            self.expected.unsure.add(id)
        elif self._chance.random() < 0.3:
            if not self.command("unpin", id, "--reason", "soak"):
                self.expected.unsure.add(id)
            del self.expected.pinned[id]

    def undo(self) -> None:
        """Undo one of the last firings; at the end a backfill brings back what it withdrew."""
        printed = self.home.call("audit", "ls", "--kind", "firing", "--json", check=False).stdout
        firings = [orjson.loads(line)["firing_id"] for line in printed.splitlines()[-10:]]
        rules = [firing for firing in firings if firing.startswith(("all@", "tagged@"))]
        if rules:
            self.command("undo", self._chance.choice(rules))

    def forget(self) -> None:
        """Erase a user for whom something was put."""
        user = f"gone{len(self.expected.erased)}"
        words = ("forget", "--user", user, "--yes")
        if self.home.call(*words, check=False).returncode == NothingKeptError.exit_code:
            return
        self.expected.erased.add(user)
        self.until(lambda: self.command(*words), f"{user} is erased")

    def command(self, *words: str) -> bool:
        """Run a command; return whether it reports success."""
        self.figures.manual_edits += 1
        return self.home.call(*words, check=False).returncode == 0

    # checks

    def check(self) -> None:
        """Check the process, the files and the ledger."""
        self.figures.checks += 1
        check_process(self.daemon.process.pid, self.figures)
        check_files(self.home, self.figures)
        check_ledger(self.home)

    def end(self) -> None:
        """Fire until nothing is pending, and compare the facts with the oracle."""
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.command("fire", "all", "tagged"), "the rules fire")
        self.until(lambda: self.pending() == 0, "nothing is pending")
        written = journals(self.folder)
        eids = [
            eid for eid, episode in written.items() if episode["user"] not in self.expected.erased
        ]
        check_newest_evaluated(self.home, eids)
        for rule in ("all", "tagged"):
            self.until(lambda rule=rule: self.command("backfill", rule), f"{rule} is filled")  # type: ignore[misc]
        self.check()
        assert self.daemon.stop() == 0
        self._daemons.pop_all().close()
        check_once_each(self.home.state / "facts.db")
        check_rows(self.home, written, self.expected.erased)
        self.figures.facts = check_facts(self.home, written, self.expected)
        self.figures.episodes = len(written)
        printed = orjson.loads(self.home.call("audit", "verify", "--json").stdout)
        self.figures.rows = printed["rows"]
        self.figures.firings = count_firings(self.home.state / "facts.db")

    def pending(self) -> int:
        """Return how many log rows the rules have not read."""
        status = orjson.loads(self.home.call("status", "--json").stdout)
        return sum(
            rule["pending"] for rule in status["rules"] if not rule["id"].startswith("guest")
        )

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait for a condition.

        Raises:
            Unsound: The condition does not become true in time.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not true():
            if time.monotonic() > deadline:
                raise BrokenPromise(f"this did not become true: {what}")
            time.sleep(_LOOK_SECONDS)
