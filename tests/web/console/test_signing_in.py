"""People sign in to the console, and only they see its pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.console_people import Person, Seen, signed_in
from tests.support.http_daemon import TENANTS, HttpDaemon, http_daemon, write_tokens

pytestmark = pytest.mark.acceptance

PAGES = ("", "today", "search", "health", "no-such-page")
FOREIGN = "https://elsewhere.example"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with http_daemon(tmp_path_factory.mktemp("http"), hosts=["memory.example"]) as running:
        yield running
        running.daemon.stop()
        logged = {event["event"] for event in [*running.daemon.seen, *running.daemon.remaining()]}
    assert not logged & {"http.failed", "http.server_failed", "library.logged"}


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


@pytest.mark.parametrize("page", PAGES)
def test_stranger_is_sent_to_the_sign_in_page(daemon: HttpDaemon, page: str) -> None:
    answer = httpx.get(f"{daemon.url}/console/{page}")

    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/sign-in")


def test_person_returns_to_the_page_that_was_asked_for(daemon: HttpDaemon) -> None:
    with httpx.Client(base_url=daemon.url) as client:
        person = Person(client, daemon.url)
        shown = person.read("/search?q=tea&user=ana")

        done = person.send(shown.form(), token=daemon.tokens["ana"])

        assert done.to == "/console/search?q=tea&user=ana"


@pytest.mark.path
@pytest.mark.parametrize(
    "address",
    ["https://elsewhere.example/", "//elsewhere.example/", "/v1/status", "/console/\\elsewhere"],
)
def test_sign_in_leads_to_no_other_site(daemon: HttpDaemon, address: str) -> None:
    sent = {"token": daemon.tokens["ana"], "next": address}

    answer = httpx.post(f"{daemon.url}/console/sign-in", data=sent, headers={"Origin": daemon.url})

    assert answer.headers["location"] == "/console/"


@pytest.mark.parametrize("token", ["", "slumberd_unknown", "Bearer x"])
def test_unknown_token_is_refused(daemon: HttpDaemon, token: str) -> None:
    headers = {"Origin": daemon.url}

    answer = httpx.post(f"{daemon.url}/console/sign-in", data={"token": token}, headers=headers)

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text


def test_cookie_is_kept_from_scripts_and_other_sites(daemon: HttpDaemon) -> None:
    sent, headers = {"token": daemon.tokens["ana"]}, {"Origin": daemon.url}

    answer = httpx.post(f"{daemon.url}/console/sign-in", data=sent, headers=headers)

    _, *attributes = answer.headers["set-cookie"].split("; ")
    assert attributes == ["HttpOnly", "Path=/console", "SameSite=strict"]


def test_cookie_is_for_https_only_behind_a_proxy_that_ends_it(daemon: HttpDaemon) -> None:
    headers = {"Origin": "https://memory.example", "Host": "memory.example"}

    answer = httpx.post(
        f"{daemon.url}/console/sign-in", data={"token": daemon.tokens["ana"]}, headers=headers
    )

    assert "Secure" in answer.headers["set-cookie"]


def test_person_who_signs_out_is_a_stranger_again(daemon: HttpDaemon) -> None:
    with signed_in(daemon, "operator") as person:
        cookie = dict(person.client.cookies)
        done = person.send(person.read("/search").form(form_secret=person.secret()))

        assert done.to == "/console/sign-in"
        person.client.cookies.update(cookie)
        assert person.go("/today").to.startswith("/console/sign-in")


def test_session_of_a_removed_token_ends(tmp_path: Path) -> None:
    with http_daemon(tmp_path) as daemon, signed_in(daemon, "operator") as person:
        write_tokens(tmp_path / "tokens.yaml", TENANTS)

        assert person.go("/today").to.startswith("/console/sign-in")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": FOREIGN}, id="another site"),
        pytest.param({"Origin": "null"}, id="no site"),
        pytest.param({"Origin": "", "Sec-Fetch-Site": "cross-site"}, id="fetched from elsewhere"),
    ],
)
@pytest.mark.parametrize("page", ["sign-in", "sign-out", "change"])
def test_form_of_another_site_is_refused(
    daemon: HttpDaemon, operator: Person, page: str, headers: dict[str, str]
) -> None:
    fields = {
        "form_secret": operator.secret(),
        "token": daemon.tokens["operator"],
        "change": "fire",
        "rule": "all",
        "reason": "none",
    }
    sent = {name: value for name, value in headers.items() if value}

    answer = operator.client.post(f"/console/{page}", data=fields, headers=sent)

    assert answer.status_code == 403
    assert "comes from another site" in Seen(answer).text


@pytest.mark.parametrize("secret", [None, "", "wrong", "ä"])
def test_form_without_the_secret_of_the_session_is_refused(
    operator: Person, secret: str | None
) -> None:
    fields = {"change": "fire", "rule": "all", "reason": "none"}
    if secret is not None:
        fields["form_secret"] = secret

    assert operator.post("/change", fields).status == 403


def test_secret_of_another_session_is_refused(daemon: HttpDaemon, operator: Person) -> None:
    with signed_in(daemon, "operator") as other:
        fields = {"form_secret": other.secret(), "change": "fire", "rule": "all", "reason": "x"}

    assert operator.post("/change", fields).status == 403


@pytest.mark.parametrize(
    "page", ["sign-in", "today?user=ana", "no-such-page", "search?limit=x&q=a"]
)
def test_no_page_may_be_framed_kept_or_run_scripts_of_others(operator: Person, page: str) -> None:
    answer = operator.client.get(f"/console/{page}")

    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_browser_keeps_the_stylesheet_and_the_script_until_they_change(operator: Person) -> None:
    html = operator.read("/search").html
    addresses = [part.split('"')[0] for part in html.split('="') if "/static/" in part[:20]]

    kept = [operator.client.get(address) for address in addresses]

    assert len(kept) == 3
    assert {answer.status_code for answer in kept} == {200}
    assert all("immutable" in answer.headers["cache-control"] for answer in kept)
    assert operator.client.get("/console/static/x/app.py").status_code == 404


def test_menu_shows_a_reader_only_what_a_reader_may_open(daemon: HttpDaemon) -> None:
    with signed_in(daemon, "reader") as person:
        menu = person.read("/search").html
        refused = person.go("/health")

    assert "/console/search" in menu
    assert "/console/health" not in menu
    assert refused.status == 403


def test_user_of_the_unix_socket_signs_in_without_a_token(daemon: HttpDaemon) -> None:
    with daemon.by_socket(Host="localhost:8080") as client:
        person = Person(client, "http://localhost:8080")
        shown = person.read("/")
        assert "Sign in as" in shown.text

        done = person.send(shown.form(peer="yes"))

        assert done.status == 303
        assert person.go("/health").status == 200


def test_foreign_name_of_this_machine_cannot_use_the_unix_socket(daemon: HttpDaemon) -> None:
    with daemon.by_socket(Host="elsewhere.example") as client:
        person = Person(client, "http://elsewhere.example")

        assert person.go("/sign-in").status == 421
        assert person.post("/sign-in", {"peer": "yes"}).status == 421


def test_name_of_a_proxy_cannot_use_the_unix_socket(daemon: HttpDaemon) -> None:
    with daemon.by_socket(Host="memory.example") as client:
        person = Person(client, "https://memory.example")
        assert "Sign in as" not in person.read("/").text

        assert person.post("/sign-in", {"peer": "yes"}).status == 401


def test_session_of_the_unix_socket_is_worth_nothing_on_a_network(daemon: HttpDaemon) -> None:
    with daemon.by_socket(Host="localhost:8080") as client:
        done = Person(client, "http://localhost:8080").post("/sign-in", {"peer": "yes"})
        secret = done.answer.cookies["slumberd_session"]

    cookies = {"slumberd_session": secret}
    answer = httpx.get(f"{daemon.url}/console/health", cookies=cookies)

    assert answer.headers["location"].startswith("/console/sign-in")


def test_console_can_be_switched_off(tmp_path: Path) -> None:
    with http_daemon(tmp_path, console=False) as daemon:
        assert httpx.get(f"{daemon.url}/console/sign-in").status_code == 404
