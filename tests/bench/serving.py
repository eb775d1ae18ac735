"""Bench: the running daemon: from a put to its fact, its event loop, its stop, and idle time."""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import orjson

from slumberd.daemon.control_socket import ask
from slumberd.model.errors import NotRunningError
from slumberd.model.scope import Scope
from slumberd.storage.episodes.rows import encode
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.bench.databases import Workshop
from tests.bench.hosting import POLL_SECONDS
from tests.bench.measuring import Line, Table, at_most, percentile
from tests.support.builders import triple
from tests.support.daemons import Home, resident_mebibytes

SECTION = "serve"
RULES = 1_000

PUTS_EACH, TRIALS_EACH = 60, 4
"""For each time that everything is measured."""

IDLE_SECONDS, STARTUP_SECONDS, PASS_SECONDS = 8.0, 12.0, 1.5
"""How long an idle daemon is measured, its time to start up, and the time before a stop."""

_FULL = 100_000
_LOOK_SECONDS = 0.000_5
_INSERT = "INSERT INTO episodes (id, scope_key, content, timestamp, metadata) VALUES (?,?,?,?,?)"
_FACT = "SELECT 1 FROM facts WHERE fact_id = ?"
_READ = "SELECT seq FROM slumberd_watermark"

Put = Callable[[str], None]


def measure(table: Table, shop: Workshop) -> None:
    """Measure puts of every kind, then a backlog, then an idle daemon."""
    share = min(1.0, shop.large / _FULL)  # to try it out takes seconds
    _measure_puts(table, shop, max(2, int(PUTS_EACH * share)) * shop.times)
    measure_gaps(table, shop)
    _measure_ends(table, shop, share)
    _measure_idle(table, shop, share)


def _measure_puts(table: Table, shop: Workshop, count: int) -> None:
    for name, way in {"plain SQL": put_by_sql, "the library": _by_library}.items():
        home = shop.home(shop.consolidated(shop.small), start="now")
        with open_daemon(home), way(home) as put:
            seconds = [put_to_fact(home, put, f"{name}-{number}") for number in range(count)]
        _add_puts(table, f"put by {name}", seconds, (50, 120))
    home = shop.home(shop.consolidated(shop.small), start="now")
    seconds = _hosted(home, "puts", str(count))
    _add_puts(table, "put in the daemon's process", seconds, (15, 120))


def _add_puts(table: Table, name: str, seconds: list[float], bounds: tuple[float, float]) -> None:
    values = [1e3 * second for second in seconds]
    median, rarest = bounds
    table.add(Line(SECTION, f"{name}, to its fact", "ms", values, bound=at_most(median)))
    rare = [percentile(values, 0.99)]
    table.add(Line(SECTION, f"{name}, 99 in 100", "ms", rare, bound=at_most(rarest)))


def put_to_fact(home: Home, put: Put, id: str) -> float:
    """Put an episode; return the seconds until its fact can be read."""
    time.sleep(random.uniform(0, POLL_SECONDS))
    began = time.monotonic()
    with closing(sqlite3.connect(home.state / "facts.db", isolation_level=None)) as facts:
        put(id)
        while facts.execute(_FACT, (id,)).fetchone() is None:
            time.sleep(_LOOK_SECONDS)
    return time.monotonic() - began


@contextmanager
def put_by_sql(home: Home) -> Iterator[Put]:
    """Yield what puts an episode with plain SQL."""
    with closing(sqlite3.connect(home.state / "memory.db", isolation_level=None)) as memory:

        def put(id: str) -> None:
            episode = triple(id, id, "is", "put")
            scope = Scope(episode.user, episode.session, episode.agent)
            memory.execute(_INSERT, encode(episode, scope, operation="put"))

        yield put


@contextmanager
def _by_library(home: Home) -> Iterator[Put]:
    with asyncio.Runner() as runner:
        memory = SQLiteMemoryStore(home.state / "memory.db")

        def put(id: str) -> None:
            episode = triple(id, id, "is", "put")
            scope = {"user": episode.user, "session": episode.session, "agent": episode.agent}
            runner.run(memory.put(episode, **scope))

        yield put
        runner.run(memory.close())


def _hosted(home: Home, sight: str, *words: str) -> list[float]:
    """Run a host of slumberd to its end; return its measurements."""
    ended = subprocess.run(_host(home, sight, *words), check=True, stdout=subprocess.PIPE)
    found: list[float] = orjson.loads(ended.stdout)
    return found


def _host(home: Home, sight: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "tests.bench.hosting", sight, str(home.config), *words]


