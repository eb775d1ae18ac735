"""Add up what the batches of all ledgers came to; only those that are new are read."""

from __future__ import annotations

from collections import defaultdict

from slumberd.branches import Branches
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.model.health import Tallies, Tally

AT_ONCE = 2_000
"""Batches that are read at a time; the loop goes on in between."""


class Counting:
    """The sums so far, of a daemon that runs."""

    def __init__(self) -> None:
        self._upto: dict[str, int] = defaultdict(int)
        self._sums: dict[str, Tally] = defaultdict(Tally)

    async def tallies(self, branches: Branches, episodes: EpisodeLog) -> Tallies:
        """Read what is new, and return the sums.

        Raises:
            StoreError: A store cannot be read.
        """
        rows = 0
        for branch in branches:
            name = branch.part.store
            while found := await branch.facts.counts(self._upto[name], limit=AT_ONCE):
                for number, rule, channels in found:
                    self._sums[rule] = self._sums[rule].plus(Tally.of(channels))
                    self._upto[name] = number
            rows += await branch.facts.ledger_rows()
        return Tallies(rows, (await episodes.newest()).seq, dict(self._sums))
