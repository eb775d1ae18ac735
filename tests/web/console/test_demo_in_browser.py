"""The first pages of the demo in a real browser, and the pictures of the documentation."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.accessibility import check_accessible
from tests.support.browser import Browser, Visit, expect
from tests.support.cli_runner import called
from tests.support.documentation import DOCS
from tests.support.served_demo import Demo, serving_demo

pytestmark = pytest.mark.acceptance

WRITES = "WRITE_PICTURES"
"""With this variable, the pictures of the documentation are written again."""

SIZE = (1000, 700)
PHONE = (390, 800)
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with serving_demo(tmp_path_factory.mktemp("demo")) as demo:
        yield demo


@contextmanager
def signed_in(
    demo: Demo,
    browser: Browser,
    *,
    scheme: Literal["light", "dark"] = "light",
    size: tuple[int, int] = SIZE,
    scripts: bool = True,
) -> Iterator[Visit]:
    """Yield the window of a person who has signed in to the demo."""
    origin = demo.said["open"].removesuffix("/console/")
    with browser.visit(origin, color_scheme=scheme, size=size, scripts=scripts) as visit:
        visit.sign_in(demo.said["token"])
        yield visit


def picture_file(name: str, tmp_path: Path) -> Path:
    """Return where to write a picture; the documentation has the light ones."""
    is_shown = os.environ.get(WRITES) and not name.endswith("-dark")
    return (DOCS / "pictures" if is_shown else tmp_path) / f"{name}.png"


@pytest.mark.cases(1)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", ["/console/today", "/console/today?days=90", "/console/changes"])
def test_everyone_can_use_a_page(
    demo: Demo, browser: Browser, path: str, scheme: Literal["light", "dark"]
) -> None:
    with signed_in(demo, browser, scheme=scheme) as visit:
        visit.open(path)

        check_accessible(visit.page)


def test_person_follows_a_bar_to_the_changes_and_to_a_fact(demo: Demo, browser: Browser) -> None:
    with signed_in(demo, browser, scripts=False) as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Today")
        visit.page.locator(".picture a", has_text="28 learned").locator(".row-0").click()
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Changes")
        visit.page.get_by_role("link", name="3 retracted").click()

        expect(visit.page.locator("main tbody tr")).to_have_count(3)


def test_person_with_a_keyboard_reaches_the_numbers_of_a_day(demo: Demo, browser: Browser) -> None:
    with signed_in(demo, browser) as visit:
        page = visit.page
        page.get_by_text("The numbers of the days").focus()
        page.keyboard.press("Enter")
        table = page.get_by_role("region", name="Changes by day")
        expect(table).to_be_visible()
        table.get_by_role("link", name="28", exact=True).focus()
        page.keyboard.press("Enter")

        expect(page.get_by_role("heading", level=1)).to_have_text("Changes")


@pytest.mark.nightly
def test_page_of_a_phone_does_not_scroll_sideways(demo: Demo, browser: Browser) -> None:
    with signed_in(demo, browser, size=PHONE) as visit:
        for path in ("/console/today?days=30", "/console/changes"):
            visit.open(path)

            width = visit.page.evaluate("() => document.documentElement.scrollWidth")
            assert width <= PHONE[0], path


NARROW = (360, 640)
TALLEST_ROW = 90
"""The pixels of a row with three lines."""


def test_pictures_of_days_open_on_the_newest_day_on_a_narrow_screen(
    demo: Demo, browser: Browser
) -> None:
    with signed_in(demo, browser, size=NARROW, scripts=False) as visit:
        bar = visit.page.locator(".picture a", has_text="28 learned").locator(".row-0").first
        box, last_dot = bar.bounding_box(), visit.page.locator(".dot").last.bounding_box()

        for each in (box, last_dot):
            assert each is not None
            assert 0 <= each["x"] <= each["x"] + each["width"] <= NARROW[0]


@pytest.mark.parametrize("path", ["/console/firings", "/console/user?user=mira"])
def test_rows_of_a_table_are_low_on_a_narrow_screen(
    demo: Demo, browser: Browser, path: str
) -> None:
    with signed_in(demo, browser, size=NARROW) as visit:
        visit.open(path)

        heights = visit.page.locator("main tr").evaluate_all(
            "rows => rows.map(row => row.getBoundingClientRect().height)"
        )

    assert heights
    assert max(heights) <= TALLEST_ROW


@pytest.mark.parametrize("scheme", SCHEMES)
def test_shade_shows_that_a_table_has_more_columns(
    demo: Demo, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    with signed_in(demo, browser, size=NARROW, scheme=scheme) as visit:
        visit.open("/console/firings")
        region = visit.page.get_by_role("region", name="Firings")
        region.scroll_into_view_if_needed()

        at_start = [edge_of(visit, region, side) for side in ("left", "right")]
        region.evaluate("region => { region.scrollLeft = region.scrollWidth }")
        at_end = [edge_of(visit, region, side) for side in ("left", "right")]

    plain = at_start[0]
    assert at_end[1] == plain
    assert plain not in (at_start[1], at_end[0])


def edge_of(visit: Visit, region: Any, side: str) -> bytes:
    """Return a picture of some pixels above the words at an edge of a region."""
    box = region.bounding_box()
    x = box["x"] if side == "left" else box["x"] + box["width"] - 3
    clip: Any = {"x": round(x), "y": round(box["y"]) + 1, "width": 2, "height": 3}
    picture: bytes = visit.page.screenshot(clip=clip)
    return picture


@pytest.mark.nightly
def test_bars_differ_without_colors(demo: Demo, browser: Browser) -> None:
    with signed_in(demo, browser) as visit:
        fills = visit.page.locator("svg:not(.legend svg) .row-1").evaluate_all(
            "bars => bars.map(bar => getComputedStyle(bar).fill)"
        )

        assert fills
        assert all(re.fullmatch(r'url\("?#.*-hatched"?\)', fill) for fill in fills)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "path"),
    [("today", "/console/today"), ("changes", "/console/changes?counted=changed")],
)
def test_pages_have_pictures_for_the_documentation(
    demo: Demo, browser: Browser, tmp_path: Path, name: str, path: str
) -> None:
    for scheme in SCHEMES:
        with signed_in(demo, browser, scheme=scheme) as visit:
            visit.open(path)
            suffix = "" if scheme == "light" else "-dark"

            file = visit.take_picture(
                picture_file(f"console-{name}{suffix}", tmp_path), whole=False
            )

        assert file.stat().st_size < 150_000


def test_report_file_opens_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    kept, file = tmp_path / "kept", tmp_path / "report.html"
    assert called("demo", "--keep", str(kept)).returncode == 0
    config = str(kept / "slumberd.yaml")
    written = called("report", "--since", "14d", "--html", str(file), "--config", config)
    assert written.returncode == 0, written.stderr

    for scheme in SCHEMES:
        with browser.visit("file://", color_scheme=scheme, size=SIZE) as visit:
            visit.open(file.as_uri())

            check_accessible(visit.page)
            expect(visit.page.get_by_role("img", name="Changes of facts by day")).to_be_visible()
            suffix = "" if scheme == "light" else "-dark"
            visit.take_picture(picture_file(f"report{suffix}", tmp_path), whole=False)
