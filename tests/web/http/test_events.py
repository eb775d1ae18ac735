"""The stream of events goes on where a client lost it, and shows only the client's scope."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import orjson
import pytest

from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.web.http.test_http import put

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with http_daemon(tmp_path_factory.mktemp("http")) as running:
        yield running


@contextmanager
def events(client: httpx.Client, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the events of a stream."""
    with client.stream("GET", "/v1/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _events_in(answer.iter_lines())


def _events_in(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if name in ("id", "event", "data"):
            fields[name] = value
        if not line and "data" in fields:
            yield {**fields, "data": orjson.loads(fields["data"])}
        if not line:
            fields = {}


def test_commit_arrives_at_a_waiting_client(daemon: HttpDaemon) -> None:
    with (
        daemon.with_token("ana") as ana,
        daemon.with_token("ana") as other,
        events(other) as stream,
    ):
        id = put(ana, "Lisbon")

        event = next(event for event in stream if event["data"]["fact_id"] == id)

    assert event["event"] == "add"
    assert event["id"] == str(event["data"]["seq"])


def test_client_goes_on_after_the_last_event_that_it_saw(daemon: HttpDaemon) -> None:
    with daemon.with_token("ana") as ana:
        first, second = put(ana, "Lisbon"), put(ana, "Porto")
        with events(ana) as stream:
            seen = next(event for event in stream if event["data"]["fact_id"] == first)

        with events(ana, **{"Last-Event-ID": seen["id"]}) as stream:
            following = next(stream)

    assert following["data"]["fact_id"] == second


def test_client_sees_no_event_of_another_user_and_no_firing(daemon: HttpDaemon) -> None:
    with daemon.with_token("ana") as ana, daemon.with_token("bob") as bob:
        put(ana, "Lisbon")
        mine = put(bob, "Rome")
        with events(bob) as stream:
            seen = [next(stream)]
            while seen[-1]["data"]["fact_id"] != mine:
                seen.append(next(stream))

    assert {event["data"]["user"] for event in seen} == {"bob"}


@pytest.mark.path
@pytest.mark.parametrize("last", ["x", "-1", "9" * 30])
def test_unclear_last_event_is_refused(daemon: HttpDaemon, last: str) -> None:
    with daemon.with_token("ana") as ana:
        answer = ana.get("/v1/events", headers={"Last-Event-ID": last})

    assert answer.status_code == 400


@pytest.mark.nightly
def test_stop_of_the_daemon_ends_a_stream(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        http_daemon(tmp_path_factory.mktemp("http")) as running,
        running.with_token("ana") as ana,
        events(ana) as stream,
    ):
        assert running.daemon.stop() == 0

        assert list(stream) == []
