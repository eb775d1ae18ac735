"""The results of audits: of a replay, and of a comparison of two states of the facts."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from slumberd.model.record import Break

Sign = Literal["+", "-", "~", "="]
"""A fact that appears, disappears, replaces another, or is promoted by other rules."""


class Replay(NamedTuple):
    """The result of a replay.

    Attributes:
        rows: Rows of the ledger.
        facts: Facts that are current after the replay.
        erased: Rows whose content was erased.
        differing: Rows with another delta, facts and keys with other content; counted together.
        unclear: Rows with another delta that come after an erased row, which may explain it.
        first: The first difference.
    """

    rows: int
    firings: int
    facts: int
    erased: int
    differing: int
    unclear: int
    first: Break | None

    @property
    def broken(self) -> bool:
        """Whether the chain is broken; a ledger with a broken chain is not replayed."""
        return self.first is not None and not self.rows


class Side(NamedTuple):
    """A fact before or after.

    Attributes:
        payload: Its payload; empty when it is unreadable, or equal on both sides.
        confidence: 0 to 1; None when it is equal on both sides.
        rules: The rules that promote it, for a fact whose rules differ.
    """

    fact_id: str
    payload: dict[str, Any]
    confidence: float | None
    rules: list[str]


class Difference(NamedTuple):
    """One difference between two states of the facts.

    Attributes:
        sign: The kind of difference.
        user: The fact's user.
        agent: The fact's agent.
        old: The fact before; None for one that appears.
        new: The fact after; None for one that disappears.
    """

    sign: Sign
    user: str
    agent: str
    old: Side | None
    new: Side | None


class Totals(NamedTuple):
    """How many facts differ.

    Attributes:
        appear: Facts that are current only after.
        change: Facts with other content, and facts that replace a fact of the same key.
        disappear: Facts that are current only before.
        stay: Facts that are equal.
        support: How many of the equal facts are promoted by other rules than before.
    """

    appear: int
    change: int
    disappear: int
    stay: int
    support: int

    @property
    def differ(self) -> bool:
        """Whether any fact appears, changes or disappears."""
        return any((self.appear, self.change, self.disappear))
