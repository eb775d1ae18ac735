"""How many values a predicate has."""

from __future__ import annotations

import pytest

from slumberd.model.predicates import ManyBut, holds_several, names_predicate

ONE = ManyBut(frozenset({"lives_in", "favourite_*"}))


@pytest.mark.parametrize("predicate", ["lives_in", "favourite_colour", "favourite_"])
def test_listed_predicate_holds_one_value(predicate: str) -> None:
    assert not holds_several(predicate, ONE)


@pytest.mark.parametrize("predicate", ["lives_in_summer", "favourite", "my favourite_colour", ""])
def test_other_predicates_hold_several_values(predicate: str) -> None:
    assert holds_several(predicate, ONE)


def test_beginning_counts_in_a_list_of_many_too() -> None:
    assert holds_several("has_dog", frozenset({"has_*"}))
    assert not holds_several("had_dog", frozenset({"has_*"}))


def test_star_alone_names_only_itself() -> None:
    assert names_predicate(frozenset({"*"}), "*")
    assert not names_predicate(frozenset({"*"}), "likes")
