"""The alerts of the monitoring kit fire on lines that slumberd itself logs."""

from __future__ import annotations

import io
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from slumberd.daemon.heartbeat import HealthCollector, HealthSources, Heartbeat
from slumberd.logs.output import configure
from slumberd.model.health import DEGRADED_AFTER
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.inspections import EpisodeInspection
from slumberd.storage.sqlite.closed_file import ClosedEpisodeFile
from slumberd.workers.scheduling.due import FailureTracker
from tests.support.builders import rule, triple
from tests.support.cli_runner import restored_logging
from tests.support.fakes import FakeClock
from tests.support.installation import Installation
from tests.support.logql import Entry
from tests.support.monitoring import MINUTE, alerts, collected
from tests.support.state_directory import StateDirectory, state_directory
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

TAKEN = {"intent": "delete", "replaces": "e0"}


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def firing(entries: Iterable[Entry]) -> set[str]:
    """Return which alerts fire within five minutes after the first line."""
    found = sorted(entries, key=lambda entry: entry.at)
    until = max(found[-1].at, found[0].at + 5 * MINUTE)
    return {name for name, alert in alerts().items() if alert.fires(found, until=until)}


def read_log(site: Installation) -> list[Entry]:
    return [collected(line) for line in (site.state / "slumberd.log").read_bytes().splitlines()]


def execute(site: Installation, statement: str) -> None:
    with closing(sqlite3.connect(site.state / "facts.db")) as connection, connection:
        connection.execute(statement)


def fire(site: Installation, *ids: str, **fields: str) -> None:
    site.put(*(triple(id, "alice", "likes", id, metadata=fields) for id in ids))
    assert site.call("fire", "profile").returncode == 0


@pytest.mark.slow
def test_tampered_ledger_triggers_only_its_alert(site: Installation) -> None:
    fire(site, "e0", "e1")
    site.call("audit", "verify", "--log")
    before = firing(read_log(site))
    execute(site, "UPDATE slumberd_ledger SET reason = 'stale' WHERE seq = 2")

    site.call("audit", "verify", "--log")

    assert "SlumberdChainBroken" not in before
    assert firing(read_log(site)) - before == {"SlumberdChainBroken"}


@pytest.mark.slow
def test_restored_backup_triggers_its_alert(site: Installation, tmp_path: Path) -> None:
    fire(site, "e0")
    shutil.copy(site.state / "facts.db", tmp_path / "backup.db")
    fire(site, "e1", "e2")
    before = firing(read_log(site))

    shutil.copy(tmp_path / "backup.db", site.state / "facts.db")
    assert site.call("pause", "profile").returncode == 0

    assert firing(read_log(site)) - before == {"SlumberdLedgerShrank"}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "trips"), [(10, False), (11, True)])
def test_quarantined_episodes_trigger_their_alert(
    site: Installation, count: int, trips: bool
) -> None:
    fire(site, *(f"e{n}" for n in range(count)), intent="shout")

    assert ("SlumberdQuarantineGrowing" in firing(read_log(site))) == trips


class HeartbeatRun:
    """A state directory with a heartbeat, and the lines that the heartbeat logs."""

    def __init__(self, state_directory: StateDirectory, stream: io.BytesIO, folder: Path) -> None:
        self.state_directory = state_directory
        self.troubles = FailureTracker()
        self._stream = stream
        sources = HealthSources(
            state_directory.stores.memory,
            state_directory.stores,
            rules=lambda: (state_directory.rules, "UTC"),
            awake=list,
            troubles=lambda: self.troubles.by_rule,
            inspections=[EpisodeInspection(ClosedEpisodeFile(folder / "memory.db", "utc"), "utc")],
            dropped=lambda: 0,
        )
        self._heart = Heartbeat(
            HealthCollector(sources, state_directory.clock).collect, state_directory.clock
        )

    async def run_for(self, minutes: int) -> set[str]:
        """Log a heartbeat each minute; return which alerts fire on all lines so far."""
        for _ in range(minutes):
            self.state_directory.clock.advance(MINUTE)
            await self._heart.beat()
        return firing(map(collected, self._stream.getvalue().splitlines()))


@asynccontextmanager
async def heartbeat_run(folder: Path, watched: ConsolidationRule) -> AsyncIterator[HeartbeatRun]:
    stream = io.BytesIO()
    with restored_logging():
        async with state_directory(folder, [watched]) as state:
            clock: FakeClock = state.clock
            configure("json", "info", stream, terminal=False, now=clock.now)
            await state.stores.memory.put_many([triple("e0", "alice", "likes", "tea")])
            await state.fire(watched)
            yield HeartbeatRun(state, stream, folder)


@pytest.mark.slow
async def test_healthy_daemon_triggers_no_alert(tmp_path: Path) -> None:
    async with heartbeat_run(tmp_path, rule("tea")) as context:
        assert await context.run_for(30) == set()


@pytest.mark.slow
async def test_lagging_rule_triggers_its_alert(tmp_path: Path) -> None:
    async with heartbeat_run(tmp_path, rule("tea", cadence={"every": 2})) as context:
        await context.state_directory.stores.memory.put_many(
            [triple("e1", "alice", "likes", "cake")]
        )
        filling = await context.run_for(40)
        await context.state_directory.stores.memory.put_many(
            [triple("e2", "alice", "likes", "pie")]
        )

        assert filling == set()
        assert await context.run_for(30) == {"SlumberdLagging"}


@pytest.mark.slow
async def test_batch_awaiting_approval_triggers_its_alert(tmp_path: Path) -> None:
    limited = rule("tea", limits={"max_deletes": 0})
    async with heartbeat_run(tmp_path, limited) as context:
        taken = triple("e1", "alice", "likes", "tea", metadata=TAKEN)
        await context.state_directory.stores.memory.put_many([taken])
        before = await context.run_for(1)
        await context.state_directory.fire(limited)

        assert before == set()
        assert await context.run_for(30) == {"SlumberdFiringHeld"}


async def test_degraded_rule_triggers_its_alert(tmp_path: Path) -> None:
    async with heartbeat_run(tmp_path, rule("tea")) as context:
        for _ in range(DEGRADED_AFTER - 1):
            context.troubles.record_failure(
                "tea", context.state_directory.clock.now(), "StoreError"
            )
        before = await context.run_for(1)
        context.troubles.record_failure("tea", context.state_directory.clock.now(), "StoreError")

        assert before == set()
        assert await context.run_for(1) == {"SlumberdRuleDegraded"}


@pytest.mark.slow
def test_daemon_that_refuses_a_reload_triggers_its_alert(site: Installation) -> None:
    with site.daemon():
        site.rules.write_text("rules: [{id: Ü}]\n")

        assert site.call("reload").returncode == 1
        # Another thread writes the lines a moment later.
        wait_until(lambda: any(entry.labels["level"] == "error" for entry in read_log(site)))

    # The daemon stopped before its first heartbeat, so this alert may fire too.
    assert firing(read_log(site)) - {"SlumberdSilent"} == {"SlumberdReloadFailed"}
