"""A law that only tests have, to change from the newest one to it."""

from __future__ import annotations

from typing import Any

from slumberd.consolidation.claim import Precedence
from slumberd.consolidation.precedence import Law, newest_law

NEXT = newest_law() + 1
"""The number of the law of `lowest_law`."""


def lowest_law() -> Law:
    """Return a law by which the lower of two ids of one instant stays."""
    return Law(_lowest_place, holds_together=True)


def _lowest_place(precedence: Precedence) -> tuple[Any, ...]:
    return precedence.at, precedence.rank, tuple(-ord(character) for character in precedence.id)
