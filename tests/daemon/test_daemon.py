"""A daemon in the process of the tests: its start, its background work and its end."""

from __future__ import annotations

import asyncio
import gc
import re
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog
from structlog.testing import capture_logs

from slumberd.consolidation.firing import FireRequest
from slumberd.daemon import daemon as service_daemon
from slumberd.daemon.composition import open_stores, rule_runner_of
from slumberd.daemon.control_socket import ask
from slumberd.daemon.daemon import INTERVALS, Daemon, Intervals
from slumberd.daemon.systemd import Notifier
from slumberd.logs.prometheus import write_textfile
from slumberd.model.firing import START as BEGINNING
from slumberd.model.firing import Record
from slumberd.model.record import QUIET
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller
from slumberd.operations.stores import Stores
from slumberd.operations.writes.rule_runner import RuleRunner
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.rules.settings_schema import ErasureSettings, FactsSettings, MetricsSettings
from slumberd.storage.episodes.index_feed import KEPT_ROWS
from tests.support.builders import at, rule, triple
from tests.support.daemons import Home
from tests.support.fakes import FakeClock, FakeDeltaLog, FakeLogs
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration

NIGHTLY = rule("nightly", cadence={"cron": "0 3 * * *"})


class FailingLog(FakeDeltaLog):
    """A log that sets an event at its first lines, after it has raised its `failures`."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.first = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def applied(self, records: Sequence[Record]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        super().applied(records)
        self._loop.call_soon_threadsafe(self.first.set)


class ReadyNotifier(Notifier):
    """A notifier that sets an event when the daemon is ready."""

    def __init__(self) -> None:
        super().__init__(None)
        self.is_ready = asyncio.Event()

    def ready(self) -> None:
        self.is_ready.set()


class Life:
    """A state directory, and a daemon on it."""

    def __init__(self, folder: Path, *rules: ConsolidationRule, **settings: Any) -> None:
        self.log = FailingLog()
        self._logs = FakeLogs(self.log)
        self.intervals = INTERVALS
        self._clock = FakeClock(at(0))
        self._rules = RuleSet(rules, {}, {given_rule.id: "rules.yaml" for given_rule in rules})
        facts = FactsSettings(batch=1)
        self._settings = Settings(state_dir=folder, rules_dir=folder, facts=facts, **settings)

    @asynccontextmanager
    async def stores(
        self, logs: FakeLogs | None = None
    ) -> AsyncIterator[tuple[Stores, RuleRunner]]:
        """Open the stores, while no daemon runs."""
        settings, clock = self._settings, self._clock
        async with open_stores(settings, clock, settings.facts_path) as stores:
            yield stores, rule_runner_of(settings, stores, logs or FakeLogs(), clock)

    async def run_until_logged(self) -> None:
        """Run the daemon, and stop it once it has written lines."""
        async with self.running():
            await self.log.first.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the daemon, and stop it at the end of the block."""
        found, notifier, stop = (self._settings, self._rules), ReadyNotifier(), asyncio.Event()
        daemon = Daemon(
            *found,
            lambda: found,
            clock=self._clock,
            logs=self._logs,
            notifier=notifier,
            intervals=self.intervals,
        )
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(daemon.run(stop))
            await notifier.is_ready.wait()
            yield
            stop.set()


async def test_daemon_writes_the_missing_log_lines_at_its_start(
    tmp_path: Path,
) -> None:
    class Broken(FakeDeltaLog):
        def applied(self, records: Sequence[Record]) -> None:
            raise OSError("the disk is full")

    life, broken = Life(tmp_path, NIGHTLY), FakeLogs(Broken())
    async with life.stores(broken) as (stores, runner):
        await stores.memory.put_many([triple("e1", "alice", "likes", "tea")])
        with pytest.raises(OSError, match="full"):
            await runner.fire(FireRequest(NIGHTLY, "manual", at(0)))
        assert (await stores.facts.watermarks.positions())["nightly"][0].seq == 1

    await life.run_until_logged()

    assert [line.fact_id for line in life.log.lines if line.kind == "add"] == ["e1"]


async def test_missing_log_lines_are_written_while_no_rule_fires(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path, rule("always", cadence={"every": 1}))
    life.intervals = Intervals(log_retry_seconds=0.01)
    # The log has no reader during the firing, and the disk is full at the second attempt.
    life.log.failures = [TimeoutError(), OSError("the disk is full")]
    async with life.stores() as (stores, _):
        await stores.memory.put_many([triple("e1", "alice", "likes", "tea")])

    with capture_logs() as logged:
        await life.run_until_logged()

    assert [line.fact_id for line in life.log.lines if line.kind == "add"] == ["e1"]
    assert [line["rows"] for line in logged if line["event"] == "logs.repeated"] == [2]


