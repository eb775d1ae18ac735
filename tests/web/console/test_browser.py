"""The browser of the tests notices what no page of the console may do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.accessibility import check_accessible
from tests.support.browser import Browser, expect, skip_without
from tests.support.served_pages import FRAME, serve_pages

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OTHER_ORIGIN = "http://other.example/picture.png"


def page(content: str) -> dict[str, str]:
    return {"/": FRAME.format(content)}


def test_page_without_problems_passes(browser: Browser) -> None:
    with serve_pages(page("<p>Nothing is wrong.")) as origin, browser.visit(origin) as visit:
        answer = visit.open("/")

        assert answer.status == 200
        check_accessible(visit.page)
        expect(visit.page.get_by_text("Nothing is wrong.")).to_be_visible()


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("content", "policy", "problem"),
    [
        pytest.param("<script>x = 1</script>", None, "script-src-elem refused inline", id="script"),
        pytest.param("<p style='color: red'>", None, "style-src-attr refused inline", id="style"),
        pytest.param("<script>y()</script>", "", "y is not defined", id="failed"),
        pytest.param(f"<img src={OTHER_ORIGIN}>", "", "request to another origin", id="origin"),
        pytest.param("<img src=/missing.png>", "", "status of 404", id="missing"),
        pytest.param("<script>alert('hello')</script>", "", "dialog: hello", id="dialog"),
        pytest.param("<script>console.log('hello')</script>", "", "console log", id="console"),
    ],
)
def test_visit_fails_at_its_end_for_a_problem_of_the_page(
    browser: Browser, content: str, policy: str | None, problem: str
) -> None:
    chosen = {} if policy is None else {"policy": policy}
    with (
        serve_pages(page(content), **chosen) as origin,
        pytest.raises(AssertionError, match=problem),
        browser.visit(origin) as visit,
    ):
        visit.open("/")


def test_visit_fails_for_a_refused_script_where_scripts_do_not_run(browser: Browser) -> None:
    with (
        serve_pages(page("<p style='color: red'>")) as origin,
        pytest.raises(AssertionError, match="inline style violates"),
        browser.visit(origin, scripts=False) as visit,
    ):
        visit.open("/")


def test_visit_lets_tolerated_problems_pass(browser: Browser) -> None:
    with (
        serve_pages({}) as origin,
        browser.visit(origin, tolerated=["status of 404"]) as visit,
    ):
        assert visit.open("/").status == 404


def test_failed_test_also_says_what_was_wrong_on_the_page(browser: Browser) -> None:
    def fail(origin: str) -> None:
        with browser.visit(origin) as visit:
            visit.open("/")
            visit.page.title()
            raise ValueError("of the test")

    with (
        serve_pages(page("<script>console.log('hello')</script>"), policy="") as origin,
        pytest.raises(ValueError, match="of the test") as raised,
    ):
        fail(origin)

    assert "console log: hello" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        pytest.param("<img src=/icon>", "image-alt", id="picture without a text"),
        pytest.param("<form><input name=token></form>", "label", id="field without a label"),
        pytest.param("<p><a href=/></a>", "link-name", id="link without a text"),
    ],
)
def test_page_that_some_people_cannot_use_fails(
    browser: Browser, content: str, finding: str
) -> None:
    with (
        serve_pages(page(content)) as origin,
        browser.visit(origin, tolerated=["console debug"]) as visit,
    ):
        visit.open("/")

        with pytest.raises(AssertionError, match=finding):
            check_accessible(visit.page)


SCHEMES = """
<style>@media (prefers-color-scheme: dark) { .light { display: none } }
@media (prefers-color-scheme: light) { .dark { display: none } }</style>
<p class=light>day</p><p class=dark>night</p>
"""


@pytest.mark.parametrize(("scheme", "shown"), [("light", "day"), ("dark", "night")])
def test_page_sees_the_color_scheme_of_the_visit(
    browser: Browser, scheme: Literal["light", "dark"], shown: str
) -> None:
    with (
        serve_pages(page(SCHEMES), policy="") as origin,
        browser.visit(origin, color_scheme=scheme) as visit,
    ):
        visit.open("/")

        assert visit.page.locator("main").inner_text().split()[-1] == shown


@pytest.mark.parametrize(("scripts", "title"), [(True, "changed"), (False, "A page")])
def test_visit_runs_scripts_unless_they_are_off(
    browser: Browser, scripts: bool, title: str
) -> None:
    pages = {**page("<script src=/a.js></script>"), "/a.js": "document.title = 'changed'"}
    with (
        serve_pages(pages, policy="script-src 'self'") as origin,
        browser.visit(origin, scripts=scripts) as visit,
    ):
        visit.open("/")

        assert visit.page.title() == title


def test_visit_signs_in_with_a_token_by_the_form(browser: Browser) -> None:
    form = (
        "<form method=post action=/console><label>Token <input name=token></label>"
        "<button>Sign in</button></form>"
    )
    with (
        serve_pages({"/console/sign-in": FRAME.format(form)}) as origin,
        browser.visit(origin) as visit,
    ):
        visit.sign_in("slumberd_a")

        expect(visit.page.get_by_text("Signed in by slumberd_a.")).to_be_visible()


def test_picture_shows_the_whole_page(browser: Browser, tmp_path: Path) -> None:
    with (
        serve_pages(page("<p>a</p>" * 200)) as origin,
        browser.visit(origin, size=(600, 400)) as visit,
    ):
        visit.open("/")

        file = visit.take_picture(tmp_path / "pictures" / "page.png")

    header = file.read_bytes()[:24]
    width, height = (int.from_bytes(header[at : at + 4], "big") for at in (16, 20))
    assert header.startswith(b"\x89PNG")
    assert width == 600
    assert height > 4_000


def test_test_with_a_browser_may_run_an_event_loop(browser: Browser) -> None:
    with serve_pages(page("")) as origin, browser.visit(origin) as visit:
        visit.open("/")

        assert asyncio.run(asyncio.sleep(0, result=1)) == 1


def test_elements_in_a_list_and_those_that_are_awaited_are_usable(browser: Browser) -> None:
    links = "<p><a href=/>one</a> <a href=/two>two</a>"
    pages = {**page(links), "/two": FRAME.format("the second")}
    with serve_pages(pages) as origin, browser.visit(origin) as visit:
        visit.open("/")

        found = visit.page.get_by_role("link").all()
        with visit.page.expect_navigation() as navigation:
            found[1].click()

        assert navigation.value.status == 200


@pytest.mark.parametrize(("variable", "outcome"), [("1", pytest.fail), ("", pytest.skip)])
def test_missing_browser_skips_a_test_unless_one_is_required(
    monkeypatch: pytest.MonkeyPatch, variable: str, outcome: Any
) -> None:
    monkeypatch.setenv("SLUMBERD_REQUIRE_BROWSER", variable)

    with pytest.raises(outcome.Exception, match="no chromium"):
        skip_without("no chromium")
