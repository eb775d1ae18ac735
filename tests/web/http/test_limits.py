"""Slow and hostile clients are cut off, and never delay a firing."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.errors import TooManyRequestsError
from slumberd.web.http.gate import RequestSlots
from slumberd.web.http.limits import MOST_REASONS, RefusalCounter
from tests.support.console_people import signed_in
from tests.support.fakes import FakeClock
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.acceptance

MANY = 1_000
BODY = 4_096
REQUEST = b"GET /v1/facts HTTP/1.1\r\nHost: localhost\r\n"


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
            b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
            id="half a body",
        ),
    ],
)
def test_client_that_sends_slowly_is_cut_off(daemon: HttpDaemon, sent: bytes) -> None:
    with connection(daemon) as opened:
        opened.sendall(sent)

        read_to_the_end(opened)  # ends only when the daemon ends the connection

    daemon.daemon.process.poll()
    assert daemon.daemon.process.returncode is None


HALF = b"Content-Length: 9\r\n\r\n{"
BROKEN = b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n"
JSON = b"Content-Type: application/json\r\n"
FORM = b"Content-Type: application/x-www-form-urlencoded\r\nOrigin: http://localhost\r\n"


@pytest.mark.path
@pytest.mark.parametrize("body", [HALF, BROKEN], ids=["half a body", "broken body"])
@pytest.mark.parametrize(
    ("line", "headers"),
    [
        pytest.param(b"POST /v1/facts", JSON, id="facts"),
        pytest.param(b"PATCH /v1/facts/x", JSON, id="one fact"),
        pytest.param(b"POST /v1/traces", JSON, id="traces"),
        pytest.param(b"POST /mcp", JSON, id="mcp"),
        pytest.param(b"POST /console/sign-in", FORM, id="sign in"),
        pytest.param(b"POST /console/change", FORM, id="change"),
        pytest.param(b"POST /no/such/path", JSON, id="no path"),
        pytest.param(b"GET /healthz", b"", id="not read"),
        pytest.param(b"GET /v1/events", b"", id="stream"),
    ],
)
def test_client_that_breaks_off_is_no_error(
    daemon: HttpDaemon, line: bytes, headers: bytes, body: bytes
) -> None:
    token = f"Authorization: Bearer {daemon.tokens['ana']}\r\n".encode()
    with connection(daemon) as opened:
        opened.sendall(line + b" HTTP/1.1\r\nHost: localhost\r\n" + token + headers + body)
        opened.shutdown(socket.SHUT_WR)

        read_to_the_end(opened)

    # The fixture looks into the log.


def test_client_that_does_not_read_is_cut_off(daemon: HttpDaemon) -> None:
    with connection(daemon) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
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


@contextmanager
def streams_of(client: httpx.Client) -> Iterator[httpx.Response]:
    """Hold as many streams as a client gets; yield the answer to one more."""
    with ExitStack() as stack:
        while (
            answer := stack.enter_context(client.stream("GET", "/v1/events"))
        ).status_code == 200:
            pass
        answer.read()
        yield answer


def test_one_caller_gets_half_of_the_places(daemon: HttpDaemon) -> None:
    with daemon.with_token("ana") as ana, streams_of(ana) as refused:
        assert refused.status_code == 429
        assert refused.json()["fields"] == {"most": 2, "whose": "token ana"}
        assert refused.headers["retry-after"] == "1"


def test_streams_of_two_callers_stop_nobody(daemon: HttpDaemon) -> None:
    with ExitStack() as stack:
        ana, reader, bob, operator = (
            stack.enter_context(daemon.with_token(name))
            for name in ("ana", "reader", "bob", "operator")
        )
        stack.enter_context(streams_of(ana))
        stack.enter_context(streams_of(reader))

        answers = [client.get("/v1/facts?user=ana") for client in (ana, reader, operator)]
        answers += [bob.get("/v1/facts"), operator.get("/v1/status"), bob.get("/healthz")]
        answers.append(stack.enter_context(operator.stream("GET", "/v1/events")))
        with signed_in(daemon, "bob") as person:
            answers.append(person.read("/today").answer)

    assert [answer.status_code for answer in answers] == [200] * 8


INNER = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SIGN_IN = (
    b"POST /console/sign-in HTTP/1.1\r\nHost: localhost\r\n" + FORM + b"Expect: 100-continue\r\n"
)
UNREAD = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(SIGN_IN + b"Content-Length: 1000\r\n\r\n", id="slow form"),
        pytest.param(SIGN_IN + b"Transfer-Encoding: chunked\r\n\r\n", id="in parts"),
        pytest.param(UNREAD, id="answers that nobody reads"),
        pytest.param(UNREAD.replace(b"/openapi.json", b"/console/sign-in"), id="unread pages"),
    ],
)
def test_clients_without_a_token_stop_nobody(
    tmp_path_factory: pytest.TempPathFactory, sent: bytes
) -> None:
    with (
        http_daemon(tmp_path_factory.mktemp("http"), max_requests=4) as daemon,
        ExitStack() as held,
    ):
        with signed_in(daemon, "ana") as ana:
            for _ in range(40):
                opened = held.enter_context(connection(daemon))
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                opened.sendall(sent)
                opened.recv(1)  # the daemon waits for the body, or answers

            shown = ana.read("/today")
            with signed_in(daemon, "bob") as bob:
                also = bob.read("/today")
        health = httpx.get(f"{daemon.url}/healthz")

    assert (shown.status, also.status, health.status_code) == (200, 200, 200)


def test_slow_bodies_of_two_callers_stop_nobody(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    line = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\n" + JSON
    with (
        http_daemon(tmp_path_factory.mktemp("http"), max_requests=8) as daemon,
        ExitStack() as held,
    ):
        for name in ["ana", "reader"] * 10:
            token = f"Authorization: Bearer {daemon.tokens[name]}\r\n".encode()
            opened = held.enter_context(connection(daemon))
            opened.sendall(line + token + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n")
            opened.recv(1)  # the daemon waits for the body, or refuses it
        with daemon.with_token("bob") as bob, daemon.by_socket() as operator:
            answers = [bob.get("/v1/facts"), operator.get("/v1/status"), bob.get("/healthz")]

    assert [answer.status_code for answer in answers] == [200] * 3


def test_form_of_somebody_unknown_is_short(daemon: HttpDaemon) -> None:
    with http_headers(daemon) as client:
        answer = client.post("/console/sign-in", data={"token": "x" * BODY})

    assert answer.status_code == 413


def test_body_that_announces_any_length_is_refused(daemon: HttpDaemon) -> None:
    line = b"POST /console/sign-in HTTP/1.1\r\nHost: localhost\r\n" + FORM
    with connection(daemon) as opened:
        opened.sendall(line + b"Content-Length: 99999999999999999999\r\n\r\n")

        answer = read_to_the_end(opened)

    assert answer.startswith(b"HTTP/1.1 413")


@contextmanager
def http_headers(daemon: HttpDaemon) -> Iterator[httpx.Client]:
    """Yield a client without a token that sends what a browser does."""
    with httpx.Client(base_url=daemon.url, headers={"Origin": daemon.url}) as client:
        yield client


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(REQUEST, id="half of the headers"),
        pytest.param(SIGN_IN + b"Content-Length: 1000\r\n\r\n", id="half a form"),
        pytest.param(INNER, id="a whole request"),
    ],
)
def test_clients_that_hold_all_connections_make_room_for_others(
    tmp_path_factory: pytest.TempPathFactory, sent: bytes
) -> None:
    with (
        http_daemon(tmp_path_factory.mktemp("http"), max_connections=20) as daemon,
        ExitStack() as held,
    ):
        for _ in range(40):
            held.enter_context(connection(daemon)).sendall(sent)

        answers = [httpx.get(f"{daemon.url}/healthz") for _ in range(5)]
        with signed_in(daemon, "bob") as bob:
            shown = bob.read("/today")

    assert [answer.status_code for answer in answers] == [200] * 5
    assert shown.status == 200


@pytest.mark.parametrize("more", [b"", b"x"], ids=["", "and more is sent"])
def test_clients_that_read_no_answer_make_room_for_others(
    tmp_path_factory: pytest.TempPathFactory, more: bytes
) -> None:
    home = tmp_path_factory.mktemp("http")
    with (
        http_daemon(home, max_connections=20, timeout_seconds=3_600) as daemon,
        ExitStack() as held,
    ):
        for _ in range(40):
            opened = held.enter_context(connection(daemon))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            opened.sendall(UNREAD)
            with suppress(ConnectionError):  # which the daemon has ended for another one
                opened.recv(1)
                opened.sendall(more)

        wait_until(lambda: httpx.get(f"{daemon.url}/healthz").status_code == 200)  # all are full
        with signed_in(daemon, "bob") as bob:
            shown = bob.read("/today")

    assert shown.status == 200


@pytest.mark.slow
@pytest.mark.parametrize("path", [b"/healthz", b"/v1/status"])
def test_busy_clients_without_a_token_make_room_for_others(
    tmp_path_factory: pytest.TempPathFactory, path: bytes
) -> None:
    with http_daemon(tmp_path_factory.mktemp("http"), max_connections=20) as daemon:
        request = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with asking_always(daemon, request), daemon.with_token("ana") as ana:
            answers = [ana.get("/v1/facts", headers={"Connection": "close"}) for _ in range(20)]

    assert [answer.status_code for answer in answers] == [200] * 20


@contextmanager
def asking_always(daemon: HttpDaemon, request: bytes) -> Iterator[None]:
    """Hold more connections than there are, each with a request under way at every time."""
    ended = threading.Event()

    def ask() -> None:
        with suppress(OSError), connection(daemon) as opened:
            while not ended.is_set():
                opened.sendall(request * 20)
                opened.recv(1_000_000)

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: httpx.get(f"{daemon.url}/v1/facts").status_code == 401)
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_request_under_way_keeps_its_connection(daemon: HttpDaemon) -> None:
    with daemon.with_token("ana") as ana, ana.stream("GET", "/v1/events") as stream:
        with ExitStack() as held:
            for _ in range(60):
                held.enter_context(connection(daemon))
            health = httpx.get(f"{daemon.url}/healthz")

        first = next(stream.iter_bytes())

    assert health.status_code == 200
    assert first == b": nothing new\n\n"


def test_full_network_leaves_the_unix_socket_free(daemon: HttpDaemon) -> None:
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connection(daemon))
        with daemon.by_socket() as operator:
            answer = operator.get("/v1/status")

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "path", [b"/v1/search", b"/healthz", b"/openapi.json", b"/console/sign-in"]
)
@pytest.mark.parametrize(
    ("version", "lengths"),
    [
        pytest.param(b"1.1", b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", id="both"),
        pytest.param(b"1.1", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", id="turned"),
        pytest.param(b"1.0", b"Transfer-Encoding: chunked\r\n", id="HTTP/1.0"),
    ],
)
@pytest.mark.parametrize("body", [b"0\r\n\r\n", b"5\r\n"], ids=["whole", "half"])
def test_request_with_two_ends_is_refused_and_is_the_last(
    daemon: HttpDaemon, path: bytes, version: bytes, lengths: bytes, body: bytes
) -> None:
    line = b"POST " + path + b" HTTP/" + version + b"\r\nHost: localhost\r\n"
    with connection(daemon) as opened:
        opened.sendall(line + lengths + JSON + b"Connection: keep-alive\r\n\r\n" + body + INNER)

        answer = read_to_the_end(opened)

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


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
    unread = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
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


@given(data=st.data(), most=st.integers(2, 64))
def test_no_callers_take_the_places_of_all_others(data: st.DataObject, most: int) -> None:
    slots, held = RequestSlots(most), ExitStack()
    with held:
        for caller in data.draw(st.lists(st.sampled_from("ab"), max_size=2 * most)):
            with suppress(TooManyRequestsError):
                held.enter_context(slots.one(caller))
        if most >= 8:
            with slots.one("c"):
                pass
        for caller in data.draw(st.lists(st.sampled_from("abcdefgh"), max_size=4 * most)):
            with suppress(TooManyRequestsError):
                held.enter_context(slots.one(caller))
        if most >= 4:
            with slots.one("operator", operates=True):
                pass
        taken = slots._by_caller.total()

    assert taken <= most
    assert not slots._by_caller


def test_slots_are_free_again_after_an_error() -> None:
    slots = RequestSlots(2)

    for _ in range(3):
        with suppress(ValueError), slots.one("a"):
            raise ValueError

    with slots.one("a"), slots.one("b"), pytest.raises(TooManyRequestsError, match="the daemon"):
        slots.one("c").__enter__()


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
