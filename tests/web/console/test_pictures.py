"""Pictures show the numbers to scale, in patterns and in words."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.web.console.pictures import (
    WIDTH,
    Column,
    Picture,
    accumulate_growth,
    draw_bars,
    draw_line,
    draw_stacks,
)
from slumberd.web.console.rendering import Renderer

ROWS = ("learned", "changed", "retracted")


def column(*values: int, name: str = "2026-03-01", href: str = "") -> Column:
    return Column(name=name, label="1 Mar", values=values, href=href)


def render(picture: Picture) -> str:
    return Renderer({}).render("picture.html", {"picture": picture})


def svg_of(html: str) -> ElementTree.Element:
    """Return the drawing of a figure, after those of its legend."""
    return ElementTree.fromstring(html).findall("div/svg")[-1]  # noqa: S314 # the test made it


def test_bars_of_a_stack_are_as_high_as_their_numbers() -> None:
    picture = draw_stacks("days", "Changes", ROWS, [column(30, 10, 20), column(60, 0, 0)])

    first, second = ([box.height for box in mark.boxes] for mark in picture.marks)

    assert first == [pytest.approx(height, abs=0.1) for height in (88, 29.3, 58.7)]
    assert second == [pytest.approx(sum(first), abs=0.2)]


def test_bars_of_a_stack_stand_on_each_other() -> None:
    [mark] = draw_stacks("days", "Changes", ROWS, [column(3, 2, 1)]).marks

    for lower, upper in zip(mark.boxes, mark.boxes[1:], strict=False):
        assert upper.y + upper.height == pytest.approx(lower.y, abs=0.1)


def test_row_without_a_number_has_no_bar() -> None:
    [mark] = draw_stacks("days", "Changes", ROWS, [column(3, 0, 1)]).marks

    assert [box.row for box in mark.boxes] == [0, 2]


def test_each_mark_says_its_numbers() -> None:
    [mark] = draw_stacks("days", "Changes", ROWS, [column(1234, 0, 1)]).marks

    assert mark.says == "2026-03-01: 1,234 learned, 0 changed, 1 retracted"


def test_picture_of_nothing_is_a_picture() -> None:
    for picture in (
        draw_stacks("days", "Changes", ROWS, []),
        draw_line("growth", "Growth", []),
        draw_bars("largest", "Largest", ROWS, []),
        draw_stacks("days", "Changes", ROWS, [column(0, 0, 0)]),
    ):
        svg_of(render(picture))


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=400))
def test_line_stays_in_the_picture(values: list[int]) -> None:
    picture = draw_line("growth", "Growth", [column(value) for value in values])

    assert all(0 <= x <= WIDTH and 0 <= y <= picture.height for x, y, _ in picture.dots)
    assert len(picture.grid) <= 7
    highest, lowest = (values.index(pick(values)) for pick in (max, min))
    assert picture.dots[highest][1] == min(y for _, y, _ in picture.dots)
    assert picture.dots[lowest][1] == max(y for _, y, _ in picture.dots)


@given(st.lists(st.tuples(*[st.integers(0, 10**9)] * 3), max_size=400))
def test_bars_stay_in_the_picture(values: list[tuple[int, int, int]]) -> None:
    columns = [column(*each) for each in values]

    for picture in (
        draw_stacks("days", "Changes", ROWS, columns),
        draw_bars("largest", "Largest", ROWS, columns),
    ):
        for box in (box for mark in picture.marks for box in mark.boxes):
            assert 0 <= box.x <= box.x + box.width <= WIDTH
            assert 0 <= box.y <= box.y + box.height <= picture.height


@given(st.integers(0, 10**12))
def test_labels_of_the_axis_are_round_and_reach_the_highest_number(most: int) -> None:
    picture = draw_stacks("days", "Changes", ROWS, [column(most, 0, 0)])

    ticks = [int(label.text.replace(",", "")) for label in picture.labels if label.anchor == "end"]

    assert ticks[0] == 0
    assert ticks[-1] >= most
    assert re.fullmatch("[125]0*", str(ticks[1]))


def test_many_columns_have_few_labels() -> None:
    picture = draw_stacks("days", "Changes", ROWS, [column(1, 1, 1)] * 366)

    assert len([label for label in picture.labels if label.anchor == "middle"]) <= 12


def test_long_name_keeps_its_end() -> None:
    column = Column(name="a-rule-with-a-name-that-is-long@1234", values=(1, 2, 3))

    [label, number] = draw_bars("largest", "Largest", ROWS, [column]).labels

    assert label.text == "a-rule-with-a-name-…-long@1234"
    assert number.text == "6"


def test_growth_adds_up_the_days() -> None:
    assert accumulate_growth([(3, 0), (1, 2), (0, 5)]) == [3, 2, -3]


def test_svg_has_a_title_and_a_description() -> None:
    picture = draw_stacks("days", "Changes", ROWS, [column(1, 2, 3)])

    svg = svg_of(render(picture))

    title, description = (svg.find(tag) for tag in ("title", "desc"))
    assert title is not None
    assert description is not None
    assert svg.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert svg.get("role") == "img"
    assert description.text == (
        "2026-03-01: 1 learned, 2 changed, 3 retracted; at most 6 at one place."
    )


def test_svg_has_no_style_and_no_script() -> None:
    html = render(draw_stacks("days", "Changes", ROWS, [column(1, 2, 3, href="/console/x")]))

    assert not re.search(r"\sstyle=|<style|<script|\son\w+=", html)


def test_picture_with_links_is_a_group_of_links() -> None:
    html = render(draw_stacks("days", "Changes", ROWS, [column(1, 2, 3, href="/a?b=1&c=2")]))

    svg = svg_of(html)
    link = svg.find("a")

    assert svg.get("role") == "group"  # the parts of an image cannot be reached
    assert link is not None
    assert link.get("href") == "/a?b=1&c=2"
    assert link.get("aria-label") == "2026-03-01: 1 learned, 2 changed, 3 retracted"


def test_rows_have_different_patterns() -> None:
    html = render(draw_stacks("days", "Changes", ROWS, [column(1, 2, 3)]))

    svg = svg_of(html)
    bars = [bar for bar in svg.findall("g/rect") if bar.get("class") != "area"]

    assert [bar.get("fill") for bar in bars] == [None, "url(#days-hatched)", "url(#days-dotted)"]


def test_pictures_of_one_page_have_different_ids() -> None:
    html = "".join(
        render(draw_stacks(id, "Changes", ROWS, [column(1, 2, 3)])) for id in ("days", "hours")
    )

    ids = re.findall(r' id="([^"]+)"', html)

    assert len({*ids}) == len(ids)


def test_hostile_name_is_text() -> None:
    name = "<script>alert(1)</script>\u202e\x1b\"&'"
    html = render(draw_bars("largest", "Largest", ROWS, [Column(name=name, values=(1, 2, 3))]))

    assert "<script" not in html
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;" in html
