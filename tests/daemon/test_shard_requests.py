"""A request to a database with several shards is answered by one of them, as by one store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd.client.transports import DatabaseTransport, SocketTransport, Transport
from slumberd.daemon.control_socket import RefusedError
from slumberd.daemon.database_requests import ask_database
from slumberd.daemon.shard_requests import ShardRequests, ask_daemon, find_shard, shard_handlers
from slumberd.model.errors import (
    MemoryScopeError,
    NotAllowedError,
    NotRunningError,
    ShardNotNamedError,
    SlumberdError,
    UsageError,
    UserMovingError,
    WrongShardError,
)
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import OperatorForm, ScopedForm
from slumberd.operations.handlers import Answer, forward
from slumberd.operations.registry import OPERATIONS
from slumberd.storage.postgres.shard_map import Shard, ShardMap, position_of
from tests.support.daemons import Daemon, Home
from tests.support.postgres_server import PostgresServer
from tests.support.sample_sizes import amount
from tests.support.shards import shard_of

pytestmark = pytest.mark.acceptance

SHARDS = 4
USERS = ("ana", "bob", "eve", "Zoë/%", "日本", "dan", "gil", "joe")
AGENTS = ("desk", "phone")
NEVER = {"cron": "0 3 29 2 *"}
WHEN = "2026-03-02T12:00:00+00:00"
HIDDEN = {
    "firing_id", "firing_ids", "undone", "run", "at", "by", "seq", "version", "pinned_at",
    "lineage", "plan", "head_before", "erased_up_to", "begins_at", "ends_at", "timestamp",
    "said_at",
}  # fmt: skip
"""Fields that name a firing, a row or an instant of a store, and who asked it."""


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(shards=SHARDS) as name:
        yield postgres.address_of(name)


@pytest.fixture
def shards(database: str) -> Iterator[ShardMap]:
    with closing(ShardMap(database)) as found:
        yield found


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


def fill(ask: Callable[..., Answer]) -> None:
    """Put one episode of each user with each agent."""
    for user in USERS:
        for nth, agent in enumerate(AGENTS):
            ask(
                "remember",
                text=f"{agent} heard of tea",
                triples=[{"subject": agent, "predicate": "drinks", "object": "tea"}],
                id=f"{user}-{agent}",
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


def comparable(value: Any) -> Any:
    """Return an answer without what differs from store to store."""
    if isinstance(value, dict):
        return {key: comparable(one) for key, one in value.items() if key not in HIDDEN}
    return [comparable(one) for one in value] if isinstance(value, list) else value


def outcome_of(call: Callable[[], Answer]) -> Any:
    """Return the comparable answer of a call, or its error."""
    try:
        return comparable(call())
    except SlumberdError as error:
        return type(error), str(error)


def random_request(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Return a request that names a user."""
    user, agent = chance.choice(USERS), chance.choice(AGENTS)
    scope: dict[str, Any] = {"user": user}
    if chance.random() < 0.4:
        scope["agent"] = agent
    id = f"{user}-{agent}" if chance.random() < 0.8 else "unknown"
    value = chance.choice(("tea", "rum", "milk"))
    return chance.choice(
        [
            ("recall", {**scope, "query": "Who heard of tea?", "limit": chance.randint(1, 5)}),
            ("context", {**scope, "question": "Who drinks rum?"}),
            ("episodes", {**scope, "limit": chance.randint(1, 3), "skip": chance.randint(0, 2)}),
            ("facts", {**scope, "limit": chance.randint(1, 3)}),
            ("profile", scope),
            ("history", {**scope, "id": id}),
            ("outcome", {**scope, "id": id}),
            ("explain", {**scope, "id": id}),
            (
                "correct",
                {"user": user, "agent": agent, "fact": id, "object": value, "reason": "r"},
            ),
            (
                "put_many",
                {
                    "user": user,
                    "agent": agent,
                    "episodes": [{"text": value, "id": f"{user}/{agent}/{value}", "when": WHEN}],
                },
            ),
            ("forget", {"user": user, "dry_run": True, "agent": agent}),
        ]
    )


@pytest.mark.sampled
def test_random_requests_of_users_are_answered_by_one_shard_as_by_one_store(
    of_files: Asker, cluster: Home, shards: ShardMap
) -> None:
    asked: list[int] = []

    def ask(shard: Shard, operation: str, request: dict[str, Any]) -> Answer:
        asked.append(shard.number)
        return ask_daemon(shard, operation, request)

    chance = random.Random(7)
    with serving(cluster):
        requests = ShardRequests(shards, lease_seconds=3.0, ask=ask)
        fill(of_files)
        fill(lambda operation, **fields: requests.call(operation, fields))
        of_files("fire")
        for shard in range(SHARDS):
            requests.call("fire", {"shard": shard})
        for _ in range(amount(60, full=600)):
            operation, fields = random_request(chance)
            one = outcome_of(lambda: of_files(operation, **fields))  # noqa: B023 # called at once
            asked.clear()

            several = outcome_of(lambda: requests.call(operation, fields))  # noqa: B023

            assert several == one, (operation, fields)
            assert asked == [shard_of(fields["user"], SHARDS)]


