"""HTTP answers as the table of operations says, over a unix socket and over a network."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with http_daemon(tmp_path_factory.mktemp("http")) as running:
        yield running


@pytest.fixture
def ana(daemon: HttpDaemon) -> Iterator[httpx.Client]:
    with daemon.with_token("ana") as client:
        yield client


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[httpx.Client]:
    with daemon.by_socket() as client:
        yield client


def put(client: httpx.Client, where: str, **fields: Any) -> str:
    """Put an episode about a move of a new person, and wait until it is a fact."""
    id = str(uuid4())
    triple = {"subject": id, "predicate": "lives_in", "object": where}
    body = {"id": id, "text": f"I moved to {where}", "triples": [triple], **fields}
    answer = client.post("/v1/episodes", json=body)
    assert answer.status_code == 201, answer.text
    user = {"user": fields["user"]} if "user" in fields else {}
    outcome = client.get(f"/v1/outcomes/{id}", params={"seconds": 30, **user})
    assert outcome.status_code == 200, outcome.text
    assert outcome.json()["settled"], outcome.text
    return id


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Return the problem of an answer, after a look at its form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    return found


@pytest.mark.path
def test_episode_becomes_a_fact_that_is_found_and_explained(ana: httpx.Client) -> None:
    id = put(ana, "Lisbon")

    found = ana.post("/v1/search", json={"query": "Lisbon"}).json()["hits"]
    context = ana.post("/v1/context", json={"question": "Lisbon?", "budget": 500}).json()
    explained = ana.get(f"/v1/explain/{id}").json()
    [latest] = ana.get("/v1/episodes", params={"limit": 1}).json()["episodes"]

    assert id in {hit["id"] for hit in found}
    assert "Lisbon" in context["text"]
    assert explained["kind"] == "fact"
    assert latest["id"] == id


def test_same_episode_again_changes_nothing(ana: httpx.Client) -> None:
    body = {"id": str(uuid4()), "text": "once"}

    states = [ana.post("/v1/episodes", json=body).json()["state"] for _ in range(2)]

    assert states == ["new", "unchanged"]


def test_user_of_the_unix_socket_may_name_any_user(operator: httpx.Client) -> None:
    id = put(operator, "Rome", user="dora")

    answer = operator.get(f"/v1/facts/{id}", params={"user": "dora"})

    assert answer.json()["payload"]["object"] == "Rome"


def test_pages_of_facts_hold_each_fact_once(operator: httpx.Client) -> None:
    ids = {put(operator, "Oslo", user="paged") for _ in range(5)}
    seen, query = [], {"user": "paged", "limit": "2"}

    while True:
        page = operator.get("/v1/facts", params=query).json()
        seen += [fact["id"] for fact in page["facts"]]
        if page["next"] is None:
            break
        query = {**query, "cursor": page["next"]}

    assert sorted(seen) == sorted(ids)


def test_correction_with_the_version_that_was_read_is_made_once(ana: httpx.Client) -> None:
    id = put(ana, "Lisbon")
    tag = ana.get(f"/v1/facts/{id}").headers["etag"]
    correction = {"object": "Porto", "reason": "it was Porto"}

    first = ana.patch(f"/v1/facts/{id}", json=correction, headers={"If-Match": tag})
    second = ana.patch(f"/v1/facts/{id}", json=correction, headers={"If-Match": tag})

    assert first.json()["fact_ids"] == [id]
    assert problem(second, 412)["kind"] == "VersionConflictError"
    assert ana.get(f"/v1/facts/{id}").json()["payload"]["object"] == "Porto"


def test_one_of_many_corrections_of_the_same_version_is_made(
    daemon: HttpDaemon, ana: httpx.Client
) -> None:
    id = put(ana, "Lisbon")
    headers = {**ana.headers, "If-Match": ana.get(f"/v1/facts/{id}").headers["etag"]}

    async def correct_at_once() -> list[int]:
        async with httpx.AsyncClient(base_url=daemon.url, headers=headers) as client:
            corrections = [
                client.patch(f"/v1/facts/{id}", json={"object": n, "reason": "x"}) for n in range(8)
            ]
            return [answer.status_code for answer in await asyncio.gather(*corrections)]

    assert sorted(asyncio.run(correct_at_once())) == [200, *[412] * 7]


def test_fact_that_the_caller_has_is_not_sent_again(ana: httpx.Client) -> None:
    id = put(ana, "Lisbon")
    tag = ana.get(f"/v1/facts/{id}").headers["etag"]

    again = ana.get(f"/v1/facts/{id}", headers={"If-None-Match": tag})

    assert (again.status_code, again.content) == (304, b"")


def test_erasure_needs_the_hash_of_its_plan(daemon: HttpDaemon) -> None:
    with daemon.with_token("bob") as bob:
        put(bob, "Paris", session="gone")
        scope = {"session": "gone"}
        plan = bob.post("/v1/forget/plan", json=scope).json()["plan"]

        without = bob.post("/v1/forget", json=scope)
        wrong = bob.post("/v1/forget", json={**scope, "plan": "0" * 32})
        done = bob.post("/v1/forget", json={**scope, "plan": plan})

        missing = problem(without, 400)["detail"]
        assert missing == "forget: key 'plan' is missing; POST /v1/forget/plan returns it"
        assert problem(wrong, 409)["kind"] == "VersionConflictError"
        assert done.json()["certificate"] == "slumberd.forget"
        assert bob.get("/v1/episodes", params=scope).json() == {"episodes": []}


def test_episode_is_erased_by_its_plan_and_a_later_put_of_it_is_no_error(
    daemon: HttpDaemon, ana: httpx.Client
) -> None:
    others = put(ana, "Rome")
    with daemon.with_token("bob") as bob:
        id = put(bob, "Paris")
        plan = bob.post("/v1/forget/plan", json={"episode": id}).json()
        done = bob.post("/v1/forget", json={"episode": id, "plan": plan["plan"]}).json()
        again = bob.post("/v1/episodes", json={"id": id, "text": "I moved to Paris"})
        refused = [
            problem(bob.post("/v1/forget/plan", json={kind: unknown}), 404)["detail"]
            for kind in ("episode", "fact")
            for unknown in (others, "nothing")
        ]

        assert (plan["episodes"], plan["facts"]) == ([id], [id])
        assert plan["statements"] == [f"{id} lives_in Paris"]
        assert done["rows"]["episodes"]["episodes"] == 1
        assert again.json() == {"id": id, "state": "erased"}
        assert len({text.replace(others, "nothing") for text in refused}) == 2
    assert ana.get(f"/v1/facts/{others}").status_code == 200


def test_operator_fires_and_undoes(operator: httpx.Client) -> None:
    id = put(operator, "Bern", user="undone")
    rows = operator.get("/v1/changes", params={"user": "undone"}).json()["changes"]

    undone = operator.post("/v1/firings/undo", json={"firing": rows[-1]["firing_id"]})
    fired = operator.post("/v1/firings", json={"rules": ["all"], "dry_run": True})
    firings = operator.get("/v1/firings").json()

    assert undone.json()["undone"] == [rows[-1]["firing_id"]]
    assert fired.json()["reports"][0]["rule_id"] == "all"
    assert {row["kind"] for row in firings["changes"]} == {"firing"}
    assert operator.get(f"/v1/facts/{id}", params={"user": "undone"}).status_code == 404


def test_operator_reads_status_cadences_and_held_batches(operator: httpx.Client) -> None:
    status = operator.get("/v1/status").json()
    cadences = operator.get("/v1/operations/next").json()
    held = operator.get("/v1/held").json()
    unknown = operator.post("/v1/held/nothing/approve", json={})

    assert status["failing"] == []
    assert [rule["id"] for rule in cadences["rules"]] == ["all"]
    assert held == {"held": []}
    assert problem(unknown, 400)


def test_operator_reads_one_rule(operator: httpx.Client) -> None:
    found = operator.get("/v1/rules/all", params={"coverage": True}).json()
    [listed] = operator.post("/v1/operations/rules", json={"coverage": True}).json()["rules"]
    unknown = problem(operator.get("/v1/rules/none"), 404)

    assert found["state"].keys() == listed["state"].keys()
    assert found["state"]["cadence"] == listed["state"]["cadence"]
    assert found["coverage"]["problem"] == ""
    assert len(found["rule_hash"]) == 16 and found["timezone"]
    assert unknown["detail"] == "'none' does not exist: the rules in force are all"


def test_metrics_are_open_metrics(operator: httpx.Client) -> None:
    answer = operator.get("/metrics")

    read: Any = text_string_to_metric_families
    families = {family.name for family in read(answer.text)}
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert {"slumberd_uptime_seconds", "slumberd_ledger_rows"} <= families


def test_health_and_description_need_no_token(daemon: HttpDaemon) -> None:
    with httpx.Client(base_url=daemon.url) as anybody:
        assert anybody.get("/healthz").json() == {"status": "ok"}
        assert anybody.get("/openapi.json").json()["openapi"] == "3.1.0"


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(None, id="no token"),
        pytest.param("Bearer slumberd_unknown", id="unknown token"),
        pytest.param("Bearer", id="empty token"),
        pytest.param("Basic YTpi", id="another scheme"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/facts", "/metrics", "/v1/events", "/v1/unknown"])
def test_network_needs_a_known_token(daemon: HttpDaemon, header: str | None, path: str) -> None:
    headers = {} if header is None else {"Authorization": header}

    answer = httpx.get(daemon.url + path, headers=headers)

    assert problem(answer, 401)["kind"] == "NotAuthenticatedError"
    assert answer.headers["www-authenticate"] == "Bearer"


def test_unknown_token_is_refused_on_the_unix_socket_too(daemon: HttpDaemon) -> None:
    with daemon.by_socket(Authorization="Bearer slumberd_unknown") as client:
        assert problem(client.get("/v1/status"), 401)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/episodes", {"text": "x"}),
        ("POST", "/v1/forget/plan", {}),
        ("GET", "/v1/status", None),
        ("GET", "/v1/firings", None),
        ("GET", "/metrics", None),
        ("POST", "/v1/firings", {}),
        ("POST", "/v1/operations/pin", {}),
    ],
)
def test_token_without_the_right_is_refused(
    daemon: HttpDaemon, method: str, path: str, body: Any
) -> None:
    with daemon.with_token("reader") as reader:
        answer = reader.request(method, path, json=body)

    assert problem(answer, 403)["kind"] == "NotAllowedError"


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        pytest.param("GET", "/v1/unknown", b"", 404, id="unknown path"),
        pytest.param("DELETE", "/v1/facts", b"", 405, id="another method"),
        pytest.param("POST", "/v1/search", b"{", 400, id="no JSON"),
        pytest.param("POST", "/v1/search", b'{"query":"a","query":"b"}', 400, id="a key twice"),
        pytest.param("POST", "/v1/search", b'{"query":"a","limt":1}', 400, id="unknown field"),
        pytest.param("POST", "/v1/search", b"[]", 400, id="no object"),
        pytest.param("POST", "/v1/search", b"[" * 9000, 400, id="nested too deep"),
        pytest.param("POST", "/v1/search", b'{"query":"\\ud800"}', 400, id="no Unicode"),
        pytest.param("POST", "/v1/search?limit=1", b'{"query":"a"}', 400, id="query with a body"),
        pytest.param("POST", "/v1/search", b'{"query":"a","operation":"x"}', 400, id="hidden"),
        pytest.param("POST", "/v1/forget/plan", b'{"dry_run":false}', 400, id="fixed"),
        pytest.param("GET", "/v1/facts?limit=many", b"", 400, id="no number"),
        pytest.param("GET", "/v1/facts?limit=1&limit=2", b"", 400, id="a parameter twice"),
        pytest.param("GET", "/v1/facts/none", b"", 404, id="unknown fact"),
        pytest.param("GET", "/v1/explain/none", b"", 404, id="unknown id"),
        pytest.param("GET", "/v1/events?limit=1", b"", 400, id="field of another path"),
        pytest.param("GET", "/v1/facts?user=bob", b"", 403, id="another user"),
    ],
)
def test_mistake_is_answered_with_a_problem(
    ana: httpx.Client, method: str, path: str, content: bytes, status: int
) -> None:
    headers = {"Content-Type": "application/json"} if content else {}

    answer = ana.request(method, path, content=content, headers=headers)

    assert problem(answer, status)["detail"]


def test_body_of_another_type_is_refused(ana: httpx.Client) -> None:
    answer = ana.post("/v1/search", content=b"query=a", headers={"Content-Type": "text/plain"})

    assert "application/json" in problem(answer, 400)["detail"]


@pytest.mark.parametrize("tag", ["abc", 'W/"abc"', '"a", "b"'])
def test_unclear_entity_tag_is_refused(ana: httpx.Client, tag: str) -> None:
    body = {"object": 1, "reason": "x"}

    assert problem(ana.patch("/v1/facts/x", json=body, headers={"If-Match": tag}), 400)


@pytest.mark.path
def test_socket_is_for_owner_and_group(daemon: HttpDaemon) -> None:
    assert stat.S_IMODE(daemon.socket.stat().st_mode) == 0o660


def test_socket_is_gone_after_the_stop(tmp_path: Path) -> None:
    with http_daemon(tmp_path, socket_mode=600) as running:
        mode = stat.S_IMODE(running.socket.stat().st_mode)
        socket = running.socket

    assert mode == 0o600
    assert not socket.exists()


def test_instant_that_is_still_to_come_is_refused(ana: httpx.Client) -> None:
    body = {"id": str(uuid4()), "text": "my flight leaves", "when": "2098-01-03T00:00:00Z"}

    refused = problem(ana.post("/v1/episodes", json=body), 422)

    assert "is still to come; give the time at which it was said" in refused["detail"]
    found = ana.get("/v1/episodes", params={"limit": 1}).json()["episodes"]
    assert body["id"] not in {one["id"] for one in found}


@pytest.mark.path
def test_request_with_an_idempotency_key_is_done_once(ana: httpx.Client) -> None:
    key = str(uuid4())

    def send(text: str, key: str, **fields: Any) -> httpx.Response:
        body = {"text": text, **fields}
        return ana.post("/v1/episodes", json=body, headers={"Idempotency-Key": key})

    first, again, quoted = send("tea", key), send("tea", key), send("tea", f'"{key}"')
    other, elsewhere = send("rum", key), send("tea", key, session="s2")

    assert [one.json()["state"] for one in (first, again, quoted)] == [
        "new", "unchanged", "unchanged",
    ]  # fmt: skip
    assert first.json()["id"] == f"key:ana/default/{key}"
    for refused in (other, elsewhere):
        assert problem(refused, 422)["kind"] == "KeyReusedError"
    by_field = ana.post("/v1/episodes", json={"text": "rum", "key": key})
    assert by_field.json().items() >= {"id": first.json()["id"], "state": "changed"}.items()


@pytest.mark.parametrize(
    ("body", "header"),
    [
        ({"text": "tea", "key": "k"}, "h"),
        ({"text": "tea", "id": "e"}, "h"),
        ({"text": "tea", "idempotency_key": "k"}, None),
        ({"text": "tea"}, ""),
        ({"text": "tea", "id": "key:ana/default/k"}, None),
    ],
)
def test_episode_with_two_names_or_a_wrong_one_is_refused(
    ana: httpx.Client, body: dict[str, str], header: str | None
) -> None:
    headers = {} if header is None else {"Idempotency-Key": header}

    answer = ana.post("/v1/episodes", json=body, headers=headers)

    assert problem(answer, 400)["kind"] == "UsageError"


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(["a", "b"], id="twice"),
        pytest.param(["caf\xe9".encode()], id="UTF-8"),
        pytest.param(["caf\xe9".encode("latin-1")], id="Latin-1"),
    ],
)
def test_idempotency_key_that_clients_mean_differently_is_refused(
    ana: httpx.Client, values: list[str | bytes]
) -> None:
    headers = [(b"Idempotency-Key", each if isinstance(each, bytes) else each.encode())
               for each in values]  # fmt: skip

    answer = ana.post("/v1/episodes", json={"text": "tea"}, headers=headers)

    assert "the field `key` takes every text" in problem(answer, 400)["detail"]


def test_idempotency_key_is_refused_where_a_change_knows_none(ana: httpx.Client) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    episode = {"text": "tea"}

    many = ana.post("/v1/episodes/many", json={"episodes": [episode]}, headers=headers)
    read = ana.post("/v1/search", json={"query": "tea"}, headers=headers)
    by_name = [
        ana.post("/v1/operations/remember", json=episode, headers=headers).json()["state"]
        for _ in range(2)
    ]

    assert "takes no header Idempotency-Key" in problem(many, 400)["detail"]
    assert read.status_code == 200
    assert by_name == ["new", "unchanged"]


def test_many_requests_with_one_idempotency_key_make_one_episode(ana: httpx.Client) -> None:
    key = str(uuid4())

    async def send(client: httpx.AsyncClient, number: int) -> httpx.Response:
        headers = {"Idempotency-Key": key}
        return await client.post("/v1/episodes", json={"text": f"{number % 2}"}, headers=headers)

    async def send_all() -> list[httpx.Response]:
        async with httpx.AsyncClient(
            base_url=ana.base_url, headers=ana.headers, timeout=PATIENCE_SECONDS
        ) as client:
            return await asyncio.gather(*(send(client, number) for number in range(8)))

    answers = asyncio.run(send_all())

    assert sorted(one.status_code for one in answers) == [201] * 4 + [422] * 4
    assert [one.json()["state"] for one in answers if one.is_success].count("new") == 1


@pytest.mark.parametrize("path", ["/v1/episodes/many", "/v1/operations/put_many"])
def test_many_episodes_are_put_all_or_none(ana: httpx.Client, path: str) -> None:
    key, session = str(uuid4()), str(uuid4())
    episodes = [{"text": "one", "key": key}, {"text": "two", "when": "2026-03-01T12:00:00Z"}]

    put = ana.post(path, json={"episodes": episodes, "session": session})
    again = ana.post(path, json={"episodes": episodes[:1], "session": session})
    wrong = [{"text": "three"}, {"text": "four", "metadata": {"intent": "shout"}}]
    refused = ana.post(path, json={"episodes": wrong, "session": session})
    stored = ana.get("/v1/episodes", params={"session": session}).json()["episodes"]

    assert [one["state"] for one in put.json()["episodes"]] == ["new", "new"]
    assert [one["state"] for one in again.json()["episodes"]] == ["unchanged"]
    assert problem(refused, 422)["kind"] == "RecordRefusedError"
    assert {one["content"] for one in stored} == {"one", "two"}


def test_reads_may_ask_for_all_agents_of_the_user(
    ana: httpx.Client, operator: httpx.Client
) -> None:
    id = put(operator, "Bergen", user="shared", agent="home")
    user = {"user": "shared", "all_agents": "true"}

    facts = operator.get("/v1/facts", params=user).json()["facts"]
    hits = operator.post(
        "/v1/search", json={"user": "shared", "all_agents": True, "query": "Bergen"}
    ).json()["hits"]
    both = operator.get("/v1/facts", params={**user, "agent": "desk"})

    assert [fact["id"] for fact in facts] == [id]
    assert {hit["agent"] for hit in hits} == {"home"}
    assert problem(both, 400)["kind"] == "UsageError"
