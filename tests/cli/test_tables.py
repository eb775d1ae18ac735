"""The layout of columns: an id is never broken at any width of the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from slumberd.cli.tables import WHOLE, lay_out

pytestmark = pytest.mark.unit

UUID = "0b6b1b4e-9a58-4a5e-9a3c-1d0c7f0e5d11"
LONG = "x" * 120


def table_lines(columns: list[str], rows: list[list[str]], width: int | None) -> list[str]:
    return [line.text for line in lay_out(columns, rows, width)]


def test_table_that_fits_has_one_line_for_each_row() -> None:
    lines = table_lines(["id", "object"], [["e1", "tea"], ["e22", "-"]], 80)

    assert lines == ["id   object", "e1   tea", "e22  -"]


def test_table_without_a_terminal_is_not_wrapped() -> None:
    lines = table_lines(["id", "object"], [["e1", LONG]], None)

    assert lines[1] == f"e1  {LONG}"


def test_text_is_wrapped_between_words_and_the_id_is_not() -> None:
    lines = table_lines(["id", "text"], [[UUID, "one two three four five six seven"]], 62)

    assert lines == [
        f"id{' ' * 36}text",
        f"{UUID}  one two three four five",
        f"{' ' * 38}six seven",
    ]


def test_wide_characters_take_two_columns_each() -> None:
    lines = table_lines(
        ["id", "object", "user"], [["e1", "茶が好き", "ada"], ["e2", "tea", "bob"]], 80
    )

    assert lines[1:] == ["e1  茶が好き  ada", "e2  tea       bob"]
    assert {cell_len(line) for line in lines[1:]} == {17}


def test_time_is_wrapped_between_date_and_time_only() -> None:
    row = ["e1", "2026-03-01 12:00:00Z", "2026-03-02 12:00:00Z", "words " * 12]

    lines = table_lines(["id", "at", "last", "text"], [row], 52)

    assert any(line.startswith("e1  2026-03-01  2026-03-02") for line in lines)


def test_empty_columns_and_columns_with_equal_cells_are_left_out() -> None:
    rows = [[f"e{n}-{UUID}", "ada", "waiter", "-", f"{n} cups"] for n in range(3)]

    lines = table_lines(["id", "user", "agent", "held", "object"], rows, 60)

    assert lines[:3] == ["in every row:", "  agent: waiter", f"id{' ' * 39}user  object"]
    assert lines[3:] == [f"{row[0]}  ada   {row[4]}" for row in rows]


def test_row_that_does_not_fit_a_table_is_printed_as_a_block_with_unbroken_ids() -> None:
    rows = [[f"{n}{LONG}", f"u{n}{UUID}", f"{n} a b"] for n in range(2)]

    lines = table_lines(["id", "user", "object"], rows, 80)

    assert lines == [
        f"id      0{LONG}", f"user    u0{UUID}", "object  0 a b",
        "",
        f"id      1{LONG}", f"user    u1{UUID}", "object  1 a b",
    ]  # fmt: skip


def test_list_of_ids_is_broken_between_ids_only() -> None:
    ids = [f"id-{n}-{UUID}" for n in range(3)]

    lines = table_lines(["seq", "replaces"], [["1", ", ".join(ids)]], 60)

    assert [line[5:].rstrip(",") for line in lines[1:]] == ids


def test_table_without_rows_names_its_columns() -> None:
    assert table_lines(["id", "object"], [], 80) == ["id  object"]


# Without "-", which a table shows for None: a column of it alone counts as empty.
CELLS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=60).filter(
    lambda text: text != "-"
)


@pytest.mark.slow
@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=5),
    st.sampled_from([20, 40, 80, 100]),
)
def test_every_id_is_on_one_line_and_no_text_is_lost(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    columns = ["id", "user", "object"]

    text = "\n".join(table_lines(columns, [[*row] for row in rows], width))

    assert {"id", "user"} <= WHOLE
    for id, user, what in rows:
        assert id in text
        assert user in text
        assert set(what) <= set(text)


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 100])
def test_thousands_of_rows_fit_the_width(width: int) -> None:
    rows = [[f"e{n}", "ada", "so be it " * (n % 20), f"{n:,}"] for n in range(5_000)]

    lines = table_lines(["id", "user", "object", "count"], rows, width)

    assert max(map(cell_len, lines)) <= width
    assert sum(line.startswith("e") for line in lines) == 5_000
