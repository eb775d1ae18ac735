"""Hosts of a database with several shards: each answers over HTTP for any of them."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import httpx
import orjson
import pytest

from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.postgres_server import PostgresServer
from tests.support.shards import shard_of
from tests.web.http.test_http import put

pytestmark = pytest.mark.acceptance

SHARDS = 4
USERS = [f"user{number}" for number in range(8)]


@pytest.fixture(scope="module")
def hosts(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[HttpDaemon, HttpDaemon]]:
    folder = tmp_path_factory.mktemp("hosts")
    with (
        postgres.database(shards=SHARDS) as name,
        http_daemon(folder / "first", store=postgres.address_of(name)) as first,
        http_daemon(folder / "second", store=postgres.address_of(name)) as second,
    ):
        yield first, second


@pytest.fixture
def first(hosts: tuple[HttpDaemon, HttpDaemon]) -> Iterator[httpx.Client]:
    with hosts[0].by_socket() as client:
        yield client


@pytest.fixture
def second(hosts: tuple[HttpDaemon, HttpDaemon]) -> Iterator[httpx.Client]:
    with hosts[1].by_socket() as client:
        yield client


def test_users_of_the_test_lie_in_several_shards() -> None:
    assert len({shard_of(user, SHARDS) for user in USERS}) > 2


def test_each_host_answers_for_all_shards(first: httpx.Client, second: httpx.Client) -> None:
    ids = {user: put(first, f"town of {user}", user=user) for user in USERS}

    for user, id in ids.items():
        found = second.get(f"/v1/facts/{id}", params={"user": user}).json()
        answer = second.post("/v1/search", json={"query": "town", "user": user})
        hits = answer.json().get("hits", answer.text)
        assert found["payload"]["object"] == f"town of {user}"
        assert id in {hit["id"] for hit in hits}


def test_token_of_one_user_reads_nothing_of_another(
    hosts: tuple[HttpDaemon, HttpDaemon], first: httpx.Client
) -> None:
    id = put(first, "Lisbon", user="ana")
    with hosts[1].with_token("ana") as ana, hosts[1].with_token("bob") as bob:
        own = ana.get(f"/v1/facts/{id}")
        other = bob.get(f"/v1/facts/{id}")
        named = bob.get("/v1/facts", params={"user": "ana"})

    assert own.status_code == 200
    assert other.status_code == 404
    assert named.status_code == 403


@pytest.mark.path
def test_correction_of_one_host_is_seen_by_the_other(
    first: httpx.Client, second: httpx.Client
) -> None:
    id = put(first, "Rome", user="user1")
    tag = first.get(f"/v1/facts/{id}", params={"user": "user1"}).headers["etag"]

    done = second.patch(
        f"/v1/facts/{id}",
        json={"object": "Oslo", "reason": "she moved", "user": "user1"},
        headers={"If-Match": tag},
    )

    assert done.status_code == 200, done.text
    read = first.get("/v1/facts", params={"user": "user1", "subject": id}).json()["facts"]
    assert [fact["payload"]["object"] for fact in read] == ["Oslo"]


@pytest.mark.nightly
def test_forgetting_a_user_reaches_all_agents(first: httpx.Client, second: httpx.Client) -> None:
    agents = [f"agent{number}" for number in range(6)]
    for agent in agents:
        put(first, f"home of {agent}", user="gone", agent=agent)

    plan = second.post("/v1/forget/plan", json={"user": "gone"}).json()
    done = second.post("/v1/forget", json={"user": "gone", "plan": plan["plan"]})

    assert done.status_code == 200, done.text
    assert first.get("/v1/facts", params={"user": "gone"}).json()["facts"] == []
    assert first.get("/v1/episodes", params={"user": "gone"}).json()["episodes"] == []


@pytest.mark.nightly
def test_traces_go_to_the_shards_of_their_users(second: httpx.Client, first: httpx.Client) -> None:
    message = [{"role": "user", "parts": [{"type": "text", "content": "I like tea"}]}]

    def attribute(key: str, value: str) -> dict[str, object]:
        return {"key": key, "value": {"stringValue": value}}

    spans = [
        {
            "traceId": uuid4().hex,
            "spanId": uuid4().hex[:16],
            "name": "chat",
            "startTimeUnixNano": "1790000000000000000",
            "endTimeUnixNano": "1790000001000000000",
            "attributes": [
                attribute("gen_ai.operation.name", "chat"),
                attribute("user.id", user),
                attribute("gen_ai.input.messages", orjson.dumps(message).decode()),
            ],
        }
        for user in USERS
    ]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}

    for _ in range(2):  # the second time, all are stored already
        answer = second.post("/v1/traces", json=document)
        assert answer.status_code == 200, answer.text
        assert answer.json() in ({}, {"partialSuccess": {}}), answer.text

    for user in USERS:
        texts = first.get("/v1/episodes", params={"user": user}).text
        assert texts.count("I like tea") == 1, user


def test_metrics_are_those_of_the_shards_of_a_host(
    hosts: tuple[HttpDaemon, HttpDaemon], first: httpx.Client
) -> None:
    put(first, "Paris", user="user2")
    rules = [client.get("/metrics").text for client in _clients(hosts)]

    assert all("slumberd_" in text for text in rules)


def _clients(hosts: tuple[HttpDaemon, HttpDaemon]) -> Iterator[httpx.Client]:
    for host in hosts:
        with host.by_socket() as client:
            yield client
