"""How long pages take on many facts and ledger rows, and whether they delay a firing."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta

import httpx
import pytest

from slumberd.clock import SystemClock
from tests.bench.serving import Put, put_by_sql, put_to_fact
from tests.support.daemons import processor_seconds
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.large_stores import Size, user_name, write_large_state
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.timing]

PATHS: tuple[str, ...] = ("/healthz",)
"""The pages that are measured; ``{user}`` stands for the name of a user."""

ANSWERS = 15
MOST_SECONDS = 0.3
"""The limit of the median of the answers of a page, in the daemon's processor time."""

TURNS, PUTS = 5, 8
MOST_TIMES = 3.0
"""How many times as long a put may take to its fact beside requests as without them."""

LAST_USER = user_name(Size().users - 1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    """Run a daemon on 100,000 facts and more than a million ledger rows."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "state").mkdir(mode=0o700)
    yesterday = (SystemClock().now() - timedelta(days=1)).astimezone(UTC).date()
    write_large_state(folder / "state", Size(), last_day=yesterday)
    with http_daemon(folder) as running:
        yield running


@contextmanager
def client_of(running: HttpDaemon) -> Iterator[httpx.Client]:
    """Yield a client that may open every page."""
    with running.with_token("operator") as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
def test_page_takes_less_than_300_ms_of_processor_time(running: HttpDaemon, path: str) -> None:
    pid = running.daemon.process.pid
    taken = []
    with client_of(running) as client:
        for _ in range(ANSWERS):
            before = processor_seconds(pid)
            answer = client.get(path.format(user=LAST_USER))
            taken.append(processor_seconds(pid) - before)
            assert answer.status_code == 200, answer.text

    assert statistics.median(taken) < MOST_SECONDS, taken


def test_requests_do_not_delay_a_firing(running: HttpDaemon) -> None:
    alone: list[float] = []
    beside: list[float] = []
    with put_by_sql(running.home) as put:
        for turn in range(TURNS):
            alone += seconds_to_facts(running, put, f"alone-{turn}")
            with requests_without_pause(running):
                beside += seconds_to_facts(running, put, f"beside-{turn}")

    assert statistics.median(beside) < MOST_TIMES * statistics.median(alone), (alone, beside)


def seconds_to_facts(running: HttpDaemon, put: Put, name: str) -> list[float]:
    """Put some episodes, one after the other; return the seconds from each to its fact."""
    return [put_to_fact(running.home, put, f"{name}-{number}") for number in range(PUTS)]


@contextmanager
def requests_without_pause(running: HttpDaemon) -> Iterator[None]:
    """Ask for the pages, one after the other, while the block runs."""
    stop, asked = threading.Event(), threading.Event()

    def ask() -> None:
        with client_of(running) as client:
            while not stop.is_set():
                for path in PATHS:
                    client.get(path.format(user=LAST_USER)).raise_for_status()
                    asked.set()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        assert asked.wait(PATIENCE_SECONDS)
        yield
    finally:
        stop.set()
        thread.join()
