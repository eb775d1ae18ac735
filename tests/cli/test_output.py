"""Printed tables and JSON, with and without a terminal."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest

from slumberd.cli.output import MOST_CHARACTERS, cell, join_names, plural, print_json, print_table

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "-", id="nothing"),
        pytest.param(True, "yes", id="true"),
        pytest.param(False, "no", id="false"),
        pytest.param(0.25, "0.25", id="fraction"),
        pytest.param(1.0, "1", id="whole fraction"),
        pytest.param(7, "7", id="number"),
        pytest.param("tea [bold]", "tea [bold]", id="text"),
        pytest.param({"a": [1]}, '{"a":[1]}', id="object"),
        pytest.param(datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "2026-01-02 03:04:05Z", id="instant"),
        pytest.param("\x1b[2Jgone\nnew", r"\x1b[2Jgone\nnew", id="cursor movements"),
    ],
)
def test_cell_shows_a_value_as_text(value: object, text: str) -> None:
    assert cell(value) == text


def test_table_without_a_terminal_is_not_wrapped_and_has_no_trailing_blanks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("id", "text"), [("e1", "x" * 300), ("e22", "short")])

    assert capsys.readouterr().out == f"id   text\ne1   {'x' * 300}\ne22  short\n"


def test_empty_table_prints_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id", "text"), [])

    assert capsys.readouterr().out == "id  text\n"


def test_table_on_a_terminal_is_wrapped_and_loses_no_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, and no colours to count

    print_table(("id", "text"), [("e1", "[red]" + "x" * 200)])

    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "[red]" in out
    assert out.count("x") == 201


def test_json_is_printed_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"at": datetime(2026, 1, 2, tzinfo=UTC), "text": "a\nb"})

    assert capsys.readouterr().out == '{"at":"2026-01-02T00:00:00Z","text":"a\\nb"}\n'


@pytest.mark.parametrize("value", ["i" * 1_000_000, "\x1b" * 1_000_000, {"a": "b" * 1_000_000}])
def test_cell_cuts_a_text_that_is_too_long(value: object) -> None:
    shown = cell(value)

    assert len(shown) == MOST_CHARACTERS
    assert shown.endswith("…")


def test_cell_does_not_cut_a_text_of_the_greatest_length() -> None:
    assert cell("i" * MOST_CHARACTERS) == "i" * MOST_CHARACTERS


@pytest.mark.parametrize(
    ("characters", "shown"),
    [
        pytest.param(400, "i" * 400, id="as many as a cell holds"),
        pytest.param(401, "i" * 399 + "…", id="one more"),
    ],
)
def test_cell_shows_four_hundred_characters(characters: int, shown: str) -> None:
    assert cell("i" * characters) == shown


@pytest.mark.parametrize(
    ("names", "total", "shown"),
    [
        pytest.param([], None, "", id="none"),
        pytest.param(["a", "b"], None, "a, b", id="two"),
        pytest.param([*"abcdefghij"], None, "a, b, c, d, e, f, g, h, i, j", id="ten"),
        pytest.param(
            [*"abcdefghijk"], None, "a, b, c, d, e, f, g, h, i, j and 1 more", id="eleven"
        ),
        pytest.param(["a"], 1_001, "a and 1,000 more", id="the first of many"),
        pytest.param(["n" * 80], None, "n" * 80, id="longest name"),
        pytest.param(["n" * 81], None, "n" * 80 + "…", id="name that is too long"),
        pytest.param(["a\x1b"], None, r"a\x1b", id="control character"),
    ],
)
def test_sentence_lists_ten_names(names: list[str], total: int | None, shown: str) -> None:
    assert join_names(names, total=total) == shown


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 entries"), (1, "1 entry"), (2, "2 entries"), (10_000, "10,000 entries")],
)
def test_count_has_its_noun_in_the_plural_unless_it_is_one(count: int, words: str) -> None:
    assert plural(count, "entry", "entries") == words
    assert plural(count, "row") == words.replace("entries", "rows").replace("entry", "row")
