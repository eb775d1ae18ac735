"""Every page stands hostile content: no text acts, and everybody can read the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from slumberd.web.console.changes import PATH as CHANGE
from slumberd.web.console.pages import PAGES
from tests.support.accessibility import check_accessible
from tests.support.broken_disks import put
from tests.support.browser import Browser
from tests.support.console_homes import unreadable
from tests.support.hostile_content import (
    HOSTILE,
    check_hostile_texts,
    hostile_name,
    put_hostile_episodes,
)
from tests.support.http_daemon import HttpDaemon, http_daemon

pytestmark = pytest.mark.acceptance

USER = hostile_name("script")
BROKEN = hostile_name("event")
"""The id of an episode that no rule can read."""

QUERIES: Mapping[str, str] = {
    "/today": "days=2",
    "/changes": "",
    "/users": "",
    "/user": "user={user}",
    "/fact": "user={user}&id={fact}",
    "/episode": "user={user}&id={fact}",
    "/search": "user={user}&q=hostile&limit=1000",
    "/firings": "",
    "/firing": "id={firing}",
    "/approvals": "",
    "/quarantine": "",
    "/rules": "",
    "/rule": "rule=all",
    "/erase": "user={user}",
    "/health": "",
}
"""The query of each page, with names in braces for what the daemon has."""

SHOWS = {
    "/today": ["script"],
    "/changes": ["script"],
    "/users": ["script"],
    "/user": ["script"],
    "/fact": ["script"],
    "/episode": ["script"],
    "/search": ["script"],
    "/firing": ["script"],
    "/quarantine": ["event"],
}
"""The hostile texts that a page must show, by their names."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    """Run a daemon that has learned every hostile text, and could not read one of them."""
    with http_daemon(tmp_path_factory.mktemp("http")) as running:
        with running.with_token("operator") as client:
            put(running.home, [unreadable(BROKEN, metadata={"intent": HOSTILE["event"]})])
            put_hostile_episodes(client, USER)
        yield running


@pytest.fixture(scope="module")
def queries(daemon: HttpDaemon) -> Mapping[str, str]:
    """Return the query of each page, filled in."""
    with daemon.with_token("operator") as client:
        facts = client.get("/v1/facts", params={"user": USER, "limit": 1000}).json()["facts"]
        id = next(one["id"] for one in facts if one["payload"].get("object") == HOSTILE["script"])
        explained = client.get(f"/v1/explain/{quote(id, safe='')}", params={"user": USER}).json()
    [promoted, *_] = explained["explanation"]["promoted"]
    names = {"user": USER, "fact": id, "firing": promoted["firing_id"]}
    quoted = {name: quote(value, safe="") for name, value in names.items()}
    return {path: query.format(**quoted) for path, query in QUERIES.items()}


def test_every_page_is_looked_at() -> None:
    # The page of all shards shows numbers only, and files have no shards.
    of_files = {page.path for page in PAGES if not page.of_all_shards}

    assert of_files == {*QUERIES, CHANGE}


@pytest.mark.cases(2)
@pytest.mark.parametrize("path", QUERIES)
def test_no_hostile_text_acts_and_everybody_can_read_the_page(
    daemon: HttpDaemon, browser: Browser, queries: Mapping[str, str], path: str
) -> None:
    with browser.visit(daemon.url) as visit:
        visit.sign_in(daemon.tokens["operator"])

        visit.open(f"/console{path}?{queries[path]}")

        check_hostile_texts(visit, SHOWS.get(path, ()))
        check_accessible(visit.page)


def test_no_hostile_text_acts_in_a_report(
    daemon: HttpDaemon, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    daemon.home.slumberd("report", "--html", str(file))

    with browser.visit(file.parent.as_uri()) as visit:
        visit.page.goto(file.as_uri())

        check_hostile_texts(visit, ["script"])
        check_accessible(visit.page)
