"""Requests to a database with several shards are answered as by one store that holds everything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.client.transports import DatabaseTransport, SocketTransport, Transport
from slumberd.errors import (
    NoInputError,
    NotAllowedError,
    NothingKeptError,
    NotQuarantinedError,
    NotRunningError,
    ShardsFailedError,
    SlumberdError,
    UsageError,
    VersionConflictError,
)
from slumberd.model.shard_firing import split_firing
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forwarded_caller import forward
from slumberd.operations.handlers import Answer
from slumberd.operations.table import OPERATIONS
from slumberd.service.control_socket import RefusedError
from slumberd.service.database.requests import ask_database
from slumberd.service.shards.requests import shard_handlers
from slumberd.service.shards.routes import ROUTES
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.postgres.shards import shard_of
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.builders import triple
from tests.support.daemons import Daemon, Home
from tests.support.postgres_server import PostgresServer
from tests.support.providers import AnyMemoryStore

pytestmark = pytest.mark.acceptance

SHARDS = 4
AGENTS = [f"agent{number}" for number in (*range(8), 15)]
NEVER = {"cron": "0 3 29 2 *"}
FIRINGS = {"firing_id", "firing_ids", "undone", "run", "at", "version", "pinned_at", "lineage"}
"""Fields that name a firing or its instant, which differ from store to store."""


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(shards=SHARDS) as name:
        yield postgres.address_of(name)


@pytest.fixture
def cluster(tmp_path: Path, database: str) -> Home:
    home = Home(tmp_path / "cluster", {"store": database, "postgres": {"lease": "3s"}})
    home.rule("all", cadence=NEVER)
    return home


@pytest.fixture
def files(tmp_path: Path) -> Home:
    home = Home(tmp_path / "files")
    home.rule("all", cadence=NEVER)
    return home


@contextmanager
def serving(cluster: Home) -> Iterator[Daemon]:
    """Run one host until it serves every shard."""
    with cluster.daemon() as daemon:
        for _ in range(SHARDS - 1):
            daemon.wait_for("daemon.ready")
        yield daemon


class Asker:
    """Calls operations, one after another."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __call__(self, operation: str, **request: Any) -> Answer:
        return asyncio.run(self._transport.call(operation, request))

    def error(self, operation: str, **request: Any) -> SlumberdError:
        with pytest.raises(SlumberdError) as caught:
            self(operation, **request)
        return caught.value

    def remember(self, *agents: str, user: str = "ana", value: str = "tea") -> None:
        """Put one episode of a user with each agent."""
        for nth, agent in enumerate(agents):
            self(
                "remember",
                text=f"{agent} heard of {value}",
                triples=[{"subject": agent, "predicate": "drinks", "object": value}],
                id=f"{agent}-{user}-{value}",
                user=user,
                agent=agent,
                when=f"2026-03-01T12:00:{nth:02}+00:00",
            )


@pytest.fixture
def of_files(files: Home) -> Iterator[Asker]:
    with files.daemon():
        yield Asker(SocketTransport(files.state))


@pytest.fixture
def of_shards(cluster: Home, database: str) -> Iterator[Asker]:
    with serving(cluster):
        yield Asker(DatabaseTransport(database))


@pytest.fixture
def both(of_files: Asker, of_shards: Asker) -> list[Asker]:
    for ask in (of_files, of_shards):
        ask.remember(*AGENTS)
    return [of_files, of_shards]


def comparable(value: Any) -> Any:
    """Return an answer without what names a firing."""
    if isinstance(value, dict):
        return {key: comparable(one) for key, one in value.items() if key not in FIRINGS}
    return [comparable(one) for one in value] if isinstance(value, list) else value


def pages(ask: Asker, operation: str = "facts", field: str = "facts", **request: Any) -> list[Any]:
    """Return all items of an operation, page after page."""
    found, page = [], ask(operation, **request)
    while True:
        found.append(page[field])
        if page["next"] is None:
            return found
        page = ask(operation, **request, cursor=page["next"])


def test_every_operation_has_a_route() -> None:
    assert ROUTES.keys() == OPERATIONS.keys()


