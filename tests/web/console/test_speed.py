"""How long pages take on many facts and ledger rows, and whether they delay a firing."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, timedelta
from urllib.parse import quote

import httpx
import pytest

from slumberd.clock import SystemClock
from tests.bench.serving import Put, put_by_sql, put_to_fact
from tests.support.console_people import signed_in
from tests.support.daemons import processor_seconds
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.large_stores import Size, user_name, write_large_state
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.timing, pytest.mark.nightly]

PATHS: tuple[str, ...] = (
    "/console/today",
    "/console/today?days=31",
    "/console/today?user={user}",
    "/console/changes",
    "/console/changes?counted=learned",
    "/console/changes?counted=quarantined",
    "/console/changes?since={day}&until={next_day}",
    "/console/users",
    "/console/user?user={user}",
    "/console/user?user={user}&valid_at=2026-01-01T00:00:00Z&believed_at={then}",
    "/console/fact?user={user}&id={fact}",
    "/console/episode?user={user}&id={episode}",
    "/console/firings",
    "/console/firing?id={firing}",
    "/console/approvals",
    "/console/quarantine",
    "/console/rules",
    "/console/rule?rule=all",
    "/console/search?user={user}&q=tea",
    "/console/erase?user={user}",
    "/console/health",
)
"""The pages that are measured; names in braces stand for what the large store has."""

ANSWERS = 15
PLANS = 5
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
    write_large_state(folder / "state", Size(), last_day=date_before(1))
    with http_daemon(folder) as running:
        yield running


@pytest.fixture(scope="module")
def names(running: HttpDaemon) -> Mapping[str, str]:
    """Return what the large store has, as the query of an address has it."""
    with running.with_token("operator") as client:
        [fact] = client.get("/v1/facts", params={"user": LAST_USER, "limit": 1}).json()["facts"]
        [firing] = client.get("/v1/operations/firings", params={"limit": 1}).json()["firings"]
    found = {
        "user": LAST_USER,
        "fact": fact["id"],
        "episode": fact["lineage"][0]["source_episode_ids"][0],
        "firing": firing["firing_id"],
        "day": f"{date_before(3)}",
        "next_day": f"{date_before(2)}",
        "then": (SystemClock().now() - timedelta(hours=12)).isoformat(),
    }
    return {name: quote(value, safe="") for name, value in found.items()}


def date_before(days: int) -> date:
    """Return the date in UTC of so many days ago."""
    return (SystemClock().now() - timedelta(days=days)).astimezone(UTC).date()


@contextmanager
def client_of(running: HttpDaemon) -> Iterator[httpx.Client]:
    """Yield a browser that may open every page."""
    with signed_in(running, "operator") as person:
        yield person.client


@pytest.mark.parametrize("path", PATHS)
def test_page_takes_less_than_300_ms_of_processor_time(
    running: HttpDaemon, names: Mapping[str, str], path: str
) -> None:
    pid = running.daemon.process.pid
    taken = []
    with client_of(running) as client:
        for _ in range(ANSWERS):
            before = processor_seconds(pid)
            answer = client.get(path.format(**names))
            taken.append(processor_seconds(pid) - before)
            assert answer.status_code == 200, answer.text

    assert statistics.median(taken) < MOST_SECONDS, taken


def test_plan_of_an_erasure_takes_less_than_300_ms_of_processor_time(running: HttpDaemon) -> None:
    pid = running.daemon.process.pid
    taken = []
    with signed_in(running, "operator") as person:
        form = {"form_secret": person.secret(), "reason": "a test"}
        for number in range(PLANS):
            before = processor_seconds(pid)
            answer = person.post("/erase", {**form, "user": user_name(number)})
            taken.append(processor_seconds(pid) - before)
            assert answer.status == 200, answer.text

    assert statistics.median(taken) < MOST_SECONDS, taken


def test_requests_do_not_delay_a_firing(running: HttpDaemon, names: Mapping[str, str]) -> None:
    alone: list[float] = []
    beside: list[float] = []
    with put_by_sql(running.home) as put:
        for turn in range(TURNS):
            alone += seconds_to_facts(running, put, f"alone-{turn}")
            with requests_without_pause(running, names):
                beside += seconds_to_facts(running, put, f"beside-{turn}")

    assert statistics.median(beside) < MOST_TIMES * statistics.median(alone), (alone, beside)


def seconds_to_facts(running: HttpDaemon, put: Put, name: str) -> list[float]:
    """Put some episodes, one after the other; return the seconds from each to its fact."""
    return [put_to_fact(running.home, put, f"{name}-{number}") for number in range(PUTS)]


@contextmanager
def requests_without_pause(running: HttpDaemon, names: Mapping[str, str]) -> Iterator[None]:
    """Ask for the pages, one after the other, while the block runs."""
    stop, asked = threading.Event(), threading.Event()

    def ask() -> None:
        with client_of(running) as client:
            while not stop.is_set():
                for path in PATHS:
                    client.get(path.format(**names)).raise_for_status()
                    asked.set()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        assert asked.wait(PATIENCE_SECONDS)
        yield
    finally:
        stop.set()
        thread.join()
