"""A token of one user neither sees nor changes anything of another, on any path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.web.http.routes import ROUTES, HttpRoute
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.postgres_server import PostgresServer
from tests.support.sample_sizes import amount
from tests.web.http.test_http import put

pytestmark = pytest.mark.acceptance

MARKER = "mauritius"
"""A word that only the data of the first user has; the second user does not know it."""


@dataclass(frozen=True)
class World:
    """A daemon with two users.

    Attributes:
        daemon: The daemon.
        known: What the second user knows of the first, by the name of a field.
        view: All that the first user sees.
    """

    daemon: HttpDaemon
    known: dict[str, list[Any]]
    view: list[Any]


@pytest.fixture(scope="module")
def several_shards(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(shards=3) as name:
        yield postgres.address_of(name)


@pytest.fixture(
    scope="module",
    params=["files", pytest.param("several_shards", marks=pytest.mark.nightly)],
)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    store = None if request.param == "files" else request.getfixturevalue(request.param)
    with http_daemon(tmp_path_factory.mktemp("http"), store=store) as running:
        with running.with_token("ana") as ana, running.with_token("bob") as bob:
            ids = [put(ana, MARKER, session="s1") for _ in range(3)]
            put(bob, "Rome", session="s1")
            known = knowledge(ana, ids)
            view = view_of(ana, ids)
        yield World(running, known, view)


def knowledge(ana: httpx.Client, ids: list[str]) -> dict[str, list[Any]]:
    """Return values for the fields of requests, as a hostile user may know or guess them."""
    page = ana.get("/v1/facts", params={"limit": 1}).json()
    rows = ana.get("/v1/changes", params={"agent": "default"}).json()["changes"]
    firings = [row["firing_id"] for row in rows]
    plan = ana.post("/v1/forget/plan", json={"session": "s1"}).json()["plan"]
    return {
        "id": ids,
        "fact": ids,
        "facts": [ids],
        "episodes": [ids],
        "user": ["ana", "bob", "ANA"],
        "agent": ["default", "other"],
        "session": ["s1", "default"],
        "text": ["stolen"],
        "query": ["I moved to", "lives in"],
        "question": ["Where did I move to?"],
        "cursor": [page["next"]],
        "subject": ids,
        "predicate": ["lives_in"],
        "object": ["stolen"],
        "reason": ["because"],
        "retract": [True],
        "if_version": [page["facts"][0]["version"]],
        "plan": [plan],
        "firing": firings,
        "run": ["none"],
        "rule": ["all"],
        "rules": [["all"]],
        "since": [0],
        "all": [True],
        "again": [True],
        "after": [0],
    }


def view_of(ana: httpx.Client, ids: list[str]) -> list[Any]:
    """Return all that a user sees of its own; not the number of the last row of all."""
    query = {"limit": "1000", "agent": "default"}
    changes = ana.get("/v1/changes", params=query).json()["changes"]
    return [
        ana.get("/v1/facts").json(),
        ana.get("/v1/episodes").json(),
        changes,
        *(ana.get(f"/v1/explain/{id}").json() for id in ids),
        ana.post("/v1/search", json={"query": MARKER}).json(),
    ]


def requests_of(route: HttpRoute, known: dict[str, list[Any]]) -> st.SearchStrategy[Any]:
    """Return requests of a path, of what a hostile user knows."""
    names = [name for name in known if name in route.operation.form.model_fields]
    optional = {name: st.sampled_from(known[name]) for name in names if name not in route.hidden}
    return st.fixed_dictionaries({}, optional=optional)


@pytest.mark.sampled
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_hostile_user_sees_and_changes_nothing(world: World, route: HttpRoute) -> None:
    ids = world.known["firing" if route.in_path == "firing" else "id"]

    @given(fields=requests_of(route, world.known), id=st.sampled_from(ids))
    @settings(
        max_examples=amount(3, full=100), deadline=None, suppress_health_check=list(HealthCheck)
    )
    def attack(fields: dict[str, Any], id: str) -> None:
        path = route.public_path.replace("{id}", id)
        with world.daemon.with_token("bob") as bob:
            if route.method == "GET":
                answer = bob.get(path, params=fields)
            else:
                answer = bob.request(route.method, path, json=fields)
        assert answer.status_code < 500
        assert MARKER not in answer.text

    attack()

    with world.daemon.with_token("ana") as ana:
        assert view_of(ana, world.known["id"]) == world.view


@pytest.mark.path
def test_secret_is_there_for_its_owner(world: World) -> None:
    assert MARKER in str(world.view)


def test_hostile_user_sees_no_event_of_another(world: World) -> None:
    query = {"agent": "default"}
    with (
        world.daemon.with_token("bob") as bob,
        bob.stream("GET", "/v1/events", params=query) as answer,
    ):
        lines = answer.iter_lines()
        seen = [next(lines) for _ in range(5)]

    assert not any(id in line for id in world.known["id"] for line in seen)


def test_log_holds_no_token_and_no_content(tmp_path_factory: pytest.TempPathFactory) -> None:
    with http_daemon(tmp_path_factory.mktemp("http")) as running:
        with running.with_token("ana") as ana:
            put(ana, MARKER)
            ana.post("/v1/search", json={"query": MARKER})
            ana.get("/v1/facts", params={MARKER: MARKER})
            ana.post("/v1/episodes", content=MARKER)
            httpx.get(running.url, headers={"Authorization": f"Bearer {MARKER}"})
        running.daemon.stop()
        lines = str([*running.daemon.seen, *running.daemon.remaining()])

    assert "firing.completed" in lines
    assert MARKER not in lines
    assert not any(token in lines for token in running.tokens.values())
