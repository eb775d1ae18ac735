"""No web page of another site acts as somebody, whatever interface of the port it asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from starlette.types import Scope

from slumberd.model.errors import NotAllowedError, SlumberdError, UnknownHostError, UsageError
from slumberd.rules.settings_schema import ServeSettings
from slumberd.web.http.gate import PageChecks, is_local
from tests.support.http_daemon import HttpDaemon, http_daemon

NAME, PORTED = "memory.example.com", "other.example.com:8443"
AGENTS = "https://agents.example.com"
JSON = "application/json"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}

READ = [
    pytest.param("/v1/facts?user=ann", id="facts"),
    pytest.param("/v1/status", id="status"),
    pytest.param("/metrics", id="metrics"),
    pytest.param("/v1/events", id="events"),
    pytest.param("/console/sign-in", id="console"),
]
FOREIGN = [
    pytest.param({"Host": "evil.test"}, 421, id="rebound name"),
    pytest.param({"Host": "evil.test:8750"}, 421, id="rebound name and port"),
    pytest.param({"Host": "localhost.evil.test"}, 421, id="similar name"),
    pytest.param({"Host": "localhost@evil.test"}, 421, id="name after a sign"),
    pytest.param({"Host": "10.0.0.7"}, 421, id="another address"),
    pytest.param({"Host": "[::ffff:10.0.0.7]:80"}, 421, id="another address in IPv6"),
    pytest.param({"Host": ""}, 421, id="no name"),
    pytest.param({"Origin": "http://evil.test"}, 403, id="other origin"),
    pytest.param({"Origin": "http://localhost:9001"}, 403, id="other port"),
    pytest.param({"Origin": "null"}, 403, id="no origin of its own"),
    pytest.param({"Origin": "file://localhost"}, 403, id="a file"),
    pytest.param({"Sec-Fetch-Site": "cross-site"}, 403, id="cross-site"),
    pytest.param({"Sec-Fetch-Site": "same-site"}, 403, id="same-site"),
    pytest.param({"Sec-Fetch-Site": "what comes next"}, 403, id="unknown site"),
    pytest.param(
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        403,
        id="frame",
    ),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with http_daemon(
        tmp_path_factory.mktemp("http"), hosts=[NAME, PORTED], allowed_origins=[AGENTS]
    ) as running:
        yield running


@pytest.mark.acceptance
@pytest.mark.parametrize(("headers", "status"), FOREIGN)
@pytest.mark.parametrize("path", READ)
def test_page_of_another_site_reads_nothing(
    daemon: HttpDaemon, path: str, headers: dict[str, str], status: int
) -> None:
    with daemon.by_socket() as client:
        answer = client.get(path, headers=headers)

    assert answer.status_code == status, answer.text


@pytest.mark.acceptance
@pytest.mark.parametrize(("headers", "status"), FOREIGN)
@pytest.mark.parametrize("path", ["/v1/operations/reload", "/v1/firings", "/mcp"])
def test_page_of_another_site_changes_nothing(
    daemon: HttpDaemon, path: str, headers: dict[str, str], status: int
) -> None:
    body = PING if path == "/mcp" else {}
    with daemon.by_socket() as client:
        answer = client.post(path, json=body, headers=MCP | headers)

    assert answer.status_code == status, answer.text


@pytest.mark.acceptance
@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "a/b"])
@pytest.mark.parametrize("path", ["/v1/operations/reload", "/v1/firings", "/mcp"])
def test_request_of_the_type_of_a_form_changes_nothing(
    daemon: HttpDaemon, path: str, kind: str
) -> None:
    with daemon.by_socket() as client:
        answer = client.post(path, headers={"Content-Type": kind} if kind else {})

    assert answer.status_code == 400
    assert JSON in answer.json()["detail"]


@pytest.mark.acceptance
def test_empty_body_of_the_right_type_is_taken(daemon: HttpDaemon) -> None:
    with daemon.by_socket() as client:
        answer = client.post("/v1/operations/reload", headers={"Content-Type": JSON})

    assert answer.status_code == 200, answer.text


@pytest.mark.acceptance
@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_traces_of_the_type_of_a_form_are_refused(daemon: HttpDaemon, kind: str) -> None:
    with daemon.by_socket() as client:
        answer = client.post("/v1/traces", headers={"Content-Type": kind} if kind else {})

    assert answer.status_code == 415


@pytest.mark.acceptance
@pytest.mark.parametrize("host", ["evil.test", "10.0.0.7:8080", ""])
def test_whoever_can_connect_learns_that_the_daemon_answers(daemon: HttpDaemon, host: str) -> None:
    for path in ("/healthz", "/openapi.json"):
        assert httpx.get(daemon.url + path, headers={"Host": host}).status_code == 200


@pytest.mark.acceptance
def test_account_of_the_socket_counts_only_under_a_name_of_this_machine(
    daemon: HttpDaemon,
) -> None:
    token = {"Authorization": f"Bearer {daemon.tokens['ana']}"}
    with daemon.by_socket() as client:
        named = {host: client.get("/v1/facts", headers={"Host": host}) for host in (NAME, "a")}
        signed = client.get("/v1/facts", headers={"Host": NAME} | token)
        own = client.get("/v1/facts?user=ann", headers={"Host": "slumberd"})

    assert [answer.status_code for answer in named.values()] == [401, 421]
    assert (signed.status_code, own.status_code) == (200, 200)


@pytest.mark.acceptance
def test_refused_pages_are_counted_in_the_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    with http_daemon(tmp_path_factory.mktemp("http")) as running:
        with running.by_socket() as client:
            client.get("/v1/status", headers={"Host": "evil.test"})
            client.get("/v1/status", headers={"Origin": "http://evil.test"})
        running.daemon.stop()
        events = [*running.daemon.seen, *running.daemon.remaining()]

    counts = [event["counts"] for event in events if event["event"] == "http.refused"]
    assert counts == [{"unknown host": 1}, {"another site": 1}]


def check(
    serve: ServeSettings, method: str = "GET", path: str = "/v1/facts", **sent: str
) -> SlumberdError | None:
    """Return why a request with these headers is refused; None when it is not."""
    given = {name.replace("_", "-"): value for name, value in sent.items()}
    headers = Headers({"host": "localhost", **given})
    scope: Scope = {"type": "http", "method": method, "path": path}
    try:
        PageChecks(serve).check(scope, headers)
    except SlumberdError as error:
        return error
    return None


@pytest.mark.unit
@pytest.mark.parametrize(
    ("settings", "host", "served"),
    [
        pytest.param({}, "LOCALHOST:8750", True, id="case"),
        pytest.param({}, "127.0.0.1:1", True, id="address"),
        pytest.param({}, "[::1]:8750", True, id="IPv6"),
        pytest.param({}, "[0:0:0:0:0:0:0:1]", True, id="IPv6 in another form"),
        pytest.param({}, "::1", False, id="IPv6 without brackets"),
        pytest.param({}, "localhost:", False, id="no port"),
        pytest.param({}, "localhost:80:80", False, id="two ports"),
        pytest.param({}, "localhost/evil.test", False, id="a path"),
        pytest.param({}, "192.0.2.1", False, id="address without a network"),
        pytest.param({"address": "mind.lan:8750"}, "mind.lan:8750", True, id="own name"),
        pytest.param({"address": "mind.lan:8750"}, "mind.lan", True, id="forwarded port"),
        pytest.param({"address": "192.0.2.1:8750"}, "192.0.2.1:80", True, id="own address"),
        pytest.param({"address": "192.0.2.1:8750"}, "192.0.2.2:80", False, id="other address"),
        pytest.param({"address": "0.0.0.0:8750"}, "192.0.2.2:8750", True, id="any address"),
        pytest.param({"address": "[::]:8750"}, "[2001:db8::1]:8750", True, id="any IPv6"),
        pytest.param({"address": "0.0.0.0:8750"}, "mind.lan:8750", False, id="any name"),
        pytest.param({"hosts": ["A.example"]}, "a.Example:81", True, id="listed"),
        pytest.param({"hosts": ["a.example:81"]}, "a.example:81", True, id="listed with a port"),
        pytest.param({"hosts": ["a.example:81"]}, "a.example:82", False, id="other port"),
        pytest.param({"hosts": ["a.example:81"]}, "a.example", False, id="without its port"),
        pytest.param({"allowed_hosts": ["a.example:*"]}, "a.example:81", True, id="older name"),
        pytest.param({"allowed_hosts": ["*"]}, "a.example", False, id="older name for all"),
        pytest.param({"allowed_hosts": ["*"]}, "", False, id="no host"),
        pytest.param({"hosts": ["a.example"]}, "b.a.example", False, id="below a listed name"),
        pytest.param({"hosts": ["a.example"]}, "a.example.", False, id="with a dot"),
    ],
)
def test_host_is_served_when_it_is_local_bound_or_listed(
    settings: dict[str, Any], host: str, served: bool
) -> None:
    found = check(ServeSettings.model_validate(settings), host=host)

    assert (found is None) == served
    assert served or isinstance(found, UnknownHostError)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("host", "local"),
    [("slumberd", True), ("slumberd:8750", False), ("localhost:1", True), ("mind.lan", False)],
)
def test_local_name_is_one_that_no_network_can_give_away(host: str, local: bool) -> None:
    assert is_local(Headers({"host": host})) == local


LISTED = ServeSettings(hosts=[NAME], allowed_origins=[AGENTS, "http://localhost:*"])
LINK = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
FORM = "application/x-www-form-urlencoded"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("path", "sent"),
    [
        pytest.param("/v1/facts", {"sec_fetch_site": "none"}, id="typed address"),
        pytest.param("/v1/facts", {"sec_fetch_site": "same-origin"}, id="own page"),
        pytest.param("/v1/facts", {"origin": AGENTS, "sec_fetch_site": "cross-site"}, id="listed"),
        pytest.param("/mcp", {"origin": "http://localhost:3000"}, id="listed with every port"),
        pytest.param("/mcp", {"origin": "http://localhost"}, id="listed without a port"),
        pytest.param("/v1/facts", {"origin": f"https://{NAME}", "host": NAME}, id="proxy"),
        pytest.param("/console/", LINK, id="link to the console"),
    ],
)
def test_own_page_and_listed_origin_are_answered(path: str, sent: dict[str, str]) -> None:
    assert check(LISTED, path=path, **sent) is None


@pytest.mark.unit
@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        pytest.param("GET", "/v1/facts", LINK, id="link to data"),
        pytest.param("POST", "/console/change", {**LINK, "content_type": FORM}, id="form"),
        pytest.param("POST", "/console/sign-in", {"content_type": FORM}, id="form of nobody"),
        pytest.param("POST", "/console/sign-in", {"origin": AGENTS}, id="listed, to the console"),
        pytest.param("GET", "/consoles", LINK, id="another path"),
        pytest.param("GET", "/v1/facts", {"origin": "http://localhost:3:3"}, id="no origin"),
        pytest.param("GET", "/v1/facts", {"origin": "http://[a"}, id="broken origin"),
        pytest.param("GET", "/v1/facts", {"origin": f"{AGENTS}.evil.test"}, id="similar origin"),
    ],
)
def test_foreign_page_is_refused(method: str, path: str, sent: dict[str, str]) -> None:
    assert isinstance(check(LISTED, method, path, **sent), NotAllowedError)


@pytest.mark.unit
def test_console_takes_forms_and_nothing_else() -> None:
    own = {"sec_fetch_site": "same-origin"}

    assert check(LISTED, "POST", "/console/change", content_type=f"{FORM}; x=y", **own) is None
    refused = check(LISTED, "POST", "/console/change", content_type=JSON, **own)
    assert isinstance(refused, UsageError)


@pytest.mark.unit
@pytest.mark.parametrize(
    "host", ["https://a.example", "a.example/", "*", "*.example", "a b", "", "[x]", "a:b", "[::zz]"]
)
def test_host_that_no_header_has_is_a_mistake_of_the_configuration(host: str) -> None:
    with pytest.raises(ValueError, match="hosts"):
        ServeSettings.model_validate({"hosts": [host]})
