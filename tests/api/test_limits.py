"""Slow and hostile clients are cut off, and never delay a firing."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from slumberd.api.limits import MOST_REASONS, LimitedBody, RefusalCounter, RequestSlots
from slumberd.errors import RequestTooLargeError, TooManyRequestsError
from tests.support.fakes import FakeClock
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance

MANY = 1_000
BODY = 4_096
REQUEST = b"GET /v1/facts HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    """Run a daemon with small limits."""
    with http_daemon(
        tmp_path_factory.mktemp("http"),
        timeout_seconds=0.5,
        max_body_bytes=BODY,
        max_connections=50,
        max_requests=4,
    ) as running:
        yield running
        running.daemon.stop()
        logged = {event["event"] for event in [*running.daemon.seen, *running.daemon.remaining()]}
    assert "http.refused" in logged
    assert not logged & {"http.failed", "http.server_failed", "library.logged"}


@contextmanager
def connection(daemon: HttpDaemon) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=PATIENCE_SECONDS) as opened:
        yield opened


def read_to_the_end(opened: socket.socket) -> bytes:
    """Return what the daemon sends until it ends the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while part := opened.recv(65_536):
            received += part
    return received


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(REQUEST, id="half of the headers"),
        pytest.param(
            b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", id="half a body"
        ),
    ],
)
def test_client_that_sends_slowly_is_cut_off(daemon: HttpDaemon, sent: bytes) -> None:
    with connection(daemon) as opened:
        opened.sendall(sent)

        read_to_the_end(opened)  # ends only when the daemon ends the connection

    daemon.daemon.process.poll()
    assert daemon.daemon.process.returncode is None


@pytest.mark.path
@pytest.mark.parametrize(
    ("line", "body"),
    [
        pytest.param(b"POST /v1/facts", b"Content-Length: 9\r\n\r\n{", id="half a body"),
        pytest.param(
            b"POST /v1/facts", b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n", id="broken body"
        ),
        pytest.param(
            b"GET /healthz", b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n", id="not read"
        ),
    ],
)
def test_client_that_breaks_off_is_no_error(daemon: HttpDaemon, line: bytes, body: bytes) -> None:
    token = f"Authorization: Bearer {daemon.tokens['ana']}\r\n".encode()
    with connection(daemon) as opened:
        opened.sendall(line + b" HTTP/1.1\r\nHost: x\r\n" + token + body)
        opened.shutdown(socket.SHUT_WR)

        read_to_the_end(opened)

    # The fixture looks into the log.


def test_client_that_does_not_read_is_cut_off(daemon: HttpDaemon) -> None:
    with connection(daemon) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
        opened.settimeout(0.2)

        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # noqa: PT012 # it sends until cut
            while True:
                with suppress(TimeoutError):
                    opened.sendall(request * 64)


def test_body_above_the_limit_is_refused(daemon: HttpDaemon) -> None:
    with daemon.with_token("ana") as ana:
        announced = ana.post("/v1/episodes", json={"text": "x" * BODY})
        parts = (b"x" * 512 for _ in range(BODY // 256))
        streamed = ana.post(
            "/v1/episodes", content=parts, headers={"Content-Type": "application/json"}
        )

    assert (announced.status_code, streamed.status_code) == (413, 413)
    assert announced.json()["kind"] == "RequestTooLargeError"


def test_too_many_connections_get_an_answer_and_an_end(daemon: HttpDaemon) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(connection(daemon)) for _ in range(200)]

        answers = [read_to_the_end(each) for each in opened]

    refused = sum(answer.startswith(b"HTTP/1.1 503") for answer in answers)
    assert refused >= 100


def test_one_caller_gets_half_of_the_places(daemon: HttpDaemon) -> None:
    with daemon.with_token("ana") as ana, daemon.with_token("bob") as bob, ExitStack() as streams:
        for _ in range(2):
            answer = streams.enter_context(ana.stream("GET", "/v1/events"))
            assert answer.status_code == 200

        refused, other = ana.get("/v1/facts"), bob.get("/v1/facts")

    assert refused.status_code == 429
    assert refused.json()["fields"] == {"most": 2, "whose": "token ana"}
    assert refused.headers["retry-after"] == "1"
    assert other.status_code == 200


def test_what_is_not_http_is_refused_and_ends_nothing(daemon: HttpDaemon) -> None:
    with connection(daemon) as opened:
        opened.sendall(b"\x16\x03\x01 this is TLS\r\n\r\n")

        assert read_to_the_end(opened).startswith(b"HTTP/1.1 400")

    assert httpx.get(f"{daemon.url}/healthz").status_code == 200


@pytest.mark.nightly
def test_rule_fires_beside_a_thousand_held_connections(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * MANY:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * MANY), hard))
    try:
        with http_daemon(tmp_path, max_connections=2 * MANY, timeout_seconds=600) as running:
            fire_beside_connections(running)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def fire_beside_connections(daemon: HttpDaemon) -> None:
    """Hold connections in each bad state; then put an episode, and wait until it is a fact."""
    unread = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 50
    states = [b"", REQUEST, unread, b"POST /v1/search HTTP/1.1\r\nContent-Length: 99\r\n"]
    held = []
    with ExitStack() as stack:
        for number in range(MANY):
            opened = stack.enter_context(connection(daemon))
            opened.sendall(states[number % len(states)])
            held.append(opened)
        with daemon.by_socket() as client:
            id = str(uuid4())
            body = {"id": id, "text": "x", "user": "zoe"}
            assert client.post("/v1/episodes", json=body).status_code == 201
            outcome = client.get(f"/v1/outcomes/{id}", params={"user": "zoe", "seconds": 60})

        assert outcome.json()["settled"]
        assert sum(map(is_open, held)) == MANY


def is_open(opened: socket.socket) -> bool:
    """Return whether the other end has not ended a connection."""
    opened.setblocking(False)
    try:
        return bool(opened.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_slots_are_free_again_after_an_error() -> None:
    slots = RequestSlots(2)

    for _ in range(3):
        with suppress(ValueError), slots.one("a"):
            raise ValueError

    with slots.one("a"), slots.one("b"), pytest.raises(TooManyRequestsError, match="the daemon"):
        slots.one("c").__enter__()


async def test_body_is_counted_over_its_parts() -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"xx", "more_body": True}

    body = LimitedBody(receive, None, 3)
    await body.receive()

    with pytest.raises(RequestTooLargeError):
        await body.receive()


def test_line_about_refusals_has_a_bounded_number_of_places() -> None:
    lines: list[dict[str, int]] = []
    counter = RefusalCounter(FakeClock(), lines.append)

    for number in range(1_000):
        counter.count(f"2001:db8::{number:x}")
        counter.count("2001:db8::1")
    counter.log()

    assert lines[0] == {"2001:db8::0": 1}
    assert len(lines[1]) == MOST_REASONS + 1
    assert lines[1]["2001:db8::1"] == 1_001
    assert sum(lines[1].values()) == 1_999


def test_refusals_are_logged_once_a_minute() -> None:
    clock = FakeClock()
    counter = RefusalCounter(clock)

    counter.count("first")
    counter.count("second")
    counter.count("second")
    kept = dict(counter.counts)
    clock.advance(60)
    counter.count("third")

    assert kept == {"second": 2}
    assert not counter.counts
