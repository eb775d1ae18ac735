"""A daemon that is killed repeatedly at random moments loses nothing and repeats nothing.

`TEST_LONG=1` kills it ten times as often.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import orjson
import pytest

from tests.support.corpora import differences, gold, lines, needs_corpora, slots_of
from tests.support.daemons import Home
from tests.support.scripted_histories import unlogged
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance

KILLS = 300 if os.environ.get("TEST_LONG") else 30
SET = "eol"
SEED = 20_261_121


def portions(folder: Path) -> list[Path]:
    """Split the episodes of the set into one import file for each kill."""
    episodes = lines(SET, "episodes")
    size = -(-len(episodes) // KILLS)
    files = []
    for start in range(0, len(episodes), size):
        file = folder / f"{start:06d}.jsonl"
        file.write_bytes(b"\n".join(map(orjson.dumps, episodes[start : start + size])))
        files.append(file)
    return files


def kill_after(daemon: ForkServerProcess, seconds: float) -> None:
    daemon.join(seconds)
    assert daemon.exitcode is None, "the daemon ended by itself"
    daemon.kill()
    daemon.join()


def check_ended_well(*writers: ForkServerProcess) -> None:
    for writer in writers:
        writer.join(PATIENCE_SECONDS)
        assert writer.exitcode == 0


@pytest.mark.nightly
@needs_corpora
def test_kills_lose_nothing_while_another_process_writes(tmp_path: Path) -> None:
    log = tmp_path / "deltas.log"
    home = Home(tmp_path, {"logging": {"format": "json", "file": str(log)}, "facts": {"batch": 97}})
    home.rule("all", cadence={"every": 5})
    moments = random.Random(SEED)

    writers: list[ForkServerProcess] = []
    for file in portions(tmp_path):
        daemon = home.forked("run")
        check_ended_well(*writers[-1:])  # the last may still run while a new daemon starts
        writers.append(home.forked("import", file))
        kill_after(daemon, moments.uniform(0, 0.4))
    check_ended_well(writers[-1])
    home.slumberd("fire", "all")

    assert differences(slots_of(home.facts()), gold(SET)) == []
    home.slumberd("audit", "verify")
    check_evaluated_once(home.state / "facts.db", len(lines(SET, "episodes")))
    assert unlogged(home.state / "facts.db", log) == []


def check_evaluated_once(path: Path, episodes: int) -> None:
    """Check that one ledger row evaluated each version of each episode."""
    with sqlite3.connect(path) as connection:
        evaluated = connection.execute(
            "SELECT fact_id, version FROM slumberd_ledger WHERE what <> 0"
        ).fetchall()
    assert len(evaluated) == episodes
    assert not [version for version, times in Counter(evaluated).items() if times > 1]
