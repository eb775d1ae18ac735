"""The state of a slot is equal for every order in which claims are folded into it."""

from __future__ import annotations

from itertools import permutations

import pytest

from slumberd.consolidation.claim import ALL, EPISODE, MANUAL, Precedence
from slumberd.consolidation.precedence import Assertion, SlotState, link

pytestmark = pytest.mark.unit

DEPTH = 2


def assertion_at(at: int, what: str = "a") -> Assertion:
    return Assertion(Precedence(at, EPISODE, f"e{at}"), f"e{at}", what)


def retraction_at(at: int) -> Precedence:
    return Precedence(at, EPISODE, f"r{at}")


def test_the_assertion_with_the_highest_precedence_is_current() -> None:
    slot_state = SlotState()

    for at in (2, 3, 1):
        slot_state.fold_assertion(assertion_at(at), DEPTH)

    assert slot_state.current == assertion_at(3)


def test_retraction_covers_only_older_assertions() -> None:
    slot_state = SlotState()
    slot_state.fold_assertion(assertion_at(2), DEPTH)
    seen = []

    for at in (1, 3):
        slot_state.fold_retraction(ALL, retraction_at(at))
        seen.append(slot_state.current)
    slot_state.fold_assertion(assertion_at(4), DEPTH)

    assert [*seen, slot_state.current] == [assertion_at(2), None, assertion_at(4)]
    assert slot_state.retractions == {}


def test_slot_state_lists_the_facts_that_the_winner_replaced_newest_first() -> None:
    slot_state = SlotState()

    for at in (1, 2, 3, 4):
        slot_state.fold_assertion(assertion_at(at), DEPTH)

    assert slot_state.replaced == [link(assertion_at(3)), link(assertion_at(2))]


def test_a_late_assertion_makes_the_replaced_facts_unknown() -> None:
    slot_state = SlotState()

    for at in (2, 1, 3):
        slot_state.fold_assertion(assertion_at(at), DEPTH)

    assert (slot_state.current, slot_state.replaced) == (assertion_at(3), None)


def test_link_to_a_manual_edit_names_no_episode() -> None:
    manual_edit = Assertion(Precedence(1, MANUAL, "7"), "mine", "a")

    assert link(manual_edit) == {"replaces": "mine", "source_episode_ids": []}


def test_the_order_of_folding_does_not_matter() -> None:
    steps = [(1, "a", True), (2, "b", True), (3, "a", False), (3, ALL, False), (4, "b", True)]
    slot_states = set()

    for order in permutations(steps):
        slot_state = SlotState()
        for at, what, asserts in order:
            if asserts:
                slot_state.fold_assertion(assertion_at(at, what), DEPTH)
            else:
                slot_state.fold_retraction(what, retraction_at(at))
        slot_states.add(
            (slot_state.winner, slot_state.current, tuple(slot_state.retractions.items()))
        )

    assert slot_states == {(assertion_at(4, "b"), assertion_at(4, "b"), ())}
