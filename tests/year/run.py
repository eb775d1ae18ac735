"""Run a simulated year through a real daemon, and measure it at the end of each month.

Another process puts the episodes of each day. The daemon's clock is set to the evening, and to the
next morning, when the nightly rule fires. Between them people correct, undo, search and erase;
the clock is wrong for some days, and the daemon is stopped or killed three times a week.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import orjson

from slumberd.model.episode import Episode, microseconds
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.soak.checks import BrokenPromise, check_once_each
from tests.support.daemons import Home
from tests.year.clocked_daemon import ClockedDaemon
from tests.year.stream import AGENT, KEYS, MULTI, START, Correction, Size, Year, expected_facts

RESTARTS = {1: signal.SIGTERM, 3: signal.SIGTERM, 4: signal.SIGKILL}
"""The days of a week on which the daemon is restarted, and how it ends."""

RULES = ["stated", "tastes", "trial", "nightly"]
FIRINGS = 5
"""Measured firings of each rule at the end of a month."""

SEARCHES = 20
"""Searches of each measurement."""

CORRECTIONS = 3
MOST_SAMPLED = 40
"""Users whose facts are compared with the oracle."""

EXPECTED_FINDING = "claims.unreached"
"""Some people retract what nobody has said."""

_WRONG_PERIOD = 45
"""Days from one wrong clock to the next one of its kind."""

_MORNING, _EVENING = timedelta(hours=3), timedelta(hours=23)


@dataclass
class Month:
    """What was measured at the end of a month. Times are milliseconds of processor time.

    Attributes:
        month: Its number, from 1.
        put: Versions of episodes that were put until then.
        firing: Of a firing with new claims.
        nightly: Of a firing of the rule with stages, with the same claims.
        nights: Of the nightly firings of the month, on average.
        search: Of a search, the median of users who have as many months of episodes as there are.
        first_search: Of the first search after a start.
        start: Of a start, until the daemon is ready.
        status: Of the command `status`.
        resident: Memory in MiB.
        anonymous: Memory in MiB, without files.
        peak: The most memory since the last start, in MiB.
        files: Bytes of each file of the state directory, and of the month's largest write-ahead
            log.
        log_bytes: Bytes of the log file of this month.
        log_lines: Lines of it.
        rows: Rows of each table.
    """

    month: int
    put: int
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
    rows: dict[str, int]


class Growth(NamedTuple):
    """What a daemon has more after the same requests as before.

    Attributes:
        mebibytes: Memory without files.
    """

    mebibytes: float
    open_files: int
    threads: int


MEMORY = "memory of the daemon without the indexes of search"
"""In MiB, without files, after all other work that is compared.