def test_agents_of_the_tests_are_in_all_shards() -> None:
    assert {shard_of("ana", agent, SHARDS) for agent in AGENTS} == {*range(SHARDS)}


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("operation", "request_fields"),
    [
        pytest.param("episodes", {"limit": 4}, id="latest"),
        pytest.param("episodes", {"limit": 3, "skip": 4}, id="later page"),
        pytest.param("episodes", {"id": "agent3-ana-tea"}, id="one episode"),
        pytest.param("facts", {"subject": "agent2"}, id="facts of a subject"),
        pytest.param("facts", {"id": "agent5-ana-tea"}, id="one fact"),
        pytest.param("facts", {"agent": "agent5"}, id="facts of an agent"),
        pytest.param("profile", {}, id="profile"),
        pytest.param("outcome", {"id": "agent4-ana-tea"}, id="outcome"),
    ],
)
def test_shards_answer_as_one_store(
    both: list[Asker], operation: str, request_fields: dict[str, Any]
) -> None:
    for ask in both:
        ask("fire")

    one, several = (comparable(ask(operation, user="ana", **request_fields)) for ask in both)

    assert several == one


def test_keys_many_episodes_and_all_agents_are_as_in_one_store(both: list[Asker]) -> None:
    def answers(ask: Asker) -> list[Any]:
        episodes = [{"text": "tea", "key": "1"}, {"text": "rum", "key": "2"}]
        put = [
            ask("put_many", user="ana", agent=agent, episodes=episodes)
            for agent in (*AGENTS[:3], AGENTS[0])
        ]
        one = ask("remember", user="ana", agent=AGENTS[0], key="1", text="milk")
        found = ask("episodes", user="ana", all_agents=True, limit=7)["episodes"]
        return [put, one, sorted((each["agent"], each["content"]) for each in found)]

    one, several = map(answers, both)

    assert several == one


@pytest.mark.nightly
def test_pages_of_facts_are_those_of_one_store(both: list[Asker]) -> None:
    for ask in both:
        ask("fire")

    one, several = (comparable(pages(ask, user="ana", limit=4)) for ask in both)

    assert several == one
    assert sum(map(len, several)) == len(AGENTS)


@pytest.mark.nightly
def test_pages_of_an_earlier_belief_are_those_of_one_store(both: list[Asker]) -> None:
    answers = []
    for ask in both:
        ask("fire")
        ids = [f"{agent}-ana-tea" for agent in AGENTS]
        facts = ask("facts", user="ana")["facts"]
        then = max(fact["pinned_at"] for fact in facts)
        ask("unpin", facts=ids, reason="wrong")
        answers.append(pages(ask, user="ana", limit=4, believed_at=then))

    one, several = (comparable(answer) for answer in answers)

    assert several == one
    assert sum(map(len, several)) == len(AGENTS)


@pytest.mark.cases(1)
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_pages_of_users_are_those_of_one_store(both: list[Asker], limit: int) -> None:
    for ask in both:
        for user in ("bob", "eve"):
            ask.remember(*AGENTS[:4], user=user)
        ask("fire")

    one, several = (pages(ask, "users", "users", limit=limit) for ask in both)

    assert several == one
    assert [(user["user"], user["facts"]) for page in several for user in page] == [
        ("ana", len(AGENTS)), ("bob", 4), ("eve", 4)
    ]  # fmt: skip


async def put_unreadable(store: AnyMemoryStore) -> None:
    """Put one episode of each agent as another program does, which `remember` refuses."""
    async with store as memory:
        await memory.put_many(
            [
                triple(
                    f"odd-{agent}", "s", "p", "x", user="ana", agent=agent,
                    metadata={"intent": "shout"},
                )
                for agent in AGENTS
            ]
        )  # fmt: skip


def test_quarantine_of_all_shards_is_that_of_one_store(
    both: list[Asker], files: Home, database: str
) -> None:
    asyncio.run(put_unreadable(SQLiteMemoryStore(files.state / "memory.db")))
    asyncio.run(put_unreadable(PostgresMemoryStore(database)))
    for ask in both:
        ask("fire")

    one, several = (pages(ask, "quarantined", "entries", limit=4) for ask in both)
    totals = [ask("quarantined", rule="all", limit=1)["totals"] for ask in both]

    assert [[{**entry, "seq": 0} for entry in page] for page in several] == [
        [{**entry, "seq": 0} for entry in page] for page in one
    ]
    assert totals == [{"all": len(AGENTS)}] * 2


