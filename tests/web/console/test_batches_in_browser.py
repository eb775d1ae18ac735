"""An operator undoes a firing, decides on a batch and clears the quarantine in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from tests.support.accessibility import check_accessible
from tests.support.browser import Browser, Visit, expect
from tests.support.console_homes import (
    ask_daemon,
    console_daemon,
    fire,
    fresh_id,
    hold,
    learn,
    likes,
    newest_firing,
    unreadable,
)
from tests.support.hostile_content import HOSTILE, check_hostile_texts, hostile_name
from tests.support.http_daemon import HttpDaemon

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        yield running


def change(visit: Visit, button: str, reason: str, *, confirmation: str = "") -> None:
    """Fill in the reason of a form, look at its preview, and confirm it.

    Args:
        visit: The visit.
        button: The words on the button of the form.
        reason: The reason.
        confirmation: The words on the button of the preview; by default the same.
    """
    page = visit.page
    form = page.locator("form.change").filter(has=page.get_by_role("button", name=f"{button} …"))
    form.get_by_label("Reason").fill(reason)
    form.get_by_role("button").click()
    expect(page.get_by_text("Nothing has changed yet.")).to_be_visible()
    check_accessible(page)
    page.get_by_role("button", name=confirmation or button, exact=True).click()


@pytest.mark.cases(1)
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_operator_undoes_decides_and_drops(
    daemon: HttpDaemon, browser: Browser, color_scheme: Literal["light", "dark"]
) -> None:
    user = fresh_id()
    firing = learn(daemon, likes(fresh_id(), "tea", user=user), unreadable(fresh_id()))
    held = hold(daemon)
    with browser.visit(daemon.url, color_scheme=color_scheme) as visit:
        visit.sign_in(daemon.tokens["operator"])
        page = visit.page

        visit.open("/console/firings?rule=all")
        check_accessible(page)
        page.get_by_role("link", name=firing, exact=True).click()
        check_accessible(page)
        change(visit, "Undo the firing", "it was a joke")
        expect(page.get_by_text("This firing undid")).to_be_visible()
        assert newest_firing(daemon)["undoes"] == firing

        visit.open("/console/approvals")
        check_accessible(page)
        page.get_by_role("link", name=f"Show what the batch {held} would do").click()
        expect(page.get_by_text("fact would be retracted")).to_be_visible()
        check_accessible(page)
        change(visit, "Approve the batch", "she asked for it")
        assert ask_daemon(daemon, "held")["held"] == []

        visit.open("/console/quarantine?rule=careful")
        check_accessible(page)
        page.locator("summary").first.click()
        check_accessible(page)
        change(visit, "Drop all", "never mind", confirmation="Drop from the quarantine")
        expect(page.get_by_text("left the quarantine")).to_be_visible()


@pytest.mark.nightly
def test_pages_work_without_scripts_and_on_a_small_screen(
    daemon: HttpDaemon, browser: Browser
) -> None:
    learn(daemon, likes(fresh_id(), "tea"), unreadable(fresh_id()))
    with browser.visit(daemon.url, scripts=False, size=(360, 640)) as visit:
        visit.sign_in(daemon.tokens["operator"])
        for path in ("/console/firings", "/console/approvals", "/console/quarantine"):
            visit.open(path)
            wide = "() => document.documentElement.scrollWidth <= window.innerWidth"
            assert visit.page.evaluate(wide), path


@pytest.mark.nightly
def test_no_hostile_text_acts_on_a_page(daemon: HttpDaemon, browser: Browser) -> None:
    ids = {name: f"{hostile_name(name)} {fresh_id()}" for name in HOSTILE}
    episodes = [
        likes(id, HOSTILE[name], user=hostile_name(name), content=HOSTILE[name])
        for name, id in ids.items()
    ]
    firing = learn(daemon, *episodes)
    fire(daemon, "careful")
    with browser.visit(daemon.url) as visit:
        visit.sign_in(daemon.tokens["operator"])
        for path in ("/console/firings", f"/console/firing?id={firing}", "/console/approvals"):
            visit.open(path)
            check_hostile_texts(visit)
        visit.open(f"/console/firing?id={firing}")
        check_hostile_texts(visit, HOSTILE)
        visit.page.get_by_label("Reason").fill("a test")
        visit.page.get_by_role("button", name="Undo the firing …").click()
        check_hostile_texts(visit, HOSTILE)
