"""A page of another site does nothing through a port that SSH forwards, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser
from tests.support.forwarded_ports import forwarded_port
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.served_pages import FRAME, serve_pages

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

EVIL = "evil.test"
"""A name that the browser of the tests finds on this machine."""

FETCHED = """
fetch('http://localhost:{port}/v1/operations/reload', {{method: 'POST', mode: 'no-cors'{more}}})
  .finally(() => document.title = 'sent');
"""
FORM = """
<form method=post enctype="{kind}" action="http://localhost:{port}/v1/operations/reload">
<button>Win</button></form>
"""
KINDS = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
SEEN = ["request to another origin", "console error", "content security policy"]
"""What the browser says about such a page."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with http_daemon(tmp_path_factory.mktemp("http")) as running:
        running.home.rule("late", cadence={"every": 1_000})  # which a reload would load
        yield running


@pytest.fixture(scope="module")
def port(daemon: HttpDaemon) -> Iterator[int]:
    with forwarded_port(daemon.socket) as found:
        yield found


def rules_of(daemon: HttpDaemon) -> list[str]:
    """Return the ids of the rules that the daemon has loaded."""
    with daemon.by_socket() as client:
        return [rule["id"] for rule in client.get("/v1/operations/next").json()["rules"]]


@pytest.mark.parametrize(
    "more", ["", ", body: '{}'", ", body: new Blob(['{}'], {type: 'application/json'})"]
)
def test_script_of_another_site_runs_no_operation(
    daemon: HttpDaemon, port: int, browser: Browser, more: str
) -> None:
    script = FETCHED.format(port=port, more=more)
    pages = {"/": FRAME.format("<script src=/go.js></script>"), "/go.js": script}
    with serve_pages(pages, policy="") as served:
        origin = served.replace("127.0.0.1", EVIL)
        with browser.visit(origin, tolerated=SEEN) as visit:
            visit.open("/")
            visit.page.wait_for_function("document.title == 'sent'")

    assert rules_of(daemon) == ["all"]


@pytest.mark.parametrize("kind", KINDS)
def test_form_of_another_site_runs_no_operation(
    daemon: HttpDaemon, port: int, browser: Browser, kind: str
) -> None:
    pages = {"/": FRAME.format(FORM.format(port=port, kind=kind))}
    with serve_pages(pages, policy="") as served:
        origin = served.replace("127.0.0.1", EVIL)
        with browser.visit(origin, tolerated=SEEN) as visit:
            visit.open("/")
            with visit.page.expect_navigation() as navigation:
                visit.page.get_by_role("button").click()
            answer = navigation.value

    assert answer.status == 403
    assert rules_of(daemon) == ["all"]


def test_name_that_comes_to_mean_this_machine_reads_nothing(port: int, browser: Browser) -> None:
    with browser.visit(f"http://{EVIL}:{port}", tolerated=SEEN) as visit:
        answers = [visit.open(path) for path in ("/v1/facts?user=ann", "/metrics", "/console/")]

        assert [answer.status for answer in answers] == [421] * 3


def test_person_uses_the_console_through_the_port(port: int, browser: Browser) -> None:
    with browser.visit(f"http://localhost:{port}") as visit:
        visit.open("/console/")
        visit.page.get_by_role("button", name="Sign in as").click()
        visit.page.wait_for_url(lambda url: "sign-in" not in url)

        assert visit.page.get_by_role("heading", level=1).inner_text() == "Today"


def test_link_of_another_site_leads_to_the_console(port: int, browser: Browser) -> None:
    link = FRAME.format(f'<a href="http://localhost:{port}/console/">Mind</a>')
    with serve_pages({"/": link}) as served:
        origin = served.replace("127.0.0.1", EVIL)
        with browser.visit(origin, tolerated=SEEN) as visit:
            visit.open("/")
            visit.page.get_by_role("link").click()
            visit.page.wait_for_url(lambda url: "/console/sign-in" in url)