async def test_garbage_collector_is_off_only_while_a_rule_fires(tmp_path: Path) -> None:
    class Failing(FakeDeltaLog):
        def applied(self, records: Sequence[Record]) -> None:
            collecting.append(gc.isenabled())
            raise OSError("the disk is full")

    life, logs, collecting = Life(tmp_path), FakeLogs(Failing()), [gc.isenabled()]
    async with life.stores(logs) as (stores, runner):
        await stores.memory.put_many([triple("e1", "alice", "likes", "tea")])

        for fired in (NIGHTLY, rule("other")):  # the event loop does not run between them
            with pytest.raises(OSError, match="full"):
                await runner.fire(FireRequest(fired, "manual", at(0)))
        await asyncio.sleep(0)
        collecting.append(gc.isenabled())

    assert collecting == [True, False, False, True]


async def test_stopped_firing_does_not_serve_its_cron_instant(tmp_path: Path) -> None:
    life, before = Life(tmp_path, NIGHTLY), at(-86_400)
    async with life.stores() as (stores, _):
        await stores.memory.put_many([triple(f"e{n}", "alice", "likes", n) for n in range(40)])
        await stores.facts.watermarks.begin("nightly", BEGINNING, served=before)

    await life.run_until_logged()

    async with life.stores() as (stores, _):
        mark, served = (await stores.facts.watermarks.positions())["nightly"]
    assert 0 < mark.seq < 40
    assert served == before, "the next start fires it at once"


async def test_daemon_writes_the_configured_textfile_for_prometheus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, written = tmp_path / "slumberd.prom", asyncio.Event()
    loop = asyncio.get_running_loop()

    def write(path: Path, text: bytes) -> None:
        write_textfile(path, text)
        loop.call_soon_threadsafe(written.set)

    monkeypatch.setattr(service_daemon, "write_textfile", write)
    life = Life(tmp_path, NIGHTLY, metrics=MetricsSettings(textfile=Path("slumberd.prom")))
    life.intervals = Intervals(heartbeat_seconds=0)

    async with life.running():
        await written.wait()

    assert b'slumberd_rule_pending_episodes{rule="nightly"} 0\n' in file.read_bytes()


def completed(logged: Sequence[Any]) -> list[Any]:
    return [line for line in logged if line["event"] == "erasure.completed"]


async def test_daemon_removes_the_bytes_of_an_erasure_in_a_quiet_window(tmp_path: Path) -> None:
    life = Life(tmp_path, NIGHTLY, erasure=ErasureSettings(rewrite="idle"))
    life.intervals = Intervals(quiet_seconds=0.01)
    async with life.stores() as (stores, _):
        await stores.memory.put_many([triple("e1", "alice", "likes", "canary-7f3a")])

    with capture_logs() as logged:
        async with life.running():
            certificate = await asyncio.to_thread(ask, tmp_path, "forget", user="alice")
            await asyncio.to_thread(wait_until, lambda: bool(completed(logged)))

    assert certificate["pending"] == {"facts": QUIET, "episodes": QUIET}
    assert completed(logged)[0]["firing_id"] == certificate["firing_id"]
    assert b"canary" not in (tmp_path / "memory.db").read_bytes()


async def test_daemon_prunes_the_log_whatever_disabled_rules_have_not_read(tmp_path: Path) -> None:
    nightly = rule("nightly", cadence={"cron": "0 3 * * *"}, start="now")
    life = Life(tmp_path, nightly, rule("old", enabled=False))
    life.intervals = Intervals(quiet_seconds=0.01)
    async with life.stores() as (stores, _):
        await stores.memory.put_many([triple("e1", "alice", "likes", "tea")])
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file, file:
        file.execute(
            "INSERT INTO slumberd_episode_log (rid, eid) SELECT NULL, 'gone'"
            " FROM (WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)"
            " SELECT n FROM n)",
            (KEPT_ROWS + 9,),
        )

    def ends() -> tuple[int, ...]:
        with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
            sql = "SELECT count(*), min(seq), max(seq) FROM slumberd_episode_log"
            return tuple(file.execute(sql).fetchone())

    async with life.running():
        await asyncio.to_thread(wait_until, lambda: ends()[0] == KEPT_ROWS + 1)

    assert ends() == (KEPT_ROWS + 1, 1, KEPT_ROWS + 10)


