"""The daemon logs, and doctor reports, that many facts went within a day."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from slumberd.daemon import background
from slumberd.daemon.background import PAUSES, ReductionAlarm
from slumberd.model.episode import Episode, microseconds
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import NO_LIMITS
from slumberd.model.record import (
    FiringGrowth,
    Reduction,
    Retraction,
    Shrinkage,
    shrinkage_of,
)
from slumberd.model.scope import channel_of
from slumberd.model.stages import MARKS, STAGE_CHANNELS, Decay, Summarise
from slumberd.operations.caller import Caller
from slumberd.operations.writes.erasures import ForgetForm
from tests.support.builders import START, at, episode, rule, triple
from tests.support.fakes import FakeClock
from tests.support.installation import RULES, Installation
from tests.support.open_stores import OpenStores, open_stores
from tests.support.providers import Provider

NO_READS: Any = None
"""The ledger, where a test gives what was read."""

NARROWED = rule("all", when_filter="object < 20")


def facts_of(user: str, count: int) -> list[Episode]:
    return [
        triple(f"{user}{n}", f"{user} {n}", "is", n, user=user, timestamp=at(n))
        for n in range(count)
    ]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("now", "changes", "expected"),
    [
        ({"ann": 80}, [("ann", -20)], [Reduction(None, 100, 80), Reduction("ann", 100, 80)]),
        ({"ann": 81}, [("ann", -19)], []),
        ({"ann": 15, "bob": 985}, [("ann", -6)], [Reduction("ann", 21, 15)]),
        ({"ann": 15, "bob": 985}, [("ann", -5)], []),
        ({"bob": 70}, [("", -30)], [Reduction(None, 100, 70)]),
        ({}, [("ann", -30)], [Reduction(None, 30, 0), Reduction("ann", 30, 0)]),
        ({"ann": 80}, [("ann", 20)], []),
        (
            {"ann": 5},
            [("ann", 25), ("ann", -20)],
            [Reduction(None, 25, 5), Reduction("ann", 25, 5)],
        ),
        ({"ann": 25}, [("ann", -20), ("ann", 20)], []),
        ({}, [], []),
    ],
)
def test_a_fraction_of_enough_facts_is_alarming(
    now: dict[str, int], changes: list[tuple[str, int]], expected: list[Reduction]
) -> None:
    numbered = [FiringGrowth(number, *change) for number, change in enumerate(changes)]

    assert [*shrinkage_of(now, numbered).reductions(0.2)] == expected


@pytest.mark.unit
def test_facts_that_replace_others_in_one_firing_are_no_reduction() -> None:
    changes = [FiringGrowth(1, "ann", -30), FiringGrowth(1, "bob", 30)]

    assert [*shrinkage_of({"bob": 30}, changes).reductions(0.2)] == [Reduction("ann", 30, 0)]


@pytest.mark.unit
@pytest.mark.parametrize("order", [1, -1])
def test_what_one_firing_removes_and_restores_is_no_reduction(order: int) -> None:
    changes = [FiringGrowth(1, "ann", 30), FiringGrowth(1, "ann", -30)][::order]

    assert shrinkage_of({"ann": 30}, changes) == Shrinkage({"ann": 30}, {"ann": 30}, 30)


@pytest.mark.unit
def test_without_a_fraction_nothing_is_alarming() -> None:
    assert [*shrinkage_of({}, [FiringGrowth(1, "ann", -30)]).reductions(None)] == []


@pytest.mark.unit
def test_a_reduction_in_words() -> None:
    assert Reduction(None, 1000, 750).words() == (
        "there are 750 of 1,000 facts within the last 24 hours (25 % went)"
    )
    assert Reduction("ann", 40, 0).words().startswith("user 'ann' has 0 of 40 facts")


async def shrinkage(home: OpenStores) -> Shrinkage:
    return await home.facts.reads.shrinkage(microseconds(START - timedelta(days=1)))


@pytest.mark.integration
async def test_every_cause_is_counted(provider: Provider) -> None:
    async with open_stores(provider, limits=NO_LIMITS) as home:
        await home.put(*facts_of("ann", 30), *facts_of("bob", 30), *facts_of("cat", 5))
        fired = await home.fire()
        assert (await shrinkage(home)).now == {"ann": 30, "bob": 30, "cat": 5}
        assert (await shrinkage(home)).most_of_all == 65

        await home.consolidator.backfill(NARROWED, at(60), by="me")
        await home.facts.unpin("ann1")
        operations = home.operations(rule("all"), clock=FakeClock(at(70)))
        await operations.erasures.forget(ForgetForm(user="cat"), Caller.of_user(1, 1))

        found = await shrinkage(home)
        assert found == Shrinkage({"ann": 19, "bob": 20}, {"ann": 30, "bob": 30}, most_of_all=65)

        await home.facts.ledger.undo(fired.firing_ids[0], at=at(80), by="me", dry_run=False)
        assert await shrinkage(home) == Shrinkage({}, {"ann": 30, "bob": 30}, most_of_all=65)


@pytest.mark.integration
async def test_update_that_replaces_several_facts_is_counted(provider: Provider) -> None:
    async with open_stores(provider, limits=NO_LIMITS) as home:
        await home.put(*facts_of("ann", 30))
        await home.fire()
        named = [f"ann{number}" for number in range(1, 10)]
        names = {"intent": "update", "replaces": named}
        await home.put(
            triple("new", "ann 0", "is", "new", user="ann", timestamp=at(50), metadata=names)
        )

        await home.fire()

        assert await shrinkage(home) == Shrinkage({"ann": 21}, {"ann": 30}, most_of_all=30)


@pytest.mark.integration
async def test_what_stages_write_is_not_counted(provider: Provider) -> None:
    stating = rule("stating", when_filter="predicate IS NOT NULL")
    async with open_stores(provider, limits=NO_LIMITS) as home:
        notes = [episode(f"n{n}", content=f"Note {n}", user="ann") for n in range(40)]
        await home.put(*facts_of("ann", 30), *facts_of("bob", 30), *notes)
        fired = await home.fire(stating)
        written = set()
        for stages in (
            (Summarise(when_more_than=10), Decay(action="reweight", half_life=60.0)),
            (Decay(half_life=60.0),),
        ):
            staged = rule("staged", when_filter="predicate IS NULL", stages=stages, then_emits=[])
            await home.fire(staged, when=at(86_400))
            await home.consolidator.backfill(staged, at(86_400), by="me")
            for channel in STAGE_CHANNELS:
                written |= {fact.id for fact in await marks_of(home, channel)}
        assert {channel_of(fact_id) for fact_id in written} == STAGE_CHANNELS

        as_before = {"ann": 30, "bob": 30}
        assert await shrinkage(home) == Shrinkage(as_before, as_before, most_of_all=60)
        for fact in (await marks_of(home, MARKS))[:9]:
            await home.facts.retract(fact.id, by="me", reason="still of use")
        assert await shrinkage(home) == Shrinkage(as_before, as_before, most_of_all=60)

        operations = home.operations(stating, clock=FakeClock(at(86_400)))
        await operations.erasures.forget(ForgetForm(user="ann"), Caller.of_user(1, 1))
        assert await shrinkage(home) == Shrinkage({"bob": 30}, {"bob": 30}, most_of_all=60)

        await home.facts.ledger.undo(fired.firing_ids[0], at=at(86_401), by="me", dry_run=False)
        assert await shrinkage(home) == Shrinkage({}, {"bob": 30}, most_of_all=60)


async def marks_of(home: OpenStores, channel: str) -> list[Fact]:
    return await home.facts.query(FactPattern(channel=channel, limit=99))


@pytest.mark.integration
async def test_the_alarm_logs_a_reduction_once(provider: Provider) -> None:
    clock = FakeClock(START)
    async with open_stores(provider) as home:
        await home.put(*facts_of("ann", 30), *facts_of("bob", 300))
        await home.fire()
        clock.advance(2 * 86_400)
        alarm = ReductionAlarm(home.facts.reads, lambda: 0.2, clock)
        with capture_logs() as logs:
            await alarm.check()
            for number in range(8):
                await home.consolidator.retry(rule("all"), clock.now(), by="me")
                await home.facts.unpin(f"ann{number}")
                await alarm.check()

    assert [line for line in logs if line["event"] == "facts.reduced"] == [
        {"event": "facts.reduced", "log_level": "warning", "before": 30, "now": 24, "users": 1}
    ]


@pytest.mark.integration
async def test_facts_that_an_undo_restored_and_that_were_replaced_again_do_not_alarm(
    provider: Provider,
) -> None:
    newer = [
        triple(f"new{n}", f"ann {n}", "is", 99, timestamp=at(60), user="ann") for n in range(30)
    ]
    async with open_stores(provider) as home:
        await home.put(*facts_of("ann", 30))
        await home.fire()
        await home.put(*newer)
        (second,) = (await home.fire()).firing_ids
        await home.facts.ledger.undo(second, at=at(70), by="me", dry_run=False)
        assert await home.objects() == {f"ann{n}": n for n in range(30)}
        await home.consolidator.backfill(rule("all"), at(80), by="me")

        found = await home.facts.reads.shrinkage(0)

    assert found == Shrinkage({"ann": 30}, {"ann": 30}, 30)


@pytest.mark.integration
def test_status_and_the_log_show_a_reduction(tmp_path: Path) -> None:
    site = Installation(tmp_path)
    site.put(*facts_of("ann", 30))
    assert site.call("fire", "profile").returncode == 0
    assert reductions(site) == []

    assert site.call("unpin", *(f"ann{n}" for n in range(9)), "--reason", "r").returncode == 0

    (problem,) = reductions(site)
    assert "there are 21 of 30 facts" in problem
    assert "user 'ann' has 21 of 30 facts" in problem
    lines = [json.loads(line) for line in (site.state / "slumberd.log").read_text().splitlines()]
    (line,) = [line for line in lines if line["event"] == "facts.reduced"]
    assert (line["level"], line["before"], line["now"], line["users"]) == ("warning", 30, 21, 1)
    site.config.write_text(site.config.read_text() + "limits: {alarm_fraction: null}\n")
    assert reductions(site) == []


def reductions(site: Installation) -> list[str]:
    done = site.call("status", "--check", "--json")
    findings = json.loads(done.stdout)["findings"]
    return [one["problem"] for one in findings if one["id"] == "facts.reduced"]


def retracted(logs: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, int, str]]:
    """Return the rule, the counts and the remedy of each ``facts.retracted``."""
    return [
        (line["rule_id"], line["retracted"], line["before"], line["remedy"])
        for line in logs
        if line["event"] == "facts.retracted"
    ]


@pytest.mark.integration
@pytest.mark.parametrize("batch", [7, 1000], ids=["many batches", "one batch"])
async def test_a_command_that_retracts_many_facts_is_logged_once(
    provider: Provider, batch: int
) -> None:
    async with open_stores(provider, limits=NO_LIMITS, batch=batch) as home:
        await home.put(*facts_of("ann", 30), *facts_of("bob", 60))
        await home.fire()
        alarm = ReductionAlarm(home.facts.reads, lambda: 0.2, FakeClock(at(60)), rows=0)
        with capture_logs() as quiet:
            await alarm.check()
        with capture_logs() as logs:
            report = await home.consolidator.backfill(NARROWED, at(60), by="me", run="run1")
            await alarm.check()
            await home.facts.unpin("ann1")
            await alarm.check()
            for firing_id in report.firing_ids:
                await home.facts.ledger.undo(firing_id, at=at(80), by="me", dry_run=False)
            await alarm.check()

    assert retracted(quiet) == []
    [(rule_id, count, before, remedy)] = retracted(logs)
    assert (rule_id, count, before) == ("all", 50, 90)
    assert remedy == "slumberd undo --run run1"


@pytest.mark.unit
def test_batches_of_one_command_between_two_looks_are_added() -> None:
    alarm = ReductionAlarm(NO_READS, lambda: 0.5, FakeClock(START), rows=0)
    batches = [Retraction(f"all@{n}", "all", "run1", 15) for n in range(4)]
    other = Retraction("few@9", "few", "run2", 15)

    with capture_logs() as logs:
        for look in ([batches[0]], [*batches[1:3], other], [batches[3]], [other]):
            alarm.check_commands(look, 80)

    assert retracted(logs) == [("all", 45, 80, "slumberd undo --run run1")]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("rule_id", "count", "fraction", "remedy"),
    [
        pytest.param("all", 40, 0.5, "slumberd undo all@1", id="as many as alarm"),
        pytest.param("@undo", 40, 0.5, "slumberd undo @undo@1", id="an undo"),
        pytest.param("@external", 40, 0.5, "slumberd report", id="another program"),
        pytest.param("all", 39, 0.5, "", id="fewer"),
        pytest.param("all", 40, None, "", id="no alarm"),
        pytest.param("all", 20, 0.0, "", id="few facts"),
    ],
)
def test_what_is_alarming_and_how_it_is_taken_back(
    rule_id: str, count: int, fraction: float | None, remedy: str
) -> None:
    alarm = ReductionAlarm(NO_READS, lambda: fraction, FakeClock(START), rows=0)

    with capture_logs() as logs:
        alarm.check_commands([Retraction(f"{rule_id}@1", rule_id, "", count)], 80)

    assert [line[3] for line in retracted(logs)] == ([remedy] if remedy else [])


class SlowReads:
    """Reads of a ledger that take some time."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    async def ledger_rows(self) -> int:
        self._clock.advance(self._seconds)
        return 0


