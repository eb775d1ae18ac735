"""Helper processes read the snapshot of the process that forked them, and end with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.record import Break
from slumberd.storage.engine import Session
from slumberd.storage.sqlite.connection import LOCKED, connect
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.helpers import Helper, Opening, end_helpers, sharing, started_helpers
from slumberd.storage.sqlite.session import Pragmas, SQLiteSession, snapshot
from tests.support.example_ledgers import write_ledger_of_every_kind
from tests.support.sessions import connection_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

HELPERS = 2
PRAGMAS = Pragmas()

Scenario = Callable[[Path, Sequence[Helper]], Any]


def in_process(scenario: Scenario, path: Path) -> Any:
    """Return what a scenario returns in a new process, which has one thread before its helpers."""
    program = "import sys; from tests.storage.sqlite.test_helpers import main; main(*sys.argv[1:])"
    words = [sys.executable, "-c", program, scenario.__name__, str(path)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=120)
    return json.loads(done.stdout)


def main(name: str, path: str) -> None:
    """Run a scenario, and print its result."""
    with started_helpers(HELPERS) as helpers:
        sys.stdout.write(json.dumps(globals()[name](Path(path), helpers)))


def shares(path: Path, helpers: Sequence[Helper], works: Sequence[Callable[..., Any]]) -> list[Any]:
    """Return the results of works that all processes share."""
    opening = Opening(path, PRAGMAS, None, LOCKED)
    with (
        closing(connect(path, PRAGMAS, access="read", how=LOCKED)) as connection,
        snapshot(connection),
        sharing(connection, helpers, opening) as shared,
    ):
        session = SQLiteSession(connection, str(path), shared)
        return [session.processes, *session.share(works)]


def own_process(_: Session, place: int, meeting: Path) -> tuple[int, int]:
    """Return a place and this process; those at the first two places wait for each other."""
    if place < 2:
        os.close(os.open(meeting, (os.O_RDONLY, os.O_WRONLY)[place]))
    return place, os.getpid()


def counted_rows(session: Session) -> int:
    count: int = session.value("ledger.count_rows_before", {"seq": 2**62})
    return count


def failing(_: Session) -> int:
    raise ValueError


def share_many(path: Path, helpers: Sequence[Helper]) -> Any:
    meeting = path.with_name(f"meeting of {os.getpid()}")
    os.mkfifo(meeting)
    works = [partial(own_process, place=n, meeting=meeting) for n in range(300)]
    processes, *found = shares(path, helpers, works)
    places, pids = zip(*found, strict=True)
    known = {os.getpid(), *(helper.pid for helper in helpers)}
    return processes, list(places) == list(range(300)), set(pids) <= known, len(set(pids)) > 1


def test_results_come_in_order_from_several_processes(everything: Path) -> None:
    assert in_process(share_many, everything) == [1 + HELPERS, True, True, True]


def share_beside_a_writer(path: Path, helpers: Sequence[Helper]) -> Any:
    """Return how many different states of the ledger one sharing saw, of ten sharings."""
    stop = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as other:
            while not stop.is_set():
                other.execute("BEGIN IMMEDIATE")
                other.execute("INSERT INTO numbers SELECT count(*) FROM numbers")
                other.execute("COMMIT")

    with closing(sqlite3.connect(path, isolation_level=None)) as first:
        first.execute("CREATE TABLE numbers (n INTEGER) STRICT")
    writer = threading.Thread(target=write)
    writer.start()
    seen = [set(shares(path, helpers, [counted_numbers] * 9)[1:]) - {None} for _ in range(10)]
    stop.set()
    writer.join()
    return [len(states) for states in seen]


def counted_numbers(session: Session) -> int:
    found = connection_of(session).execute("SELECT count(*) FROM numbers")
    count: int = found.fetchone()[0]
    return count


def test_all_processes_read_one_snapshot_beside_a_busy_writer(
    everything: Path, tmp_path: Path
) -> None:
    path = tmp_path / "facts.db"
    path.write_bytes(everything.read_bytes())

    assert set(in_process(share_beside_a_writer, path)) <= {0, 1}


def share_a_failure(path: Path, helpers: Sequence[Helper]) -> Any:
    found = shares(path, helpers, [failing, counted_rows, failing, counted_rows])
    return [found[0], found[1], found[3]]


def test_failed_work_is_left_to_the_caller(everything: Path) -> None:
    assert in_process(share_a_failure, everything) == [1 + HELPERS, None, None]


def share_after_an_end(path: Path, helpers: Sequence[Helper]) -> Any:
    for helper in helpers:
        os.kill(helper.pid, signal.SIGKILL)
    return shares(path, helpers, [counted_rows])


def test_one_process_reads_alone_when_its_helpers_have_ended(everything: Path) -> None:
    processes, rows = in_process(share_after_an_end, everything)

    assert (processes, rows > 0) == (1, True)


def test_a_process_that_ignores_its_children_shares_too(everything: Path) -> None:
    program = (
        "import signal, sys; from tests.storage.sqlite.test_helpers import main;"
        " signal.signal(signal.SIGCHLD, signal.SIG_IGN); main(*sys.argv[1:])"
    )
    words = [sys.executable, "-c", program, "share_many", str(everything)]

    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=120)

    assert json.loads(done.stdout) == [1 + HELPERS, True, True, True]


ENDED = threading.Event()


def mark_and_wait(_: Session, folder: str) -> None:
    """Write a file in a helper, and wait for its end; in the other process wait for `ENDED`."""
    if threading.current_thread().name == "sharing":
        ENDED.wait()
    else:
        (Path(folder) / str(os.getpid())).touch()
        signal.pause()


def end_while_helpers_work(path: Path, helpers: Sequence[Helper]) -> Any:
    """Return the errors of the threads that wait for helpers when these are ended."""
    errors: list[str] = []
    threading.excepthook = lambda found: errors.append(repr(found.exc_value))
    works = [partial(mark_and_wait, folder=str(path.parent))] * (1 + HELPERS)
    sharer = threading.Thread(target=lambda: shares(path, helpers, works), name="sharing")
    sharer.start()
    wait_until(lambda: all((path.parent / str(helper.pid)).exists() for helper in helpers))
    end_helpers(helpers)
    ENDED.set()
    sharer.join()
    return errors


def test_threads_end_without_an_error_when_their_helpers_are_ended(
    everything: Path, tmp_path: Path
) -> None:
    path = tmp_path / "facts.db"
    path.write_bytes(everything.read_bytes())

    assert in_process(end_while_helpers_work, path) == []


def verify_twice(path: Path, helpers: Sequence[Helper]) -> Any:
    async def verify() -> list[Any]:
        async with (
            SQLiteFactStore(path, traceless=True) as alone,
            SQLiteFactStore(path, traceless=True, helpers=helpers) as together,
        ):
            return [await store.verify() for store in (alone, together, together)]

    return asyncio.run(verify())


@pytest.mark.parametrize("column", [None, "payload", "chain"])
def test_helpers_verify_a_file_as_one_process_does(
    everything: Path, tmp_path: Path, column: str | None
) -> None:
    path = tmp_path / "facts.db"
    path.write_bytes(everything.read_bytes())
    if column is not None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            sql = f"UPDATE slumberd_ledger SET {column} = zeroblob(32) WHERE seq = 9"
            connection.execute(sql)

    alone, together, again = in_process(verify_twice, path)

    assert together == again == alone
    assert (alone[2] is None) == (column is None)
    assert column is None or Break(*alone[2]).seq == 9


KEY = bytes(range(32))


def verify_with_a_key(path: Path, helpers: Sequence[Helper]) -> Any:
    async def verify() -> Any:
        async with SQLiteFactStore(path, traceless=True, helpers=helpers, key=KEY) as store:
            return await store.verify()

    return asyncio.run(verify())


def test_helpers_verify_a_chain_with_a_key(tmp_path: Path) -> None:
    path = tmp_path / "facts.db"
    asyncio.run(write_ledger_of_every_kind(path, KEY))

    assert in_process(verify_with_a_key, path)[2] is None


WITHOUT_FORKS = """
import os, resource
from slumberd.storage.sqlite.helpers import started_helpers
if os.getuid() == 0:
    os.setuid(65534)  # the limit does not hold for root
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
with started_helpers(2) as helpers:
    print(len(helpers))
"""


def test_there_is_no_helper_where_the_system_cannot_fork() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_FORKS], stdout=subprocess.PIPE, check=True)

    assert done.stdout == b"0\n"


def print_helpers_and_wait(_: Path, helpers: Sequence[Helper]) -> Any:
    sys.stdout.write(json.dumps([helper.pid for helper in helpers]) + "\n")
    sys.stdout.flush()
    # A signal that comes just before a wait without an end does not end that wait.
    while not ENDED.wait(timeout=0.1):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_helpers_end_with_the_process_that_forked_them(number: int, everything: Path) -> None:
    program = "import sys; from tests.storage.sqlite.test_helpers import main; main(*sys.argv[1:])"
    words = [sys.executable, "-c", program, "print_helpers_and_wait", str(everything)]
    # A shell starts what it runs in the background with SIGINT ignored.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=heed
    ) as process:
        assert process.stdout is not None
        pids = json.loads(process.stdout.readline())
        process.send_signal(number)

    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_no_helper_is_forked_beside_another_thread() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with started_helpers(HELPERS) as helpers:
            assert not helpers
    finally:
        stop.set()
        thread.join()