async def test_daemon_reports_cadences_and_paused_rules(tmp_path: Path) -> None:
    hourly = rule("hourly", cadence={"cron": "@hourly"}, enabled=False)

    async with Life(tmp_path, NIGHTLY, hourly).running():
        await asyncio.to_thread(ask, tmp_path, "pause", rules=["nightly"])
        answer = await asyncio.to_thread(ask, tmp_path, "next")

    assert answer["timezone"] == "UTC"
    served = [one.pop("served") for one in answer["rules"]]
    assert served in ([None, None], ["2026-01-01T12:00:00.000000Z", None]), "begun yet or not"
    assert answer["rules"] == [
        {
            "id": "nightly",
            "enabled": True,
            "cadence": {"cron": "0 3 * * *"},
            "paused_by": str(Caller.here()),
        },
        {
            "id": "hourly",
            "enabled": False,
            "cadence": {"cron": "@hourly"},
            "paused_by": None,
        },
    ]


@pytest.mark.slow
def test_rule_that_times_out_is_reported_and_stops_no_other_rule(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.rule("endless", cadence={"every": 1}, timeout=1e-6)
    home.rule("good", cadence={"every": 1})
    file = tmp_path / "put.jsonl"
    file.write_text(triple("e1", "alice", "likes", "tea").model_dump_json())
    home.call("import", file)

    with home.daemon() as daemon:
        daemon.wait_until_read(1)
        status = home.call("status").stdout
        (failing,) = orjson.loads(home.call("status", "--json").stdout)["failing"]

    assert re.search(r"failing    rule endless, (once|\d+ times in a row) since 20", status)
    assert failing == {
        "rule_id": "endless",
        "since": failing["since"],
        "failures": failing["failures"],
        "error": "FiringTimeoutError",
        "degraded": failing["failures"] >= 3,
    }
    assert 1 <= failing["failures"] <= 4
    assert datetime.fromisoformat(failing["since"]).utcoffset() == timedelta(0)
    assert [fact["id"] for fact in home.facts()] == ["e1"]


@pytest.mark.slow
def test_status_and_doctor_report_a_degraded_rule(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.rule("endless", cadence={"every": 1}, timeout=1e-6)
    file = tmp_path / "put.jsonl"
    file.write_text(triple("e1", "alice", "likes", "tea").model_dump_json())
    home.call("import", file)

    with home.daemon() as daemon:
        daemon.wait_for("rule.degraded")
        check = home.call("status", "--check", check=False)
        doctor = orjson.loads(home.call("doctor", "--json", check=False).stdout)

    [line] = [line for line in check.stdout.splitlines() if line.startswith("rule.degraded")]
    assert check.returncode == 1
    assert "rule endless: failed 3 times in a row since 20" in line
    assert ("rule.degraded", "rule endless") in {
        (finding["id"], finding["subject"]) for finding in doctor["findings"]
    }


async def test_daemon_names_current_facts_of_the_future_at_its_start(tmp_path: Path) -> None:
    life = Life(tmp_path, NIGHTLY)
    async with life.stores() as (stores, runner):
        await stores.memory.put_many([triple("e1", "ada", "is", "here", timestamp=at(3600))])
        await runner.fire(FireRequest(NIGHTLY, "manual", at(3600)))
        await stores.facts.ledger.accept_clock(at=at(0), by="me")

    with structlog.testing.capture_logs() as logs:
        async with life.running():
            pass

    [found] = [line for line in logs if line["event"] == "facts.future"]
    assert (found["count"], found["fact_ids"]) == (1, ["e1"])


async def test_daemon_accepts_a_clock_that_the_kernel_keeps_synchronised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path, NIGHTLY)
    async with life.stores() as (stores, runner):
        await stores.memory.put_many([triple("e1", "ada", "is", "here")])
        await runner.fire(FireRequest(NIGHTLY, "manual", at(10**9)))
    accepted = asyncio.Event()

    def kernel() -> datetime:
        loop.call_soon_threadsafe(loop.call_soon, accepted.set)
        return at(0)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(service_daemon, "synchronised_time", kernel)
    life.intervals = Intervals(heartbeat_seconds=0)
    with structlog.testing.capture_logs() as logs:
        async with life.running():
            while not any(line["event"] == "clock.accepted" for line in logs):
                await asyncio.wait_for(accepted.wait(), PATIENCE_SECONDS)
                accepted.clear()

    async with life.stores() as (stores, _):
        assert await stores.facts.watermarks.last_recorded_at() == at(0)
