"""`status` shows what the language model cost; `doctor` finds rules that wait for its answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.cli.commands import status as commands_status
from slumberd.clock import SystemClock
from slumberd.daemon.rules import PausedFile, rules_of
from slumberd.model.episode import Episode
from slumberd.rules.settings import load_settings
from slumberd.storage import inspections
from slumberd.tools.diagnostics.doctor import find_urgent
from slumberd.tools.diagnostics.host_checks import Machine
from slumberd.tools.diagnostics.store_checks import DoctorContext
from tests.daemon.test_model_daemon import STAGES
from tests.support.asked_models import said
from tests.support.daemons import Home
from tests.support.installation import jsonl
from tests.support.model_server import server_in_a_thread

pytestmark = pytest.mark.integration

NOWHERE = Path("/nonexistent")
QUIET = Machine(NOWHERE, NOWHERE, (NOWHERE,), NOWHERE, ("no-such-command",), low_bytes=1)
UNREACHABLE = "http://127.0.0.1:9/v1"
OLD = said("e1", "I like tea")
"""An episode of the year 2026, from before the test."""


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands_status, "THIS_MACHINE", QUIET)


def home_at(folder: Path, url: str = UNREACHABLE, /, **settings: Any) -> Home:
    """Return a home with a rule that asks, which no number of episodes makes late."""
    home = Home(folder, {"language_model": {"base_url": url, **settings}})
    home.rule("chat", cadence={"every": 99}, stages=STAGES, when_filter="source_node = 'ann'")
    return home


def put(home: Home, *episodes: Episode) -> None:
    file = home.folder / "episodes.jsonl"
    file.write_bytes(jsonl(*episodes))
    home.call("import", file)


def sql(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def spend_now(home: Home, *costs: int) -> None:
    """Record what calls cost, today and, for a test at midnight, tomorrow."""
    statement = "INSERT INTO slumberd_model_usage VALUES (?, ?, ?, ?, ?)"
    for day in days():
        sql(home.state / "memory.db", statement, day, *costs)


def days() -> list[str]:
    """Return today and tomorrow."""
    now = SystemClock().now()
    return [at.date().isoformat() for at in (now, now + timedelta(days=1))]


def waiting(home: Home, *words: str) -> list[tuple[str, str, str]]:
    """Return subject, problem and remedy of each finding that something waits."""
    printed = home.call(*(words or ("doctor",)), "--json", check=False).stdout
    return [
        (finding["subject"], finding["problem"], finding["remedy"])
        for finding in orjson.loads(printed)["findings"]
        if finding["id"] == "answers.waiting"
    ]


def files_of(home: Home) -> dict[str, tuple[int, int]]:
    return {
        file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in home.state.iterdir()
    }


SINCE = "2026-01-01 12:00:00Z"
PROBLEM = f"episodes wait for the answer of the language model since {SINCE}"


@pytest.mark.parametrize(
    "words",
    [pytest.param(("doctor",), id="doctor"), pytest.param(("status", "--check"), id="check")],
)
def test_old_episode_without_an_answer_is_a_finding_and_leaves_no_trace(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    home = home_at(tmp_path)
    put(home, OLD)
    before = files_of(home)

    found = waiting(home, *words)

    remedy = "start the daemon, or `slumberd extract chat`"
    assert found == [("rule chat", PROBLEM, remedy)]
    assert files_of(home) == before


def test_finding_names_the_part_of_the_budget_that_is_spent(tmp_path: Path) -> None:
    home = home_at(tmp_path, budget={"calls": 20, "tokens": 1_000})
    put(home, OLD)
    spend_now(home, 3, 900, 150, 0)

    found = waiting(home)

    problem = f"{PROBLEM}: the budget of 1000 tokens a day is spent"
    remedy = "wait until tomorrow UTC, or raise `language_model.budget.tokens`"
    assert found == [("rule chat", problem, remedy)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uptime", "remedies"),
    [
        pytest.param(60.0, [], id="young"),
        pytest.param(
            9e9,
            [
                "see `answers.waiting` or `answers.failed` in the daemon's log for the reason;"
                " `slumberd extract chat` asks now"
            ],
            id="old",
        ),
    ],
)
def test_finding_of_a_running_daemon_names_its_log(
    tmp_path: Path, uptime: float, remedies: list[str]
) -> None:
    home = home_at(tmp_path)
    put(home, OLD)
    home.call("fire", "chat")
    settings = load_settings(home.config, overrides={}, environ={})
    rules, now = rules_of(settings), SystemClock().now()
    daemon = {"rules_hash": rules.content_hash, "uptime_seconds": uptime}

    found = find_urgent(DoctorContext(settings, rules, None, daemon, now, QUIET))

    assert [finding.remedy for finding in found] == remedies


def test_episode_of_the_last_hour_is_no_finding(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    recent = SystemClock().now() - timedelta(minutes=50)
    put(home, OLD.model_copy(update={"timestamp": recent}))

    assert waiting(home) == []


@pytest.mark.slow
def test_progress_of_the_last_hour_is_no_finding(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        home = home_at(tmp_path, server.url)
        put(home, OLD)
        home.call("extract", "chat")
        home.call("fire", "chat")
        put(home, said("e2", "I like ale", 1))
        recent = waiting(home)
        earlier = SystemClock().now() - timedelta(hours=2)
        since = int(earlier.timestamp() * 1_000_000)
        sql(home.state / "facts.db", "UPDATE slumberd_firings SET at = ?", since)
        later = waiting(home)

    assert recent == []
    assert [problem[-20:] for _, problem, _ in later] == [f"{earlier:%Y-%m-%d %H:%M:%S}Z"]


def _answer(home: Home) -> None:
    home.call("extract", "chat")


def _filter(home: Home) -> None:
    home.rule("chat", cadence={"every": 99}, stages=STAGES, when_filter="agent = 'none'")


def _disable(home: Home) -> None:
    home.rule("chat", cadence={"every": 99}, stages=STAGES, enabled=False)


def _ask_no_model(home: Home) -> None:
    home.rule("chat", cadence={"every": 99})


def _start_now(home: Home) -> None:
    home.rule("chat", cadence={"every": 99}, stages=STAGES, start="now")


def _pause(home: Home) -> None:
    PausedFile(home.state).write({"chat": "uid 7"})


def _age(home: Home) -> None:
    for table in ("slumberd_extractions", "slumberd_model_usage"):
        sql(home.state / "memory.db", f"DROP TABLE {table}")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_answer, id="answered"),
        pytest.param(_filter, id="filtered"),
        pytest.param(_disable, id="disabled"),
        pytest.param(_pause, id="paused"),
        pytest.param(_ask_no_model, id="no model"),
        pytest.param(_start_now, id="starts now"),
        pytest.param(_age, id="file of an older version"),
    ],
)
def test_pending_episode_that_waits_for_no_answer_is_no_finding(
    tmp_path: Path, change: Callable[[Home], None]
) -> None:
    with server_in_a_thread() as server:
        home = home_at(tmp_path, server.url)
        put(home, OLD)
        before = waiting(home)
        change(home)

        assert (len(before), waiting(home)) == (1, [])


def test_filter_that_takes_too_long_is_no_finding_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home_at(tmp_path)
    put(home, OLD)
    monkeypatch.setattr(inspections, "_FILTER_SECONDS", -1.0)

    assert waiting(home) == []


def status_of(home: Home) -> Any:  # any JSON
    return orjson.loads(home.call("status", "--json").stdout)["language_model"]


def test_status_shows_the_cost_of_today_beside_the_budget(tmp_path: Path) -> None:
    home = home_at(tmp_path, budget={"calls": None, "tokens": 500_000, "cost": 5})
    put(home, OLD)
    spend_now(home, 1_234, 100_000, 20_000, 1_250_000)
    earlier = "INSERT INTO slumberd_model_usage VALUES ('2026-01-01', 7, 7, 7, 7)"
    sql(home.state / "memory.db", earlier)

    found = status_of(home)
    shown = home.call("status").stdout

    assert found.pop("day") in days()
    assert found == {
        "calls": 1_234,
        "tokens": 120_000,
        "cost": 1.25,
        "budget": {"calls": None, "tokens": 500_000, "cost": 5.0},
        "budget_spent": False,
    }
    line = "model      1,234 calls, 120,000 of 500,000 tokens, cost 1.25 of 5 today (UTC)\n"
    assert line in shown


def test_status_says_that_the_budget_is_spent(tmp_path: Path) -> None:
    home = home_at(tmp_path, budget={"calls": 2})
    put(home, OLD)
    spend_now(home, 2, 0, 0, 0)

    shown = home.call("status").stdout

    assert (
        "model      2 of 2 calls, 0 of 500,000 tokens today (UTC); the budget is spent\n" in shown
    )
    assert status_of(home)["budget_spent"] is True


@pytest.mark.parametrize(
    "aged", [pytest.param(True, id="older file"), pytest.param(False, id="no file")]
)
def test_status_without_recorded_calls_shows_none(tmp_path: Path, *, aged: bool) -> None:
    home = home_at(tmp_path)
    home.state.mkdir()
    if aged:
        put(home, OLD)
        _age(home)

    found = status_of(home)

    assert (found["calls"], found["tokens"], found["cost"]) == (0, 0, 0)


@pytest.mark.slow
def test_status_without_a_language_model_shows_nothing_of_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("chat", cadence={"every": 99})
    put(home, OLD)

    assert status_of(home) is None
    assert "model " not in home.call("status").stdout


@pytest.mark.slow
def test_episode_that_waits_behind_many_answered_ones_is_a_finding(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        home = home_at(tmp_path, server.url)
        put(home, *(said(f"e{n}", f"I like tea {n}", n) for n in range(100)))
        home.call("extract", "chat")
        answered = waiting(home)
        put(home, said("late", "I like ale", 3600))

        [(_, problem, _)] = waiting(home)

    assert answered == []
    assert problem.endswith("since 2026-01-01 13:00:00Z")