@pytest.mark.unit
@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 10.0), (0.1, 10.0), (2.0, 2.0 * PAUSES)])
async def test_looks_take_at_most_a_hundredth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, pause: float
) -> None:
    clock, stop, pauses = FakeClock(START), asyncio.Event(), list[float]()

    async def stop_within(event: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        event.set()

    monkeypatch.setattr(background, "set_within", stop_within)
    reads: Any = SlowReads(clock, seconds)

    await ReductionAlarm(reads, lambda: 0.5, clock, rows=0).run(stop)

    assert pauses == [pytest.approx(pause)]


@pytest.mark.path
def test_log_of_a_backfill_that_retracted_most_facts_has_what_takes_it_back(
    tmp_path: Path,
) -> None:
    site = Installation(tmp_path)
    site.put(*facts_of("ann", 30))
    assert site.call("fire", "profile").returncode == 0
    narrowed = RULES.replace("predicate IS NOT NULL", "object < 5")
    site.rules.write_text(narrowed)
    assert site.call("backfill", "profile").returncode == 0

    found = site.look("logs", "--event", "facts.retracted", "--since", "1h").stdout
    remedy = found.partition("remedy=slumberd ")[2].split()
    counts = [len(site.lines("facts"))]
    undone = site.call(*remedy)
    counts.append(len(site.lines("facts")))

    assert "rule_id=profile" in found
    assert "retracted=25" in found
    assert undone.returncode == 0
    assert counts == [5, 30]
