"""The daemon keeps its log complete with slow readers, the journal and log rotation."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from pathlib import Path

import pytest

from slumberd.model.episode import Episode
from tests.support.builders import triple
from tests.support.daemons import Daemon, Home
from tests.support.installation import jsonl
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.acceptance

EPISODES = 300


def _put(home: Home, *episodes: Episode) -> None:
    file = home.folder / "put.jsonl"
    file.write_bytes(jsonl(*episodes))
    home.call("import", file)


def _count_facts(home: Home) -> int:
    return len(home.call("facts", "--json", check=False).stdout.splitlines())


def test_daemon_consolidates_without_a_log_reader_and_logs_all_rows_later(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, {"facts": {"batch": 50}})
    home.rule("all", cadence={"every": 1})
    with subprocess.Popen(home.command("run"), stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        try:
            _put(home, *(triple(f"e{n}", "alice", f"p{n}", n) for n in range(EPISODES)))
            wait_until(lambda: _count_facts(home) == EPISODES)

            daemon = Daemon(process)
            rows = daemon.wait_for("logs.repeated")
            assert daemon.stop() == 0
            daemon.close()
        finally:
            process.kill()

    seqs = [event["seq"] for event in daemon.seen if event["event"] == "delta.applied"]
    assert rows["rows"] > 50
    assert len(seqs) == EPISODES
    assert seqs == sorted(set(seqs))


@pytest.mark.cases(1)
@pytest.mark.parametrize("ours", [True, False], ids=["journal", "another file"])
def test_lines_have_a_priority_when_standard_error_is_the_journal(
    tmp_path: Path, *, ours: bool
) -> None:
    home, file = Home(tmp_path), tmp_path / "stderr.log"
    home.rule("all", cadence={"every": 1})
    _put(home, triple("e1", "alice", "likes", "tea"))
    with file.open("wb") as stream:
        status = os.fstat(stream.fileno())
        journal = f"{status.st_dev}:{status.st_ino if ours else status.st_ino + 1}"
        env = {**os.environ, "JOURNAL_STREAM": journal}

        subprocess.run(
            home.command("fire", "all"),
            stderr=stream,
            env=env,
            check=True,
            timeout=PATIENCE_SECONDS,
        )

    lines = file.read_bytes().splitlines()
    assert lines
    assert all(line.startswith(b"<6>{" if ours else b"{") for line in lines)


@pytest.mark.nightly
def test_daemon_reopens_a_renamed_log_file_on_sighup(tmp_path: Path) -> None:
    home = Home(tmp_path, {"logging": {"format": "json", "file": "daemon.log"}})
    log, old = home.state / "daemon.log", home.state / "daemon.log.1"
    with subprocess.Popen(home.command("run")) as process:
        try:
            wait_until(lambda: log.exists() and b"daemon.ready" in log.read_bytes())
            log.rename(old)

            process.send_signal(signal.SIGHUP)

            wait_until(lambda: log.exists() and b"config.reloaded" in log.read_bytes())
        finally:
            process.terminate()
    assert b"daemon.ready" in old.read_bytes()
    assert b"daemon.stopped" in log.read_bytes()
    assert process.returncode == 0
