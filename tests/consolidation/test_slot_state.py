"""The state of a slot is equal for every order in which claims are folded into it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.consolidation.claim import ALL, EPISODE, MANUAL, REFERRING, Precedence
from slumberd.consolidation.precedence import (
    FIRST_LAW,
    OVER_SIBLINGS,
    UNDER_SIBLINGS,
    Assertion,
    SlotState,
    link,
    newest_law,
)
from tests.support.sample_sizes import amount

pytestmark = pytest.mark.unit

DEPTH = 2
LAW = newest_law()


def assertion_at(at: int, what: str = "a") -> Assertion:
    return Assertion(Precedence(at, EPISODE, f"e{at}"), f"e{at}", what)


def retraction_at(at: int) -> Precedence:
    return Precedence(at, EPISODE, f"r{at}")


def test_the_assertion_with_the_highest_precedence_is_current() -> None:
    slot_state = SlotState()

    for at in (2, 3, 1):
        slot_state.fold_assertion(assertion_at(at), DEPTH, LAW)

    assert slot_state.current == (assertion_at(3),)


def test_retraction_covers_only_older_assertions() -> None:
    slot_state = SlotState()
    slot_state.fold_assertion(assertion_at(2), DEPTH, LAW)
    seen = []

    for at in (1, 3):
        slot_state.fold_retraction(ALL, retraction_at(at))
        seen.append(slot_state.current)
    slot_state.fold_assertion(assertion_at(4), DEPTH, LAW)

    assert [*seen, slot_state.current] == [(assertion_at(2),), (), (assertion_at(4),)]
    assert slot_state.retractions == {}


def test_slot_state_lists_the_facts_that_the_winner_replaced_newest_first() -> None:
    slot_state = SlotState()

    for at in (1, 2, 3, 4):
        slot_state.fold_assertion(assertion_at(at), DEPTH, LAW)

    assert slot_state.replaced == [link(assertion_at(3)), link(assertion_at(2))]


def test_a_late_assertion_makes_the_replaced_facts_unknown() -> None:
    slot_state = SlotState()

    for at in (2, 1, 3):
        slot_state.fold_assertion(assertion_at(at), DEPTH, LAW)

    assert (slot_state.current, slot_state.replaced) == ((assertion_at(3),), None)


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
                slot_state.fold_assertion(assertion_at(at, what), DEPTH, LAW)
            else:
                slot_state.fold_retraction(what, retraction_at(at))
        slot_states.add(
            (slot_state.winner, slot_state.current, tuple(slot_state.retractions.items()))
        )

    assert slot_states == {(assertion_at(4, "b"), (assertion_at(4, "b"),), ())}


def sibling(at: int, part: int, what: str) -> Assertion:
    return Assertion(Precedence(at, EPISODE, f"e{at}", part), f"e{at}#{part}", what)


def test_the_order_of_folding_does_not_matter_for_the_claims_of_one_version() -> None:
    older = sibling(1, 1, "a"), sibling(1, 2, "c")
    newer = sibling(2, 1, "a"), sibling(2, 2, "b"), sibling(2, 3, "a"), sibling(2, 4, "c")
    retractions = {
        "b": retraction_at(1),
        "c": Precedence(2, EPISODE, "e2", OVER_SIBLINGS),
        ALL: Precedence(2, EPISODE, "e2"),
    }
    steps: list[Assertion | str] = [*older, *newer, *retractions]
    slot_states = set()

    for order in islice(permutations(steps), 0, None, 997):
        slot_state = SlotState()
        for step in order:
            if isinstance(step, Assertion):
                slot_state.fold_assertion(step, DEPTH, LAW)
            else:
                slot_state.fold_retraction(step, retractions[step])
        slot_states.add(
            (slot_state.winners, slot_state.current, tuple(slot_state.retractions.items()))
        )

    winners = newer[0], newer[1], newer[3]
    assert slot_states == {(winners, winners[:2], (("c", retractions["c"]),))}


def test_a_newer_version_replaces_all_claims_of_the_older_one() -> None:
    slot_state = SlotState()

    for assertion in (sibling(1, 1, "a"), sibling(1, 2, "b"), sibling(2, 1, "c")):
        slot_state.fold_assertion(assertion, DEPTH, LAW)

    assert slot_state.current == (sibling(2, 1, "c"),)
    assert slot_state.replaced == [link(sibling(1, 2, "b")), link(sibling(1, 1, "a"))]


def test_under_law_1_each_claim_of_a_version_has_its_own_precedence() -> None:
    slot_state = SlotState()

    for part, what in enumerate("ab", 1):
        slot_state.fold_assertion(sibling(1, part, what), DEPTH, FIRST_LAW)

    assert slot_state.current == (sibling(1, 2, "b"),)
    assert slot_state.replaced == [link(sibling(1, 1, "a"))]


def test_a_claim_that_the_newest_retraction_spares_is_retracted_by_the_second_newest() -> None:
    claim = sibling(1, 1, "a")
    newest = Precedence(1, REFERRING, "e1", UNDER_SIBLINGS)
    second = Precedence(1, EPISODE, "e2", UNDER_SIBLINGS)
    steps: list[Assertion | Precedence] = [claim, newest, second]
    current = set()

    for order in permutations(steps):
        slot_state = SlotState()
        for step in order:
            if isinstance(step, Assertion):
                slot_state.fold_assertion(step, DEPTH, LAW)
            else:
                slot_state.fold_retraction("a", step)
        current.add(slot_state.current)
    spared = SlotState(claim)
    spared.fold_retraction("a", newest)

    assert current == {()}
    assert spared.current == (claim,)


VERSIONS = st.sampled_from([(1, "e1"), (1, "e2"), (1, "e3"), (2, "e1")])
ASSERTIONS = st.builds(
    lambda version, part, what: Assertion(Precedence(version[0], 0, version[1], part), "", what),
    VERSIONS, st.integers(0, 2), st.sampled_from("ab"),
)  # fmt: skip
REACHES = [(0, UNDER_SIBLINGS), (1, UNDER_SIBLINGS), (1, OVER_SIBLINGS)]
RETRACTIONS = st.tuples(
    st.sampled_from(["a", "b", ALL]),
    st.builds(
        lambda version, reach: Precedence(version[0], reach[0], version[1], reach[1]),
        VERSIONS, st.sampled_from(REACHES),
    ),
)  # fmt: skip


def is_covered(assertion: Assertion, retractions: Sequence[tuple[str, Precedence]]) -> bool:
    at, rank, id, _ = assertion.precedence
    return any(
        by.part == OVER_SIBLINGS if (by.at, by.id) == (at, id) else by[:3] > (at, rank, id)
        for what, by in retractions
        if what in (ALL, assertion.object)
    )


@given(
    st.lists(ASSERTIONS, min_size=1, max_size=3),
    st.lists(RETRACTIONS, max_size=4),
    st.randoms(use_true_random=False),
)
@settings(max_examples=amount(600, full=20_000), deadline=None)
def test_any_order_of_folding_gives_the_current_assertions_of_brute_force(
    assertions: list[Assertion], retractions: list[tuple[str, Precedence]], random: Random
) -> None:
    slot_state = SlotState()
    steps: list[Any] = [*assertions, *retractions]
    random.shuffle(steps)

    for step in steps:
        if isinstance(step, Assertion):
            slot_state.fold_assertion(step, DEPTH, LAW)
        else:
            slot_state.fold_retraction(*step)

    highest = max(assertion.precedence[:3] for assertion in assertions)
    winners = [each for each in sorted(assertions) if each.precedence[:3] == highest]
    first = {each.object: each for each in reversed(winners)}
    expected = [each for each in sorted(first.values()) if not is_covered(each, retractions)]
    assert [*slot_state.current] == expected
