"""What became of the episodes that rules read last."""

from __future__ import annotations

from typing import NamedTuple

LATEST = 100
"""The number of episodes for which the newest batches of a rule are counted."""


class Readings(NamedTuple):
    """How many versions of episodes a rule read last, and what became of them.

    Attributes:
        read: All of them; about `LATEST`, or more when a batch reads more.
        learned: Those that added, replaced or retracted a fact.
        said_nothing: Those whose text the rule found no triple in.
        filtered: Those that the filter did not select.
        quarantined: Those that could not be read.
        unchanged: The others: their facts were known, or newer ones hold.
    """

    read: int = 0
    learned: int = 0
    said_nothing: int = 0
    filtered: int = 0
    quarantined: int = 0
    unchanged: int = 0

    @property
    def learns_nothing(self) -> bool:
        """Whether the rule read `LATEST` episodes, and none of them states a fact for it."""
        return self.read >= LATEST and not self.learned and not self.unchanged


class Share(NamedTuple):
    """How many of the last versions of episodes that some rule read became facts.

    Attributes:
        episodes: The last of them, at most `LATEST`.
        learned: Those from which a rule learned something.
    """

    episodes: int = 0
    learned: int = 0
