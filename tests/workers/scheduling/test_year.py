"""A daemon serves every cron instant once, at a million times the speed.

The real process runs under libfaketime (Debian's package ``faketime``), which lets all of its
clocks run much faster. The test computes the expected instants itself, with zoneinfo alone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from slumberd.model.firing import START as BEGINNING
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from slumberd.workers.scheduling.cron import MOST_COUNTED
from tests.support.builders import triple
from tests.support.daemons import Event, Home

pytestmark = pytest.mark.acceptance

EPISODES = 50
LATER = timedelta(days=730)
"""How long after the end instants are expected: in a start of a minute two years pass."""
SUNDAY = 7

ZONES = {"berlin": ZoneInfo("Europe/Berlin"), "new_york": ZoneInfo("America/New_York")}
EXPRESSIONS = {
    "hourly": "0 * * * *",
    "at_half_past_two": "30 2 * * *",
    "on_sundays": "*/20 1-3 * * 0",
    "twice_a_month": "15 9 1,15 * *",
}
RULES = {f"{name}.{place}": (name, zone) for name in EXPRESSIONS for place, zone in ZONES.items()}


def libfaketime() -> str:
    """Return the path of the library, or skip the test without it."""
    for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"):
        return str(path)
    pytest.skip("no clock is run fast: the Debian package faketime is not installed")


def instants(name: str, zone: ZoneInfo, first: datetime, end: datetime) -> list[datetime]:
    """Return every instant from `first` until the daemon can have ended, in order."""
    if name in ("hourly", "on_sundays"):
        every = _every(timedelta(minutes=20), first, end)
        return [at for at in every if _matches(name, at.astimezone(zone))]
    time = (2, 30) if name == "at_half_past_two" else (9, 15)
    days = _every(timedelta(days=1), first, end)
    return [
        _first_instant(day.replace(tzinfo=None, hour=time[0], minute=time[1]), zone)
        for day in days
        if name != "twice_a_month" or day.day in (1, 15)
    ]


def _every(step: timedelta, first: datetime, end: datetime) -> list[datetime]:
    return [first + number * step for number in range((end + LATER - first) // step)]


def _matches(name: str, wall: datetime) -> bool:
    """Return whether an expression with a star matches this local time."""
    if name == "hourly":
        return wall.minute == 0
    return wall.isoweekday() == SUNDAY and wall.hour in (1, 2, 3)


def _first_instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant of a local time, or the end of the gap that skips it."""
    midnight = local.replace(hour=0, minute=0, tzinfo=zone).astimezone(UTC)
    quarters = (midnight + number * timedelta(minutes=15) for number in range(100))
    return next(at for at in quarters if at.astimezone(zone).replace(tzinfo=None) >= local)


async def put(home: Home, count: int) -> None:
    """Put some episodes."""
    async with SQLiteMemoryStore(home.state / "memory.db") as memory:
        await memory.bootstrap()
        await memory.put_many([triple(f"e{n}", "alice", f"knows {n}", n) for n in range(count)])


async def begin(home: Home, first: datetime) -> None:
    """Put some episodes, and mark every rule as served up to `first`."""
    await put(home, EPISODES)
    async with SQLiteFactStore(home.state / "facts.db") as facts:
        await facts.bootstrap()
        for rule_id in RULES:
            await facts.watermarks.begin(rule_id, BEGINNING, served=first)


def run_from(home: Home, first: datetime, end: datetime) -> dict[str, list[Event]]:
    """Run the daemon between two instants; return its ``firing.served`` events by rule."""
    served = defaultdict(list)
    clock = f"@{first:%Y-%m-%d %H:%M:%S} x1000000"
    with home.daemon(LD_PRELOAD=libfaketime(), FAKETIME=clock, TZ="UTC") as daemon:
        # The scheduler serves due instants in order, so no older instant follows this event.
        event = daemon.wait_for("firing.served")
        while datetime.fromisoformat(event["first"]) < end:
            served[event["rule_id"]].append(event)
            event = daemon.wait_for("firing.served")
    return served


def served_instants(events: list[Event], all_of_them: list[datetime]) -> list[datetime]:
    """Return the instants between the first and last of each firing."""
    found = []
    for event in events:
        first, upto = (datetime.fromisoformat(event[key]) for key in ("first", "upto"))
        meant = [at for at in all_of_them if first <= at <= upto]
        # On a busy machine one firing serves more instants than it counts.
        assert min(len(meant), MOST_COUNTED) == max(event["missed_count"], 1), event
        assert {first, upto} <= set(meant), event
        found += meant
    return found


@pytest.mark.parametrize(
    ("first", "end"),
    [
        pytest.param("2026-02-15", "2026-04-15", id="in which both zones change their clocks"),
        pytest.param("2026-01-01", "2027-01-01", id="of a year", marks=pytest.mark.nightly),
    ],
)
def test_every_instant_is_served_once(tmp_path: Path, first: str, end: str) -> None:
    beginning, ending = (datetime.fromisoformat(at).replace(tzinfo=UTC) for at in (first, end))
    home = Home(tmp_path)
    for rule_id, (name, zone) in RULES.items():
        cadence = {"cron": EXPRESSIONS[name], "timezone": zone.key}
        home.rule(
            rule_id, cadence=cadence, catchup_window="366d"
        )  # a start takes months of fast time
    asyncio.run(begin(home, beginning))

    served = run_from(home, beginning, ending)

    for rule_id, (name, zone) in RULES.items():
        expected = [at for at in instants(name, zone, beginning, ending) if at > beginning]
        found = served_instants(served[rule_id], expected)
        assert found == expected[: len(found)], rule_id
        assert expected[len(found)] >= ending, rule_id
    assert len(home.facts()) == EPISODES
    home.call("audit", "verify")


@pytest.mark.nightly
@pytest.mark.parametrize("now", ["1969-12-31 23:59:58", "2100-02-28 23:59:58"])
def test_daemon_with_a_wrong_clock_consolidates(tmp_path: Path, now: str) -> None:
    home = Home(tmp_path)
    home.rule("all", cadence={"every": 1})
    # A daemon that starts after midnight, on a busy machine, is due a minute later.
    home.rule("minutely", cadence={"cron": "* * * * *", "timezone": "Europe/Berlin"})
    asyncio.run(put(home, EPISODES))

    with home.daemon(LD_PRELOAD=libfaketime(), FAKETIME=f"@{now}", TZ="UTC") as daemon:
        daemon.wait_until_read(EPISODES)
        daemon.wait_for("firing.completed", lambda event: event["rule_id"] == "minutely")

    own = {entry["rule_id"] for fact in home.facts() for entry in fact["lineage"]}
    assert own == {"all", "minutely"}
    assert len(home.facts()) == EPISODES
    home.call("audit", "verify")
