"""Many threads and processes write and search one file of records, and some are killed."""

from __future__ import annotations

import gc
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_stack
from typing import Any

import pytest

from slumberd.client import portal
from slumberd.contract import EpisodeMemoryStore, MemoryRecord
from slumberd.model.errors import SchemaError, StoreClosedError
from tests.support.record_stores import ask, ids, record
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration

THREADS = 16

WRITER = """
import json, sys
from slumberd.contract import EpisodeMemoryStore, MemoryWriteRecord

path, name, count, shared = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = EpisodeMemoryStore(path)
for number in range(count):
    batch = [MemoryWriteRecord(content="tea", item_id=f"{name}-{number}")]
    if shared:
        batch.append(MemoryWriteRecord(content=f"tea {name}", item_id=f"shared-{number % shared}"))
    written = [record.to_dict() for record in store.write(batch)]
    print(json.dumps(written), flush=True)
"""
"""Writes batches, and prints each one after it was acknowledged."""


@contextmanager
def writer(path: Path, name: str, count: int, shared: int = 0) -> Iterator[subprocess.Popen[str]]:
    """Start a process that writes `count` batches, each with a record of a shared id."""
    words = [sys.executable, "-c", WRITER, str(path), name, str(count), str(shared)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process: subprocess.Popen[str]) -> list[dict[str, str]]:
    """Return the records that a process printed, once it has ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    # `communicate` would lose what `readline` has read ahead.
    printed, errors = process.stdout.read(), process.stderr.read()
    process.wait(PATIENCE_SECONDS)
    assert errors == ""
    whole = printed[: printed.rfind("\n") + 1].splitlines()
    return [written for line in whole for written in json.loads(line)]


def contents(store: EpisodeMemoryStore) -> dict[str, MemoryRecord]:
    return {one.item_id: one for one in store.search(ask("tea", top_k=10_000))}


def check_one_creation_each(written: list[MemoryRecord]) -> None:
    """Check that each id was created once, and that each of its updates is later than before."""
    created, updated = defaultdict(set), defaultdict(list)
    for one in written:
        created[one.item_id].add(one.created_at)
        updated[one.item_id].append(one.updated_at)
    assert all(len(instants) == 1 for instants in created.values())
    assert all(len(instants) == len({*instants}) for instants in updated.values())


@pytest.mark.nightly
def test_threads_write_and_search_at_the_same_time(tmp_path: Path) -> None:
    start = threading.Barrier(THREADS)

    def work(number: int) -> list[MemoryRecord]:
        written = []
        start.wait(PATIENCE_SECONDS)
        for part in range(10):
            batch = [record("tea", f"{number}-{part}"), record("tea", f"shared-{part}")]
            written += store.write(batch)
            assert f"{number}-{part}" in contents(store)
        return written

    with EpisodeMemoryStore(tmp_path / "memory.db") as store, ThreadPoolExecutor(THREADS) as pool:
        written = [one for some in pool.map(work, range(THREADS)) for one in some]

        assert contents(store).keys() == {one.item_id for one in written}
    assert len(written) == 2 * 10 * THREADS
    check_one_creation_each(written)


@pytest.mark.slow
def test_batches_of_threads_are_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    finished = threading.Event()

    def write(name: str) -> None:
        for number in range(15):
            store.write([record("tea", f"{name}-{number}-{part}") for part in range(10)])

    def read() -> set[int]:
        found = set()
        while not finished.is_set():
            found.add(len(contents(store)) % 10)
        return found

    with EpisodeMemoryStore(tmp_path / "memory.db") as store, ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for done in [pool.submit(write, name) for name in "abcd"]:
            done.result()
        finished.set()

        assert [reader.result() for reader in readers] == [{0}, {0}]


@pytest.mark.slow
def test_two_processes_write_the_same_ids(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with EpisodeMemoryStore(path) as store:
        with writer(path, "a", 60, shared=7) as one, writer(path, "b", 60, shared=7) as other:
            written = [MemoryRecord(**fields) for fields in acknowledged(one)]  # type: ignore[arg-type]
            written += [MemoryRecord(**fields) for fields in acknowledged(other)]  # type: ignore[arg-type]

        assert len(written) == 240
        found = contents(store)
    check_one_creation_each(written)
    assert found.keys() == {one.item_id for one in written}
    newest = max(written, key=lambda one: (one.item_id == "shared-0", one.updated_at))
    assert (found["shared-0"].content, found["shared-0"].updated_at) == (
        newest.content,
        newest.updated_at,
    )


@pytest.mark.slow
def test_next_search_sees_what_another_store_wrote(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with EpisodeMemoryStore(path) as ours, EpisodeMemoryStore(path) as theirs:
        for number in range(20):
            theirs.write([record("tea", "a"), record("tea", f"n{number}")])
            assert len(contents(ours)) == number + 2

            ours.write([record("milk", "a")])
            assert len(contents(theirs)) == number + 1


@pytest.mark.slow
def test_acknowledged_records_survive_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with writer(path, "a", 100_000, shared=3) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(50)]
        os.kill(process.pid, signal.SIGKILL)
        seen = [written for line in first for written in json.loads(line)] + acknowledged(process)

    with EpisodeMemoryStore(path) as store:
        found = contents(store)
        assert {one["item_id"] for one in seen} <= found.keys()
        assert len(seen) >= 100
        store.write([record("tea", "after")])
        assert "after" in contents(store)


def test_close_waits_for_running_calls_and_refuses_later_ones(tmp_path: Path) -> None:
    store = EpisodeMemoryStore(tmp_path / "memory.db")
    written: list[str] = []
    begun = threading.Semaphore(0)

    def write(name: int) -> None:
        for number in range(10_000):
            try:
                written.extend(ids(store.write([record("tea", f"{name}-{number}")])))
            except StoreClosedError:
                return
            begun.release()

    with ThreadPoolExecutor(5) as pool:
        writers = [pool.submit(write, name) for name in range(3)]
        for _ in range(10):
            assert begun.acquire(timeout=PATIENCE_SECONDS)
        closing = [pool.submit(store.close) for _ in range(2)]
        for done in [*closing, *writers]:
            done.result()

    with EpisodeMemoryStore(store.path) as again:
        assert contents(again).keys() == {*written}


@pytest.mark.nightly
def test_forked_process_is_told_to_open_its_own_store(tmp_path: Path) -> None:
    program = """
