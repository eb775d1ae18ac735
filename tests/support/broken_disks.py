"""Helpers for tests of broken disks and stale daemons."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from slumberd.model.episode import Episode
from tests.support.builders import at, triple
from tests.support.daemons import Daemon, Home
from tests.support.waiting import wait_until


@dataclass
class Variant(Home):
    """A home whose daemon runs with a fault, which a script plants before slumberd begins.

    Attributes:
        fault: Python that plants it.
        within: The words of a command that runs another one, such as in a namespace.
    """

    fault: str = ""
    within: Sequence[str] = ()

    def command(self, *words: str | Path) -> list[str]:
        begin = "import sys\nfrom slumberd.cli import main\nmain(sys.argv[1:])\n"
        script = [str(self.python), "-c", f"{self.fault}\n{begin}"]
        return [*self.within, *script, *self.words(words)]


class Disk:
    """A small disk of its own, in a mount namespace that no other process sees.

    Attributes:
        within: The words that run a command in the namespace of the disk.
        seen: The disk, as this process sees it; no place for SQLite, which resolves the path.
    """

    def __init__(self, point: Path, *, size: str) -> None:
        point.mkdir(parents=True, exist_ok=True)
        mount = f"mount -t tmpfs -o size={size} none '{point}' && echo there && exec cat"
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount]
        self._holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"there\n"
        self.within = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--"]
        self._point = point
        self.seen = Path(f"/proc/{self._holder.pid}/root{point}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    def fill(self) -> None:
        """Fill the disk completely."""
        with (self.seen / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4096))

    def make_room(self) -> None:
        """Free the space that `fill` took."""
        (self.seen / "ballast").unlink()

    def mount_again(self, options: str) -> None:
        """Change the options of the mount, for example to ``ro``."""
        words = ["mount", "-o", f"remount,{options}", str(self._point)]
        subprocess.run([*self.within, *words], check=True)

    def copy_out(self) -> None:
        """Copy the files of the disk to the mount point, for commands outside of the namespace."""
        shutil.copytree(self.seen, self._point, dirs_exist_ok=True)


def no_disks() -> str:
    """Return why `Disk` does not work on this machine; empty when it works."""
    if os.geteuid() != 0:
        return "only root can mount a small disk"
    if missing := [tool for tool in ("unshare", "nsenter", "mount") if shutil.which(tool) is None]:
        return f"not here: {', '.join(missing)}"
    attempt = subprocess.run(["unshare", "--mount", "true"], capture_output=True)  # noqa: S607
    return attempt.stderr.decode().strip() if attempt.returncode else ""


@pytest.fixture(scope="session")
def small_disks() -> None:
    """Skip a test on a machine where `Disk` does not work."""
    if reason := no_disks():
        pytest.skip(reason)


def episodes(first: int, count: int) -> list[Episode]:
    """Return episodes with different triples: ``e3`` asserts that ``s3 is 3``."""
    return [triple(f"e{n}", f"s{n}", "is", n, timestamp=at(n)) for n in range(first, first + count)]


def put(home: Home, given: Sequence[Episode]) -> None:
    """Put episodes as another program does, in this process."""
    file = home.folder / "put.jsonl"
    file.write_text("".join(line.model_dump_json() + "\n" for line in given))
    home.call("import", file)


def wait_until_stopped(daemon: Daemon) -> None:
    _, status = os.waitpid(daemon.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"it ended: {daemon.seen[-5:]}"


@contextmanager
def stopped(daemon: Daemon) -> Iterator[None]:
    """Stop a daemon by SIGSTOP while the block runs."""
    daemon.process.send_signal(signal.SIGSTOP)
    wait_until_stopped(daemon)
    yield
    daemon.process.send_signal(signal.SIGCONT)


@contextmanager
def stopped_at_rest(daemon: Daemon, path: Path) -> Iterator[None]:
    """Stop a daemon by SIGSTOP while it reads nothing from a database, and go on after the block.

    A daemon that is stopped while it reads keeps the log of the database from being moved into it.
    """

    def is_at_rest() -> bool:
        daemon.process.send_signal(signal.SIGSTOP)
        wait_until_stopped(daemon)
        if checkpoint(path):
            return True
        daemon.process.send_signal(signal.SIGCONT)
        return False

    wait_until(is_at_rest)
    yield
    daemon.process.send_signal(signal.SIGCONT)


def checkpoint(path: Path) -> bool:
    """Move the whole log of a database into its file; return whether no reader was in the way."""
    with closing(sqlite3.connect(path, timeout=0.1, isolation_level=None)) as connection:
        # A reader of an empty log is in the way of later changes only, so there must be one.
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.execute(f"PRAGMA user_version = {version}")
        busy: int = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    return not busy


def content_of(path: Path) -> list[str]:
    """Return the content of a database as SQL statements."""
    with closing(sqlite3.connect(path)) as connection:
        return [*connection.iterdump()]


def evaluated_more_than_once(path: Path) -> list[tuple[str, int]]:
    """Return the versions of episodes that more than one row of the ledger gives as evaluated.

    A row of a restored fact has the version 0: it evaluates none, and a fact may return often.
    """
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT fact_id, version FROM slumberd_ledger WHERE version > 0"
        ).fetchall()
    return [version for version, times in Counter(rows).items() if times > 1]


def check_consolidated_once(home: Home, ids: Sequence[str]) -> None:
    """Check that every episode is a fact of one ledger row, and that the ledger verifies."""
    assert sorted(fact["id"] for fact in home.facts()) == sorted(ids)
    assert evaluated_more_than_once(home.state / "facts.db") == []
    home.call("audit", "verify")


def backup(source: Path, target: Path) -> None:
    """Copy a database that may be in use over an existing database, as `.restore` does."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Run the block as an ordinary user, because root may do everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)
