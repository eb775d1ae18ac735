"""Compare blank rows of a ledger with the rows that its erasures name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.model.record import Break
from slumberd.storage.ledger.erased_rows import (
    compare_erasures,
    cumulative_document,
    document_of,
    runs_of,
)

pytestmark = pytest.mark.unit

SETS = st.lists(st.sets(st.integers(1, 40), max_size=9), max_size=5)


def story(sets: list[set[int]]) -> tuple[list[set[int]], set[int]]:
    """Return the rows of each erasure, without those of earlier ones, and all of them."""
    every: set[int] = set()
    own = []
    for rows in sets:
        own.append(rows - every)
        every |= rows
    return own, every


@pytest.mark.parametrize(
    ("rows", "text"),
    [([], ""), ([3], "3"), ([3, 4, 5, 258], "3-5,258"), ([1, 3, 4], "1,3-4")],
)
def test_rows_are_named_by_runs(rows: list[int], text: str) -> None:
    assert runs_of(rows) == text


@given(old=SETS, new=SETS, forged=st.sets(st.integers(1, 40), max_size=4), settled=st.booleans())
def test_exactly_the_rows_that_no_erasure_blanked_are_foreign(
    old: list[set[int]], new: list[set[int]], forged: set[int], *, settled: bool
) -> None:
    own, every = story([*old, *new])
    forged -= every
    erasures: list[tuple[int, object]] = []
    blank: set[int] = set()
    for number, rows in enumerate(own):
        blank |= rows
        if number < len(old):
            document = cumulative_document(sorted(blank))
        else:
            is_first = number == len(old) and bool(old) and settled
            base = sorted(blank - rows) if is_first else None
            document = document_of(sorted(rows), base)
        erasures.append((100 + number, document))

    found = compare_erasures(sorted(every | forged), erasures)

    if not old or (settled and new):
        assert (found.foreign, found.unclear, found.broken) == (sorted(forged), 0, None)
    elif forged:
        assert found.unclear == len(forged)
        assert found.broken is not None
    else:
        assert (found.foreign_rows, found.broken) == (0, None)


def test_a_row_after_the_last_cumulative_erasure_is_foreign() -> None:
    found = compare_erasures([2, 9], [(5, cumulative_document([2]))])

    assert (found.foreign, found.base, found.broken) == ([9], [2], None)


def test_a_named_row_that_has_content_again_is_found() -> None:
    found = compare_erasures([3], [(7, document_of([2, 3], None))])

    assert found.broken == Break(2, "has content, and the erasure of row 7 names it")


@pytest.mark.parametrize(
    "document",
    [
        None,
        7,
        [],
        {},
        {"numbers": 3},
        {"numbers": "x"},
        {"numbers": "1-x"},
        {"numbers": "", "base": ""},
    ],
)
def test_an_erasure_whose_rows_cannot_be_read_is_found(document: object) -> None:
    found = compare_erasures([], [(7, document)])

    assert found.broken is not None
    assert found.broken.seq == 7


def test_a_base_that_is_not_the_cumulative_one_is_found() -> None:
    erasures = [(5, cumulative_document([2])), (7, document_of([], [2, 3]))]

    found = compare_erasures([2, 3], erasures)

    assert found.broken is not None
    assert found.broken.seq == 7