def test_users_of_the_tests_are_in_all_shards() -> None:
    assert {shard_of(user, SHARDS) for user in USERS} == {*range(SHARDS)}


def test_every_operation_names_a_user_or_a_shard() -> None:
    without = {
        name
        for name, operation in OPERATIONS.items()
        if not issubclass(operation.form, (ScopedForm, OperatorForm))
    }

    assert without == {"shards"}


def test_operator_names_the_shard_of_a_request(of_shards: Asker) -> None:
    fill(of_shards)
    fired = {shard: of_shards("fire", shard=shard) for shard in range(SHARDS)}
    users = {shard: of_shards("users", shard=shard)["users"] for shard in range(SHARDS)}
    unnamed = of_shards.error("fire")
    unknown = of_shards.error("fire", shard=SHARDS)

    for shard in range(SHARDS):
        own = sorted(user for user in USERS if shard_of(user, SHARDS) == shard)
        assert sorted(user["user"] for user in users[shard]) == own
        (report,) = fired[shard]["reports"]
        assert report["channels"]["facts"]["added"] == len(own) * len(AGENTS)
    assert isinstance(unnamed, ShardNotNamedError)
    assert "has the shards 0, 1, 2, 3" in str(unnamed)
    assert "--shard 0" in str(unnamed)
    assert type(unknown) is UsageError
    assert f"no shard {SHARDS}" in str(unknown)


def test_shard_of_another_user_is_refused_before_anything_is_written(of_shards: Asker) -> None:
    own = shard_of("ana", SHARDS)

    refused = of_shards.error(
        "pin", user="ana", agent="desk", subject="s", predicate="p", object=1, reason="r",
        shard=(own + 1) % SHARDS,
    )  # fmt: skip
    accepted = of_shards(
        "pin", user="ana", agent="desk", subject="s", predicate="p", object=1, reason="r",
        shard=own,
    )  # fmt: skip

    assert isinstance(refused, WrongShardError)
    assert f"user 'ana' lies in shard {own}" in str(refused)
    assert accepted["firing_id"].startswith("@")


def test_firing_is_named_as_in_one_store_and_undone_in_its_shard(of_shards: Asker) -> None:
    pinned = of_shards(
        "pin", user="ana", agent="desk", subject="s", predicate="p", object=1, reason="r"
    )

    unnamed = of_shards.error("undo", firing=pinned["firing_id"])
    undone = of_shards("undo", firing=pinned["firing_id"], shard=shard_of("ana", SHARDS))

    assert undone["undone"] == [pinned["firing_id"]]
    assert isinstance(unnamed, ShardNotNamedError)


def test_counts_of_all_shards_are_listed(of_files: Asker, of_shards: Asker) -> None:
    fill(of_shards)
    of_shards("fire", shard=2)

    refused = of_files.error("shards")
    several = of_shards("shards")["shards"]

    assert [row["shard"] for row in several] == [*range(SHARDS)]
    assert sum(row["episodes"] for row in several) == len(USERS) * len(AGENTS)
    assert "files have no shards" in str(refused)
    assert all(row["holder"] for row in several)
    for row in several:
        has_fired = row["shard"] == 2
        assert row["facts"] == (row["episodes"] if has_fired else 0)
        assert row["pending"] == (0 if has_fired else row["episodes"])
        assert (row["fired_at"] is not None) == has_fired
        assert (row["oldest_pending"] is None) == has_fired


def test_shard_without_a_daemon_is_told(tmp_path: Path, database: str) -> None:
    held = shard_of("ana", SHARDS)
    home = Home(tmp_path / "one", {"store": database, "postgres": {"shard": held, "lease": "3s"}})
    home.rule("all", cadence=NEVER)
    ask = Asker(DatabaseTransport(database))
    with home.daemon():
        found = ask("facts", user="ana")
        other = next(user for user in USERS if shard_of(user, SHARDS) != held)
        error = ask.error("facts", user=other)

    assert found == {"facts": [], "next": None}
    assert type(error) is NotRunningError


def test_command_works_on_a_shard_without_a_daemon_itself(
    cluster: Home, of_shards: Asker, tmp_path: Path, database: str
) -> None:
    fill(of_shards)
    alone = Home(tmp_path / "alone", {"store": database})
    alone.rule("all", cadence=NEVER)

    fired = [
        orjson.loads(line)
        for line in cluster.call("--all-shards", "fire", "--all", "--json").stdout.splitlines()
    ]

    assert [answer["shard"] for answer in fired] == [*range(SHARDS)]
    assert sum(one["reports"][0]["channels"]["facts"]["added"] for one in fired) == len(
        USERS
    ) * len(AGENTS)