import os, sys
from slumberd.contract import EpisodeMemoryStore, MemorySearchQuery
store = EpisodeMemoryStore(sys.argv[1])
store.search(MemorySearchQuery(text="tea"))
if os.fork() == 0:
    try:
        store.search(MemorySearchQuery(text="tea"))
    except Exception as error:
        print(type(error).__name__, "own" in str(error), flush=True)
    store.close()
    os._exit(0)
os.wait()
print(store.search(MemorySearchQuery(text="tea")))
"""
    path = str(tmp_path / "memory.db")

    run = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)

    assert (run.stdout, run.returncode) == ("StoreClosedError True\n[]\n", 0), run.stderr


@pytest.mark.slow
def test_process_ends_without_closing_its_store(tmp_path: Path) -> None:
    with writer(tmp_path / "memory.db", "a", 3) as process:
        assert len(acknowledged(process)) == 3
        assert process.returncode == 0


def wait_for_the_portal(main: int) -> None:
    """Wait until a thread waits for the portal: nothing else may be interrupted.

    The thread must be at the same instruction twice, so that it is likely to sleep there.
    """
    places: list[tuple[str, int]] = []

    def is_waiting() -> bool:
        frame = sys._current_frames()[main]
        calls = [each.f_code for each, _ in walk_stack(frame)]
        if not any(call.co_filename == portal.__file__ for call in calls):
            return False
        places.append((frame.f_code.co_name, frame.f_lasti))
        return places[-1][0] == "wait" and places[-2:-1] == places[-1:]

    wait_until(is_waiting)


@contextmanager
def interrupted_call() -> Iterator[None]:
    """Interrupt the call of the block by SIGINT, once it waits for the portal.

    A shell ignores SIGINT for what it runs in the background, and then Python does not handle it.
    A signal that comes just before the thread sleeps does not wake it; the next one does.
    """
    main, heard = threading.get_ident(), threading.Event()

    def interrupt(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def send() -> bool:
        signal.pthread_kill(main, signal.SIGINT)
        return heard.is_set()

    def work() -> None:
        wait_for_the_portal(main)
        wait_until(send)

    thread = threading.Thread(target=work)
    before = signal.signal(signal.SIGINT, interrupt)
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, before)


@pytest.fixture(params=["in front", "in the background"])
def _launched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set SIGINT as the shell does for a test run that it starts."""
    is_front = request.param == "in front"
    handler: Any = signal.default_int_handler if is_front else signal.SIG_IGN
    before = signal.signal(signal.SIGINT, handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_launched")
def test_store_works_on_after_an_interrupted_call(tmp_path: Path) -> None:
    store = EpisodeMemoryStore(tmp_path / "memory.db")
    store.write([record("tea", "a")])
    lock = sqlite3.connect(store.path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")

    with pytest.raises(KeyboardInterrupt), interrupted_call():
        store.write([record("tea", "b")])
    lock.execute("ROLLBACK")
    lock.close()

    store.write([record("tea", "c")])
    assert {"a", "c"} <= contents(store).keys()
    store.close()


def test_forgotten_store_ends_its_thread(tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    store = EpisodeMemoryStore(tmp_path / "memory.db")
    ours = {one for one in {*threading.enumerate()} - before if one.name == "slumberd-portal"}
    assert len(ours) == 1

    del store
    gc.collect()

    wait_until(lambda: not any(thread.is_alive() for thread in ours))


def test_file_that_is_no_database_fails_the_calls_and_closes(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.write_bytes(b"no database " * 1_000)

    with EpisodeMemoryStore(path) as store:
        with pytest.raises(SchemaError):
            store.write([record("tea")])
        with pytest.raises(SchemaError):
            store.search(ask("tea"))

    assert path.read_bytes().startswith(b"no database ")
