"""A second daemon is refused; after another daemon has taken over, the first writes nothing.

The lock is on the directory. A second daemon reaches the same databases only through another
directory: a copy, another mount, or a configuration that names the same files. There only the
epoch stops the first daemon from writing.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from slumberd.daemon.tenure import holder_of
from tests.support.broken_disks import (
    Variant,
    backup,
    check_consolidated_once,
    content_of,
    episodes,
    put,
    stopped,
    wait_until_stopped,
)
from tests.support.daemons import Daemon, Home
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance

STOPS = """
import os, signal, threading

resumed = threading.Event()
signal.signal(signal.SIGCONT, lambda *_: resumed.set())

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
    resumed.wait()  # the signal may reach other threads first
"""
STOPS_BEFORE_ITS_COMMIT = f"""{STOPS}
from slumberd.storage.facts.apply import DeltaApplier

apply = DeltaApplier.apply

async def stopping(self, *given, **named):
    stop()
    return await apply(self, *given, **named)

DeltaApplier.apply = stopping
"""
STOPS_IN_ITS_COMMIT = f"""{STOPS}
from slumberd.storage.ledger.batch import Batch

write = Batch.write

def stopping(self, *given, **named):
    done = write(self, *given, **named)
    stop()
    return done

Batch.write = stopping
"""
WITHOUT_FENCE = """
from slumberd.storage.sqlite.engine import SQLiteFactEngine

SQLiteFactEngine._check_writer = lambda self, session: None
"""
LOCKS_A_FILE = """
import fcntl, os
from slumberd.daemon import tenure

def locked(directory):
    descriptor = os.open(directory / "slumberd.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise tenure.StateDirectoryLockedError(directory, "somebody") from error
    return os.open(directory, os.O_RDONLY)

tenure._lock = locked
"""


def home_of(folder: Path, fault: str = "", **settings: Any) -> Variant:
    """Return a home with one rule, which promotes every episode at once."""
    home = Variant(folder, settings, fault=fault)
    home.rule("all", cadence={"every": 1})
    return home


def pair(folder: Path, fault: str = "") -> tuple[Home, Home]:
    """Return two homes with state directories of their own, and the same databases."""
    first = home_of(folder / "first", fault)
    files: dict[str, Any] = {
        name: {"path": str(first.state / f"{name}.db")} for name in ("memory", "facts")
    }
    return first, home_of(folder / "second", **files)


def check_ended(daemon: Daemon, code: int, error: str) -> None:
    """Check that a daemon ends by itself, and logs why."""
    assert daemon.wait_for("daemon.failed")["error"] == error
    assert daemon.process.wait(PATIENCE_SECONDS) == code


@pytest.mark.path
def test_second_daemon_is_refused_while_the_first_is_stopped(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    put(home, episodes(0, 1))

    with home.daemon() as daemon:
        daemon.wait_until_read(1)
        with stopped(daemon):
            (home.state / "slumberd.pid").unlink()
            refused = home.slumberd("run", check=False)
        put(home, episodes(1, 1))
        daemon.wait_until_read(2)

    assert refused.returncode == 75
    assert "in use by another slumberd" in refused.stderr
    check_consolidated_once(home, ["e0", "e1"])


@pytest.mark.nightly
def test_lock_on_a_file_admits_a_second_daemon(tmp_path: Path) -> None:
    """The test above can fail: after a lock file is deleted, a second daemon locks a new one."""
    home = home_of(tmp_path, LOCKS_A_FILE)

    with home.started() as daemon:
        assert home.slumberd("run", check=False).returncode == 75
        with stopped(daemon):
            (home.state / "slumberd.lock").unlink()
            # The stopped daemon does not answer on its socket.
            (home.state / "control.sock").unlink()
            with home.started() as second:
                assert second.process.poll() is None


@pytest.mark.nightly
def test_daemon_stopped_during_a_takeover_writes_nothing_afterwards(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    facts = first.state / "facts.db"
    put(first, episodes(0, 1))

    with first.started() as stale:
        stale.wait_until_read(1)
        with stopped(stale):
            put(first, episodes(1, 2))
            with second.daemon() as daemon:
                daemon.wait_until_read(3)
            before = content_of(facts)
        check_ended(stale, 75, "StaleWriterError")

    assert content_of(facts) == before
    check_consolidated_once(first, ["e0", "e1", "e2"])


def take_over_before_a_commit(folder: Path, fault: str) -> tuple[Home, bool]:
    """Stop a daemon before its commit and let another take over; return whether the first wrote."""
    first, second = pair(folder, STOPS_BEFORE_ITS_COMMIT + fault)
    facts = first.state / "facts.db"

    with first.started() as stale:
        put(first, episodes(0, 3))
        wait_until_stopped(stale)
        with second.daemon() as daemon:
            daemon.wait_until_read(3)
        before = content_of(facts)
        stale.process.send_signal(signal.SIGCONT)
        if not fault:
            check_ended(stale, 75, "StaleWriterError")
        else:
            stale.wait_until_read(3)
    return first, content_of(facts) != before


def test_daemon_stopped_before_its_commit_does_not_commit_after_a_takeover(tmp_path: Path) -> None:
    home, wrote = take_over_before_a_commit(tmp_path, "")

    assert not wrote
    check_consolidated_once(home, ["e0", "e1", "e2"])


@pytest.mark.nightly
def test_daemon_without_the_fence_commits_after_a_takeover(tmp_path: Path) -> None:
    """The tests above can fail: only the epoch prevents that commit."""
    _, wrote = take_over_before_a_commit(tmp_path, WITHOUT_FENCE)

    assert wrote


@pytest.mark.nightly
def test_takeover_during_a_commit_is_refused(tmp_path: Path) -> None:
    first, second = pair(tmp_path, STOPS_IN_ITS_COMMIT)

    with first.started() as daemon:
        put(first, episodes(0, 3))
        wait_until_stopped(daemon)
        refused = second.slumberd("run", check=False)
        daemon.process.send_signal(signal.SIGCONT)
        daemon.wait_until_read(3)

    assert refused.returncode == 75
    assert "locked by another process" in refused.stderr
    check_consolidated_once(first, ["e0", "e1", "e2"])


@pytest.mark.slow
def test_replaced_state_directory_belongs_to_the_second_daemon(
    tmp_path: Path,
) -> None:
    home, aside = home_of(tmp_path), tmp_path / "aside"
    put(home, episodes(0, 1))

    with home.started() as stale:
        stale.wait_until_read(1)
        with stopped(stale):
            home.state.rename(aside)
            home.state.mkdir(0o750)
            for file in aside.glob("*.db"):
                backup(file, home.state / file.name)
            put(home, episodes(1, 1))
            with home.daemon() as second:
                second.wait_until_read(2)
                before = content_of(aside / "facts.db"), content_of(home.state / "facts.db")
                stale.process.send_signal(signal.SIGCONT)
                check_ended(stale, 75, "StoreReplacedError")
                after = content_of(aside / "facts.db"), content_of(home.state / "facts.db")
                assert holder_of(home.state) == f"pid {second.process.pid}"
                assert home.call("status").returncode == 0

    assert after == before
    check_consolidated_once(home, ["e0", "e1"])
