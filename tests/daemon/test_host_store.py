"""A host's own stores are consolidated by `consolidate` and `apply_delta` alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.daemon.host_store import (
    MOST_REFUSED,
    UNNOTICED_SECONDS,
    HostConsolidator,
    HostStores,
    open_host_stores,
)
from slumberd.model.errors import (
    ConsolidationRuleError,
    FiringTimeoutError,
    HostStoreError,
    StoppedError,
)
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.sqlite.host_record import HostRecord
from slumberd.workers.scheduling.due import Due
from slumberd.workers.scheduling.scheduler import Scheduler
from tests.support.builders import START, rule
from tests.support.daemons import PATIENCE_SECONDS, Daemon, Home
from tests.support.fakes import FakeClock, FakeDeltaLog
from tests.support.forked_commands import start_command
from tests.support.host_stores import (
    FOLDER_VARIABLE,
    KILL_VARIABLE,
    HostDelta,
    HostEpisode,
    HostFactStore,
    HostMemoryStore,
)
from tests.support.repository import ROOT
from tests.support.sample_sizes import amount

ALL = rule("all", cadence={"every": 1})
DUE = Due("all", "every", START)
MODULE = "tests.support.host_stores"


class KilledError(BaseException):
    """Stands for the end of the process: nothing of the product catches it."""


@dataclass
class KillableFactStore(HostFactStore):
    """Ends the process before or after one of its deltas."""

    kill: str = ""
    left: int = 0

    async def apply_delta(self, delta: Any) -> None:
        self.left -= 1
        if (self.kill, self.left) == ("before", 0):
            raise KilledError
        await super().apply_delta(delta)
        if (self.kill, self.left) == ("after", 0):
            raise KilledError


@dataclass
class Host:
    """A host's stores, and slumberd's record beside them."""

    path: Path
    memory: HostMemoryStore = field(default_factory=HostMemoryStore)
    facts: KillableFactStore = field(default_factory=KillableFactStore)
    log: FakeDeltaLog = field(default_factory=FakeDeltaLog)
    clock: FakeClock = field(default_factory=FakeClock)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, *episodes: HostEpisode) -> None:
        self.memory.episodes |= {episode.id: episode for episode in episodes}

    @contextmanager
    def started(self, *rules: ConsolidationRule) -> Iterator[HostConsolidator]:
        """Open the record, as each start of the daemon does."""
        stores = HostStores("python:host:make", self.memory, self.facts)
        with closing(HostRecord(self.path)) as record:
            consolidator = HostConsolidator(stores, record, self.log, self.clock, self.stop)
            consolidator.replace(rules or [ALL], "UTC")
            yield consolidator

    async def fire(self, fired: ConsolidationRule = ALL) -> None:
        """Start, fire a rule once, and end."""
        with self.started(fired) as consolidator:
            await consolidator.fire(fired, replace(DUE, rule_id=fired.id), self.clock.now())

    def applied(self) -> list[str]:
        """Return the episodes of the deltas that the facts took, in order."""
        return [delta.source_episode_ids[0] for delta in self.facts.applied]

    def lines(self) -> list[tuple[int, str, str]]:
        """Return number, kind and episode of each line of the log."""
        return [(line.seq, line.kind, line.source_episode_ids[0]) for line in self.log.lines]

    def facts_by_id(self) -> dict[str, Any]:
        return {fact.id: fact.payload["object"] for fact in self.facts.facts.values()}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host.db")


def says(id: str, at: int, object_: object, subject: str | None = "drink") -> HostEpisode:
    return HostEpisode(id, at, subject=subject, object=object_)


async def test_second_firing_applies_only_deltas_that_the_first_did_not(host: Host) -> None:
    host.put(says("e1", 1, "tea", None), says("e2", 2, "mate", None))
    await host.fire()
    host.put(says("e3", 3, "milk", None))

    await host.fire()

    assert host.applied() == ["e1", "e2", "e3"]
    assert host.lines() == [(1, "add", "e1"), (2, "add", "e2"), (3, "add", "e3")]
    assert [batch.channels["facts"].added for batch in host.log.batches] == [2, 1]


async def test_noop_is_logged_once(host: Host) -> None:
    host.put(HostEpisode("e1", 1, intent="noop"))

    await host.fire()
    await host.fire()

    assert host.lines() == [(1, "noop", "e1")]


async def test_update_that_names_its_predecessor_replaces_it(host: Host) -> None:
    host.put(says("e1", 1, "tea"), says("e2", 2, "mate"))

    await host.fire()

    assert host.facts_by_id() == {"e2": "mate"}
    assert host.log.lines[1].replaces == ("e1",)


async def test_late_episode_in_the_middle_leaves_the_newest_value(host: Host) -> None:
    host.put(says("e1", 10, "tea"), says("e3", 30, "mate"))
    await host.fire()
    host.put(says("e0", 0, "milk"))

    await host.fire()

    assert host.facts_by_id() == {"e3": "mate"}


async def test_episode_that_is_edited_back_counts_again(host: Host) -> None:
    for value in ("tea", "mate", "tea"):
        host.put(says("e1", 1, value, None))
        await host.fire()

    assert host.facts_by_id() == {"e1": "tea"}
    assert host.applied() == ["e1"] * 3


async def test_fact_that_an_edit_no_longer_replaces_comes_back(host: Host) -> None:
    host.put(says("e1", 1, "tea"), says("e2", 2, "mate"))
    await host.fire()
    host.put(says("e2", 2, "mate", "snack"))

    await host.fire()

    assert host.facts_by_id() == {"e1": "tea", "e2": "mate"}


async def test_fact_that_the_host_removed_itself_stays_away(host: Host) -> None:
    host.put(says("e1", 1, "tea", None))
    await host.fire()
    await host.facts.unpin("e1")

    await host.fire()

    assert host.facts_by_id() == {}


async def test_pruned_episode_keeps_its_fact(host: Host) -> None:
    host.put(says("e1", 1, "tea", None))
    await host.fire()
    host.memory.episodes.clear()

    await host.fire()

    assert host.facts_by_id() == {"e1": "tea"}


async def test_delete_removes_the_facts_that_it_names(host: Host) -> None:
    host.put(says("e1", 1, "tea", None), HostEpisode("e2", 2, intent="delete", replaces=("e1",)))

    await host.fire()

    assert host.facts_by_id() == {}
    assert host.lines()[1] == (2, "delete", "e2")


async def test_rules_of_two_tenants_do_not_share_what_is_known(host: Host) -> None:
    of_alice = rule("alice", cadence={"every": 1}, when_filter="alice")
    of_bob = rule("bob", cadence={"every": 1}, when_filter="bob")
    host.put(says("a1", 1, "tea"), replace(says("b1", 1, "mate"), user="bob"))

    await host.fire(of_alice)
    await host.fire(of_bob)
    await host.fire(of_alice)

    assert [(line.rule_id, line.user) for line in host.log.lines] == [
        ("alice", "alice"), ("bob", "bob"),
    ]  # fmt: skip
    assert host.facts_by_id() == {"a1": "tea", "b1": "mate"}


@pytest.mark.parametrize(("moment", "applied"), [("before", ["e1", "e2"]), ("after", ["e1", "e2"])])
async def test_delta_in_doubt_is_applied_once(host: Host, moment: str, applied: list[str]) -> None:
    host.put(says("e1", 1, "tea", None), says("e2", 2, "mate", None))
    host.facts.kill, host.facts.left = moment, 2
    with pytest.raises(KilledError):
        await host.fire()

    await host.fire()

    assert host.applied() == applied
    assert host.lines() == [(1, "add", "e1"), (2, "add", "e2")]


async def test_delta_in_doubt_is_applied_again_when_the_store_has_no_query(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(HostFactStore, "query")
    host.put(says("e1", 1, "tea", None))
    host.facts.kill, host.facts.left = "after", 1
    with pytest.raises(KilledError):
        await host.fire()

    await host.fire()

    assert host.applied() == ["e1", "e1"]
    assert host.facts_by_id() == {"e1": "tea"}


async def test_update_in_doubt_is_applied_again_while_what_it_replaces_is_there(
    host: Host,
) -> None:
    host.put(says("e1", 10, "tea"), says("e3", 30, "mate"))
    await host.fire()
    host.put(says("e0", 0, "milk"))
    host.facts.kill, host.facts.left = "before", 3  # the update of e3, whose fact is there still
    with pytest.raises(KilledError):
        await host.fire()

    await host.fire()

    assert host.facts_by_id() == {"e3": "mate"}


async def test_fact_that_a_delta_in_doubt_may_have_removed_comes_back_without_it(
    host: Host,
) -> None:
    host.put(says("e1", 1, "tea"))
    await host.fire()
    host.put(says("e2", 2, "mate"))
    host.facts.kill, host.facts.left = "after", 1
    with pytest.raises(KilledError):
        await host.fire()
    del host.memory.episodes["e2"]

    await host.fire()

    assert host.facts_by_id() == {"e1": "tea", "e2": "mate"}


async def test_record_keeps_only_what_the_store_returns(host: Host) -> None:
    host.put(says("e1", 1, "tea", None), HostEpisode("e2", 2, intent="noop"))
    await host.fire()
    host.memory.episodes.clear()
    await host.fire()
    with closing(HostRecord(host.path)) as record:
        kept = record.rules()[0].known, record.known("all")

    host.put(says("e1", 1, "tea", None), HostEpisode("e2", 2, intent="noop"))
    await host.fire()

    assert kept == (0, (frozenset(), frozenset(), {}))
    assert host.applied() == ["e1", "e2"] * 2


async def test_line_that_a_kill_repeats_keeps_its_number(host: Host) -> None:
    class EndingLog(FakeDeltaLog):
        def applied(self, records: Sequence[Any]) -> None:
            super().applied(records)
            if len(self.lines) == 1:
                raise KilledError

    host.log = EndingLog()
    host.put(says("e1", 1, "tea", None))
    with pytest.raises(KilledError):
        await host.fire()

    await host.fire()

    assert host.lines() == [(1, "add", "e1")] * 2
    assert host.applied() == ["e1"]


async def test_refused_delta_stops_neither_other_facts_nor_its_own_retry(host: Host) -> None:
    def refusing(delta: HostDelta) -> None:
        if delta.source_episode_ids == ["e1"]:
            raise ValueError("no tea today")

    mended = host.facts.apply_delta
    host.facts.apply_delta = _checked(mended, refusing)  # type: ignore[method-assign]
    host.put(says("e1", 1, "tea"), says("e2", 2, "mate"), says("e3", 3, "rye", "bread"))

    with pytest.raises(HostStoreError, match="refused 1 deltas, the first an add of episode e1"):
        await host.fire()
    held_back = host.facts_by_id()
    host.facts.apply_delta = mended  # type: ignore[method-assign]
    await host.fire()

    assert held_back == {"e3": "rye"}
    assert host.facts_by_id() == {"e2": "mate", "e3": "rye"}
    assert host.applied() == ["e3", "e1", "e2"]


def _checked(apply: Callable[[HostDelta], Any], check: Callable[[HostDelta], None]) -> Any:
    async def apply_delta(delta: HostDelta) -> None:
        check(delta)
        await apply(delta)

    return apply_delta


async def test_firing_gives_up_when_the_store_refuses_everything(host: Host) -> None:
    asked = []

    def refusing(delta: HostDelta) -> None:
        asked.append(delta)
        raise OSError("disk full")

    host.facts.apply_delta = _checked(host.facts.apply_delta, refusing)  # type: ignore[method-assign]
    host.put(*(says(f"e{n}", n, n, None) for n in range(2 * MOST_REFUSED)))

    with pytest.raises(HostStoreError, match="disk full"):
        await host.fire()

    assert len(asked) == MOST_REFUSED


async def test_delta_without_provenance_reaches_no_store(host: Host) -> None:
    async def consolidate(rule: Any) -> list[HostDelta]:
        return [HostDelta("add", "all", [], START, fact_payload={"id": "e1"})]

    host.memory.consolidate = consolidate  # type: ignore[method-assign]

    with pytest.raises(HostStoreError, match=ConsolidationRuleError.__name__):
        await host.fire()

    assert host.applied() == []


def _deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


class _Unreadable:
    kind = "add"

    @property
    def source_episode_ids(self) -> list[str]:
        raise OSError("the row is gone")


_EARLIEST = datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))
_ODD: dict[str, Any] = {
    "identifier that is no text": HostDelta(
        "add", "all", ["o"], START, fact_payload={"id": "\ud800"}
    ),
    "payload that nests deeply": HostDelta(
        "add", "all", ["o"], START, fact_payload={"id": "o", "o": _deep()}
    ),
    "number of too many digits": HostDelta(
        "add", "all", ["o"], START, fact_payload={"id": 10**5000}
    ),
    "instant before the first": HostDelta("add", "all", ["o"], _EARLIEST, fact_payload={"id": "o"}),
    "no list of episodes": HostDelta("add", "all", 5, START, fact_payload={"id": "o"}),  # type: ignore[arg-type]
    "attribute that fails": _Unreadable(),
    "nothing": None,
}


@pytest.mark.parametrize("odd", _ODD.values(), ids=_ODD)
async def test_odd_delta_reaches_no_store_and_stops_no_other_delta(host: Host, odd: Any) -> None:
    host.memory.consolidate = _returning(odd)  # type: ignore[method-assign]

    with host.started() as consolidator:
        await consolidator.changed()
        pending = await consolidator.pending(0, at_most=2, rule_id="all")
        with pytest.raises(HostStoreError, match="refused 1 deltas, the first an odd delta"):
            await consolidator.fire(ALL, DUE, START)

    assert pending == 2
    assert host.applied() == ["last"]


def _add(id: Any, episode: Any, at: Any = START) -> HostDelta:
    payload = {"id": id, "user": "u", "agent": "a", "object": "tea"}
    return HostDelta("add", "all", [episode], at, fact_payload=payload)


def _returning(*deltas: Any) -> Any:
    async def consolidate(_: Any) -> list[Any]:
        return [*deltas, _add("last", "last")]

    return consolidate


async def test_invalid_delta_holds_back_later_deltas_of_its_facts(host: Host) -> None:
    no_source = HostDelta("add", "all", [], START, fact_payload={"id": "last", "object": "first"})
    host.memory.consolidate = _returning(no_source)  # type: ignore[method-assign]

    with pytest.raises(HostStoreError, match="refused 1 deltas"):
        await host.fire()

    assert host.applied() == []


async def test_delta_with_its_instant_as_text_is_applied_once(host: Host) -> None:
    written = _add("e1", "e1", START.isoformat())
    host.memory.consolidate = _returning(written)  # type: ignore[method-assign]

    await host.fire()
    await host.fire()

    assert host.applied() == ["e1", "last"]
    assert {line.at for line in host.log.lines} == {START}


async def test_replaced_facts_may_be_a_set(host: Host) -> None:
    update = replace(_add("e2", "e2"), kind="update", replaces={"e1"})  # type: ignore[arg-type]
    host.memory.consolidate = _returning(update)  # type: ignore[method-assign]

    await host.fire()

    assert host.log.lines[0].replaces == ("e1",)


@pytest.mark.parametrize("end", [SystemExit(0), asyncio.CancelledError()], ids=repr)
async def test_store_ends_neither_the_process_nor_slumberds_own_task(
    host: Host, end: BaseException
) -> None:
    async def ending(_: Any) -> None:
        raise end

    consolidate, apply = host.memory.consolidate, host.facts.apply_delta
    host.put(says("e1", 1, "tea"))
    host.memory.consolidate = ending  # type: ignore[assignment,method-assign]
    with pytest.raises(HostStoreError, match="'consolidate' failed: RuntimeError"):
        await host.fire()
    host.memory.consolidate = consolidate  # type: ignore[method-assign]
    host.facts.apply_delta = ending  # type: ignore[assignment,method-assign]
    with pytest.raises(HostStoreError, match="refused 1 deltas"):
        await host.fire()
    host.facts.apply_delta = apply  # type: ignore[method-assign]

    await host.fire()

    assert host.facts_by_id() == {"e1": "tea"}


async def test_delta_in_doubt_is_applied_when_the_facts_cannot_be_compared(host: Host) -> None:
    async def query(_: Any) -> list[Any]:
        return [object()]

    host.put(says("e1", 1, "tea"))
    host.facts.kill, host.facts.left = "before", 1
    with pytest.raises(KilledError):
        await host.fire()
    host.facts.query = query  # type: ignore[assignment,method-assign]

    await host.fire()

    assert host.facts_by_id() == {"e1": "tea"}


async def test_rule_that_counts_episodes_ends_at_its_timeout(host: Host) -> None:
    async def consolidate(_: Any) -> list[Any]:
        await asyncio.Event().wait()
        return []

    host.memory.consolidate = consolidate  # type: ignore[assignment,method-assign]

    with host.started(rule("all", timeout=0.001)) as consolidator:
        assert await consolidator.pending(0, at_most=1, rule_id="all") == 1


async def test_firing_stops_between_two_deltas_and_goes_on_later(host: Host) -> None:
    def stopping(_: HostDelta) -> None:
        host.stop.set()

    apply = host.facts.apply_delta
    host.facts.apply_delta = _checked(apply, stopping)  # type: ignore[method-assign]
    host.put(says("e1", 1, "tea", None), says("e2", 2, "mate", None))

    with pytest.raises(StoppedError):
        await host.fire()
    host.stop.clear()
    host.facts.apply_delta = apply  # type: ignore[method-assign]
    await host.fire()

    assert host.applied() == ["e1", "e2"]


async def test_firing_ends_at_its_timeout(host: Host) -> None:
    async def consolidate(rule: Any) -> list[HostDelta]:
        await asyncio.Event().wait()
        return []

    host.memory.consolidate = consolidate  # type: ignore[method-assign]

    with pytest.raises(FiringTimeoutError):
        await host.fire(rule("all", timeout=0.001))


async def test_stuck_log_is_no_timeout_of_the_rule(host: Host) -> None:
    class StuckLog(FakeDeltaLog):
        def applied(self, records: Sequence[Any]) -> None:
            raise TimeoutError("the reader of the log is stuck")

    host.log, log = StuckLog(), host.log
    host.put(says("e1", 1, "tea", None))
    with pytest.raises(TimeoutError, match="stuck"):
        await host.fire(rule("all", timeout=60.0))
    host.log = log

    await host.fire()

    assert host.applied() == ["e1"]
    assert host.lines() == [(1, "add", "e1")]


async def test_rule_that_a_reload_changes_reads_anew(host: Host) -> None:
    host.put(says("a1", 1, "tea"), replace(says("b1", 1, "mate"), user="bob"))
    with scheduled(host, ALL) as (scheduler, consolidator):
        await consolidator.pending(0, at_most=1, rule_id="all")
        of_bob = [rule("all", cadence={"every": 1}, when_filter="bob")]
        consolidator.replace(of_bob, "UTC")
        scheduler.replace(of_bob, "UTC")
        await scheduler.turn(host.stop)
        gone = await consolidator.pending(0, at_most=1, rule_id="removed")

    assert host.applied() == ["b1"]
    assert gone == 0


# Cadences.


@contextmanager
def scheduled(host: Host, *rules: ConsolidationRule) -> Iterator[tuple[Scheduler, Any]]:
    with host.started(*rules) as consolidator:
        both: Any = consolidator
        scheduler = Scheduler(
            clock=host.clock, episodes=both, watermarks=both, fire=consolidator.fire
        )
        scheduler.replace(rules, "UTC")
        yield scheduler, consolidator


async def test_every_fires_at_so_many_new_episodes(host: Host) -> None:
    with scheduled(host, rule("all", cadence={"every": 2})) as (scheduler, _):
        host.put(says("e1", 1, "tea", None))
        await scheduler.turn(host.stop)
        early = host.applied()
        host.put(says("e2", 2, "mate", None))
        await scheduler.turn(host.stop)
        host.put(says("e3", 3, "milk", None))
        await scheduler.turn(host.stop)

    assert early == []
    assert host.applied() == ["e1", "e2"]


async def test_store_is_read_again_only_when_its_number_of_episodes_changes(host: Host) -> None:
    host.put(says("e1", 1, "tea", None))
    with scheduled(host, rule("all", cadence={"every": 2})) as (scheduler, _):
        for _ in range(5):
            await scheduler.turn(host.stop)
        unchanged = host.memory.calls
        host.put(says("e2", 1, "mate", None))
        await scheduler.turn(host.stop)

    assert unchanged == 1
    assert host.memory.calls == 2
    assert host.applied() == ["e1", "e2"]


async def test_edit_that_changes_no_number_is_noticed_within_its_time(host: Host) -> None:
    host.put(says("e1", 1, "tea", None))
    with scheduled(host, ALL) as (scheduler, _):
        await scheduler.turn(host.stop)
        host.put(says("e1", 1, "mate", None))
        await scheduler.turn(host.stop)
        early = host.facts_by_id()
        host.clock.advance(UNNOTICED_SECONDS)
        await scheduler.turn(host.stop)

    assert early == {"e1": "tea"}
    assert host.facts_by_id() == {"e1": "mate"}


async def test_slow_store_is_left_alone_for_a_while(host: Host) -> None:
    consolidate = host.memory.consolidate

    async def slow(rule: Any) -> list[HostDelta]:
        host.clock.advance(2.0)
        return await consolidate(rule)

    host.memory.consolidate = slow  # type: ignore[method-assign]
    with scheduled(host, rule("all", cadence={"every": 9})) as (scheduler, _):
        for n in range(3):
            host.put(says(f"e{n}", n, n, None))
            await scheduler.turn(host.stop)
        soon = host.memory.calls
        host.clock.advance(20.0)
        await scheduler.turn(host.stop)

    assert (soon, host.memory.calls) == (1, 2)


async def test_interrupted_firing_goes_on_although_few_episodes_are_new(host: Host) -> None:
    every = rule("all", cadence={"every": 3})
    host.put(*(says(f"e{n}", n, n, None) for n in range(3)))
    host.facts.kill, host.facts.left = "after", 2
    with pytest.raises(KilledError):
        await host.fire(every)

    with scheduled(host, every) as (scheduler, _):
        await scheduler.turn(host.stop)

    assert sorted(host.facts_by_id()) == ["e0", "e1", "e2"]


async def test_cron_fires_once_for_an_instant_over_restarts(host: Host) -> None:
    nightly = rule("all", cadence={"cron": "0 3 * * *"})
    with scheduled(host, nightly) as (scheduler, _):
        await scheduler.turn(host.stop)
    host.put(says("e1", 1, "tea", None))
    host.clock.advance(timedelta(days=1).total_seconds())

    for _ in range(2):
        with scheduled(host, nightly) as (scheduler, _):
            await scheduler.turn(host.stop)

    assert host.applied() == ["e1"]
    assert host.memory.calls == 1


async def test_rule_whose_store_fails_leaves_other_rules_alone(host: Host) -> None:
    consolidate = host.memory.consolidate

    async def failing(rule: Any) -> list[HostDelta]:
        if rule.id == "a":
            raise ValueError("no such column")
        return await consolidate(rule)

    host.memory.consolidate = failing  # type: ignore[method-assign]
    host.put(says("e1", 1, "tea", None))
    rules = [rule(name, cadence={"every": 1}) for name in ("a", "b")]
    with scheduled(host, *rules) as (scheduler, _):
        await scheduler.turn(host.stop)

    assert host.applied() == ["e1"]
    assert list(scheduler.troubles.by_rule) == ["a"]


# Factories.


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("make_nothing", "object has no coroutine method 'consolidate'", id="no store"),
        pytest.param("make_stores", "KeyError", id="fails"),
    ],
)
async def test_factory_that_makes_no_store_is_named(
    name: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)

    with pytest.raises(HostStoreError, match=f"{MODULE}:{name}.*{problem}"):
        await open_host_stores(f"python:{MODULE}:{name}")


# All histories.

USERS = ("alice", "bob")
IDS = [f"{user}-{n}" for user in USERS for n in range(4)]
EPISODES = st.builds(
    lambda id, at, subject, object_, intent, other: HostEpisode(
        id,
        at,
        user=id.partition("-")[0],
        subject=subject,
        object=object_,
        intent=intent,
        replaces=(f"{id.partition('-')[0]}-{other}",),
    ),
    st.sampled_from(IDS),
    st.integers(0, 5),
    st.sampled_from([None, "drink", "snack"]),
    st.integers(0, 2),
    st.sampled_from(["", "", "", "noop", "delete", "update"]),
    st.integers(0, 3),
)
Step = HostEpisode | str | tuple[str, int]
STEPS = st.lists(
    st.one_of(
        EPISODES,
        st.sampled_from(IDS),
        st.just(("", 0)),
        st.tuples(st.sampled_from(["before", "after"]), st.integers(1, 6)),
    ),
    max_size=25,
)
"""Put an episode, prune one, fire, or be killed in a firing and fire again."""


class Applies:
    """The oracle: it applies every delta of every call, and keeps no record."""

    def __init__(self, memory: HostMemoryStore) -> None:
        self.memory = memory
        self.facts: dict[str, tuple[Any, ...]] = {}
        self.asked: set[tuple[str, ...]] = set()

    async def fire(self, fired: ConsolidationRule) -> None:
        for delta in await self.memory.consolidate(fired):
            self.asked.add((delta.rule_id, delta.kind, *delta.source_episode_ids))
            for gone in delta.replaces or ():
                self.facts.pop(gone, None)
            if delta.fact_payload:
                said = delta.fact_payload
                self.facts[said["id"]] = (said["user"], said["subject"], said["object"])


@pytest.mark.sampled
@settings(max_examples=amount(150, full=2_000), deadline=None)
@given(steps=STEPS)
def test_facts_are_those_of_a_host_that_applies_every_delta_each_time(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    asyncio.run(compare_with_oracle(Host(tmp_path_factory.mktemp("host") / "host.db"), steps))


async def compare_with_oracle(host: Host, steps: Sequence[Step]) -> None:
    oracle = Applies(host.memory)
    rules = [rule(user, cadence={"every": 1}, when_filter=user) for user in USERS]
    for step in steps:
        match step:
            case HostEpisode():
                host.put(step)
                continue
            case str():
                host.memory.episodes.pop(step, None)
                continue
            case kill, left:
                host.facts.kill, host.facts.left = kill, left
        for fired in rules:
            try:
                await host.fire(fired)
            except KilledError:
                await host.fire(fired)
            await oracle.fire(fired)
        assert {
            fact.id: (fact.user, fact.payload["subject"], fact.payload["object"])
            for fact in host.facts.facts.values()
        } == oracle.facts
        host.facts.kill = ""
        before = len(host.facts.applied)
        for fired in rules:
            await host.fire(fired)
        assert len(host.facts.applied) == before
    logged = {(line.rule_id, line.kind, *line.source_episode_ids) for line in host.log.lines}
    assert logged == oracle.asked


# Real daemons.


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path, {"host_store": f"python:{MODULE}:make_stores"})
    home.rule("all", cadence={"every": 1})
    return home


def write_episodes(home: Home, *episodes: HostEpisode) -> None:
    text = "".join(json.dumps(vars(episode)) + "\n" for episode in episodes)
    (home.folder / "episodes.jsonl").write_text(text)


def environment(home: Home, **others: str) -> dict[str, str]:
    return {FOLDER_VARIABLE: str(home.folder), "PYTHONPATH": str(ROOT), **others}


def facts_of(home: Home) -> dict[str, Any]:
    text = (home.folder / "facts.json").read_text()
    return {fact["id"]: fact["payload"]["object"] for fact in json.loads(text)}


def applied_by(home: Home) -> list[str]:
    return (home.folder / "facts.log").read_text().splitlines()


def wait_for_firing(daemon: Daemon) -> None:
    daemon.wait_for("firing.completed")


THREE = (says("e1", 1, "tea"), says("e2", 2, "mate"), says("e3", 3, "rye", "bread"))


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_daemon_applies_and_logs_every_delta_of_a_host_once(
    home: Home, moment: str, number: int
) -> None:
    write_episodes(home, *THREE)
    plan = environment(home, **{KILL_VARIABLE: f"{moment}:{number}"})
    killed = Daemon(start_command(home.command("run"), {**os.environ, **plan}))
    assert killed.process.wait(timeout=PATIENCE_SECONDS) == -signal.SIGKILL
    first = [event for event in killed.remaining() if event["event"] == "delta.applied"]
    killed.close()

    with home.daemon(**environment(home)) as daemon:
        wait_for_firing(daemon)
        events = [*first, *(one for one in daemon.seen if one["event"] == "delta.applied")]

    assert applied_by(home) == ["add e1", "update e2", "add e3"]
    assert facts_of(home) == {"e2": "mate", "e3": "rye"}
    assert {event["seq"]: event["source_episode_ids"] for event in events} == {
        1: ["e1"], 2: ["e2"], 3: ["e3"],
    }  # fmt: skip
    assert len(events) == 3


@pytest.mark.acceptance
@pytest.mark.slow
def test_daemon_stops_while_the_factory_does_not_answer(home: Home) -> None:
    home.configure({"host_store": f"python:{MODULE}:never_make_stores"})

    with home.started(until="not json", **environment(home)) as daemon:
        assert daemon.stop() == 0


@pytest.mark.acceptance
@pytest.mark.slow
def test_daemon_answers_status_and_reload_on_a_hosts_stores(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(home.folder))
    write_episodes(home, *THREE[:1])
    with home.daemon(**environment(home)) as daemon:
        wait_for_firing(daemon)
        home.rule("second", cadence={"every": 1}, when_filter="bob")
        home.call("reload")
        daemon.wait_for("config.reloaded")
        status = json.loads(home.call("status", "--json").stdout)
        refused = home.call("pause", "all", check=False)

    assert status["running"]
    assert status["rules"][0] | {"at": ""} == {
        "rule_id": "all", "firing": 1, "at": "", "applied": 1, "known": 1, "in_doubt": 0,
    }  # fmt: skip
    assert refused.returncode == 64


@pytest.mark.parametrize(
    "words",
    [
        ("facts",), ("recent", "alice"), ("fire", "--all"), ("audit", "verify"), ("undo", "all@1"),
        ("why", "e1"), ("why-not", "e1"), ("search", "tea", "--user", "alice"), ("rules",),
        ("forget", "--user", "alice", "--yes"), ("backfill", "all"), ("quarantine", "ls"),
        ("unpin", "e1", "--reason", "gone"), ("export",),
        ("pause", "all"), ("backup", "copy"), ("restore", "copy"), ("upgrade",),
        ("check", "--against-data"), ("report",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_command_that_needs_slumberds_own_stores_is_refused(
    home: Home, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.folder)

    ended = home.call(*words, check=False)

    assert ended.returncode == 64
    assert "slumberd keeps no episodes, facts or ledger beside a host's own stores" in ended.stderr


def test_status_doctor_and_check_say_that_the_stores_are_the_hosts(home: Home) -> None:
    home.state.mkdir()

    said = [home.call(*words, check=False) for words in (("status",), ("doctor",), ("check",))]

    assert [f"python:{MODULE}:make_stores" in one.stdout + one.stderr for one in said] == [True] * 3
    assert said[2].returncode == 0


def test_check_judges_no_filter_of_a_hosts_own_language(home: Home) -> None:
    home.state.mkdir()
    home.rule("all", cadence={"every": 1}, when_filter="confidence > 5 6 AND is_person ada")

    done = home.call("check", "--strict", check=False)

    assert (done.returncode, "samples" in done.stderr) == (0, False)
    assert "warning" not in done.stderr


def test_next_shows_the_cron_instants_of_a_hosts_rules(home: Home) -> None:
    home.rule("all", cadence={"cron": "0 3 * * *"})

    assert "03:00" in home.call("next", "all").stdout


def test_next_needs_no_readable_record(home: Home) -> None:
    home.rule("all", cadence={"cron": "0 3 * * *"})
    home.state.mkdir()
    (home.state / "host.db").write_text("no database")

    assert "03:00" in home.call("next", "all").stdout


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param({"host_store": "my_host:make"}, "python:", id="no function"),
        pytest.param({"host_store": "python:no_such:make"}, "no module 'no_such'", id="no module"),
        pytest.param({"host_store": f"python:{MODULE}:no_such"}, "no function", id="no factory"),
        pytest.param(
            {"host_store": f"python:{MODULE}:NOT_A_FUNCTION"}, "not a callable", id="a value"
        ),
        pytest.param(
            {"host_store": f"python:{MODULE}:make_with"}, "missing a required argument",
            id="arguments",
        ),
        pytest.param({"facts": {"path": "other.db"}}, "facts: is for slumberd's own", id="facts"),
        pytest.param({"serve": {"enabled": True}}, "serve: is for slumberd's own", id="http"),
        pytest.param({"store": "postgresql://db/memory"}, "store: is for slumberd's", id="store"),
    ],
)  # fmt: skip
def test_configuration_that_does_not_fit_a_hosts_stores_is_a_mistake(
    tmp_path: Path, settings: dict[str, Any], problem: str
) -> None:
    home = Home(tmp_path, {"host_store": f"python:{MODULE}:make_stores"} | settings)
    home.rule("all", cadence={"every": 1})

    ended = home.call("check", check=False)

    assert ended.returncode == 78
    assert problem in ended.stdout


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("start", "now"),
        ("similarity", {"min": 0.9}),
        ("limits", {"max_deletes": 1}),
        ("salience", {"min": 0.5}),
    ],
)
def test_rule_key_that_a_hosts_store_does_not_follow_is_a_mistake(
    home: Home, key: str, value: object
) -> None:
    home.rule("all", **{"cadence": {"every": 1}, key: value})

    ended = home.call("check", check=False)

    assert ended.returncode == 78
    assert key in ended.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses such a module")
def test_module_that_everybody_can_write_is_refused(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = home.folder / "open_host.py"
    module.write_text("raise RuntimeError('this code runs')")
    module.chmod(0o666)
    monkeypatch.syspath_prepend(home.folder)
    home.configure({"host_store": "python:open_host:make"})

    ended = home.call("check", check=False)

    assert ended.returncode == 78
    assert "everybody can write to it" in ended.stdout


def test_filter_in_the_hosts_own_language_is_passed_on(home: Home) -> None:
    home.rule("all", cadence={"every": 1}, when_filter="owner ~ 'alice' and not a column of ours")

    assert home.call("check").returncode == 0
