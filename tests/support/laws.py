"""A law that only tests have, to change from the newest one to it."""

from __future__ import annotations

from slumberd.consolidation.precedence import LAWS, Assertion, Law, SlotState, newest_law

NEWEST = newest_law()
NEXT = NEWEST + 1
"""The number of the law of `lowest_law`."""


def lowest_law() -> Law:
    """Return a law by which the lower of two ids of one instant stays."""
    return Law(_fold_lowest, LAWS[NEWEST].holds_together)


def _fold_lowest(head: SlotState, assertion: Assertion, depth: int) -> None:
    winner = head.winner
    if winner is None or winner.precedence.at != assertion.precedence.at:
        LAWS[NEWEST].fold_assertion(head, assertion, depth)
    elif assertion.precedence < winner.precedence:
        head.winner = assertion
