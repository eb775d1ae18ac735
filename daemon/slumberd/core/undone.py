"""Decide which firings of a ledger are undone, and in which order several are undone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Undoing(NamedTuple):
    """A firing that is to be undone.

    Attributes:
        number: The number of its own row in the ledger.
        rule_id: Its rule.
    """

    number: int
    rule_id: str


def undone_firings(undoings: Iterable[tuple[int, str]], undo: str) -> set[str]:
    """Return the ids of the firings that are undone, undoings included.

    Args:
        undoings: The number of each undoing firing and the id of the firing that it undoes,
            newest first. An undoing that is itself undone does not count.
        undo: The rule id of undoing firings.
    """
    undone: set[str] = set()
    for number, firing_id in undoings:
        if f"{undo}@{number}" not in undone:
            undone.add(firing_id)
    return undone


def in_order(firings: Sequence[Undoing], undo: str) -> list[Undoing]:
    """Return firings in the order in which undoing them changes the fewest facts meanwhile.

    What an older firing promoted is seldom current any more, so it goes first. An undoing brings
    facts back, so of undoings the newest goes first. The facts at the end are the same.

    Args:
        firings: The firings, oldest first.
        undo: The rule id of undoing firings.
    """
    undoings = [one for one in firings if one.rule_id == undo]
    return [one for one in firings if one.rule_id != undo] + undoings[::-1]