def test_daemon_of_a_shard_enforces_the_limits_of_a_forwarded_caller(
    of_shards: Asker, database: str
) -> None:
    bob = Caller(name="token bob", user="bob", rights=frozenset({Right.READ}))
    own = shard_of("bob", SHARDS)

    for operation, request in (("episodes", {"user": "ana"}), ("pause", {"rules": ["all"]})):
        with pytest.raises(RefusedError, match=r"token bob via .* (may not name|has no right)"):
            ask_database(Shard(own, database), operation, forward(request, bob))


def test_host_passes_on_the_limits_of_its_caller(of_shards: Asker, shards: ShardMap) -> None:
    fill(of_shards)
    of_shards("fire", shard=shard_of("ana", SHARDS))
    handlers = shard_handlers(ShardRequests(shards, lease_seconds=3.0))
    ana = Caller(name="token ana", user="ana", rights=frozenset({Right.READ, Right.WRITE}))
    one_agent = Caller(name="token desk", user="ana", agent="desk", rights=ana.rights)

    async def call(name: str, caller: Caller, **request: Any) -> Answer:
        return await handlers[name](request, caller)

    own = asyncio.run(call("facts", one_agent))["facts"]
    refused: Mapping[str, tuple[Caller, dict[str, Any]]] = {
        "facts": (ana, {"user": "bob"}),
        "episodes": (one_agent, {"agent": "phone"}),
        "fire": (ana, {}),
        "forget": (ana, {}),
    }
    for name, (caller, request) in refused.items():
        with pytest.raises(NotAllowedError):
            asyncio.run(call(name, caller, **request))
    corrected = asyncio.run(call("correct", ana, fact="ana-desk", object="rum", reason="r"))
    shown = of_shards("facts", user="ana", id="ana-desk")["facts"]

    assert [fact["agent"] for fact in own] == ["desk"]
    assert corrected["fact_ids"] == ["ana-desk"]
    assert shown[0]["lineage"][-1]["by"].startswith("token ana via ")
    assert handlers.keys() == OPERATIONS.keys()


class MovingMap(ShardMap):
    """A map in which a user is being moved for some calls."""

    def __init__(self, moving: int) -> None:
        super().__init__("postgresql:///none")
        self.moving = moving

    def shards(self) -> list[Shard]:
        return [Shard(number, "postgresql:///none") for number in (0, 1)]

    def find(self, user: str) -> Shard:
        self.moving -= 1
        if self.moving >= 0:
            raise UserMovingError(user, 0, 1)
        return self.shards()[position_of(user) % 2]


def test_request_waits_while_its_user_is_being_moved() -> None:
    shards = MovingMap(2)

    found = find_shard(shards, "ana", patience_seconds=60.0)

    assert found == shards.shards()[position_of("ana") % 2]
    assert shards.moving == -1


def test_request_of_a_user_who_is_moved_for_long_is_refused() -> None:
    with pytest.raises(UserMovingError) as caught:
        find_shard(MovingMap(10**9), "ana", patience_seconds=0.0)

    assert (caught.value.user, caught.value.shard, caught.value.target) == ("ana", 0, 1)


def test_request_of_a_user_who_was_moved_meanwhile_finds_the_new_shard() -> None:
    shards, asked = MovingMap(0), list[int]()

    def ask(shard: Shard, operation: str, request: dict[str, Any]) -> Answer:
        asked.append(shard.number)
        if len(asked) == 1:
            raise WrongShardError("ana", 1 - shard.number, shard.number)
        return {"operation": operation, "user": request["user"]}

    requests = ShardRequests(shards, lease_seconds=3.0, ask=ask)

    assert requests.call("facts", {"user": "ana"}) == {"operation": "facts", "user": "ana"}
    assert len(asked) == 2


def test_daemon_of_one_shard_refuses_the_users_of_others(tmp_path: Path, database: str) -> None:
    held = shard_of("ana", SHARDS)
    other = next(user for user in USERS if shard_of(user, SHARDS) != held)
    home = Home(tmp_path / "one", {"store": database, "postgres": {"shard": held, "lease": "3s"}})
    home.rule("all", cadence=NEVER)
    with home.daemon():
        ask = Asker(SocketTransport(home.state))
        own = ask("remember", text="tea", user="ana")
        refused = ask.error("remember", text="tea", user=other)

    assert own["id"]
    assert isinstance(refused, WrongShardError)
    assert (refused.user, refused.shard) == (other, shard_of(other, SHARDS))


def test_name_that_no_user_can_have_is_refused() -> None:
    with pytest.raises(MemoryScopeError):
        find_shard(ShardMap("postgresql:///none"), "a\nb", patience_seconds=0.0)


def test_malformed_request_is_refused_with_its_mistakes(of_files: Asker, database: str) -> None:
    several = Asker(DatabaseTransport(database))
    asked: list[tuple[str, dict[str, Any]]] = [
        ("recall", {"query": "tea", "user": 5}),
        ("facts", {"user": "ana", "misspelled": 1}),
        ("unpin", {"facts": [], "reason": "r"}),
        ("nothing", {}),
    ]

    for name, request in asked:
        assert str(several.error(name, **request)) == str(of_files.error(name, **request))
