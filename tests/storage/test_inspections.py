"""Inspections of closed stores return the same on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from slumberd.clock import SystemClock
from slumberd.daemon.composition import open_stores
from slumberd.daemon.one_operation import run_operation
from slumberd.daemon.stores import inspections_of
from slumberd.model.errors import StoreError
from slumberd.model.store_status import Backlog, LogRange
from slumberd.rules.settings import Settings
from slumberd.storage.inspections import FactInspection, StoreInspections
from slumberd.storage.postgres.closed_shard import ClosedShard
from slumberd.storage.postgres.shard_map import Shard
from tests.support.builders import START, at, episode, triple
from tests.support.fakes import FakeLogs
from tests.support.postgres_server import PostgresServer
from tests.support.selection import ENGINES
from tests.support.trial_installation import rule, rules

pytestmark = pytest.mark.integration

EPISODES = [
    triple("e0", "alice", "likes", "tea", user="alice", timestamp=at(0)),
    triple("e1", "bob", "likes", "milk", user="bob", timestamp=at(10)),
    triple("e2", "carol", "likes", "rum", user="carol", timestamp=at(20)),
    triple(
        "gone", "ann", "likes", None, user="ann", timestamp=at(5), metadata={"intent": "delete"}
    ),
]


@pytest.fixture(params=ENGINES)
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Settings]:
    """Provide the settings of stores of each engine in turn, in which a rule has fired."""
    (tmp_path / "rules.yaml").write_text(rules(rule("all")))
    found = Settings(state_dir=tmp_path / "state", rules_dir=tmp_path)
    if request.param == "sqlite":
        await fill(found)
        yield found
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as name:
        found = found.model_copy(update={"store": server.address_of(name)})
        await fill(found)
        yield found


async def fill(settings: Settings) -> None:
    settings.state_dir.mkdir()
    async with open_stores(settings, SystemClock(), settings.facts_path) as stores:
        await stores.memory.put_many(EPISODES)
    await run(settings, "fire", rules=None)


async def run(settings: Settings, operation: str, **request: object) -> None:
    await run_operation(settings, operation, request, clock=SystemClock(), logs=FakeLogs())


def facts_at(address: str) -> FactInspection:
    return FactInspection(ClosedShard(Shard(0, address), "facts"))


@pytest.fixture
def stores(settings: Settings) -> StoreInspections:
    return inspections_of(settings)


@pytest.mark.slow
def test_status_counts_episodes_and_what_lies_above_each_row(stores: StoreInspections) -> None:
    ranges = [LogRange(0, 100), LogRange(0, 2), LogRange(3, 100), LogRange(4, 100)]

    status = stores.episodes.status(ranges)

    assert status is not None
    assert status.episodes == 4
    assert status.backlogs == {
        ranges[0]: Backlog(4, at(0).isoformat()),
        ranges[1]: Backlog(2, at(0).isoformat()),
        ranges[2]: Backlog(1, at(5).isoformat()),
        ranges[3]: Backlog(0, None),
    }
    assert stores.episodes.last_log_row() == 4


async def test_what_was_put_since_the_last_firing_is_pending(settings: Settings) -> None:
    async with open_stores(settings, SystemClock(), settings.facts_path) as stores:
        await stores.memory.put_many([triple("e9", "ada", "likes", "tea", timestamp=at(30))])

    status = inspections_of(settings).episodes.status([LogRange(4, 100), LogRange(3, 1)])

    assert status is not None
    assert status.backlogs[LogRange(4, 100)] == Backlog(1, at(30).isoformat())
    assert status.backlogs[LogRange(3, 1)] == Backlog(1, at(5).isoformat())


@pytest.mark.slow
def test_status_of_facts_names_the_watermark_and_the_outcome_of_a_rule(
    stores: StoreInspections,
) -> None:
    status = stores.facts.status()

    assert status is not None
    assert (status.facts, status.rows, status.triggered) == (3, 5, True)
    assert status.watermarks == {"all": 4}
    assert status.outcomes["all"].added == 3


@pytest.mark.path
async def test_status_of_facts_names_each_sink_and_its_position(settings: Settings) -> None:
    async with open_stores(settings, SystemClock(), settings.facts_path) as stores:
        await stores.facts.promotion_feed.save_published_position("fathom", 2, 1)

    status = inspections_of(settings).facts.status()

    assert status is not None
    assert {name: (one.lag.rows, one.refused) for name, one in status.sinks.items()} == {
        "fathom": (3, 1)
    }


@pytest.mark.path
def test_retraction_before_a_claim_does_not_reach_it(
    postgres: PostgresServer, postgres_address: str
) -> None:
    rows = [
        (1, "retracted", 2, "e0", "{}"),
        (2, "unresolved", 1, "c1", '{"names":["e0"]}'),
        (3, "unresolved", 1, "c2", '{"names":["e1"]}'),
        (4, "retracted", 2, "e1", "{}"),
    ]
    for seq, reason, what, fact, payload in rows:
        postgres.run(
            f"INSERT INTO slumberd_0.slumberd_ledger SELECT {seq}, 1, 1, 1, 0, '{reason}',"
            f" {what}, NULL, 0, '{fact}', NULL, NULL, '{payload}', '', ''",
            database=postgres_address.rpartition("/")[2],
        )

    assert facts_at(postgres_address).unreached_retractions(None) == ["c1"]


@pytest.mark.path
def test_users_are_listed_in_order_up_to_a_limit(stores: StoreInspections) -> None:
    assert stores.episodes.users(2) == ["alice", "ann"]
    assert stores.facts.users(9) == ["alice", "bob", "carol"]
    assert [stores.facts.has_facts_of(user) for user in ("bob", "dave")] == [True, False]


@pytest.mark.slow
def test_passes_over_a_store_find_what_they_look_for(stores: StoreInspections) -> None:
    future = stores.episodes.future_episodes(START + timedelta(seconds=7), None)

    assert [version.id for version in future or ()] == ["e2", "e1"]
    assert stores.facts.unreached_retractions(None) == ["gone"]
    assert stores.facts.disagreeing_facts(None) == []


LIKING = """\
opposites: [[likes, dislikes]]
patterns:
  - id: likes
    when: 'I like (?P<what>\\w+)'
    says: {subject: '{speaker}', predicate: likes, object: '{what}'}
  - id: fired
    when: 'fired'
    intent: delete
    says: {subject: '{speaker}', predicate: works_at}