@pytest.mark.nightly
def test_rules_of_all_shards_are_summed_up(both: list[Asker]) -> None:
    before = [ask("rules", coverage=True)["rules"][0] for ask in both]
    for ask in both:
        ask("fire")
    after = [ask("rules", rules=["all"], instants=2)["rules"][0] for ask in both]

    for one, several in (before, after):
        assert several["outlook"] == one["outlook"]
        assert several["coverage"] == one["coverage"]
        for name in ("pending", "quarantined", "held_firing_id", "paused", "next_at"):
            assert several["state"][name] == one["state"][name]
    assert before[1]["coverage"]["selected"] == before[1]["state"]["pending"] == len(AGENTS)
    assert after[1]["state"]["pending"] == 0
    assert after[1]["state"]["fired_at"] is not None
    assert len(after[1]["outlook"]["next"]) == 2


def test_one_run_fires_in_all_shards_and_is_undone_as_a_whole(both: list[Asker]) -> None:
    fired = [ask("fire") for ask in both]
    one, several = (comparable(answer) for answer in fired)
    undone = [ask("undo", run=answer["run"]) for ask, answer in zip(both, fired, strict=True)]

    assert several == one
    assert sorted(fired[1]["reports"][0]["firing_ids"]) == sorted(undone[1]["undone"])
    assert len(undone[1]["undone"]) == SHARDS
    assert undone[1]["counts"] == undone[0]["counts"]
    assert both[1]("facts", user="ana")["facts"] == []


@pytest.mark.nightly
def test_reason_is_in_the_ledger_of_each_shard(cluster: Home, of_shards: Asker) -> None:
    of_shards.remember(*AGENTS)
    run = of_shards("fire", reason="a test")["run"]
    of_shards("undo", run=run, reason="no test")
    plan = of_shards("forget", user="ana", dry_run=True, reason="not yet")["plan"]
    erased = of_shards("forget", user="ana", plan=plan, reason="ana asked")

    listed = cluster.call("audit", "ls", "--kind", "firing", "--json").stdout.splitlines()
    reasons = Counter(orjson.loads(line)["reason"] for line in listed)
    assert reasons == {"a test": SHARDS, "no test": SHARDS, "ana asked": SHARDS}
    assert erased["reason"] == "ana asked"


@pytest.mark.nightly
def test_dry_run_and_report_count_all_shards(both: list[Asker]) -> None:
    dry = [ask("fire", dry_run=True) for ask in both]
    for ask in both:
        ask("fire")
    reports = [ask("report", user="ana") for ask in both]

    one, several = (answer["reports"][0] for answer in dry)
    assert several["channels"] == one["channels"]
    assert several["deltas_total"] == one["deltas_total"]
    assert reports[0]["changes"] == reports[1]["changes"]
    assert reports[0]["rules"] == reports[1]["rules"]


@pytest.mark.nightly
def test_report_of_all_users_counts_all_shards(both: list[Asker]) -> None:
    for ask in both:
        ask.remember("agent1", "agent2", user="bob")
        ask("fire")
    one, several = (ask("report", limit=1) for ask in both)

    for name in ("changes", "rules", "users", "other_users"):
        assert several[name] == one[name]
    assert [*several["users"]] == ["ana"]
    assert several["batches"] == SHARDS
    assert sum(day["learned"] for day in several["days"]) == several["changes"]["learned"]
    assert len(several["largest"]) == 1
    assert split_firing(several["largest"][0]["firing_id"])[0] is not None


@pytest.mark.nightly
def test_firings_of_all_shards_are_paged_newest_first(of_shards: Asker) -> None:
    for nth, value in enumerate(("tea", "rum", "milk")):
        of_shards.remember(*AGENTS[nth:], value=value)
        of_shards("fire")

    whole = of_shards("firings", rule="all", limit=1_000)["firings"]
    seen: list[Answer] = []
    before: str | None = None
    while not seen or before is not None:
        page = of_shards("firings", rule="all", limit=2, before=before)
        seen += page["firings"]
        before = page["next"]

    assert seen == whole
    assert sum(firing["counts"]["read"] for firing in whole) == 3 * len(AGENTS) - 3
    instants = [firing["at"] for firing in whole]
    assert instants == sorted(instants, reverse=True)
    assert {split_firing(firing["firing_id"])[0] for firing in whole} == {*range(SHARDS)}