The indexes hold the texts of users, up to a limit of their own.
"""

Pairs = dict[str, tuple[float, float]]
"""What a daemon needs above the first month's data, and above the last one's, by what it does."""


class YearRun:
    """Runs a year.

    Attributes:
        months: What was measured so far.
        grown: What the daemon has more after further requests, at the end of the year.
        compared: Two daemons on the data of the first month and of the last one, in turns: other
            programs disturb both alike.

    Args:
        folder: An empty directory, for all files.
        size: How large the year is.
        rounds: So many further rounds of equal requests are measured at the end.
        turns: So often two daemons are compared at the end.
        show: Called after each month.
    """

    def __init__(
        self,
        folder: Path,
        size: Size,
        *,
        rounds: int = 200,
        turns: int = 7,
        show: Callable[[Month], object] = lambda _: None,
    ) -> None:
        self.size = size
        self.year = Year(size)
        self.months: list[Month] = []
        self.grown = Growth(0, 0, 0)
        self.compared: Pairs = {}
        self.home = make_home(folder, size)
        self.daemon = ClockedDaemon(self.home)
        self._folder = folder
        self._rounds = rounds
        self._turns = turns
        self._show = show
        self._runner = asyncio.Runner()
        self._memory = SQLiteMemoryStore(self.home.state / "memory.db")
        self._put = 0
        self._corrections: list[Correction] = []
        self._erased: list[str] = []
        self._night_costs: list[float] = []
        self._most_log_bytes = 0

    def run(self) -> list[Month]:
        """Live the year, check what is left of it, and return its months.

        Raises:
            BrokenPromise: A promise is broken.
        """
        try:
            self.daemon.clock.set(START)
            self._runner.run(self._memory.bootstrap())
            self.daemon.start()
            for day in range(self.size.days):
                self._live(day)
                if (day + 1) % self.size.days_of_month == 0:
                    self._end_month(day // self.size.days_of_month)
            self._end()
        finally:
            self.daemon.close()
            self._runner.run(self._memory.close())
            self._runner.close()
        return self.months

    # a day

    def _live(self, day: int) -> None:
        begin, episodes = START + timedelta(days=day), self.year.day(day)
        morning, evening = episodes[: len(episodes) // 2], episodes[len(episodes) // 2 :]
        period = min(_WRONG_PERIOD, self.size.days)
        if day % period == period // 3:
            self._put_under_wrong_clock(begin + timedelta(days=1, hours=1), morning)
            self.daemon.clock.set(begin + _EVENING)
            self.daemon.call("clock", "accept", "--yes", "--reason", "simulated")
        elif day % period == 2 * (period // 3):
            self._put_under_wrong_clock(begin - timedelta(hours=2), morning)
        else:
            self._put_many(morning)
        self.daemon.clock.set(begin + _EVENING)
        self._put_many(evening)
        if how := RESTARTS.get(day % 7):
            self._restart(how, day)
        self._wait_for_rules()
        self._note_log_sizes()
        if self.year.is_trial_day(day):
            self._try_and_undo(day)
            self._correct(day)
        self.daemon.search(self._user(self.size.chance("search", day).random(), day))
        self._sleep(day)

    def _put_under_wrong_clock(self, wrong: datetime, episodes: list[Episode]) -> None:
        self.daemon.clock.set(wrong)
        self._put_many(episodes)
        self._wait_for_rules()

    def _put_many(self, episodes: list[Episode]) -> None:
        self._runner.run(self._memory.put_many(episodes))
        self._put += len(episodes)

    def _wait_for_rules(self) -> None:
        """Wait until fewer rows are pending than make a rule due."""

        def are_few() -> bool:
            marks = watermarks(self.daemon)
            pending = [self._put - marks.get(rule, (0, 0))[0] for rule in ("stated", "tastes")]
            return pending[0] < every(self.size) and pending[1] < 2 * every(self.size)

        self.daemon.wait(are_few)

    def _restart(self, how: signal.Signals, day: int) -> float:
        """End the daemon, often in the middle of a batch; start it, and look for lost episodes."""
        self.daemon.end(how)
        cost = self.daemon.start()
        with self.daemon.reading("memory.db") as memory:
            (last,) = memory.execute("SELECT max(seq) FROM slumberd_episode_log").fetchone()
            found = {id for (id,) in memory.execute(_IDS, (f"{day:03}-", f"{day:03}."))}
        written = {one.id for one in self.year.day(day) if one.id.startswith(f"{day:03}-")}
        if last != self._put or not written <= found:
            lost = sorted(written - found)[:5]
            raise BrokenPromise(f"{self._put} versions were put, {last} are there; lost: {lost}")
        return cost

    def _note_log_sizes(self) -> None:
        sizes = [file.stat().st_size for file in self.home.state.glob("*-wal")]
        self._most_log_bytes = max(self._most_log_bytes, *sizes, 0)

    def _user(self, share: float, day: int) -> str:
        return self.size.user(int(share * self.size.users), day)

    def _try_and_undo(self, day: int) -> None:
        """Fire a rule of few episodes, and undo it on some days."""
        self._put_many(self.year.trial(day))
        fired = self.daemon.ask("fire", rules=["trial"])
        if self.year.trial_is_undone(day):
            self.daemon.ask("undo", run=fired["run"], reason="simulated")

    def _correct(self, day: int) -> None:
        chance = self.size.chance("correct", day)
        for number in range(CORRECTIONS):
            user, predicate = self._user(chance.random(), day), f"p{chance.randrange(KEYS)}"
            id, value = f"corrected-{day:03}-{number}", f"corrected on day {day}"
            at = microseconds(self.daemon.clock.now())
            self.daemon.ask(
                "pin", user=user, agent=AGENT, subject=user, predicate=predicate, object=value,
                id=id, reason="simulated",
            )  # fmt: skip
            self._corrections.append(Correction(id, user, predicate, value, at))

    def _sleep(self, day: int) -> None:
        """Set the clock to the next morning, and wait until the night's rule has fired."""
        morning, before = START + timedelta(days=day + 1) + _MORNING, self.daemon.milliseconds()
        self.daemon.clock.set(morning)
        self.daemon.wait(lambda: watermarks(self.daemon)["nightly"][1] >= microseconds(morning))
        self._night_costs.append(self.daemon.milliseconds() - before)

    # a month

    def _end_month(self, month: int) -> None:
        """Measure, erase a user, make a backup, and begin a new log file."""
        day = (month + 1) * self.size.days_of_month - 1
        self.daemon.ask("fire", rules=RULES)
        costs = [self._measure_firings(day, number) for number in range(FIRINGS)]
        use = self.daemon.use()
        status = 1e3 * self.daemon.call("status").processor
        start = self._restart(signal.SIGTERM, day)
        first = self.daemon.search(self._user(0, day))
        search = median(search_costs(self.daemon, some_users(self.size, day)))
        log_bytes, log_lines = self._read_old_log()
        found = Month(
            month=month + 1,
            put=self._put,
            firing=min(firing for firing, _ in costs),
            nightly=min(nightly for _, nightly in costs),
            nights=sum(self._night_costs) / len(self._night_costs),
            search=search,
            first_search=first,
            start=start,
            status=status,
            files=self._file_sizes(),
            log_bytes=log_bytes,
            log_lines=log_lines,
            rows=self._count_rows(),
            **use._asdict(),
        )
        self.months.append(found)
        self._night_costs.clear()
        self._show(found)
        self._erase(month, day)
        self._back_up(month)

    def _measure_firings(self, day: int, number: int) -> tuple[float, float]:
        self._put_many(self.year.measured(day, number))
        firing = self.daemon.cost_of("fire", rules=["stated"])
        nightly = self.daemon.cost_of("fire", rules=["nightly"])
        self.daemon.ask("fire", rules=["tastes", "trial"])
        return firing, nightly

    def _file_sizes(self) -> dict[str, int]:
        sizes = {file.name: _size_of(file) for file in self.home.state.iterdir()}
        # The write-ahead log may still hold pages of a database.
        for name in ("memory.db", "facts.db"):
            with self.daemon.reading(name) as connection:
                pages, of_page = (
                    connection.execute(f"PRAGMA {pragma}").fetchone()[0]
                    for pragma in ("page_count", "page_size")
                )
            sizes[name] = pages * of_page
        sizes["largest write-ahead log"], self._most_log_bytes = self._most_log_bytes, 0
        return dict(sorted(sizes.items()))

    def _read_old_log(self) -> tuple[int, int]:
        """Begin a new log file; return the bytes and lines of the old one, and delete it."""
        old = self.daemon.rotate_log()
        with old.open("rb") as log:
            lines = sum(1 for line in log if orjson.loads(line))
        size = old.stat().st_size
        old.unlink()
        return size, lines

    def _count_rows(self) -> dict[str, int]:
        found = {}
        for name in ("memory.db", "facts.db"):
            with self.daemon.reading(name) as connection:
                for (table,) in connection.execute(_TABLES).fetchall():
                    (count,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
                    found[f"{name}: {table}"] = count
        return found

    def _erase(self, month: int, day: int) -> None:
        user = self.size.user(self.size.erased_number(month), day)
        self.daemon.clock.set(START + timedelta(days=day + 1, hours=4))
        self.daemon.call("forget", "--user", user, "--yes")
        self._erased.append(user)

    def _back_up(self, month: int) -> None:
        """Make a backup; keep it and that of the first month."""
        self.daemon.call("backup", self._folder / f"backup-{month}")
        if month > 1:
            shutil.rmtree(self._folder / f"backup-{month - 1}")

    # the end

    def _end(self) -> None:
        """Compare the facts with the oracle, the ledger with itself, and the months in turns.

        Raises:
            BrokenPromise: They differ, or a check of slumberd itself fails.
        """
        self.daemon.ask("fire", rules=RULES)
        self.grown = self._grow_by_rounds()
        self._check_facts()
        found = subprocess.run(
            self.daemon.command("doctor", "--json"), capture_output=True, text=True, check=False
        )
        findings = orjson.loads(found.stdout)["findings"]
        if others := [one for one in findings if one["id"] != EXPECTED_FINDING]:
            raise BrokenPromise(f"the doctor finds {others[:5]}")
        self.daemon.end()
        self.daemon.call("audit", "verify")
        check_once_each(self.home.state / "facts.db")
        self.compared = compare(self._folder, self.size, self._turns)

    def _grow_by_rounds(self) -> Growth:
        """Make the same requests again and again; return what the daemon has more afterwards."""
        figures = []
        for _ in range(2):
            for number in range(self._rounds):
                self.daemon.ask("fire", rules=["trial"])
                place = number % min(SEARCHES, self.size.users)
                self.daemon.search(self.size.user(place, self.size.days))
                self.daemon.ask("status")
            figures.append(self.daemon.use())
        before, after = figures
        return Growth(
            after.anonymous - before.anonymous,
            after.open_files - before.open_files,
            after.threads - before.threads,
        )

    def _check_facts(self) -> None:
        size, found = self.size, dict[str, Any]()
        step = max(1, size.users // MOST_SAMPLED)
        users = {size.user(number, size.days) for number in range(0, size.users, step)} | {"trial"}
        expected = expected_facts(self.year, users, self._corrections, FIRINGS)
        with self.daemon.reading("facts.db") as facts:
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


def every(size: Size) -> int:
    """Return how many rows make the rule `stated` due; measured firings never reach it."""
    return max(size.daily // 4, 2 * size.new * FIRINGS)


def make_home(folder: Path, size: Size) -> Home:
    """Return a home with the rules and settings of a year."""
    purged_after = f"{round(size.age(10).total_seconds())}s"
    half_life = f"{round(size.age(3).total_seconds())}s"
    settings: dict[str, Any] = {
        "logging": {"format": "json", "file": "slumberd.log"},
        # Facts name few older episodes, so what is replaced is soon deleted.
        "facts": {"lineage_depth": 2},
        "retention": {"purge_archived_after": purged_after},
        # Of few users, one is many.
        "limits": {"max_deletes": None, "alarm_fraction": None},
    }
    home, claims = Home(folder, settings), f"subject IS NOT NULL AND agent = '{AGENT}'"
    home.rule("stated", cadence={"every": every(size)}, when_filter=claims)
    home.rule(
        "tastes", cadence={"every": 2 * every(size)}, then_emits=["tastes"],
        when_filter=f"{claims} AND predicate = 'likes'",
    )  # fmt: skip
    # The expression matches on 29 February only: this rule fires when a person says so.
    home.rule(
        "trial", cadence={"cron": "0 0 29 2 *"}, when_filter="agent = 'trial'",
        then_emits=["trial"],
    )  # fmt: skip
    home.rule(
        "nightly", cadence={"cron": "0 3 * * *"}, then_emits=[],
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
    return home


def watermarks(daemon: ClockedDaemon) -> dict[str, tuple[int, int]]:
    """Return the number of the last row that each rule has read, and its served instant."""
    with daemon.reading("facts.db") as facts:
        rows = facts.execute("SELECT rule, seq, served FROM slumberd_watermark")
        return {rule: (seq, served) for rule, seq, served in rows}


def _size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a directory."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def some_users(size: Size, day: int) -> list[str]:
    """Return some of the users of a day."""
    step = max(1, size.users // SEARCHES)
    return [size.user(number, day) for number in range(0, size.users, step)][:SEARCHES]


def search_costs(daemon: ClockedDaemon, users: Sequence[str]) -> list[float]:
    """Return what searches for some users cost, for whom was searched before."""
    for user in users:
        daemon.search(user)  # the first search of a user reads what the user has
    return [daemon.search(user) for user in users]


class Side:
    """A daemon on the copy of a backup, on the morning after a day.

    Args:
        folder: For its files.
        backup: What it starts from.
        day: The day of the backup, from 0.
    """

    def __init__(self, folder: Path, backup: Path, size: Size, day: int) -> None:
        self._year, self._day = Year(size), day
        # On the last day this user has been there for a month, as all users on the first one.
        self._user = size.user(size.erased_number(size.months - 2), day)
        self._users = some_users(size, day)
        home = make_home(folder, size)
        shutil.copytree(backup, home.state)
        self._daemon = ClockedDaemon(home)
        self._daemon.clock.set(START + timedelta(days=day + 1, hours=5))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the daemon for the block."""
        try:
            self._daemon.start()
            self._daemon.ask("fire", rules=RULES)
            yield
            self._daemon.end()
        finally:
            self._daemon.close()

    def measure(self, turn: int) -> dict[str, float]:
        """Return what each kind of work costs, and the memory afterwards."""
        daemon = self._daemon
        daemon.end()
        start = daemon.start()
        # The first firing after a start reads pages that later ones find in memory.
        costs = [self._measure_firing(2 * turn + number) for number in range(2)]
        found = {
            "a start": start,
            "a firing with new claims": min(firing for firing, _ in costs),
            "the nightly rule with the same claims": min(nightly for _, nightly in costs),
            "a search for a user of one month": min(search_costs(daemon, [self._user] * SEARCHES)),
            "the command `status`": 1e3 * daemon.call("status").processor,
        }
        daemon.ask("fire", rules=["tastes", "trial"])
        for user in self._users:
            daemon.search(user)
        indexes = daemon.ask("status")["search_indexes"]["bytes"]
        return {**found, MEMORY: daemon.use().anonymous - indexes / 2**20}

    def _measure_firing(self, number: int) -> tuple[float, float]:
        asyncio.run(self._put(self._year.measured(self._day, number)))
        firing = self._daemon.cost_of("fire", rules=["stated"])
        return firing, self._daemon.cost_of("fire", rules=["nightly"])

    async def _put(self, episodes: list[Episode]) -> None:
        async with SQLiteMemoryStore(self._daemon.home.state / "memory.db") as memory:
            await memory.put_many(episodes)


def compare(folder: Path, size: Size, times: int) -> Pairs:
    """Return the least cost of each kind of work on the first and on the last backup."""
    first = Side(folder / "first", folder / "backup-0", size, size.days_of_month)
    last = Side(folder / "last", folder / f"backup-{size.months - 1}", size, size.days)
    with first.running(), last.running():
        turns = [(first.measure(turn), last.measure(turn)) for turn in range(times)]
    return {
        name: (min(one[name] for one, _ in turns), min(two[name] for _, two in turns))
        for name in turns[0][0]
    }


_IDS = "SELECT eid FROM slumberd_episode_log WHERE eid >= ? AND eid < ?"
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_FACTS = "SELECT fact_id, payload FROM facts WHERE user = ?"
