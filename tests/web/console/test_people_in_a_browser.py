"""A person looks at a user, moves sliders, and reads why a fact is current, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from tests.support.accessibility import check_accessible
from tests.support.browser import Browser, Visit, expect
from tests.support.hostile_content import check_hostile_texts, hostile_episode, hostile_name
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.web.console.test_people import PLACES, remember

pytestmark = pytest.mark.acceptance

PAGES = ("users", "user?user=ana&valid_at=2026-07-01", "fact?id=e3&user=ana", "fact?id=e1&user=ana",
         "episode?id=e1&user=ana")  # fmt: skip
ATTACKS = ("script", "attribute", "drawn", "title", "reversed", "word")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with http_daemon(tmp_path_factory.mktemp("http")) as running:
        with running.with_token("operator") as client:
            for id, (place, when) in PLACES.items():
                said = ("ana", "lives_in", place)
                remember(client, id, f"I moved to {place}", when, *said, user="ana")
            for name in ATTACKS:
                client.post("/v1/episodes", json=hostile_episode(name)).raise_for_status()
            remember(client, "last", "last", "2026-03-01", "z", "is", "z", user="zoe")
        yield running


@pytest.fixture
def person(daemon: HttpDaemon, browser: Browser) -> Iterator[Visit]:
    with browser.visit(daemon.url) as visit:
        visit.sign_in(daemon.tokens["ana"])
        yield visit


@pytest.mark.cases(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(
    daemon: HttpDaemon, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    with browser.visit(daemon.url, color_scheme=scheme) as visit:
        visit.sign_in(daemon.tokens["operator"])
        for page in PAGES:
            visit.open(f"/console/{page}")
            check_accessible(visit.page)


@pytest.mark.nightly
def test_slider_shows_its_instant_and_leads_there_when_it_is_let_go(person: Visit) -> None:
    person.open("/console/user")
    page, slider = person.page, person.page.locator("#slider-valid")
    box = slider.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2

    page.mouse.move(box["x"] + box["width"] - 8, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    shown = page.locator("#shown-valid").inner_text()
    before = page.url
    page.mouse.up()
    page.wait_for_url("**valid_at=*")

    assert "valid_at" not in before
    assert shown.startswith("2026-0")
    expect(page.locator("#shown-valid")).to_have_text(shown)
    expect(page.locator("#slider-valid")).to_have_attribute("aria-valuetext", shown)
    expect(page.get_by_role("region", name="Facts")).to_contain_text("Porto")


@pytest.mark.nightly
def test_keyboard_moves_the_slider_and_enter_leads_there(person: Visit) -> None:
    person.open("/console/user")
    slider = person.page.get_by_role("slider", name="What was true")

    slider.press("Home")
    expect(person.page.locator("#shown-valid")).to_contain_text("2026-02")
    slider.press("ArrowRight")
    assert "valid_at" not in person.page.url
    slider.press("Enter")
    person.page.wait_for_url("**valid_at=*")

    expect(person.page.get_by_role("region", name="Facts")).to_contain_text("No fact matches")


@pytest.mark.nightly
def test_sliders_work_without_the_script(daemon: HttpDaemon, browser: Browser) -> None:
    with browser.visit(daemon.url, scripts=False) as visit:
        visit.sign_in(daemon.tokens["ana"])
        visit.open("/console/user")
        visit.page.get_by_role("slider", name="What was true").press("Home")
        visit.page.get_by_role("button", name="Show the facts at these instants").click()
        visit.page.wait_for_url("**valid_at=*")

        expect(visit.page.get_by_role("region", name="Facts")).to_contain_text("No fact matches")
        visit.page.get_by_role("link", name="Show the current facts").click()
        expect(visit.page.get_by_role("region", name="Facts")).to_contain_text("Faro")


def test_person_reads_why_a_fact_is_current_and_corrects_it(person: Visit) -> None:
    page = person.page
    person.open("/console/user")
    page.get_by_role("region", name="Facts").get_by_role("link", name="e3").click()
    expect(page.get_by_role("img", name="What was true")).to_be_visible()
    page.get_by_label("New value").fill("Braga")
    page.get_by_label("Reason").first.fill("I misspoke")
    page.get_by_role("button", name="Correct").click()
    expect(page.locator("main")).to_contain_text("Nothing has changed yet")
    page.get_by_role("button", name="Correct the fact").click()

    expect(page.locator("p.triple")).to_contain_text("Braga")
    expect(page.get_by_role("region", name="Table: What was known")).to_contain_text("Braga")
    page.get_by_role("link", name="e3").first.click()
    expect(page.get_by_role("heading", name="Episode")).to_be_visible()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_texts_do_nothing(daemon: HttpDaemon, browser: Browser, name: str) -> None:
    user, id = hostile_name(name), hostile_episode(name)["id"]
    with browser.visit(daemon.url) as visit:
        visit.sign_in(daemon.tokens["operator"])
        visit.open("/console/users")
        check_hostile_texts(visit, [name])
        visit.page.get_by_role("region", name="Users").get_by_role("link").filter(
            has_text=user[:20].split("<")[0].strip() or user[:9]
        ).first.click()
        check_hostile_texts(visit, [name])
        visit.page.get_by_role("region", name="Facts").get_by_role("link").first.click()
        check_hostile_texts(visit, [name])
        visit.page.get_by_role("link").filter(has_text=id[:12]).last.click()
        check_hostile_texts(visit, [name])
