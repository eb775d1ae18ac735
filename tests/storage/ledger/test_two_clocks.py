"""Two clocks: valid at an instant, believed at an instant, and both together."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings

from slumberd.cli import call
from slumberd.consolidation.incoming import DeltaBatch, evaluate
from slumberd.model.episode import Episode, instant
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Firing, Position
from tests.support.builders import START, rule, triple, version
from tests.support.oracle import OracleClaim, asserted_at, current_claims, replaced_ids
from tests.support.providers import AnyFactStore, NewStores, Provider, SQLiteProvider
from tests.support.random_histories import (
    ACTS,
    DEPTH,
    EVERYTHING,
    MOMENTS,
    PAIRS,
    USERS,
    Shown,
    Step,
    Story,
    facts_of,
    play,
)
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.integration

QUIET = settings(
    max_examples=amount(30, full=150), deadline=None, suppress_health_check=list(HealthCheck)
)

FEW = settings(QUIET, max_examples=amount(4, full=60))


async def check_snapshots(story: Story) -> None:
    before: Shown = {}
    for at, shown in story.shots:
        assert await facts_of(story.store, believed_at=at - timedelta(microseconds=1)) == before
        assert await facts_of(story.store, believed_at=at) == shown
        for user in {*USERS.values()}:
            mine = {id: fact for id, fact in shown.items() if fact["user"] == user}
            assert await facts_of(story.store, user, believed_at=at) == mine
        before = shown


async def check_oracle(story: Story) -> None:
    believed = [at for at, _ in story.shots]
    for believed_at in [*believed[-6:], story.clock.now()]:
        for moment in MOMENTS:
            valid_at = START + timedelta(seconds=moment)
            claims = story.claims(believed_at, valid_at)
            expected = current_claims(claims, PAIRS)
            found = await facts_of(story.store, believed_at=believed_at, valid_at=valid_at)
            assert found.keys() == expected.keys(), (believed_at, moment)
            for id, claim in expected.items():
                check_fact(found[id], claim, replaced_ids(claim, claims, PAIRS, DEPTH))


def check_fact(fact: dict[str, Any], claim: OracleClaim, older: list[str]) -> None:
    assert (fact["user"], fact["agent"]) == (claim.user, claim.agent)
    assert fact["payload"].get("object") == claim.object
    at = asserted_at(claim)
    assert fact["payload"].get("timestamp") == (None if at is None else instant(at).isoformat())
    own = [entry["rule_id"] for entry in fact["lineage"] if "rule_id" in entry]
    assert own == list(claim.rules)
    assert [entry["replaces"] for entry in fact["lineage"][len(own) :]] == older


@pytest.mark.slow
@pytest.mark.sampled
@QUIET
@given(EVERYTHING)
def test_believed_at_a_firing_returns_the_facts_that_were_current_after_it(
    steps: list[Step],
) -> None:
    play(steps, check_snapshots)


@pytest.mark.sampled
@FEW
@given(EVERYTHING)
def test_believed_at_a_firing_returns_the_facts_of_a_database_after_it(
    new_databases: NewStores, steps: list[Step]
) -> None:
    play(steps, check_snapshots, new_databases)


@pytest.mark.slow
@pytest.mark.sampled
@QUIET
@given(ACTS)
def test_both_clocks_together_equal_the_oracle_on_fewer_claims(steps: list[Step]) -> None:
    play(steps, check_oracle)


@pytest.mark.sampled
@FEW
@given(ACTS)
def test_both_clocks_of_a_database_equal_the_oracle_on_fewer_claims(
    new_databases: NewStores, steps: list[Step]
) -> None:
    play(steps, check_oracle, new_databases)


# Where alice lived: episodes that arrive in time, then late ones in a firing of their own.

LATE = {
    "late arrival": triple("e3", "alice", "lives_in", "Faro", timestamp=START + timedelta(days=4)),
    "edit": triple("e1", "alice", "lives_in", "Faro", timestamp=START),
    "edit of the instant": triple(
        "e2", "alice", "lives_in", "Faro", timestamp=START + timedelta(days=4)
    ),
    "delete": triple(
        "e3", "alice", "lives_in", None, timestamp=START + timedelta(days=4),
        metadata={"intent": "delete"},
    ),
}  # fmt: skip
DAY_5 = START + timedelta(days=5)
FIRST, SECOND = START + timedelta(days=20), START + timedelta(days=21)


async def fire(store: AnyFactStore, at: datetime, first: int, *episodes: Episode) -> None:
    told_ = [
        version(item.id, seq=seq, timestamp=item.timestamp, metadata=item.metadata)
        for seq, item in enumerate(episodes, start=first)
    ]
    upto = Position(told_[-1].seq, told_[-1].id)
    await store.apply_deltas(
        DeltaBatch(Firing("all", "h", "every", at, Position(), upto), evaluate(told_, rule("all")))
    )


async def corrected(provider: Provider, late: Episode) -> None:
    porto = triple("e1", "alice", "lives_in", "Porto", timestamp=START)
    braga = triple("e2", "alice", "lives_in", "Braga", timestamp=START + timedelta(days=10))
    async with provider.facts() as store:
        await store.bootstrap()
        await fire(store, FIRST, 1, porto, braga)
        await fire(store, SECOND, 3, late)


@pytest.mark.parametrize("name", LATE)
async def test_late_correction_changes_what_was_true_then(provider: Provider, name: str) -> None:
    await corrected(provider, LATE[name])

    async with provider.facts() as store:
        found = await store.query(FactPattern(), valid_at=DAY_5)

    assert [fact.payload["object"] for fact in found] == ([] if name == "delete" else ["Faro"])


@pytest.mark.slow
@pytest.mark.parametrize("name", LATE)
async def test_late_correction_never_changes_what_was_believed_then(
    provider: Provider, name: str
) -> None:
    await corrected(provider, LATE[name])

    async with provider.facts() as store:
        held = await store.query(FactPattern(), believed_at=FIRST)
        both = await store.query(FactPattern(), believed_at=FIRST, valid_at=DAY_5)
        before = await store.query(FactPattern(), believed_at=FIRST - timedelta(seconds=1))

    assert [fact.payload["object"] for fact in held] == ["Braga"]
    assert [fact.payload["object"] for fact in both] == ["Porto"]
    assert before == []


async def test_undo_never_changes_what_was_believed_of_one_user(provider: Provider) -> None:
    await corrected(provider, LATE["late arrival"])

    async with provider.facts() as store:
        await store.ledger.undo("all@1", at=SECOND + timedelta(days=1), by="me", dry_run=False)
        held = await store.query(FactPattern(user="alice"), believed_at=SECOND)

    assert [fact.payload["object"] for fact in held] == ["Braga"]


async def test_predicate_that_holds_one_object_now_held_several_then(provider: Provider) -> None:
    tea = triple("tea", "alice", "likes", "tea", timestamp=START)
    cake = triple("cake", "alice", "likes", "cake", timestamp=START + timedelta(days=1))
    async with provider.facts() as store:
        await store.bootstrap()
        await store.ledger.set_channels({"facts": frozenset({"likes"})}, at=START)
        await fire(store, FIRST, 1, tea, cake)
        await store.ledger.set_channels({}, at=SECOND)

        now = await store.query(FactPattern())
        held = await store.query(FactPattern(), believed_at=FIRST)

    assert [fact.id for fact in now] == ["cake"]
    assert [fact.id for fact in held] == ["cake", "tea"]


@pytest.mark.parametrize(
    ("clocks", "objects"),
    [
        pytest.param([], ["Braga"], id="now"),
        pytest.param(["--valid-at", "2026-01-06T12:00:00Z"], ["Faro"], id="valid at"),
        pytest.param(["--believed-at", "2026-01-21T12:00:00Z"], ["Braga"], id="believed at"),
        pytest.param(["--believed-at", "2026-01-21"], [], id="believed before the first firing"),
        pytest.param(
            ["--valid-at", "2026-01-06", "--believed-at", "2026-01-21T12:00:00Z"],
            ["Porto"],
            id="both",
        ),
        pytest.param(
            ["--valid-at", "2026-01-06", "--believed-at", "2026-01-22T13:00:00+01:00"],
            ["Faro"],
            id="both after the correction",
        ),
    ],
)
def test_command_line_takes_either_clock_and_both(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], clocks: list[str], objects: list[str]
) -> None:
    asyncio.run(corrected(SQLiteProvider(tmp_path), LATE["late arrival"]))

    code = call(["facts", "--state-dir", str(tmp_path), "--json", *clocks])

    shown = [orjson.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert code == 0
    assert [fact["payload"]["object"] for fact in shown] == objects
