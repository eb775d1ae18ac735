"""The state of a slot is equal for every order in which claims are folded into it."""

from __future__ import annotations

from itertools import permutations

import pytest

from slumberd.consolidation.claim import ALL, EPISODE, MANUAL, Precedence
from slumberd.consolidation.precedence import Assertion, SlotState, link

pytestmark = pytest.mark.unit

DEPTH = 2


def said(at: int, what: str = "a") -> Assertion:
    return Assertion(Precedence(at, EPISODE, f"e{at}"), f"e{at}", what)


def by(at: int) -> Precedence:
    return Precedence(at, EPISODE, f"r{at}")


def test_the_assertion_with_the_highest_precedence_is_current() -> None:
    head = SlotState()

    for at in (2, 3, 1):
        head.fold_assertion(said(at), DEPTH)

    assert head.current == said(3)


def test_retraction_covers_only_older_assertions() -> None:
    head = SlotState()
    head.fold_assertion(said(2), DEPTH)
    seen = []

    for at in (1, 3):
        head.fold_retraction(ALL, by(at))
        seen.append(head.current)
    head.fold_assertion(said(4), DEPTH)

    assert [*seen, head.current] == [said(2), None, said(4)]
    assert head.retractions == {}


def test_slot_state_links_to_what_the_winner_replaced_newest_first() -> None:
    head = SlotState()

    for at in (1, 2, 3, 4):
        head.fold_assertion(said(at), DEPTH)

    assert head.replaced == [link(said(3)), link(said(2))]


def test_a_late_assertion_leaves_the_trail_to_be_worked_out() -> None:
    head = SlotState()

    for at in (2, 1, 3):
        head.fold_assertion(said(at), DEPTH)

    assert (head.current, head.replaced) == (said(3), None)


def test_link_to_a_manual_edit_names_no_episode() -> None:
    hand = Assertion(Precedence(1, MANUAL, "7"), "mine", "a")

    assert link(hand) == {"replaces": "mine", "source_episode_ids": []}


def test_the_order_of_folding_does_not_matter() -> None:
    steps = [(1, "a", True), (2, "b", True), (3, "a", False), (3, ALL, False), (4, "b", True)]
    heads = set()

    for order in permutations(steps):
        head = SlotState()
        for at, what, asserts in order:
            if asserts:
                head.fold_assertion(said(at, what), DEPTH)
            else:
                head.fold_retraction(what, by(at))
        heads.add((head.winner, head.current, tuple(head.retractions.items())))

    assert heads == {(said(4, "b"), said(4, "b"), ())}
