"""`slumberd next`: rules in words, their instants, and notes on clock changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli import call
from slumberd.daemon.control_socket import listen
from slumberd.daemon.rules import PausedFile
from slumberd.model.firing import START
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer
from slumberd.operations.reads.rule_states import outlooks
from slumberd.operations.responses import list_cadences
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.support.cli_runner import called
from tests.support.frozen_time import freeze_time

pytestmark = pytest.mark.unit

NOW = datetime(2026, 3, 27, 12, tzinfo=UTC)
RULES = """
rules:
  - {id: nightly, cadence: {cron: "30 2 * * *"}, when_filter: "", then_emits: [facts]}
  - {id: profile, cadence: {every: 100}, when_filter: "", then_emits: [facts]}
  - id: weekly
    cadence: {cron: "@weekly", timezone: Asia/Tokyo}
    when_filter: ""
    then_emits: [facts]
    enabled: false
"""

Next = Callable[..., list[str]]


@pytest.fixture
def run_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Next]:
    """Return what `slumberd next` prints on a Friday in March, line by line."""
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "all.yaml").write_text(RULES)
    config = tmp_path / "slumberd.yaml"
    config.write_text("timezone: Europe/Berlin\nstate_dir: state\n")

    def run(*arguments: str) -> list[str]:
        assert call(["next", "--config", str(config), *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    with freeze_time(NOW):
        yield run


def _documents(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_next_shows_every_enabled_rule_in_words_with_instants_and_notes(run_next: Next) -> None:
    assert run_next("-n", "2") == [
        "nightly '30 2 * * *' in Europe/Berlin: at 02:30, every day",
        "  Sat 2026-03-28 02:30 +01:00  2026-03-28 01:30:00Z",
        "  Sun 2026-03-29 03:00 +02:00  2026-03-29 01:00:00Z",
        "  note: 2026-03-29 02:00 the clock goes forward to 03:00;"
        " 02:30 does not exist then: fires once, at 03:00",
        "profile: when 100 new episodes wait",
    ]


@pytest.mark.slow
def test_next_shows_a_disabled_rule_that_is_named(run_next: Next) -> None:
    assert run_next("weekly", "-n", "1") == [
        "weekly '@weekly' in Asia/Tokyo (disabled): at 00:00, on Sunday",
        "  Sun 2026-03-29 00:00 +09:00  2026-03-28 15:00:00Z",
    ]


@pytest.mark.slow
def test_next_shows_who_paused_a_rule_and_how_to_resume_it(run_next: Next, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    PausedFile(tmp_path / "state").write({"nightly": "uid 7"})

    lines = run_next("nightly", "profile", "-n", "1")
    nightly, profile = _documents(run_next("nightly", "profile", "--json"))

    assert lines[0] == (
        "nightly '30 2 * * *' in Europe/Berlin (paused by uid 7 until `slumberd resume nightly`):"
        " at 02:30, every day"
    )
    assert lines[-1] == "profile: when 100 new episodes wait"
    assert (nightly["paused"], nightly["paused_by"]) == (True, "uid 7")
    assert (profile["paused"], profile["paused_by"]) == (False, None)


def test_next_shows_five_instants_by_default(run_next: Next) -> None:
    assert len([line for line in run_next("nightly") if line.endswith("Z")]) == 5


def test_next_shows_the_instants_of_an_expression(run_next: Next) -> None:
    assert run_next("--cron", "0 0 13 * 5", "--timezone", "UTC", "-n", "1") == [
        "'0 0 13 * 5' in UTC: at 00:00, on day 13 of the month, and also on Friday",
        "  Fri 2026-04-03 00:00 +00:00  2026-04-03 00:00:00Z",
    ]
    assert "in Europe/Berlin" in run_next("--cron", "@daily")[0]


def test_next_in_json_prints_a_document_for_each_rule(run_next: Next) -> None:
    nightly, profile = _documents(run_next("--json", "-n", "2"))

    assert nightly == {
        "rule": "nightly",
        "enabled": True,
        "paused": False,
        "paused_by": None,
        "every": None,
        "cron": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "words": "at 02:30, every day",
        "next": [
            {"local": "2026-03-28T02:30:00+01:00", "utc": "2026-03-28T01:30:00Z"},
            {"local": "2026-03-29T03:00:00+02:00", "utc": "2026-03-29T01:00:00Z"},
        ],
        "notes": [
            {
                "at": "2026-03-29T01:00:00Z",
                "skipped": True,
                "times": ["02:30"],
                "fired": ["2026-03-29T01:00:00Z"],
                "words": "2026-03-29 02:00 the clock goes forward to 03:00;"
                " 02:30 does not exist then: fires once, at 03:00",
            }
        ],
        "ignored_served": None,
    }
    assert (profile["every"], profile["cron"], profile["next"]) == (100, None, [])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["nightli"], "no rule 'nightli'; did you mean 'nightly'?", id="no such rule"),
        pytest.param(["nightly", "--cron", "@daily"], "not both", id="rule and expression"),
        pytest.param(["--timezone", "UTC"], "--cron", id="zone without expression"),
        pytest.param(["--cron", "61 * * * *"], "write 0 to 59", id="wrong expression"),
        pytest.param(
            ["--cron", "@daily", "--timezone", "Berlin"],
            "did you mean 'Europe/Berlin'?",
            id="wrong zone",
        ),
        pytest.param(["-n", "0"], "--count", id="none at all"),
    ],
)
def test_wrong_use_is_reported_with_its_remedy(
    run_next: Next, tmp_path: Path, arguments: list[str], problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert call(["next", "--config", str(tmp_path / "slumberd.yaml"), *arguments]) == 64
    assert problem in capsys.readouterr().err


async def test_next_asks_a_running_daemon_instead_of_reading_files(tmp_path: Path) -> None:
    hourly = ConsolidationRule(
        id="hourly", cadence={"cron": "@hourly"}, when_filter="", then_emits=["facts"]
    )

    async def answer(_: dict[str, Any], __: Caller) -> Answer:
        return list_cadences([hourly], {"hourly": "uid 7"}, "Asia/Tokyo", {})

    async with listen(tmp_path, {"next": answer}):
        done = await asyncio.to_thread(called, "next", "--state-dir", str(tmp_path), "-n", "1")

    assert done.stdout.startswith("hourly '@hourly' in Asia/Tokyo (paused by uid 7 until")


async def test_next_reports_a_daemon_that_does_not_answer_instead_of_the_files(
    tmp_path: Path,
) -> None:
    async with listen(tmp_path, {}):
        done = await asyncio.to_thread(called, "next", "--state-dir", str(tmp_path))

    assert (done.returncode, done.stdout) == (74, "")
    assert "unknown operation 'next'" in done.stderr


def test_instants_are_after_the_given_time() -> None:
    rule = ConsolidationRule(
        id="r", cadence={"cron": "@hourly"}, when_filter="", then_emits=["facts"]
    )

    [found] = outlooks(
        list_cadences([rule], {}, "UTC", {})["rules"], "UTC", NOW, 1, tolerance_seconds=300
    )

    assert found.table.instants == [NOW.replace(hour=13)]


@pytest.mark.parametrize("running", [True, False])
async def test_next_counts_as_the_scheduler_and_names_an_ignored_instant(
    tmp_path: Path, running: bool
) -> None:
    hourly = ConsolidationRule(
        id="hourly", cadence={"cron": "@hourly"}, when_filter="", then_emits=["facts"]
    )
    wrong = datetime(2098, 1, 1, 0, 1, tzinfo=UTC)
    (tmp_path / "rules.d").mkdir()
    config = tmp_path / "slumberd.yaml"
    config.write_text("state_dir: .\n")
    (tmp_path / "rules.d" / "all.yaml").write_text(
        'rules: [{id: hourly, cadence: {cron: "@hourly"}, when_filter: "", then_emits: [facts]}]'
    )

    async def answer(_: dict[str, Any], __: Caller) -> Answer:
        return list_cadences([hourly], {}, "UTC", {"hourly": wrong})

    async with AsyncExitStack() as stack:
        if running:
            await stack.enter_async_context(listen(tmp_path, {"next": answer}))
        else:
            facts = await stack.enter_async_context(SQLiteFactStore(tmp_path / "facts.db"))
            await facts.bootstrap()
            await facts.watermarks.begin("hourly", START, served=wrong)
        done = await asyncio.to_thread(called, "next", "--config", str(config), "-n", "1")

    assert "note: a wrong clock recorded that 2098-01-01 00:01:00Z is served" in done.stdout
    assert "2098" not in done.stdout.splitlines()[1]
