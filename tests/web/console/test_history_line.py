"""The history of a key as a line: where its parts lie, and what they say."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from slumberd.web.console.history_line import (
    MOST_LANES,
    WIDTH,
    CurrentPeriod,
    HistoryLine,
    draw_history,
)
from slumberd.web.console.rendering import Renderer
from tests.support.builders import START

NOW = START + timedelta(days=100)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def span(value: str, begin: int, end: int | None) -> CurrentPeriod:
    return CurrentPeriod(value, day(begin), None if end is None else day(end))


def draw(*spans: CurrentPeriod) -> HistoryLine:
    return draw_history("line", "What was true", spans, NOW)


MOVES = (span("Lisbon", 0, 50), span("Porto", 50, 75), span("Lisbon", 75, None))


def test_line_has_a_lane_for_each_value_and_a_stroke_for_each_period() -> None:
    picture = draw(*MOVES)

    lisbon, porto = picture.lanes
    middle = (picture.left + picture.right) / 2
    assert [lane.value for lane in picture.lanes] == ["Lisbon", "Porto"]
    assert [stroke.y for stroke in picture.strokes] == [lisbon.y, porto.y, lisbon.y]
    assert [stroke.x1 for stroke in picture.strokes][:2] == [picture.left, middle]
    assert picture.strokes[-1].x2 == picture.right
    assert [stroke.open for stroke in picture.strokes] == [False, False, True]


def test_turn_leads_from_the_value_before_to_the_next_one() -> None:
    picture = draw(*MOVES)

    lisbon, porto = (lane.y for lane in picture.lanes)
    assert [(turn.y1, turn.y2) for turn in picture.turns] == [(lisbon, porto), (porto, lisbon)]
    assert [turn.x for turn in picture.turns] == [stroke.x1 for stroke in picture.strokes[1:]]


def test_values_that_are_current_at_the_same_time_have_no_turn() -> None:
    picture = draw(span("tea", 0, None), span("cake", 10, None))

    assert not picture.turns
    assert len({stroke.y for stroke in picture.strokes}) == 2


def test_every_part_lies_inside_the_picture() -> None:
    picture = draw(*MOVES)

    assert all(0 <= stroke.x1 < stroke.x2 <= WIDTH for stroke in picture.strokes)
    assert all(0 < lane.y < picture.bottom < picture.height for lane in picture.lanes)
    assert (picture.ticks[0].x, picture.ticks[-1].x) == (picture.left, picture.right)


def test_line_that_ended_ends_before_now() -> None:
    picture = draw(span("Lisbon", 0, 50))

    assert picture.ticks[-1].label == f"{day(50):%Y-%m-%d}"
    assert picture.description.endswith("none is current.")


@pytest.mark.parametrize(
    ("length", "label"),
    [
        pytest.param(timedelta(minutes=5), "2026-01-01 12:00:00", id="minutes"),
        pytest.param(timedelta(days=2), "2026-01-01 12:00", id="days"),
        pytest.param(timedelta(days=9), "2026-01-01", id="weeks"),
    ],
)
def test_axis_is_as_exact_as_it_is_short(length: timedelta, label: str) -> None:
    picture = draw_history("line", "x", [CurrentPeriod("a", START, None)], START + length)

    assert picture.ticks[0].label == label


def test_line_of_no_length_is_drawn_all_the_same() -> None:
    picture = draw_history("line", "x", [CurrentPeriod("a", START, None)], START)

    assert picture.strokes[0].x2 > picture.strokes[0].x1


def test_only_the_latest_values_are_drawn_and_the_others_are_counted() -> None:
    values = [span(f"v{number}", number, number + 1) for number in range(MOST_LANES + 3)]

    picture = draw(*values)

    assert picture.lanes[0].value == "v3"
    assert (len(picture.lanes), picture.left_out) == (MOST_LANES, 3)


def test_drawing_shows_what_hostile_people_say_as_text() -> None:
    hostile = '</text></svg><script>alert(1)</script>"\u202e'
    template = "{% from 'history_line.html' import history_line %}{{ history_line(picture) }}"

    environment = Renderer({})._environment
    drawn = environment.from_string(template).render(picture=draw(span(hostile, 0, None)))

    assert "<script" not in drawn
    assert "\u202e" not in drawn
    assert "&lt;/text&gt;" in drawn
    assert drawn.count("</svg>") == 1
    assert "style=" not in drawn