@pytest.mark.nightly
def test_rows_of_a_firing_are_read_from_its_shard(of_shards: Asker) -> None:
    of_shards.remember(*AGENTS)
    of_shards("fire")
    firing = of_shards("firings", rule="all", limit=1)["firings"][0]
    undone = of_shards("undo", firing=firing["firing_id"])

    rows = of_shards("deltas", firing=firing["firing_id"])["changes"]
    (after,) = of_shards("firings", rule="all", limit=1)["firings"]
    unnamed = of_shards.error("deltas", firing=split_firing(firing["firing_id"])[1])

    assert len(rows) == firing["counts"]["added"] > 0
    assert {row["firing_id"] for row in rows} == {firing["firing_id"]}
    assert after["undone_by"] == undone["firing_id"]
    assert isinstance(unnamed, UsageError)


def test_search_and_context_read_all_shards(of_shards: Asker) -> None:
    of_shards.remember(*AGENTS)

    hits = of_shards("recall", query="Who heard of tea?", user="ana", limit=5)["hits"]
    context = of_shards("context", question="Who heard of tea?", user="ana")

    assert len(hits) == 5
    assert len({shard_of("ana", hit["agent"], SHARDS) for hit in hits}) > 1
    assert {item["agent"] for item in context["items"]} == {*AGENTS}
    assert 0 < context["tokens"] <= context["budget"]


def test_one_firing_is_named_with_its_shard_and_undone(of_shards: Asker) -> None:
    pinned = of_shards(
        "pin", user="ana", agent="desk", subject="s", predicate="p", object=1, reason="r"
    )
    shard = shard_of("ana", "desk", SHARDS)

    undone = of_shards("undo", firing=pinned["firing_id"])
    without_shard = of_shards.error("undo", firing=pinned["firing_id"].partition("~")[2])

    assert pinned["firing_id"].startswith(f"{shard}~@")
    assert undone["undone"] == [pinned["firing_id"]]
    assert undone["firing_id"].startswith(f"{shard}~@undo@")
    assert isinstance(without_shard, UsageError)


def test_person_retracts_facts_of_several_shards_at_once(both: list[Asker]) -> None:
    for ask in both:
        ask("fire")
    ids = [f"{agent}-ana-tea" for agent in AGENTS]

    unknown = [ask.error("unpin", facts=[*ids, "nobody"], reason="wrong") for ask in both]
    one, several = (comparable(ask("unpin", facts=ids, reason="wrong")) for ask in both)
    again = [ask("unpin", facts=ids[:2], reason="wrong")["not_current"] for ask in both]

    assert [str(error) for error in unknown] == [str(unknown[0])] * 2
    assert isinstance(unknown[1], NoInputError)
    assert (several["counts"], several["not_current"]) == (one["counts"], [])
    assert again[1] == again[0] == ids[:2]


def test_correction_finds_the_shard_of_the_fact(both: list[Asker]) -> None:
    for ask in both:
        ask("fire")
    for ask in both:
        ask("correct", user="ana", fact="agent1-ana-tea", object="rum", reason="was rum")
        ask("correct", user="ana", subject="agent2", predicate="drinks", retract=True, reason="no")
    found = [
        [(fact["id"], fact["agent"], fact["payload"]["object"]) for fact in page["facts"]]
        for page in (ask("facts", user="ana") for ask in both)
    ]
    absent = [ask.error("correct", user="ana", fact="nobody", object=1, reason="r") for ask in both]

    assert found[1] == found[0]
    assert [type(error) for error in absent] == [NoInputError, NoInputError]
    assert str(absent[0]) == str(absent[1])


@pytest.mark.nightly
def test_explanation_names_the_firing_with_its_shard(of_shards: Asker) -> None:
    of_shards.remember(*AGENTS)
    of_shards("fire")

    explained = of_shards("explain", user="ana", id="agent3-ana-tea")
    shard = shard_of("ana", "agent3", SHARDS)

    assert explained["kind"] == "fact"
    assert explained["explanation"]["promoted"][0]["firing_id"].startswith(f"{shard}~all@")
    assert isinstance(of_shards.error("explain", user="ana", id="nobody"), NoInputError)
    assert isinstance(of_shards.error("explain", user="bob", id="agent3-ana-tea"), NoInputError)


