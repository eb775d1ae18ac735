"""The check for hostile content notices a page that reads content as HTML, and no other page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path

import pytest

from tests.support.browser import Browser, Visit
from tests.support.hostile_content import (
    HOSTILE,
    check_hostile_texts,
    hostile_name,
    put_hostile_episodes,
)
from tests.support.http_daemon import http_daemon
from tests.support.served_pages import FRAME, STRICT_POLICY, serve_pages

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@contextmanager
def open_page(
    browser: Browser, content: str, *, policy: str = STRICT_POLICY, tolerated: str = ""
) -> Iterator[Visit]:
    """Yield a visit of a page with this content, whose problems are tolerated if one says so."""
    patterns = [tolerated] if tolerated else []
    with (
        serve_pages({"/": FRAME.format(content)}, policy) as origin,
        browser.visit(origin, tolerated=patterns) as visit,
    ):
        visit.open("/")
        yield visit


def test_page_that_escapes_everything_shows_every_text_whole(browser: Browser) -> None:
    content = "".join(f"<p title='{escape(text)}'>{escape(text)}</p>" for text in HOSTILE.values())

    with open_page(browser, content) as visit:
        check_hostile_texts(visit, HOSTILE, whole=True)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(HOSTILE["script"], "elements of", id="an element that does nothing"),
        pytest.param(f'<a href="{HOSTILE["link"]}">a</a>', "links to", id="a link to a script"),
        pytest.param(f'<a href="{HOSTILE["spaced link"]}">a</a>', "links", id="with spaces"),
        pytest.param(f'<p title="{HOSTILE["attribute"]}">a</p>', "elements", id="an attribute"),
        pytest.param(f"<p title='{HOSTILE['quoted']}'>a</p>", "elements", id="single quotes"),
        pytest.param(f"<p title={HOSTILE['unquoted']}>a</p>", "elements", id="no quotes"),
        pytest.param(HOSTILE["base"], "elements of", id="a base"),
        pytest.param("<p>hostile-template 49", "'template'", id="another text"),
    ],
)
def test_page_that_reads_a_text_as_html_fails(browser: Browser, content: str, problem: str) -> None:
    with (
        open_page(browser, content, tolerated="[Ss]ecurity [Pp]olicy|another origin") as visit,
        pytest.raises(AssertionError, match=problem),
    ):
        check_hostile_texts(visit, ["template"], whole=True)


def test_page_that_runs_a_script_of_a_text_fails(browser: Browser) -> None:
    with (
        open_page(browser, HOSTILE["script"], policy="", tolerated="dialog") as visit,
        pytest.raises(AssertionError, match="a script ran"),
    ):
        check_hostile_texts(visit)


def test_page_that_shows_too_little_of_a_text_fails(browser: Browser) -> None:
    with open_page(browser, escape(HOSTILE["large"][:50_000])) as visit:
        check_hostile_texts(visit, ["large"])
        with pytest.raises(AssertionError, match="'large'"):
            check_hostile_texts(visit, ["large"], whole=True)


@pytest.mark.slow
def test_daemon_makes_a_fact_of_every_hostile_text(tmp_path: Path) -> None:
    with http_daemon(tmp_path) as running, running.by_socket() as client:
        put_hostile_episodes(client)
        put_hostile_episodes(client, "mallory")

        of_mallory = client.get("/v1/facts", params={"user": "mallory", "limit": 1_000}).json()
        own = [
            client.get("/v1/facts", params={"user": hostile_name(name)}).json() for name in HOSTILE
        ]

    objects = {fact["payload"]["object"] for fact in of_mallory["facts"]}
    assert objects == set(HOSTILE.values())
    assert [page["facts"][0]["payload"]["object"] for page in own] == [*HOSTILE.values()]
