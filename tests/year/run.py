"""Run a simulated year through a real daemon, and measure it at the end of each month.

Another process puts the episodes of each day. The daemon's clock is set to the evening, and to the
next morning, when the nightly rule fires. Between them people correct, undo, search and erase;
the clock is wrong for some days, and the daemon is stopped or killed three times a week.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import orjson

from slumberd.daemon.control_socket import ask
from slumberd.model.episode import Episode, microseconds
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.bench.measuring import Cost, run
from tests.soak.checks import BrokenPromise, check_once_each
from tests.support.daemons import Home
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.year.set_clock import SetClock
from tests.year.stream import AGENT, KEYS, MULTI, START, Correction, Size, Year, expected_facts

RESTARTS = {1: signal.SIGTERM, 3: signal.SIGTERM, 4: signal.SIGKILL}
"""The days of a week on which the daemon is restarted, and how it ends."""

FIRINGS = 5
"""Measured firings of each rule at the end of a month."""

SEARCHES = 20
CORRECTIONS = 3
MOST_SAMPLED = 40
"""Users whose facts are compared with the oracle."""

REFERENCE_ROWS = 5_000

ROUNDS = 200
"""At the end of the year, rounds of requests after which the daemon has no more memory or files."""

EXPECTED_FINDING = "claims.unreached"
"""Some people retract what nobody has said."""

_WRONG_PERIOD = 45
"""Days from one wrong clock to the next one of its kind."""

_ERASED_FIRST = timedelta(minutes=20)


@dataclass
class Month:
    """What was measured at the end of a month.

    Attributes:
        month: Its number, from 1.
        put: Versions of episodes that were put until then.
        reference: Processor milliseconds of a fixed work; the load of the machine changes it, too.
        firing: Processor milliseconds of a firing with new claims.
        nightly: Processor milliseconds of a firing of the rule with stages, with the same claims.
        nights: Processor milliseconds of the nightly firings of the month, on average.
        search: Processor milliseconds of a search, and of the first one after a start.
        start: Processor milliseconds of a start, until the daemon is ready.
        status: Processor milliseconds of the command `status`.
        resident: Memory in MiB: all, without files, and its peak.
        files: Bytes of each file of the state directory; the largest size of write-ahead logs.
        log_bytes: Bytes of the log file of this month.
        log_lines: Lines of it.
        rows: Rows of each table.
    """

    month: int
    put: int
    reference: float
    firing: float
    nightly: float
    nights: float
    search: float
    first_search: float
    start: float
    status: float
    resident: float
    anonymous: float
    peak: float
    open_files: int
    threads: int
    files: dict[str, int]
    log_bytes: int
    log_lines: int
    rows: dict[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return asdict(self)


class Growth(NamedTuple):
    """What a daemon has more after the same requests as before.

    Attributes:
        mebibytes: Memory without files.
    """

    mebibytes: float
    open_files: int
    threads: int


class YearRun:
    """Runs a year.

    Attributes:
        months: What was measured so far.
        grown: What the daemon has more after further requests, at the end of the year.

    Args:
        folder: An empty directory, for all files.
        size: How large the year is.
        nights: The cron expression of the rule with stages.
        show: Called after each month.
    """

    def __init__(
        self,
        folder: Path,
        size: Size,
        *,
        nights: str = "0 3 * * *",
        show: Callable[[Month], object] = lambda _: None,
    ) -> None:
        self.size = size
        self.year = Year(size)
        self.months: list[Month] = []
        self.grown = Growth(0, 0, 0)
        self.home = Home(folder, self._settings())
        self._nights = nights
        self._show = show
        self._clock = SetClock(folder / "clock")
        self._process: subprocess.Popen[bytes] | None = None
        self._runner = asyncio.Runner()
        self._memory = SQLiteMemoryStore(self.home.state / "memory.db")
        self._put = 0
        self._put_of_day: dict[int, int] = {}
        self._corrections: list[Correction] = []
        self._erased: list[str] = []
        self._night_costs: list[float] = []
        self._most_log_bytes = 0
        self._every = max(self.size.daily // 4, 2 * self.size.new * FIRINGS)
        self._write_rules()

    def _settings(self) -> dict[str, Any]:
        purged_after = f"{round(self.size.age(10).total_seconds())}s"
        return {
            "logging": {"format": "json", "file": "slumberd.log"},
            # Facts name few older episodes, so what is replaced is soon deleted.
            "facts": {"lineage_depth": 2},
            "retention": {"purge_archived_after": purged_after},
            # Of few users, one is many.
            "limits": {"max_deletes": None, "alarm_fraction": None},
        }

    def _write_rules(self) -> None:
        half_life = f"{round(self.size.age(3).total_seconds())}s"
        home, claims = self.home, f"subject IS NOT NULL AND agent = '{AGENT}'"
        home.rule("stated", cadence={"every": self._every}, when_filter=claims)
        home.rule(
            "tastes", cadence={"every": 2 * self._every}, then_emits=["tastes"],
            when_filter=f"{claims} AND predicate = 'likes'",
        )  # fmt: skip
        # The expression matches on 29 February only: this rule fires when a person says so.
        home.rule(
            "trial", cadence={"cron": "0 0 29 2 *"}, when_filter="agent = 'trial'",
            then_emits=["trial"],
        )  # fmt: skip
        home.rule(
            "nightly", cadence={"cron": self._nights}, then_emits=[],
            stages=[
                {"dedup": {"method": "jaccard", "similarity": 0.85, "keep": "newest"}},
                {"decay": {"half_life": half_life, "threshold": 0.05}},
                {"importance": {"below": 0.1}},
                {"summarise": {"when_more_than": 40, "max_tokens": 100}},
            ],
        )  # fmt: skip
        channels = {channel: {"multi_valued": [predicate]} for channel, predicate in MULTI}
        document = orjson.dumps({"channels": channels, "rules": []})
        (home.rules / "channels.yaml").write_bytes(document)

    def run(self) -> list[Month]:
        """Live the year, check what is left of it, and return its months.

        Raises:
            BrokenPromise: A promise is broken.
        """
        try:
            self._clock.set(START)
            self._runner.run(self._memory.bootstrap())
            self._start()
            for day in range(self.size.days):
                self._live(day)
                if (day + 1) % self.size.days_of_month == 0:
                    self._end_month(day // self.size.days_of_month)
            self._end()
        finally:
            self._end_process(signal.SIGKILL)
            self._runner.run(self._memory.close())
            self._runner.close()
            self._clock.close()
        return self.months

    # a day

    def _live(self, day: int) -> None:
        begin, place = START + timedelta(days=day), day % min(_WRONG_PERIOD, self.size.days)
        third = min(_WRONG_PERIOD, self.size.days) // 3
        episodes = self.year.day(day)
        middle = len(episodes) // 2
        if place == third:
            self._put_under_wrong_clock(begin + timedelta(days=1, hours=1), episodes[:middle])
            self._clock.set(begin + timedelta(hours=23))
            self._call("clock", "accept", "--yes", "--reason", "simulated")
        elif place == 2 * third:
            self._put_under_wrong_clock(begin - timedelta(hours=2), episodes[:middle])
        else:
            self._put_many(episodes[:middle])
        self._clock.set(begin + timedelta(hours=23))
        self._put_many(episodes[middle:])
        if signal_of_day := RESTARTS.get(day % 7):
            self._restart(signal_of_day, day)
        self._wait_for_rules()
        self._check_logs()
        if self.year.is_trial_day(day):
            self._try_and_undo(day)
            self._correct(day)
        self._search(self.size.chance("search", day).randrange(self.size.users), day)
        self._sleep(day)

    def _put_under_wrong_clock(self, wrong: datetime, episodes: list[Episode]) -> None:
        self._clock.set(wrong)
        self._put_many(episodes)
        self._wait_for_rules()

    def _put_many(self, episodes: list[Episode]) -> None:
        self._runner.run(self._memory.put_many(episodes))
        self._put += len(episodes)

    def _wait_for_rules(self) -> None:
        """Wait until fewer rows are pending than make a rule due."""

        def are_few() -> bool:
            marks = self._watermarks()
            read = {rule: marks.get(rule, (0, 0))[0] for rule in ("stated", "tastes")}
            pending = {rule: self._put - seq for rule, seq in read.items()}
            return pending["stated"] < self._every and pending["tastes"] < 2 * self._every

        self._wait(are_few)

    def _sleep(self, day: int) -> None:
        """Set the clock to the next morning, and wait until the night's rule has fired."""
        morning = START + timedelta(days=day + 1, hours=3)
        pid, before = self._pid(), processor_milliseconds(self._pid())
        self._clock.set(morning)
        is_every_night = self._nights.endswith("* * *")
        if is_every_night:
            self._wait(lambda: self._watermarks()["nightly"][1] >= microseconds(morning))
            self._night_costs.append(processor_milliseconds(pid) - before)

    def _watermarks(self) -> dict[str, tuple[int, int]]:
        """Return the number of the last row that each rule has read, and its served instant."""
        with self._reading("facts.db") as facts:
            rows = facts.execute("SELECT rule, seq, served FROM slumberd_watermark")
            return {rule: (seq, served) for rule, seq, served in rows}

    @contextmanager
    def _reading(self, name: str) -> Iterator[sqlite3.Connection]:
        path = f"file:{self.home.state / name}?mode=ro"
        with closing(sqlite3.connect(path, uri=True, timeout=60)) as connection:
            yield connection

    def _wait(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            if self._process is not None and self._process.poll() is not None:
                raise BrokenPromise(f"the daemon ended with {self._process.poll()}")
            try:
                return condition()
            except sqlite3.OperationalError:  # no table yet, or the file is rewritten
                return False

        wait_until(holds)

    # people

    def _ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        answer = ask(self.home.state, operation, **fields)
        assert isinstance(answer, dict), answer
        return answer

    def _try_and_undo(self, day: int) -> None:
        """Fire a rule of few episodes, and undo it on some days."""
        self._put_many(self.year.trial(day))
        fired = self._ask("fire", rules=["trial"])
        if self.year.trial_is_undone(day):
            self._ask("undo", run=fired["run"], reason="simulated")

    def _correct(self, day: int) -> None:
        chance = self.size.chance("correct", day)
        for number in range(CORRECTIONS):
            user = self.size.user(chance.randrange(self.size.users), day)
            predicate, value = f"p{chance.randrange(KEYS)}", f"corrected on day {day}"
            id, at = f"corrected-{day:03}-{number}", microseconds(self._clock.now())
            self._ask(
                "pin", user=user, agent=AGENT, subject=user, predicate=predicate, object=value,
                id=id, reason="simulated",
            )  # fmt: skip
            self._corrections.append(Correction(id, user, predicate, value, at))

    def _search(self, number: int, day: int) -> float:
        """Search for a user; return the processor milliseconds of the daemon."""
        user, pid = self.size.user(number, day), self._pid()
        before = processor_milliseconds(pid)
        hits = self._ask("recall", user=user, query=f"What does {user} say of p3?")["hits"]
        after = processor_milliseconds(pid)
        if any(hit["user"] != user for hit in hits):
            raise BrokenPromise(f"a search for {user} found what belongs to another user")
        return after - before

    # processes

    def _command(self, *words: str | Path) -> list[str]:
        program = [sys.executable, "-m", "tests.year.set_clock", str(self._clock.path)]
        return [*program, *self.home.words(words)]

    def _call(self, *words: str | Path) -> Cost:
        """Run a command in a process of its own, by the same clock."""
        return run(self._command(*words))

    @property
    def _log(self) -> Path:
        return self.home.state / "slumberd.log"

    def _start(self) -> float:
        """Start the daemon; return its processor milliseconds until it is ready."""
        offset = self._log.stat().st_size if self._log.exists() else 0
        self._process = subprocess.Popen(self._command("run"), stderr=subprocess.PIPE)

        def is_ready() -> bool:
            if not self._log.exists():
                return False
            with self._log.open("rb") as log:
                log.seek(offset)
                return b'"event":"daemon.ready"' in log.read()

        self._wait(is_ready)
        return processor_milliseconds(self._process.pid)

    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _end_process(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(how)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        if how == signal.SIGTERM and (process.returncode or errors):
            raise BrokenPromise(f"the daemon ended with {process.returncode}: {errors[-500:]!r}")

    def _restart(self, how: signal.Signals, day: int) -> float:
        """End the daemon, often in the middle of a batch; start it, and look for lost episodes."""
        self._end_process(how)
        cost = self._start()
        with self._reading("memory.db") as memory:
            (last,) = memory.execute("SELECT max(seq) FROM slumberd_episode_log").fetchone()
            found = {id for (id,) in memory.execute(_IDS, (f"{day:03}-", f"{day:03}."))}
        written = {one.id for one in self.year.day(day) if one.id.startswith(f"{day:03}-")}
        if last != self._put or not written <= found:
            lost = sorted(written - found)[:5]
            raise BrokenPromise(f"{self._put} versions were put, {last} are there; lost: {lost}")
        return cost

    def _check_logs(self) -> None:
        sizes = [file.stat().st_size for file in self.home.state.glob("*-wal")]
        self._most_log_bytes = max(self._most_log_bytes, *sizes, 0)

    # a month

    def _end_month(self, month: int) -> None:
        """Measure, erase a user, make a backup, and begin a new log file."""
        day = (month + 1) * self.size.days_of_month - 1
        self._ask("fire", rules=["stated", "tastes", "trial", "nightly"])
        reference, firing, nightly = [], [], []
        for number in range(FIRINGS):
            self._put_many(self.year.measured(month, number))
            reference.append(reference_milliseconds())
            firing.append(self._cost_of_firing("stated"))
            nightly.append(self._cost_of_firing("nightly"))
            self._ask("fire", rules=["tastes", "trial"])
        (resident, anonymous), peak = self._memory_use(), self._status_of_process("VmHWM")
        files, threads = self._process_figures()
        status = 1_000 * min(self._call("status").processor for _ in range(3))
        self._end_process(signal.SIGTERM)
        start = min(self._restart(signal.SIGTERM, day) for _ in range(3))
        first = self._search(0, day)
        for number in self._searched():
            self._search(number, day)  # the first search of a user reads what the user has
        search = median(self._search(number, day) for number in self._searched())
        log_bytes, log_lines = self._rotate_log()
        self.months.append(
            Month(
                month=month + 1,
                put=self._put,
                reference=min(reference),
                firing=min(firing),
                nightly=min(nightly),
                nights=sum(self._night_costs) / max(1, len(self._night_costs)),
                search=search,
                first_search=first,
                start=start,
                status=status,
                resident=resident,
                anonymous=anonymous,
                peak=peak,
                open_files=files,
                threads=threads,
                files=self._file_sizes(),
                log_bytes=log_bytes,
                log_lines=log_lines,
                rows=self._rows(),
            )
        )
        self._night_costs.clear()
        self._show(self.months[-1])
        self._erase(month, day)
        self._back_up(month)

    def _searched(self) -> list[int]:
        step = max(1, self.size.users // SEARCHES)
        return list(range(0, self.size.users, step))[:SEARCHES]

    def _cost_of_firing(self, rule: str) -> float:
        before = processor_milliseconds(self._pid())
        self._ask("fire", rules=[rule])
        return processor_milliseconds(self._pid()) - before

    def _status_of_process(self, name: str) -> float:
        lines = Path(f"/proc/{self._pid()}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024

    def _memory_use(self) -> tuple[float, float]:
        return self._status_of_process("VmRSS"), self._status_of_process("RssAnon")

    def _process_figures(self) -> tuple[int, int]:
        """Return the number of open files and of threads."""
        process = Path(f"/proc/{self._pid()}")
        return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))

    def _file_sizes(self) -> dict[str, int]:
        sizes = {file.name: file.stat().st_size for file in self.home.state.iterdir()}
        for name in (
            "memory.db",
            "facts.db",
        ):  # with the pages that the write-ahead log still holds
            with self._reading(name) as connection:
                pages, of_page = (
                    connection.execute(f"PRAGMA {pragma}").fetchone()[0]
                    for pragma in ("page_count", "page_size")
                )
            sizes[name] = pages * of_page
        sizes["largest write-ahead log"], self._most_log_bytes = self._most_log_bytes, 0
        return dict(sorted(sizes.items()))

    def _rotate_log(self) -> tuple[int, int]:
        """Rename the log, as logrotate does; return its bytes and lines, and delete it."""
        old = self._log.with_name("slumberd.log.1")
        self._log.rename(old)
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)
        self._wait(self._log.exists)
        with old.open("rb") as log:
            lines = Counter(orjson.loads(line)["level"] for line in log)
        size = old.stat().st_size
        old.unlink()
        return size, lines.total()

    def _rows(self) -> dict[str, int]:
        found = {}
        for name in ("memory.db", "facts.db"):
            with self._reading(name) as connection:
                tables = [table for (table,) in connection.execute(_TABLES)]
                for table in tables:
                    (count,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
                    found[f"{name}: {table}"] = count
        return found

    def _erase(self, month: int, day: int) -> None:
        user = self.size.user(self.size.erased_number(month), day)
        self._clock.set(START + timedelta(days=day + 1, hours=3) + _ERASED_FIRST)
        self._call("forget", "--user", user, "--yes")
        self._erased.append(user)

    def _back_up(self, month: int) -> None:
        self._call("backup", self.home.folder / f"backup-{month}")
        with suppress(FileNotFoundError):
            shutil.rmtree(self.home.folder / f"backup-{month - 1}")

    # the end

    def _end(self) -> None:
        """Compare the facts with the oracle, and the ledger with itself.

        Raises:
            BrokenPromise: They differ, or a check of slumberd itself fails.
        """
        self._ask("fire", rules=["stated", "tastes", "trial", "nightly"])
        self.grown = self._grow_by_rounds()
        self._check_facts()
        found = subprocess.run(
            self._command("doctor", "--json"), capture_output=True, text=True, check=False
        )
        findings = orjson.loads(found.stdout)["findings"]
        if others := [one for one in findings if one["id"] != EXPECTED_FINDING]:
            raise BrokenPromise(f"the doctor finds {others[:5]}")
        self._end_process(signal.SIGTERM)
        self._call("audit", "verify")
        check_once_each(self.home.state / "facts.db")

    def _grow_by_rounds(self) -> Growth:
        """Make the same requests again and again; return what the daemon has more afterwards."""
        figures = []
        for _ in range(2):
            for number in range(ROUNDS):
                self._ask("fire", rules=["trial"])
                self._search(number % min(SEARCHES, self.size.users), self.size.days)
                self._ask("status")
            figures.append((self._memory_use()[1], *self._process_figures()))
        (memory, files, threads), (later, more_files, more_threads) = figures
        return Growth(later - memory, more_files - files, more_threads - threads)

    def _check_facts(self) -> None:
        size = self.size
        step = max(1, size.users // MOST_SAMPLED)
        current = {size.user(number, size.days) for number in range(0, size.users, step)}
        users = {*current, "trial"}
        expected = expected_facts(self.year, users, self._corrections, FIRINGS)
        found: dict[str, Any] = {}
        with self._reading("facts.db") as facts:
            for user in users:
                found |= {
                    fact_id: orjson.loads(payload).get("object")
                    for fact_id, payload in facts.execute(_FACTS, (user,))
                    if not fact_id.startswith(("@marks/", "@summaries/"))
                }
            left = {user for user in self._erased if facts.execute(_FACTS, (user,)).fetchone()}
        if left:
            raise BrokenPromise(f"facts of erased users are left: {sorted(left)}")
        if found != expected:
            differing = [
                (id, found.get(id), expected.get(id))
                for id in sorted(found.keys() | expected)
                if found.get(id) != expected.get(id)
            ]
            raise BrokenPromise(f"{len(differing)} facts differ: {differing[:5]}")


_IDS = "SELECT eid FROM slumberd_episode_log WHERE eid >= ? AND eid < ?"
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_FACTS = "SELECT fact_id, payload FROM facts WHERE user = ?"


def reference_milliseconds() -> float:
    """Return the processor time of a fixed work of this process, like that of a firing."""
    before = time.process_time()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, document BLOB, digest BLOB)")
        for number in range(REFERENCE_ROWS):
            document = orjson.dumps({"number": number, "text": f"word {number}" * 5})
            row = str(number * 7919 % REFERENCE_ROWS), document, sha256(document).digest()
            connection.execute("INSERT OR REPLACE INTO t VALUES (?, ?, ?)", row)
    return (time.process_time() - before) * 1e3


def processor_milliseconds(pid: int) -> float:
    """Return the processor time that a process has used, with all of its threads."""
    return time.clock_gettime(~pid << 3 | 2) * 1e3