@pytest.mark.nightly
def test_history_comes_from_the_shard_of_the_fact(of_shards: Asker) -> None:
    of_shards.remember(*AGENTS)
    of_shards("fire")

    found = of_shards("history", user="ana", id="agent3-ana-tea")

    assert (found["user"], found["agent"]) == ("ana", "agent3")
    assert [period["payload"]["object"] for period in found["believed"]] == ["tea"]
    assert isinstance(of_shards.error("history", user="ana", id="nobody"), NoInputError)
    assert isinstance(of_shards.error("history", user="bob", id="agent3-ana-tea"), NoInputError)


def test_user_is_erased_from_all_shards_by_a_plan(both: list[Asker]) -> None:
    for ask in both:
        ask("fire")
    stale = [ask("forget", user="ana", dry_run=True) for ask in both]
    both[1].remember("agent0", value="rum")
    both[0].remember("agent0", value="rum")
    refused = [
        ask.error("forget", user="ana", plan=plan["plan"])
        for ask, plan in zip(both, stale, strict=True)
    ]
    plans = [ask("forget", user="ana", dry_run=True)["plan"] for ask in both]
    erased = [ask("forget", user="ana", plan=plan) for ask, plan in zip(both, plans, strict=True)]

    assert [type(error) for error in refused] == [VersionConflictError] * 2
    assert erased[1]["rows"]["episodes"]["episodes"] == erased[0]["rows"]["episodes"]["episodes"]
    assert len(erased[1]["firing_id"].split(", ")) == SHARDS
    for ask in both:
        assert ask("episodes", user="ana")["episodes"] == []
        assert ask("facts", user="ana")["facts"] == []
        assert isinstance(ask.error("forget", user="nobody"), NothingKeptError)


def test_episode_or_fact_is_erased_in_its_shard_whoever_it_belongs_to(of_shards: Asker) -> None:
    of_shards.remember(*AGENTS)
    of_shards("fire")

    plan = of_shards("forget", episode="agent3-ana-tea", dry_run=True)
    erased = of_shards("forget", episode="agent3-ana-tea", plan=plan["plan"])
    by_fact = of_shards("forget", fact="agent2-ana-tea")
    by_user = of_shards("forget", episode="agent1-ana-tea", user="ana")

    assert plan["facts"] == ["agent3-ana-tea"]
    assert [each["episodes"] for each in (erased, by_fact, by_user)] == [
        ["agent3-ana-tea"], ["agent2-ana-tea"], ["agent1-ana-tea"],
    ]  # fmt: skip
    assert erased["scope"]["user"] == "ana"
    left = {fact["id"] for fact in of_shards("facts", user="ana")["facts"]}
    assert left.isdisjoint({"agent1-ana-tea", "agent2-ana-tea", "agent3-ana-tea"})
    assert "agent0-ana-tea" in left
    for kind in ("episode", "fact"):
        assert isinstance(of_shards.error("forget", **{kind: "nobody"}), NothingKeptError)


@pytest.mark.nightly
def test_user_of_one_shard_is_erased_though_the_others_keep_nothing(of_shards: Asker) -> None:
    of_shards.remember("agent0")

    erased = of_shards("forget", user="ana")

    assert erased["rows"]["episodes"]["episodes"] == 1


@pytest.mark.nightly
def test_pauses_and_daemons_of_all_shards_are_told(both: list[Asker]) -> None:
    answers = [
        [ask("pause", rules=["all"]), comparable(ask("next")), ask("resume", rules=["all"])]
        for ask in both
    ]
    statuses = [ask("status") for ask in both]

    assert answers[1][0] == answers[0][0]
    assert answers[1][2] == answers[0][2]
    assert [rule["id"] for rule in answers[1][1]["rules"]] == ["all"]
    assert statuses[1]["failing"] == statuses[0]["failing"] == []
    assert statuses[1].keys() == statuses[0].keys()
    assert both[1]("outdated") == both[0]("outdated")
    assert both[1]("reload")["rules"] == 1
    assert both[1]("held") == both[0]("held") == {"held": []}