"""


@pytest.mark.slow
async def test_retractions_that_patterns_find_are_not_listed(settings: Settings) -> None:
    (settings.rules_dir / "liking.pattern").write_text(LIKING)
    stages = "[{extract: {with: patterns, patterns: liking.pattern}}]"
    (settings.rules_dir / "rules.yaml").write_text(rules(rule("chat", stages=stages)))
    said = episode("c1", user="dan", content="I like tea. I got fired.")

    async with open_stores(settings, SystemClock(), settings.facts_path) as opened:
        await opened.memory.put_many([said])
    await run(settings, "fire", rules=None)

    stores = inspections_of(settings)
    assert stores.facts.has_facts_of("dan")
    assert stores.facts.unreached_retractions(None) == ["gone"]


@pytest.mark.slow
async def test_sentence_that_takes_back_nothing_is_not_reported(settings: Settings) -> None:
    retraction = {
        "subject": "ann", "predicate": "habit", "intent": "delete", "object_words": ["smoking"],
        "extracted": {"by": "conversation/quit_smoking", "span": [0, 14]},
    }  # fmt: skip
    said = episode("quit", user="ann", timestamp=at(6), metadata={"triples": [retraction]})
    async with open_stores(settings, SystemClock(), settings.facts_path) as stores:
        await stores.memory.put_many([said])
    await run(settings, "fire", rules=None)

    assert inspections_of(settings).facts.unreached_retractions(None) == ["gone"]


@pytest.mark.slow
def test_pass_without_time_has_no_result(stores: StoreInspections) -> None:
    assert stores.episodes.future_episodes(START, 0) is None
    assert stores.facts.unreached_retractions(0) is None
    assert stores.facts.disagreeing_facts(0) is None


@pytest.mark.slow
@pytest.mark.parametrize("named", [{"user": "bob"}, {"episode": "e1"}])
async def test_erasures_are_counted(settings: Settings, named: dict[str, str]) -> None:
    await run(settings, "forget", **named)

    stores = inspections_of(settings)
    pasts = [past for store in stores if (past := store.erased_scopes())]

    assert len(pasts) == 2
    assert [dict(store.count_erased_content(pasts, None) or {}) for store in stores] == [{}, {}]
    assert (stores.facts.count_erasures(0), stores.facts.count_erasures(10**6)) == (1, 0)


@pytest.mark.slow
def test_stores_exist_and_have_a_size(stores: StoreInspections) -> None:
    assert [store.exists() for store in stores] == [True, True]
    assert all(store.sizes().total > 0 for store in stores)
    assert (stores.episodes.has_log(), stores.facts.has_ledger()) == (True, True)


@pytest.mark.nightly
def test_pass_over_a_database_ends_at_its_time_limit(
    postgres: PostgresServer, postgres_address: str
) -> None:
    database = postgres_address.rpartition("/")[2]
    postgres.run(
        "INSERT INTO slumberd_0.slumberd_ledger SELECT n, 1, 1, 1, 0, 'unresolved', 1, NULL, 0, n,"
        " NULL, NULL, '{\"names\":[\"x\"]}', '', '' FROM generate_series(1, 20000) AS n",
        database=database,
    )

    inspection = facts_at(postgres_address)

    assert inspection.unreached_retractions(0.001) is None
    assert len(inspection.unreached_retractions(None) or ()) == 100


def test_database_without_a_schema_has_no_store(postgres: PostgresServer) -> None:
    with postgres.empty_database() as name:
        inspection = facts_at(postgres.address_of(name))

        assert not inspection.exists()
        with pytest.raises(StoreError):
            inspection.status()


@pytest.mark.path
def test_last_rows_of_the_log_are_read(stores: StoreInspections) -> None:
    found = stores.episodes.latest_versions(3)

    assert [version.id for version in found] == ["e1", "e2", "gone"]
    assert {version.speaker for version in found} == {"chat"}
    assert len(stores.episodes.latest_versions(9)) == 4
