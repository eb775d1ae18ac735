"""Measure what an operator would feel: ``python -m tests.bench [EPISODES]``.

Every figure is of the real command as a whole process, on a fresh state directory. Prints one
table; judges nothing. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.builders import START
from tests.daemons import Home, processor_seconds, resident_mebibytes

EPISODES = 100_000
USERS = 1_000
REPEATED = 0.25
IDLE_SECONDS = 20.0
PUTS = 200


class Cost(NamedTuple):
    """What a process took."""

    wall_seconds: float
    processor_seconds: float
    resident_mebibytes: float


def episodes(count: int) -> Iterator[bytes]:
    """Yield episodes as JSON lines: ids at random, a quarter of the keys said before."""
    chance = random.Random(1)
    for number in range(count):
        again = chance.random() < REPEATED
        subject = f"thing {chance.randrange(number) if again and number else number}"
        yield orjson.dumps(
            {
                "id": uuid.UUID(int=chance.getrandbits(128)).hex,
                "content": f"Something was said about {subject}, and it was worth a sentence.",
                "timestamp": (START + timedelta(milliseconds=number)).isoformat(),
                "source_node": "chat",
                "agent": "agent",
                "user": f"user-{int(subject.split()[1]) % USERS}",
                "session": f"session-{number // 100}",
                "metadata": {"subject": subject, "predicate": "is", "object": f"value {number}"},
            }
        )


def run(words: list[str]) -> Cost:
    """Run a command to its end, and say what it took."""
    began = time.monotonic()
    with Path(os.devnull).open("wb") as nowhere:
        pid = os.posix_spawn(
            words[0],
            words,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)],
        )
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def idle_share(home: Home) -> float:
    """Return the part of a core that a daemon uses that has nothing to do."""
    with home.daemon() as daemon:
        before = processor_seconds(daemon.process.pid)
        time.sleep(IDLE_SECONDS)
        return (processor_seconds(daemon.process.pid) - before) / IDLE_SECONDS


def put_to_fact(home: Home) -> tuple[list[float], float]:
    """Return how long single inserts took to become facts, and the daemon's peak memory."""
    with home.daemon() as daemon, sqlite3.connect(home.state / "facts.db") as facts:
        with sqlite3.connect(home.state / "memory.db") as memory:
            waits = [_one_put(memory, facts, f"probe-{number}") for number in range(PUTS)]
        return waits, resident_mebibytes(daemon.process.pid)


def _one_put(memory: sqlite3.Connection, facts: sqlite3.Connection, id: str) -> float:
    content = {"content": "", "source_node": "", "agent": "a", "user": "probe", "session": "s"}
    row = (
        id,
        "/user/probe/session/s/agent/a/",
        orjson.dumps(content),
        START.isoformat(),
        orjson.dumps({"subject": id, "predicate": "is", "object": "here"}),
    )
    memory.execute("INSERT INTO episodes VALUES (?, ?, ?, ?, ?)", row)
    memory.commit()
    began = time.monotonic()
    while not facts.execute("SELECT 1 FROM facts WHERE fact_id = ?", [id]).fetchone():
        time.sleep(0.001)
    return time.monotonic() - began


def main(count: int) -> None:
    """Measure, and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), {"logging": {"format": "json", "file": "deltas.log"}})
        home.rule("all", cadence={"every": 1})
        source = home.folder / "episodes.jsonl"
        # Line by line: what we hold in memory would count as the peak of what we start.
        with source.open("wb") as file:
            file.writelines(line + b"\n" for line in episodes(count))
        imported = run(home.command("import", source))
        fired = run(home.command("fire", "all"))
        lines = (home.state / "deltas.log").read_bytes().count(b'"delta.applied"')
        home = Home(Path(folder))  # from here on the log goes to us
        share = idle_share(home)
        waits, resident = put_to_fact(home)
    for what, figure in (
        ("episodes", f"{count:,}"),
        ("import, episodes a second", f"{count / imported.wall_seconds:,.0f}"),
        ("fire, episodes a second", f"{count / fired.wall_seconds:,.0f}"),
        ("fire, processor microseconds each", f"{fired.processor_seconds / count * 1e6:.1f}"),
        ("fire, delta lines logged", f"{lines:,}"),
        ("fire, peak memory in MiB", f"{fired.resident_mebibytes:.0f}"),
        ("idle daemon, share of a core", f"{share:.2%}"),
        ("put to fact, p50 in ms", f"{percentile(waits, 0.5) * 1e3:.0f}"),
        ("put to fact, p99 in ms", f"{percentile(waits, 0.99) * 1e3:.0f}"),
        ("daemon, peak memory in MiB", f"{resident:.0f}"),
    ):
        print(f"{what:40} {figure:>12}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else EPISODES)