@pytest.mark.nightly
def test_absent_things_are_refused_as_by_one_store(both: list[Asker]) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("fire", {"rules": ["unknown"]}),
        ("undo", {"run": "unknown"}),
        ("undo", {"rule": "unknown", "since": 0}),
        ("undo", {}),
        ("drop", {"episodes": ["unknown"]}),
        ("drop", {}),
        ("recall", {"query": "tea"}),
        ("recall", {"query": "tea", "user": 5}),
        ("facts", {"user": "ana", "misspelled": 1}),
        ("outcome", {"user": "ana", "id": "unknown"}),
        ("unpin", {"facts": [" "], "reason": "r"}),
        ("nothing", {}),
    ]

    one, several = (
        [(type(error), str(error)) for error in (ask.error(name, **each) for name, each in asked)]
        for ask in both
    )

    assert several == one
    assert NotQuarantinedError in {kind for kind, _ in several}


@pytest.mark.nightly
def test_changes_need_the_ledger_of_one_agent(of_shards: Asker) -> None:
    of_shards.remember("agent0")
    of_shards("fire")

    (change,) = of_shards("changes", user="ana", agent="agent0", kinds=["add"])["changes"]

    assert change["firing_id"].startswith(f"{shard_of('ana', 'agent0', SHARDS)}~all@")
    assert isinstance(of_shards.error("changes", user="ana"), UsageError)
    assert isinstance(of_shards.error("changes"), UsageError)


def test_batch_that_awaits_approval_is_decided_in_its_shard(cluster: Home, database: str) -> None:
    cluster.rule("all", cadence=NEVER, limits={"max_deletes": 0})
    with serving(cluster):
        ask = Asker(DatabaseTransport(database))
        ask.remember("agent0", "agent1")
        ask("fire")
        ask.remember("agent0", "agent1", value="rum")
        for agent in ("agent0", "agent1"):
            ask(
                "remember", text="no", id=f"{agent}-no", user="ana", agent=agent,
                triples=[{"subject": agent, "predicate": "drinks", "intent": "delete"}],
            )  # fmt: skip
        fired = ask("fire")
        held = ask("held")["held"]
        decided = [ask("decide", firing=one["firing_id"], approve=True) for one in held]

        assert len({one["firing_id"].partition("~")[0] for one in held}) == len(held) > 0
        batches = [one["held_batch"] for one in fired["reports"] if "held_batch" in one]
        assert {one["firing_id"] for one in batches} == {one["firing_id"] for one in held}
        assert all(answer["run"] for answer in decided)
        assert ask("held")["held"] == []


def test_shard_without_a_daemon_is_told_and_the_others_stay_done(
    tmp_path: Path, database: str
) -> None:
    home = Home(tmp_path / "one", {"store": database, "postgres": {"shard": 1, "lease": "3s"}})
    home.rule("all", cadence=NEVER)
    ask = Asker(DatabaseTransport(database))
    nobody = ask.error("next")
    with home.daemon():
        error = ask.error("next")

    assert type(nobody) is NotRunningError
    assert isinstance(error, ShardsFailedError)
    assert error.exit_code == NotRunningError.exit_code
    assert error.answered == (1,)
    assert [*error.problems] == [0, 2, 3]


@pytest.mark.nightly
def test_command_performs_on_shards_without_a_daemon_itself(
    tmp_path: Path, cluster: Home, database: str
) -> None:
    one = Home(tmp_path / "one", {"store": database, "postgres": {"shard": 1, "lease": "3s"}})
    one.rule("all", cadence=NEVER)
    with serving(cluster):
        Asker(DatabaseTransport(database)).remember(*AGENTS)

    with one.daemon():
        fired = orjson.loads(cluster.call("fire", "--all", "--json").stdout)
    undone = orjson.loads(cluster.call("undo", "--run", fired["run"], "--json").stdout)

    (report,) = fired["reports"]
    assert report["channels"]["facts"]["added"] == len(AGENTS)
    assert {id.partition("~")[0] for id in report["firing_ids"]} == set("0123")
    assert sorted(undone["undone"]) == sorted(report["firing_ids"])


