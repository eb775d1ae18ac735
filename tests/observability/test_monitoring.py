"""Alerts of the monitoring kit, on lines that slumberd itself has written."""

from __future__ import annotations

import io
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from slumberd.model.health import DEGRADED_AFTER
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.logs import configure
from slumberd.scheduling.due import FailureTracker
from slumberd.service.health_metrics import HealthSources
from slumberd.service.heartbeat import Heartbeat
from tests.support.builders import rule, triple
from tests.support.calling import logging_as_before
from tests.support.fakes import FakeClock
from tests.support.installation import Installation
from tests.support.logql import Entry
from tests.support.monitoring import MINUTE, alerts, collected
from tests.support.patience import wait_until
from tests.support.state_directory import StateDirectory, state_directory

pytestmark = pytest.mark.integration

TAKEN = {"intent": "delete", "replaces": "e0"}


@pytest.fixture
def site(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def firing(entries: Iterable[Entry]) -> set[str]:
    """Return which alerts fire on some lines, in the five minutes after the first of them."""
    found = sorted(entries, key=lambda entry: entry.at)
    until = max(found[-1].at, found[0].at + 5 * MINUTE)
    return {name for name, alert in alerts().items() if alert.fires(found, until=until)}


def logged(site: Installation) -> list[Entry]:
    return [collected(line) for line in (site.state / "slumberd.log").read_bytes().splitlines()]


def change(site: Installation, statement: str) -> None:
    with closing(sqlite3.connect(site.state / "facts.db")) as connection, connection:
        connection.execute(statement)


def fire(site: Installation, *ids: str, **said: str) -> None:
    site.put(*(triple(id, "alice", "likes", id, metadata=said) for id in ids))
    assert site.call("fire", "profile").returncode == 0


def test_ledger_that_was_tampered_with_trips_its_alert_and_no_other(site: Installation) -> None:
    fire(site, "e0", "e1")
    site.call("audit", "verify", "--log")
    before = firing(logged(site))
    change(site, "UPDATE slumberd_ledger SET reason = 'stale' WHERE seq = 2")

    site.call("audit", "verify", "--log")

    assert "SlumberdChainBroken" not in before
    assert firing(logged(site)) - before == {"SlumberdChainBroken"}


def test_backup_that_is_put_back_trips_its_alert(site: Installation, tmp_path: Path) -> None:
    fire(site, "e0")
    shutil.copy(site.state / "facts.db", tmp_path / "backup.db")
    fire(site, "e1", "e2")
    before = firing(logged(site))

    shutil.copy(tmp_path / "backup.db", site.state / "facts.db")
    assert site.call("pause", "profile").returncode == 0

    assert firing(logged(site)) - before == {"SlumberdLedgerShrank"}


@pytest.mark.parametrize(("count", "trips"), [(10, False), (11, True)])
def test_episodes_that_nobody_can_read_trip_their_alert(
    site: Installation, count: int, trips: bool
) -> None:
    fire(site, *(f"e{n}" for n in range(count)), intent="shout")

    assert ("SlumberdQuarantineGrowing" in firing(logged(site))) == trips


class DoctorContext:
    """A state directory with a heartbeat, and the lines that it has logged."""

    def __init__(self, state_directory: StateDirectory, stream: io.BytesIO, folder: Path) -> None:
        self.state_directory = state_directory
        self.troubles = FailureTracker()
        self._stream = stream
        body = HealthSources(
            state_directory.stores.memory,
            state_directory.stores,
            rules=lambda: (state_directory.rules, "UTC"),
            awake=list,
            troubles=lambda: self.troubles.by_rule,
            files=[folder / "memory.db"],
            dropped=lambda: 0,
        )
        self._heart = Heartbeat(body, state_directory.clock)

    async def live(self, minutes: int) -> set[str]:
        """Beat once a minute; return which alerts fire on all the lines up to now."""
        for _ in range(minutes):
            self.state_directory.clock.advance(MINUTE)
            await self._heart.beat()
        return firing(map(collected, self._stream.getvalue().splitlines()))


@asynccontextmanager
async def living(folder: Path, one: ConsolidationRule) -> AsyncIterator[DoctorContext]:
    stream = io.BytesIO()
    with logging_as_before():
        async with state_directory(folder, [one]) as state:
            clock: FakeClock = state.clock
            configure("json", "info", stream, terminal=False, now=clock.now)
            await state.stores.memory.put_many([triple("e0", "alice", "likes", "tea")])
            await state.fire(one)
            yield DoctorContext(state, stream, folder)


async def test_daemon_that_is_well_trips_nothing(tmp_path: Path) -> None:
    async with living(tmp_path, rule("tea")) as context:
        assert await context.live(30) == set()


async def test_rule_that_lags_trips_its_alert_until_it_has_caught_up(tmp_path: Path) -> None:
    async with living(tmp_path, rule("tea", cadence={"every": 2})) as context:
        await context.state_directory.stores.memory.put_many(
            [triple("e1", "alice", "likes", "cake")]
        )
        filling = await context.live(40)
        await context.state_directory.stores.memory.put_many(
            [triple("e2", "alice", "likes", "pie")]
        )

        assert filling == set()
        assert await context.live(30) == {"SlumberdLagging"}


async def test_batch_that_is_held_trips_its_alert(tmp_path: Path) -> None:
    braked = rule("tea", limits={"max_deletes": 0})
    async with living(tmp_path, braked) as context:
        taken = triple("e1", "alice", "likes", "tea", metadata=TAKEN)
        await context.state_directory.stores.memory.put_many([taken])
        before = await context.live(1)
        await context.state_directory.fire(braked)

        assert before == set()
        assert await context.live(30) == {"SlumberdFiringHeld"}


async def test_rule_that_fails_too_often_trips_its_alert(tmp_path: Path) -> None:
    async with living(tmp_path, rule("tea")) as context:
        for _ in range(DEGRADED_AFTER - 1):
            context.troubles.record_failure(
                "tea", context.state_directory.clock.now(), "StoreError"
            )
        before = await context.live(1)
        context.troubles.record_failure("tea", context.state_directory.clock.now(), "StoreError")

        assert before == set()
        assert await context.live(1) == {"SlumberdRuleDegraded"}


def test_running_daemon_that_does_not_take_its_rules_trips_its_alert(site: Installation) -> None:
    with site.daemon():
        site.rules.write_text("rules: [{id: Ü}]\n")

        assert site.call("reload").returncode == 1
        # Its lines are written by another thread, soon.
        wait_until(lambda: any(one.labels["level"] == "error" for one in logged(site)))

    # For a heartbeat it did not live long enough.
    assert firing(logged(site)) - {"SlumberdSilent"} == {"SlumberdReloadFailed"}
