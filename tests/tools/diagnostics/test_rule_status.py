"""The heartbeat, `doctor`, `status` and the operation `rules` report the same of a rule."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from slumberd.consolidation.firing import FireRequest
from slumberd.daemon.composition import open_stores, rule_runner_of
from slumberd.daemon.heartbeat import HealthCollector, HealthSources, Heartbeat
from slumberd.model.firing import START, Position
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import handlers_of
from slumberd.operations.reads.rule_states import RuleProgressReader
from slumberd.operations.rules import RuleReads
from slumberd.operations.stores import Stores
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.tools.diagnostics.doctor import run_checks
from slumberd.tools.diagnostics.host_checks import Machine
from slumberd.tools.diagnostics.status import read_status
from slumberd.tools.diagnostics.store_checks import DoctorContext
from tests.support.builders import at, rule, triple
from tests.support.fakes import FakeClock, FakeLogs

pytestmark = pytest.mark.integration

MINUTE = 60.0
HOUR = 60 * MINUTE
NOWHERE = Path("/nonexistent")
QUIET = Machine(NOWHERE, NOWHERE, (NOWHERE,), NOWHERE, ("no-such-command",))
NIGHTLY = {"cron": "0 3 * * *"}  # the stores begin at noon
NEXT_NIGHT = at(15 * HOUR)


class ReportedRule:
    """A state directory with a rule and a stopped clock, and the three reports on the rule."""

    def __init__(self, folder: Path, rule: ConsolidationRule, stores: Stores) -> None:
        self.settings = Settings(state_dir=folder, rules_dir=folder)
        self.clock = FakeClock(at(0))
        self.rule, self.stores = rule, stores
        self.paused: set[str] = set()
        self._rules = RuleSet((rule,), {}, {rule.id: "rules.yaml"})
        self._metrics: list[bytes] = []
        self._runner = rule_runner_of(self.settings, stores, FakeLogs(), self.clock)
        sources = HealthSources(
            stores.memory,
            stores,
            rules=lambda: ([rule], "UTC"),
            awake=self._awake,
            troubles=dict,
            inspections=[],
            dropped=lambda: 0,
        )
        progress = RuleProgressReader(stores.memory, stores.facts, self._awake, self.clock)
        collector = HealthCollector(sources, self.clock, progress)
        self._heartbeat = Heartbeat(collector.collect, self.clock, self._metrics.append)
        self._reads = RuleReads(
            stores,
            progress,
            loaded=lambda: (self._rules, "UTC"),
            paused=lambda: dict.fromkeys(self.paused, "uid 0"),
            clock=self.clock,
        )

    def _awake(self, rules: Sequence[ConsolidationRule]) -> list[ConsolidationRule]:
        return [each for each in rules if each.id not in self.paused]

    async def begin(self, after: Position = START) -> None:
        await self.stores.facts.watermarks.begin(self.rule.id, after, served=self.clock.now())

    async def put(self, *ids: str, **overrides: Any) -> None:
        """Put episodes with the current time, unless `overrides` has a timestamp."""
        fields = {"timestamp": self.clock.now()} | overrides
        await self.stores.memory.put_many([triple(id, "ada", "likes", id, **fields) for id in ids])

    async def fire(self) -> None:
        await self._runner.fire(FireRequest(self.rule, "every", self.clock.now()))

    def pause(self) -> None:
        self.paused.add(self.rule.id)
        file = self.settings.state_dir / "paused.json"
        file.write_text('{"version": 1, "paused": {"likes": "uid 0"}}')

    async def beat(self) -> dict[str, float]:
        """Return the metrics that the heartbeat writes, without their prefixes."""
        with capture_logs():
            await self._heartbeat.beat()
        families = text_string_to_metric_families(self._metrics[-1].decode())
        samples = [sample for family in families for sample in family.samples]
        return {sample.name.removeprefix("slumberd_"): sample.value for sample in samples}

    def status(self) -> dict[str, Any]:
        """Return the rule as `slumberd status` and `slumberd rules` print it."""
        [state] = read_status(self.settings, self._rules, self.clock.now(), self.paused).rules
        return state.document()

    async def operation(self) -> dict[str, Any]:
        """Return the rule as the operation `rules` of a running daemon returns it."""
        answer = await handlers_of(self._reads)["rules"]({}, Caller.here())
        [found] = answer["rules"]
        return dict(found)

    def doctor(self, *, runs: bool) -> dict[str, str]:
        """Return the findings on the rule, while a daemon runs or not."""
        daemon = {"rules_hash": self._rules.content_hash, "uptime_seconds": 9e9} if runs else None
        now = self.clock.now()
        context = DoctorContext(self.settings, self._rules, None, daemon, now, QUIET)
        found = run_checks(context).findings
        return {each.id: each.problem for each in found if each.subject == "rule likes"}


@dataclass(frozen=True)
class Expected:
    """The values that all three reports show of a rule.

    Attributes:
        pending: The versions above its watermark.
        oldest_at: The timestamp of the first of these versions.
        late: For how many seconds it has been due.
        next_at: Its next cron instant.
        held: Whether a batch awaits approval.
        quarantined: How many episodes are quarantined for it.
        reported: Whether `doctor` reports it as late, without and with a daemon.
    """

    pending: int = 0
    oldest_at: datetime | None = None
    late: float = 0.0
    next_at: datetime | None = None
    held: bool = False
    quarantined: int = 0
    reported: tuple[bool, bool] = (False, False)


async def _read_all(reported: ReportedRule) -> None:
    await reported.begin()
    await reported.put("e1")
    await reported.fire()


async def _too_few(reported: ReportedRule) -> None:
    await reported.begin()
    await reported.put("e1")
    reported.clock.advance(MINUTE)


async def _enough_now(reported: ReportedRule) -> None:
    await _read_all(reported)
    reported.clock.advance(HOUR)
    await reported.put("e2")


async def _enough_for(reported: ReportedRule, seconds: float) -> None:
    await _read_all(reported)
    reported.clock.advance(HOUR)
    await reported.put("e2")
    await reported.beat()
    reported.clock.advance(seconds)


async def _enough_for_a_minute(reported: ReportedRule) -> None:
    await _enough_for(reported, MINUTE)


async def _enough_for_an_hour(reported: ReportedRule) -> None:
    await _enough_for(reported, HOUR)


async def _old_import(reported: ReportedRule) -> None:
    await _read_all(reported)
    reported.clock.advance(5 * MINUTE)
    await reported.put("e2", timestamp=at(-HOUR))


async def _first_row_replaced(reported: ReportedRule) -> None:
    await _read_all(reported)
    await reported.put("e2", timestamp=at(1))
    await reported.put("e3", timestamp=at(2))
    await reported.put("e2", timestamp=at(3), content="again")
    await reported.beat()
    reported.clock.advance(HOUR)


async def _first_row_deleted(reported: ReportedRule) -> None:
    await _read_all(reported)
    await reported.put("e2", timestamp=at(1))
    await reported.put("e3", timestamp=at(2))
    await _sql(reported, "DELETE FROM episodes WHERE id = 'e2'")
    await reported.beat()
    reported.clock.advance(HOUR)


async def _first_dated_ahead(reported: ReportedRule) -> None:
    await _read_all(reported)
    await _sql(
        reported,
        "INSERT INTO episodes (id, scope_key, content, timestamp, metadata) "
        "SELECT 'e2', scope_key, content, '2027-01-01T00:00:00+00:00', metadata FROM episodes",
    )
    await reported.beat()
    reported.clock.advance(HOUR)


async def _paused(reported: ReportedRule) -> None:
    await _enough_for(reported, HOUR)
    reported.pause()


async def _held(reported: ReportedRule) -> None:
    await _read_all(reported)
    gone = {"intent": "delete", "replaces": "e1"}
    await reported.put("e2", metadata=gone)
    await reported.fire()
    await reported.beat()
    reported.clock.advance(HOUR)


async def _quarantined(reported: ReportedRule) -> None:
    await reported.begin()
    await reported.put("e1", metadata={"intent": "shout"})
    await reported.fire()


async def _not_begun(reported: ReportedRule) -> None:
    await reported.put("e1", "e2")
    reported.clock.advance(HOUR)


async def _before_its_instant(reported: ReportedRule) -> None:
    await _enough_for(reported, MINUTE)


async def _just_after_its_instant(reported: ReportedRule) -> None:
    await reported.begin()
    reported.clock.advance(15 * HOUR + 30)


async def _five_minutes_after_its_instant(reported: ReportedRule) -> None:
    await reported.begin()
    reported.clock.advance(15 * HOUR + 5 * MINUTE)


async def _an_hour_after_its_instant(reported: ReportedRule) -> None:
    await reported.begin()
    reported.clock.advance(16 * HOUR)


async def _paused_after_its_instant(reported: ReportedRule) -> None:
    await _an_hour_after_its_instant(reported)
    reported.pause()


async def _sql(reported: ReportedRule, statement: str) -> None:
    """Let another program change the episodes."""
    await asyncio.to_thread(_execute, reported.settings.memory_path, statement)


def _execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


EVERY, EVERY_SECOND = rule("likes"), rule("likes", cadence={"every": 2})
CAUTIOUS = rule("likes", limits={"max_deletes": 0})
CRON = rule("likes", cadence=NIGHTLY)
TWO_CHANNELS = rule("likes", then_emits=["facts", "notes"])
NEW = rule("likes", start="now")
YES, NO = True, False

TABLE = [
    pytest.param(EVERY, _read_all, Expected(), id="all read"),
    pytest.param(EVERY_SECOND, _too_few, Expected(1, at(0)), id="too few"),
    pytest.param(
        EVERY, _enough_now, Expected(1, at(HOUR), reported=(YES, NO)), id="enough, since now"
    ),
    pytest.param(
        EVERY,
        _enough_for_a_minute,
        Expected(1, at(HOUR), MINUTE, reported=(YES, NO)),
        id="enough, for a minute",
    ),
    pytest.param(
        EVERY,
        _enough_for_an_hour,
        Expected(1, at(HOUR), HOUR, reported=(YES, YES)),
        id="enough, for an hour",
    ),
    pytest.param(
        EVERY, _old_import, Expected(1, at(-HOUR), reported=(YES, NO)), id="old episodes, since now"
    ),
    pytest.param(
        EVERY,
        _first_row_replaced,
        Expected(3, at(3), HOUR - 3, reported=(YES, YES)),
        id="the first version was replaced",
    ),
    pytest.param(
        EVERY,
        _first_row_deleted,
        Expected(2, at(2), HOUR - 2, reported=(YES, YES)),
        id="the first episode was deleted",
    ),
    pytest.param(
        EVERY,
        _first_dated_ahead,
        Expected(1, at(0).replace(year=2027, hour=0), HOUR, reported=(YES, YES)),
        id="the first episode is dated ahead",
    ),
    pytest.param(EVERY, _paused, Expected(1, at(HOUR)), id="paused"),
    pytest.param(CAUTIOUS, _held, Expected(1, at(0), held=True), id="held"),
    pytest.param(EVERY, _quarantined, Expected(quarantined=1), id="quarantined"),
    pytest.param(
        TWO_CHANNELS, _quarantined, Expected(quarantined=1), id="quarantined in two channels"
    ),
    pytest.param(EVERY, _not_begun, Expected(2, at(0)), id="not begun"),
    pytest.param(NEW, _not_begun, Expected(), id="not begun, and starts now"),
    pytest.param(
        CRON, _before_its_instant, Expected(1, at(HOUR), next_at=NEXT_NIGHT), id="cron, before"
    ),
    pytest.param(
        CRON,
        _just_after_its_instant,
        Expected(late=30, next_at=NEXT_NIGHT + timedelta(days=1)),
        id="cron, 30 s after",
    ),
    pytest.param(
        CRON,
        _five_minutes_after_its_instant,
        Expected(late=5 * MINUTE, next_at=NEXT_NIGHT + timedelta(days=1), reported=(YES, NO)),
        id="cron, 5 min after",
    ),
    pytest.param(
        CRON,
        _an_hour_after_its_instant,
        Expected(late=HOUR, next_at=NEXT_NIGHT + timedelta(days=1), reported=(YES, YES)),
        id="cron, an hour after",
    ),
    pytest.param(
        CRON,
        _paused_after_its_instant,
        Expected(next_at=NEXT_NIGHT + timedelta(days=1)),
        id="cron, paused",
    ),
]


@pytest.mark.parametrize(("rule", "prepare", "expected"), TABLE)
async def test_heartbeat_doctor_status_and_operation_agree_on_a_rule(
    tmp_path: Path,
    rule: ConsolidationRule,
    prepare: Callable[[ReportedRule], Awaitable[None]],
    expected: Expected,
) -> None:
    settings = Settings(state_dir=tmp_path, rules_dir=tmp_path)
    async with open_stores(settings, FakeClock(at(0)), settings.facts_path) as stores:
        reported = ReportedRule(tmp_path, rule, stores)
        await prepare(reported)

        beat, status = await reported.beat(), reported.status()
        down, up = reported.doctor(runs=False), reported.doctor(runs=True)
        answered = await reported.operation()

    assert answered["state"] == orjson.loads(orjson.dumps(status))
    assert answered["late_seconds"] == expected.late
    assert answered["outlook"]["paused"] == status["paused"]
    oldest_at, next_at = expected.oldest_at, expected.next_at
    age = (reported.clock.now() - oldest_at).total_seconds() if oldest_at else 0.0
    assert (beat["rule_pending_episodes"], status["pending"]) == (expected.pending,) * 2
    assert beat["rule_oldest_pending_seconds"] == age
    assert status["oldest_pending"] == (oldest_at.isoformat() if oldest_at else None)
    assert beat["rule_late_seconds"] == expected.late
    assert ("rule.late" in down, "rule.late" in up) == expected.reported
    assert beat.get("next_firing_timestamp_seconds") == (next_at.timestamp() if next_at else None)
    assert status["next_at"] == (f"{next_at:%Y-%m-%dT%H:%M:%S.%fZ}" if next_at else None)
    assert (beat["rule_held_batches"], bool(status["held_firing_id"])) == (
        expected.held,
        expected.held,
    )
    assert ("rule.held" in down, "rule.held" in up) == (expected.held, expected.held)
    assert (beat["rule_quarantined_episodes"], status["quarantined"]) == (expected.quarantined,) * 2
    assert ("episodes.quarantined" in up) == bool(expected.quarantined)
