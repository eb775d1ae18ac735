"""Bench: forgetting one user of 1,000, while another program writes episodes.

Each erasure rewrites both files, and the other program cannot write meanwhile.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.bench.databases import USERS, Workshop
from tests.bench.measuring import Cost, Line, Table
from tests.support.builders import START
from tests.support.daemons import Home

SECTION = "forget"

_PAGE = 4_096
_CHUNK = 256 * _PAGE

_PAUSE_SECONDS = 0.002
_INSERT = (
    "INSERT INTO episodes (id, scope_key, content, timestamp, metadata) VALUES (?, ?, ?, ?, ?)"
)


class Erasing(NamedTuple):
    """What an erasure cost.

    Attributes:
        cost: Its time.
        mebibytes: How much of the databases changed, in whole pages. The kernel's count of written
            bytes may be many times that: some file systems count larger units.
        longest_wait: Seconds of the slowest transaction of the other program.
    """

    cost: Cost
    mebibytes: float
    longest_wait: float


def measure(table: Table, shop: Workshop) -> None:
    """Forget two users, one after the other, in fresh copies of the databases."""
    count = 3 * shop.middle
    shop.consolidated(count)
    runs = [_measure_once(shop, count) for _ in shop.turns()]
    for place, name in enumerate(("the first", "a later one")):
        erasures = [erasures[place] for erasures in runs]
        what = f"1 user of {USERS:,}, {count:,} episodes, {name}"
        table.seconds(SECTION, what, [erasure.cost for erasure in erasures])
        written = [erasure.mebibytes for erasure in erasures]
        table.add(Line(SECTION, f"pages changed by {name}", "MiB", written))
        waits = [erasure.longest_wait for erasure in erasures]
        table.add(Line(SECTION, f"longest wait of a writer, {name}", "s", waits))


def _measure_once(shop: Workshop, count: int) -> Sequence[Erasing]:
    home, before = shop.home(shop.consolidated(count)), shop.folder / "before"
    erasures = []
    for user in ("user-7", "user-8"):
        shutil.rmtree(before, ignore_errors=True)
        shutil.copytree(home.state, before)
        os.sync()
        erasures.append(_erase(home, user, before))
    shutil.rmtree(before)
    shutil.rmtree(home.folder)
    return erasures


def _erase(home: Home, user: str, before: Path) -> Erasing:
    ended, waits = threading.Event(), [0.0]
    writer = threading.Thread(target=_write, args=(home.state / "memory.db", user, ended, waits))
    writer.start()
    began = time.monotonic()
    words = home.command("forget", "--user", user, "--yes")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    ended.set()
    writer.join()
    if process.returncode:
        raise SystemExit(f"forget ended with {process.returncode}")
    cost = Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
    return Erasing(cost, _changed(before, home.state) / 2**20, max(waits))


def _changed(before: Path, after: Path) -> int:
    """Return the bytes of all pages of both databases that differ."""
    changed = 0
    for name in ("memory.db", "facts.db"):
        with (before / name).open("rb") as old, (after / name).open("rb") as new:
            while now := new.read(_CHUNK):
                then = old.read(_CHUNK)
                if now != then:
                    starts = range(0, len(now), _PAGE)
                    changed += sum(now[at : at + _PAGE] != then[at : at + _PAGE] for at in starts)
    return changed * _PAGE


def _write(path: Path, user: str, ended: threading.Event, waits: list[float]) -> None:
    """Write episodes of another user, each in a transaction, until the erasure ends."""
    at = START.isoformat()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=300)) as host:
        while not ended.wait(_PAUSE_SECONDS):
            number = len(waits)
            scope = "/user/host/session/s/agent/a/"
            began = time.perf_counter()
            host.execute(_INSERT, (f"beside-{user}-{number}", scope, b"{}", at, b"{}"))
            waits.append(time.perf_counter() - began)
