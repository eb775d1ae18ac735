"""An operator tries a rule, erases a user, searches and reads the health in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import orjson
import pytest

from tests.support.accessibility import check_accessible
from tests.support.broken_disks import put
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

SCHEMES = ["light", "dark"]
FITS = "() => document.documentElement.scrollWidth <= window.innerWidth"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        yield running


def press(visit: Visit, button: str) -> None:
    visit.page.get_by_role("button", name=button, exact=True).click()


@pytest.mark.cases(1)
@pytest.mark.parametrize("color_scheme", SCHEMES)
def test_operator_counts_tries_and_fires_a_rule(
    daemon: HttpDaemon, browser: Browser, color_scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    put(daemon.home, [likes(fresh_id(), "tea", user=fresh_id())])
    with browser.visit(daemon.url, color_scheme=color_scheme) as visit:
        visit.sign_in(daemon.tokens["operator"])
        page = visit.page
        visit.open("/console/rules")
        check_accessible(page)
        visit.take_picture(tmp_path / "rules.png")
        page.get_by_role("main").get_by_role("link", name="all", exact=True).click()

        press(visit, "Count the episodes that it selects")
        expect(page.get_by_text("The filter selects")).to_be_visible()
        check_accessible(page)
        visit.take_picture(tmp_path / "coverage.png")
        page.get_by_role("button", name="Try it without writing").first.click()
        expect(page.get_by_text("1 fact would be added")).to_be_visible()
        check_accessible(page)
        visit.take_picture(tmp_path / "trial.png")
        page.get_by_label("Reason").first.fill("before the demo")
        press(visit, "Fire the rule now …")
        check_accessible(page)
        press(visit, "Fire the rule")

        expect(page.get_by_role("heading", level=1)).to_contain_text("Firings")
        assert newest_firing(daemon)["reason"] == "before the demo"


@pytest.mark.nightly
def test_operator_tries_a_backfill_without_a_reason(daemon: HttpDaemon, browser: Browser) -> None:
    learn(daemon, likes(fresh_id(), "tea", user=fresh_id()))
    with browser.visit(daemon.url, scripts=False, tolerated=["status of 400"]) as visit:
        visit.sign_in(daemon.tokens["operator"])
        visit.open("/console/rule?rule=all")
        page = visit.page

        page.get_by_label("Episodes since").fill("last week")
        page.get_by_role("button", name="Try it without writing").last.click()
        expect(page.get_by_text("an instant with an offset is needed")).to_be_visible()
        page.get_by_label("Episodes since").fill("2000-01-01")
        page.get_by_role("button", name="Try it without writing").last.click()

        expect(page.get_by_role("heading", name="What the backfill would do")).to_be_visible()


@pytest.mark.cases(1)
@pytest.mark.parametrize("color_scheme", SCHEMES)
def test_operator_erases_a_user_and_saves_the_certificate(
    daemon: HttpDaemon, browser: Browser, color_scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    user = fresh_id()
    learn(daemon, likes(fresh_id(), "tea", user=user))
    with browser.visit(daemon.url, color_scheme=color_scheme, tolerated=["status of 409"]) as visit:
        visit.sign_in(daemon.tokens["operator"])
        page = visit.page
        visit.open("/console/erase")
        check_accessible(page)
        page.get_by_label("User").fill(user)
        page.get_by_label("Reason, without personal data").fill("the user asked for it")
        press(visit, "Show the plan …")
        expect(page.get_by_text("Nothing is erased yet.")).to_be_visible()
        check_accessible(page)
        visit.take_picture(tmp_path / "plan.png")

        put(daemon.home, [likes(fresh_id(), "coffee", user=user)])
        press(visit, "Erase for good")
        expect(page.get_by_role("alert")).to_contain_text("Nothing was erased")
        check_accessible(page)
        press(visit, "Erase for good")
        expect(page.get_by_role("heading", level=1)).to_have_text("Certificate of an erasure")
        check_accessible(page)
        visit.take_picture(tmp_path / "certificate.png")
        saved = save_certificate(visit, tmp_path)

    assert saved["scope"] == {"user": user, "session": None, "agent": None}
    assert saved["reason"] == "the user asked for it"
    assert ask_daemon(daemon, "facts", user=user)["facts"] == []


def save_certificate(visit: Visit, folder: Path) -> dict[str, object]:
    """Save the certificate that the open page offers; return it."""
    page, file = visit.page, folder / "certificate.json"
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Save the certificate as JSON").click()
    waiting.value.save_as(file)
    found: dict[str, object] = orjson.loads(file.read_bytes())
    return found


@pytest.mark.nightly
def test_certificate_is_printed_without_menu_and_buttons(
    daemon: HttpDaemon, browser: Browser, tmp_path: Path
) -> None:
    user = fresh_id()
    learn(daemon, likes(fresh_id(), "tea", user=user))
    with browser.visit(daemon.url, color_scheme="dark") as visit:
        visit.sign_in(daemon.tokens["operator"])
        page = visit.page
        visit.open("/console/erase")
        page.get_by_label("User").fill(user)
        page.get_by_label("Reason, without personal data").fill("asked")
        press(visit, "Show the plan …")
        press(visit, "Erase for good")

        page.emulate_media(media="print")

        expect(page.get_by_role("navigation")).to_be_hidden()
        expect(page.get_by_role("link", name="Save the certificate as JSON")).to_be_hidden()
        expect(page.get_by_text("Ledger after")).to_be_visible()
        visit.take_picture(tmp_path / "printed.png")


@pytest.mark.cases(1)
@pytest.mark.parametrize("color_scheme", SCHEMES)
def test_person_searches_and_corrects_a_field(
    daemon: HttpDaemon, browser: Browser, color_scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    learn(daemon, likes(fresh_id(), "green tea"))
    with browser.visit(daemon.url, color_scheme=color_scheme, tolerated=["status of 400"]) as visit:
        visit.sign_in(daemon.tokens["reader"])
        page = visit.page
        visit.open("/console/search")
        check_accessible(page)
        page.get_by_label("Question").fill("what does ana like")
        page.get_by_label("As of").fill("yesterday")
        press(visit, "Search")
        expect(page.get_by_label("As of")).to_have_attribute("aria-invalid", "true")
        check_accessible(page)
        visit.take_picture(tmp_path / "mistake.png")

        page.get_by_label("As of").fill("")
        press(visit, "Search")

        expect(page.locator("#hits")).to_be_visible()
        check_accessible(page)
        visit.take_picture(tmp_path / "search.png")


@pytest.mark.cases(1)
@pytest.mark.parametrize("color_scheme", SCHEMES)
def test_operator_follows_the_advice_of_the_health_page(
    daemon: HttpDaemon, browser: Browser, color_scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    hold(daemon)
    put(daemon.home, [unreadable(fresh_id())])
    fire(daemon, "all")
    with browser.visit(daemon.url, color_scheme=color_scheme) as visit:
        visit.sign_in(daemon.tokens["operator"])
        page = visit.page
        visit.open("/console/health")
        check_accessible(page)
        visit.take_picture(tmp_path / "health.png")

        page.get_by_role("link", name="awaits approval").first.click()

        expect(page.get_by_role("heading", level=1)).to_have_text("Approvals")


@pytest.mark.nightly
def test_pages_work_without_scripts_and_on_a_small_screen(
    daemon: HttpDaemon, browser: Browser
) -> None:
    learn(daemon, likes(fresh_id(), "tea"))
    paths = ["rules", "rule?rule=all", "erase", "search?q=tea&user=ana", "health"]
    with browser.visit(daemon.url, scripts=False, size=(360, 640)) as visit:
        visit.sign_in(daemon.tokens["operator"])
        for path in paths:
            visit.open(f"/console/{path}")
            assert visit.page.evaluate(FITS), path


@pytest.mark.nightly
def test_no_hostile_text_acts_on_a_page(daemon: HttpDaemon, browser: Browser) -> None:
    episodes = [
        likes(
            f"{hostile_name(name)} {fresh_id()}", HOSTILE[name], user="eve", content=HOSTILE[name]
        )
        for name in HOSTILE
    ]
    put(daemon.home, episodes)
    with browser.visit(daemon.url) as visit:
        visit.sign_in(daemon.tokens["operator"])
        visit.open("/console/rule?rule=all")
        visit.page.get_by_role("button", name="Try it without writing").first.click()
        check_hostile_texts(visit)
        fire(daemon, "all")
        visit.open("/console/search?q=hostile&user=eve&limit=1000&budget=1000000")
        check_hostile_texts(visit, HOSTILE)
        visit.open("/console/erase?user=eve")
        visit.page.get_by_label("Reason, without personal data").fill(hostile_name("event"))
        press(visit, "Show the plan …")
        check_hostile_texts(visit, ["event"])
