"""Which firings are undone, and in which order several are undone."""

from __future__ import annotations

import pytest

from slumberd.storage.ledger.undo import Undoing, in_order, undone_firing_ids

pytestmark = pytest.mark.unit

UNDO = "@undo"


def test_firing_is_undone_until_its_undoing_is_undone() -> None:
    assert undone_firing_ids([(5, "all@1")], UNDO) == {"all@1"}
    assert undone_firing_ids([(7, "@undo@5"), (5, "all@1")], UNDO) == {"@undo@5"}


def test_firing_that_is_undone_twice_stays_undone_when_one_undoing_is_undone() -> None:
    undoings = [(9, "@undo@7"), (7, "all@1"), (5, "all@1")]

    assert undone_firing_ids(undoings, UNDO) == {"@undo@7", "all@1"}


def test_firing_whose_undoing_was_undone_can_be_undone_again() -> None:
    undoings = [(9, "all@1"), (7, "@undo@5"), (5, "all@1")]

    assert undone_firing_ids(undoings, UNDO) == {"all@1", "@undo@5"}


def test_older_firings_are_undone_first_and_of_undoings_the_newest() -> None:
    firings = [Undoing(1, "a"), Undoing(3, UNDO), Undoing(5, "b"), Undoing(7, UNDO)]

    assert [firing.number for firing in in_order(firings, UNDO)] == [1, 5, 7, 3]
