"""Values of Cypher, in three-valued logic: what is unknown is null, and null is not false."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""What variables are bound to."""

Value = Callable[[Row], Any]
"""A value of a row; None is unknown."""

Truth = bool | None
"""True, false, or unknown."""


def truth(value: object) -> Truth:
    """Return what a value says as a condition; what is no truth value is unknown."""
    return value if isinstance(value, bool) else None


def all_of(truths: Sequence[Truth]) -> Truth:
    """Return ``AND`` of all."""
    if False in truths:
        return False
    return None if None in truths else True


def any_of(truths: Sequence[Truth]) -> Truth:
    """Return ``OR`` of all."""
    if True in truths:
        return True
    return None if None in truths else False


def odd_of(truths: Sequence[Truth]) -> Truth:
    """Return ``XOR`` of all."""
    return None if None in truths else sum(map(bool, truths)) % 2 == 1


def opposite(truth: Truth) -> Truth:
    """Return ``NOT``."""
    return None if truth is None else not truth


def sort_of(value: object) -> str:
    """Return what a value can be compared with: values of the same sort."""
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def equal(one: object, other: object) -> Truth:
    """Say whether two values are equal; values of two sorts are not, and null is unknown."""
    if one is None or other is None:
        return None
    return sort_of(one) == sort_of(other) and one == other


def is_in(value: object, members: object) -> Truth:
    """Say whether a value is a member of a list; unknown when it may be."""
    if not isinstance(members, list | tuple):
        return None
    return any_of([equal(value, member) for member in members])


def comparing(operator: str, one: Value, other: Value) -> Value:
    """Return what compares two values, by the name of the operator."""
    if operator == "EQUALS":
        return lambda row: equal(one(row), other(row))
    if operator == "NOT_EQUALS":
        return lambda row: opposite(equal(one(row), other(row)))
    holds = _ORDERINGS[operator]

    def compare(row: Row) -> Truth:
        left, right = one(row), other(row)
        if left is None or sort_of(left) != sort_of(right) or sort_of(left) not in ORDERED:
            return None
        return holds(left, right)

    return compare


ORDERED = ("number", "str", "bool")
"""The sorts of values that have an order."""

_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "LESS_THAN": lambda one, other: one < other,
    "GREATER_THAN": lambda one, other: one > other,
    "LESS_THAN_OR_EQUALS": lambda one, other: one <= other,
    "GREATER_THAN_OR_EQUALS": lambda one, other: one >= other,
}