@contextmanager
def open_daemon(home: Home) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon that is ready; stop it at the end of the block, and check that it stops."""
    with subprocess.Popen(home.command("run")) as process:
        _wait_until(lambda: _answers(home))
        yield process
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def _answers(home: Home) -> bool:
    with suppress(NotRunningError):
        return bool(ask(home.state, "status"))
    return False


def measure_gaps(table: Table, shop: Workshop) -> None:
    """Let a task wake each millisecond while a daemon catches up; once, for it takes a minute."""
    home = shop.home(shop.pending(shop.large))
    with subprocess.Popen(_host(home, "gaps"), stdout=subprocess.PIPE) as process:
        _wait_until(lambda: _read_upto(home) == shop.large)
        process.send_signal(signal.SIGTERM)
        gaps = orjson.loads(process.communicate()[0])
    name = f"{shop.large:,} episodes, longest gap"
    table.add(Line(SECTION, name, "ms", [1e3 * gaps["longest"]]))
    without = f"{name}, its own"
    table.add(Line(SECTION, without, "ms", [1e3 * gaps["own"]], bound=at_most(30)))
    shutil.rmtree(home.folder)


def _read_upto(home: Home) -> int:
    try:
        with closing(sqlite3.connect(f"file:{home.state}/facts.db?mode=ro", uri=True)) as facts:
            row = facts.execute(_READ).fetchone()
    except sqlite3.Error:  # it is not there yet
        return -1
    return row[0] if row else -1


def _wait_until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.05)


def _measure_ends(table: Table, shop: Workshop, share: float) -> None:
    """End passes in the middle of a batch, again and again; the worst of them counts."""
    home, trials = shop.home(shop.pending(shop.large)), TRIALS_EACH * shop.times
    took = [_stopped(home, PASS_SECONDS * share) for _ in range(trials)]
    stops, processor = [1e3 * wall for wall, _ in took], [computed for _, computed in took]
    table.add(Line(SECTION, "from SIGTERM to the end, in a pass", "ms", stops, processor))
    longest, computed = [max(stops)], [max(processor)]
    table.add(
        Line(
            SECTION,
            "the longest time from SIGTERM to the end",
            "ms",
            longest,
            computed,
            at_most(100),
        )
    )
    found = _hosted(home, "overdue", str(trials), str(PASS_SECONDS * share))
    overdue = [1e3 * seconds for seconds in found]
    table.add(Line(SECTION, "from a rule's timeout to its failure", "ms", overdue))
    name = "the longest time from a rule's timeout to its failure"
    table.add(Line(SECTION, name, "ms", [max(overdue)], bound=at_most(100)))
    shutil.rmtree(home.folder)


def _stopped(home: Home, about: float) -> tuple[float, float]:
    """Return how long a daemon took to end, and for how long of that it computed; seconds."""
    before = _processor_of_children()
    with open_daemon(home) as process:
        time.sleep(random.uniform(about / 2, about))
        lived = _processor_nanoseconds(process.pid) / 1e9
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait()
        return time.monotonic() - began, _processor_of_children() - before - lived


def _processor_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _measure_idle(table: Table, shop: Workshop, share: float) -> None:
    """Measure an idle daemon with many rules, half of them cron."""
    home = shop.home(shop.consolidated(shop.small), start="now")
    for number in range(RULES):
        of_cron = {"cron": f"{number % 60} {number % 24} * * *"}
        cadence = {"every": shop.large} if number % 2 else of_cron
        condition = f"predicate = 'p{number}'"
        home.rule(f"rule-{number}", cadence=cadence, start="now", when_filter=condition)
    with open_daemon(home) as process:
        time.sleep(STARTUP_SECONDS * share)
        shares = [busy_share(process.pid, IDLE_SECONDS * share) for _ in shop.turns()]
        resident = resident_mebibytes(process.pid)
    name = f"idle with {RULES:,} rules"
    table.add(Line(SECTION, f"{name}, of a core", "%", shares, bound=at_most(0.5)))
    bound = at_most(80 / 1.048576)
    table.add(Line(SECTION, f"{name}, peak memory", "MiB", [resident], bound=bound))


def busy_share(pid: int, seconds: float) -> float:
    """Return the share of a core, in hundredths, that a process takes for a while."""
    began, before = time.monotonic(), _processor_nanoseconds(pid)
    time.sleep(seconds)
    return (_processor_nanoseconds(pid) - before) / 1e7 / (time.monotonic() - began)


def _processor_nanoseconds(pid: int) -> int:
    # The clock ticks of /proc/PID/stat are too coarse for a daemon that does next to nothing.
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
