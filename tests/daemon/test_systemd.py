"""The watchdog reports to the service manager only while the daemon makes progress."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slumberd.cli.environment import watchdog_seconds
from slumberd.daemon.systemd import Notifier, Watchdog, pulse_beside_rewriting
from slumberd.model.errors import StoreBusyError
from slumberd.storage.sqlite.database import Database
from slumberd.storage.sqlite.session import Pragmas
from tests.support.fakes import FakeClock
from tests.support.jumping_time import run_without_waiting
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit


class Manager:
    """A service manager that reads the datagrams of its NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)
        self.notifier = Notifier(address)

    def received(self) -> list[str]:
        """Return the messages since the last call."""
        found = []
        try:
            while True:
                found.append(self._socket.recv(4096).decode())
        except BlockingIOError:
            return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


class WatchedParts:
    """The scheduler and the database that a watchdog watches; a test moves them on."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.written = 0
        self.fault: Exception | None = None

    async def pulse(self) -> int:
        if self.fault:
            raise self.fault
        return self.written

    def watchdog(self, manager: Manager) -> Watchdog:
        return Watchdog(manager.notifier.watchdog, self.clock.monotonic, [self.pulse])


async def test_watchdog_reports_again_after_the_scheduler_began_a_turn(manager: Manager) -> None:
    parts = WatchedParts()
    watchdog = parts.watchdog(manager)
    await watchdog.beat()

    parts.clock.advance(1)
    await watchdog.beat()

    assert manager.received() == ["WATCHDOG=1"] * 2


async def test_watchdog_reports_nothing_while_the_scheduler_is_stalled(manager: Manager) -> None:
    parts = WatchedParts()
    watchdog = parts.watchdog(manager)
    await watchdog.beat()
    manager.received()

    with capture_logs() as logged:
        await watchdog.beat()

    assert manager.received() == []
    assert [line["event"] for line in logged] == ["watchdog.withheld"]


async def test_watchdog_reports_during_a_long_firing_that_writes_batches(
    manager: Manager,
) -> None:
    parts = WatchedParts()
    watchdog = parts.watchdog(manager)

    for _ in range(4):
        parts.written += 8_000
        await watchdog.beat()

    assert manager.received() == ["WATCHDOG=1"] * 4


async def test_watchdog_counts_a_store_error_as_an_answer(manager: Manager) -> None:
    parts = WatchedParts()
    parts.fault = StoreBusyError("facts.db", 5.0)

    await parts.watchdog(manager).beat()

    assert manager.received() == ["WATCHDOG=1"]


def test_watchdog_reports_three_times_within_the_time_of_the_service_manager() -> None:
    async def reports_within(seconds: float) -> list[float]:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        reports: list[float] = []
        watchdog = Watchdog(lambda: reports.append(loop.time()), loop.time, [])
        loop.call_later(seconds, stop.set)
        await watchdog.run(stop, within_seconds=30.0)
        return reports

    assert run_without_waiting(reports_within(45.0)) == [0.0, 10.0, 20.0, 30.0, 40.0]


async def test_watchdog_ends_at_once_without_a_service_manager(manager: Manager) -> None:
    await WatchedParts().watchdog(manager).run(asyncio.Event(), within_seconds=None)

    assert manager.received() == []


async def test_watchdog_beats_until_it_is_stopped(manager: Manager) -> None:
    stop = asyncio.Event()
    reports: list[int] = []

    def report() -> None:
        reports.append(len(reports))
        if len(reports) == 3:
            stop.set()

    async def pulse() -> int:
        return len(reports)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await Watchdog(report, lambda: 0.0, [pulse]).run(stop, within_seconds=0.003)

    assert reports == [0, 1, 2]


async def never() -> int:
    await asyncio.Event().wait()
    return 0


async def test_rewriting_counts_as_a_sign_of_life_although_its_thread_does_not_answer() -> None:
    seconds = iter([None, 40, 80])

    found = [
        await pulse_beside_rewriting(never, lambda: next(seconds), every_seconds=0)
        for _ in range(2)
    ]

    assert found == [40, 80]


async def test_stuck_database_has_no_pulse_while_nothing_is_rewritten() -> None:
    looked = asyncio.Event()

    def rewriting() -> None:
        looked.set()

    asked = pulse_beside_rewriting(never, rewriting, every_seconds=0)
    task = asyncio.ensure_future(asked)
    await looked.wait()

    assert not task.done()
    task.cancel()


async def test_database_that_answers_has_its_own_pulse_while_it_is_rewritten() -> None:
    async def pulse() -> int:
        return 7

    assert await pulse_beside_rewriting(pulse, lambda: 40) == 7


async def test_database_has_no_pulse_while_its_thread_is_stuck(tmp_path: Path) -> None:
    async with Database(tmp_path / "some.db", Pragmas()) as database:
        await database.write(lambda connection: connection.execute("CREATE TABLE t (x)"))
        stuck, resume = threading.Event(), threading.Event()

        def work(_: sqlite3.Connection) -> None:
            stuck.set()
            resume.wait(PATIENCE_SECONDS)

        async with asyncio.TaskGroup() as group:
            group.create_task(database.write(work))
            await asyncio.to_thread(stuck.wait, 60)
            pulse = group.create_task(database.pulse())
            await database.read(lambda _: None)

            assert not pulse.done()
            resume.set()


async def test_pulse_of_a_database_grows_with_each_write(tmp_path: Path) -> None:
    async with Database(tmp_path / "some.db", Pragmas()) as database:
        await database.write(lambda connection: connection.execute("CREATE TABLE t (x)"))
        before = await database.pulse()

        await database.write(lambda connection: connection.execute("INSERT INTO t VALUES (1)"))

        assert await database.pulse() > before


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        pytest.param({}, None, id="no service manager"),
        pytest.param({"WATCHDOG_USEC": "120000000"}, 120.0, id="without a process"),
        pytest.param(
            {"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5, id="this process"
        ),
        pytest.param({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None, id="another process"),
        pytest.param({"WATCHDOG_USEC": "soon"}, None, id="no number"),
        pytest.param({"WATCHDOG_USEC": "0"}, None, id="off"),
    ],
)
def test_watchdog_reads_its_interval_from_the_environment(
    variables: dict[str, str], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert watchdog_seconds() == seconds
