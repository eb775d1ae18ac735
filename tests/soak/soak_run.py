"""Run a soak: writers, rules, reloads, manual edits, kills and clock steps at the same time."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from slumberd.model.errors import NothingKeptError
from tests.soak.chat import AGENT, CHANNELS, FINAL_STAGES, UNPINNED
from tests.soak.checks import (
    NO_CHAT,
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
from tests.soak.search_checks import SearchFollower
from tests.soak.stage_checks import (
    MARKS,
    SUMMARIES,
    check_extracted,
    check_marks,
    check_marks_have_causes,
    check_owners_of_marks,
    check_purged,
    count_mark_rows,
)
from tests.soak.writers import ManualAssertion
from tests.support.daemons import Daemon, Home
from tests.support.repository import ROOT

WRITERS = [
    ("ann", "put", "triples"), ("ben", "put", "triples"), ("cyd", "insert", "triples"),
    ("dot", "put", "chats"), ("eve", "insert", "chats"),
]  # fmt: skip
RULES = ("all", "tagged", *CHANNELS.values())
MULTI = ("facts", "likes")
STEPS = (0, 0, 3_600, -3_600, 86_400, -7_200, 600, -5)
"""Seconds by which the daemon's clock is wrong."""

SETTINGS: dict[str, Any] = {
    "facts": {"batch": 200},
    "logging": {"format": "json"},
    "retention": {"purge_archived_after": "3s"},
}
BOOKING = ROOT / "docs" / "examples" / "booking.yaml"

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
        return Home(folder, SETTINGS)

    def run(self, seconds: float) -> Figures:
        """Run, check, and stop.

        Raises:
            Unsound: A promise is broken.
        """
        self._clock.write_text("+0\n")
        (self.home.rules / "patterns").mkdir()
        self.write_rules()
        ends = time.monotonic() + seconds
        with self._daemons, SearchFollower(self.home) as self._follower:
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
            (4, self.step), (23, self.forget), (6, self.check), (13, self.unpin_mark),
            (3, self.search),
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
            subprocess.Popen([*words, name, str(self.folder), how, what])
            for name, how, what in self.writers()
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

    def writers(self) -> list[tuple[str, str, str]]:
        """Return each writer with its way of writing, and what it writes."""
        return WRITERS

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
        self.home.rule(
            "all", cadence={"every": self._chance.choice([1, 5, 20])}, when_filter=NO_CHAT
        )
        self.write_chat_rules(self.random_stages())
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
            document["rules"] = [guest | {"when_filter": NO_CHAT, "then_emits": ["guests"]}]
        (self.home.rules / "channels.yaml").write_bytes(orjson.dumps(document))

    def write_chat_rules(self, stages: list[dict[str, Any]]) -> None:
        """Write the rules that read the chat: one with all stages, and one with patterns."""
        shutil.copy(BOOKING, self.home.rules / "patterns")
        only_chat = f"agent = '{AGENT}'"
        self.home.rule(
            "chat", cadence={"every": self._chance.choice([3, 10])}, when_filter=only_chat,
            then_emits=["heard"], stages=stages,
        )  # fmt: skip
        patterns = {"with": "patterns", "patterns": "patterns/booking.yaml"}
        self.home.rule(
            "wants", cadence={"every": 4}, when_filter=only_chat, then_emits=["wants"],
            stages=[{"extract": patterns}],
        )  # fmt: skip

    def random_stages(self) -> list[dict[str, Any]]:
        """Return the final stages, or others; they extract the same."""
        extract, _, *others = FINAL_STAGES
        keep = self._chance.choice(["newest", "newest", "oldest"])
        method = self._chance.choice(["exact", "jaccard"])
        chosen = self._chance.sample(others, self._chance.randrange(len(others) + 1))
        changed = [extract, {"dedup": {"method": method, "keep": keep}}, *chosen]
        return self._chance.choice([FINAL_STAGES, changed])

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
        rules += [firing for firing in firings if self.only_marks(firing)]
        if rules:
            self.command("undo", self._chance.choice(rules))

    def only_marks(self, firing: str) -> bool:
        """Return whether a firing changed only marks and summaries.

        A backfill does not bring back facts of deleted episodes, so other firings of the chat stay.
        """
        printed = self.home.call("audit", "ls", "--rule", "chat", "--json", check=False).stdout
        rows = [orjson.loads(line) for line in printed.splitlines()]
        named = [row["fact_id"] for row in rows if row["firing_id"] == firing and row["fact_id"]]
        return bool(named) and all(id.startswith((MARKS, SUMMARIES)) for id in named)

    def unpin_mark(self) -> None:
        """End a mark for good."""
        marks = self.home.facts("--channel", "marks", "--user", UNPINNED)
        if marks:
            self.command("unpin", self._chance.choice(marks)["id"], "--reason", "soak")

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

    def search(self) -> None:
        """Search for each user."""
        self.figures.hits += self._follower.search()

    # checks

    def check(self) -> None:
        """Check the process, the files and the ledger."""
        self.figures.checks += 1
        check_process(self.daemon.process.pid, self.figures)
        check_files(self.home, self.figures)
        check_ledger(self.home)
        check_owners_of_marks(self.home)
        check_marks_have_causes(self.home)

    def end(self) -> None:
        """Fire until nothing is pending, and compare the facts with the oracle."""
        kept = {key: value for key, value in self.home.settings.items() if key != "retention"}
        self.home.configure(kept)  # nothing is deleted any more
        self.write_chat_rules(FINAL_STAGES)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.command("fire", *RULES), "the rules fire")
        self.until(lambda: self.pending() == 0, "nothing is pending")
        written = journals(self.folder)
        self.check_all_evaluated(written)
        for rule in RULES:
            self.until(lambda rule=rule: self.command("backfill", rule), f"{rule} is filled")  # type: ignore[misc]
        self.check()
        self.check_idle()
        assert self.daemon.stop() == 0
        self._daemons.pop_all().close()
        check_once_each(self.home.state / "facts.db")
        self._follower.check()
        check_rows(self.home, written, self.expected.erased)
        self.figures.facts = check_facts(self.home, written, self.expected)
        self.check_chats(written)
        self.figures.episodes = len(written)
        printed = orjson.loads(self.home.call("audit", "verify", "--json").stdout)
        self.figures.rows = printed["rows"]
        self.figures.firings = count_firings(self.home.state / "facts.db")

    def check_all_evaluated(self, written: Mapping[str, ManualAssertion]) -> None:
        """Check that each rule evaluated the newest version of each episode that it selects."""
        erased = self.expected.erased
        kept = [episode for episode in written.values() if episode["user"] not in erased]
        check_newest_evaluated(self.home, [one["id"] for one in kept if one["agent"] != AGENT])
        chats = [one["id"] for one in kept if one["agent"] == AGENT]
        for channel, rule in CHANNELS.items():
            check_newest_evaluated(self.home, chats, rule, f"@{channel}/")

    def check_idle(self) -> None:
        """Check that firings without new episodes write no row about marks."""
        self.command("fire", "chat")  # a mark that a person ended is refused once
        before = count_mark_rows(self.home)
        for _ in range(3):
            self.command("fire", "chat")
        after = count_mark_rows(self.home)
        if after != before:
            raise BrokenPromise(f"idle firings wrote {after - before} rows about marks")

    def check_chats(self, written: Mapping[str, ManualAssertion]) -> None:
        """Check what the stages made of the chat."""
        chats = {eid: episode for eid, episode in written.items() if episode["agent"] == AGENT}
        erased = self.expected.erased
        self.figures.extracted = check_extracted(self.home, chats)
        self.figures.marks = check_marks(self.home, chats, erased)
        self.figures.purged = check_purged(self.home, chats, erased)

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