def test_daemon_of_a_shard_enforces_the_limits_of_a_forwarded_caller(
    of_shards: Asker, database: str
) -> None:
    of_shards.remember("agent0")
    shard = shard_of("ana", "agent0", SHARDS)
    bob = Caller(name="token bob", user="bob", rights=frozenset({Right.READ}))

    for operation, request in (("episodes", {"user": "ana"}), ("pause", {"rules": ["all"]})):
        with pytest.raises(RefusedError, match=r"token bob via .* (may not name|has no right)"):
            ask_database(database, shard, operation, forward(request, bob))


@pytest.mark.nightly
def test_quarantined_episodes_of_several_shards_are_retried_and_dropped(
    of_shards: Asker, database: str
) -> None:
    odd = [
        triple(f"odd{n}", "s", "likes", n, user="ana", agent=agent, metadata={"intent": "shout"})
        for n, agent in enumerate(AGENTS)
    ]

    async def put() -> None:
        async with PostgresMemoryStore(database) as memory:
            await memory.put_many(odd)

    asyncio.run(put())
    of_shards("fire")
    retried = of_shards("retry", limit=3)
    named = of_shards("retry", episodes=["odd0", "odd2"])
    refused = of_shards.error("drop", episodes=["odd0", "odd1", "unknown"])
    dropped = of_shards("drop", episodes=["odd0", "odd1"])
    rest = of_shards("drop", all=True)

    assert len(retried["still_quarantined"]) == 3
    assert retried["still_quarantined_total"] == len(AGENTS)
    assert {entry["episode_id"] for entry in named["still_quarantined"]} == {"odd0", "odd2"}
    assert isinstance(refused, NotQuarantinedError)
    assert "'unknown'; nothing was changed" in str(refused)
    assert (dropped["dropped"], rest["dropped"]) == (2, len(AGENTS) - 2)


@pytest.mark.nightly
def test_erasure_that_some_shards_missed_is_finished_by_the_same_request(
    tmp_path: Path, cluster: Home, database: str
) -> None:
    one = Home(tmp_path / "one", {"store": database, "postgres": {"shard": 1, "lease": "3s"}})
    one.rule("all", cadence=NEVER)
    ask = Asker(DatabaseTransport(database))
    with serving(cluster):
        ask.remember(*AGENTS)
        ask("fire")
    with one.daemon():
        error = ask.error("forget", user="ana")
    with serving(cluster):
        left = ask("episodes", user="ana")["episodes"]
        again = ask("forget", user="ana")
        gone = ask("episodes", user="ana")["episodes"]

    of_one = [agent for agent in AGENTS if shard_of("ana", agent, SHARDS) == 1]
    assert isinstance(error, ShardsFailedError)
    assert error.answered == (1,)
    assert len(left) == again["rows"]["episodes"]["episodes"] == len(AGENTS) - len(of_one)
    assert gone == []


@pytest.mark.nightly
def test_host_passes_on_the_limits_of_its_caller(of_shards: Asker, database: str) -> None:
    of_shards.remember(*AGENTS)
    of_shards("fire")
    handlers = shard_handlers(database)
    ana = Caller(name="token ana", user="ana", rights=frozenset({Right.READ, Right.WRITE}))
    one_agent = Caller(name="token desk", user="ana", agent="agent3", rights=ana.rights)

    async def call(name: str, caller: Caller, **request: Any) -> Answer:
        return await handlers[name](request, caller)

    own = asyncio.run(call("facts", one_agent))["facts"]
    with pytest.raises(NotAllowedError):
        asyncio.run(call("facts", ana, user="bob"))
    with pytest.raises(NotAllowedError):
        asyncio.run(call("facts", one_agent, agent="agent4"))
    with pytest.raises(NotAllowedError):
        asyncio.run(call("fire", ana))
    with pytest.raises(NotAllowedError):
        asyncio.run(call("forget", ana))
    corrected = asyncio.run(
        call("correct", ana, fact="agent3-ana-tea", object="rum", reason="was rum")
    )
    shown = of_shards("facts", user="ana", id="agent3-ana-tea")["facts"]

    assert [fact["agent"] for fact in own] == ["agent3"]
    assert corrected["fact_ids"] == ["agent3-ana-tea"]
    assert shown[0]["lineage"][-1]["by"].startswith("token ana via ")
    assert handlers.keys() == OPERATIONS.keys()
