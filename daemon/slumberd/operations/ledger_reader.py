"""What operations and commands read of the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from slumberd.consolidation.explanation import Decision
from slumberd.consolidation.multi_valued_hints import MultiValuedHint
from slumberd.model.episode import EpisodeVersion
from slumberd.model.firing import Counts
from slumberd.model.predicates import Several
from slumberd.model.record import FiringPlace, GroupedChanges, Record, RecordedFiring, Shrinkage
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import LastBatch, Readings, Share, UserFacts
from slumberd.storage.ledger.undo import Wanted


class LedgerReader(Protocol):
    """Reads of the ledger and of what it says about rules and episodes."""

    async def shrinkage(self, since: int) -> Shrinkage:
        """Return how the number of facts changed since an instant, in microseconds."""
        ...

    async def channels(self) -> dict[str, Several]:
        """Return which predicates are multi-valued now, by channel."""
        ...

    async def find_multi_valued_hints(self) -> list[MultiValuedHint]:
        """Return the single-valued predicates on most of whose keys an object replaced another."""
        ...

    async def counts(self, after: int, *, limit: int) -> list[tuple[int, str, list[Counts]]]:
        """Return number, rule, and counts by channel, of the batches after a number."""
        ...

    async def has_any(self, wanted: Wanted) -> bool:
        """Return whether the ledger has a firing of a run, or any firing of a rule."""
        ...

    async def records(self, *, after: int = 0, limit: int = 1_000) -> list[Record]:
        """Return the ledger rows after a number, oldest first."""
        ...

    async def firings(
        self,
        place: FiringPlace,
        *,
        rule_id: str | None = None,
        run: str | None = None,
        since: datetime | None = None,
        limit: int,
    ) -> list[RecordedFiring]:
        """Return firings before a place, newest first.

        Args:
            place: Where to begin.
            rule_id: Only firings of this rule, for episodes and for a graph; None for all.
            run: Only firings of this run; None for all.
            since: Only firings from this instant on; None for all.
            limit: At most this many.
        """
        ...

    async def records_of_firing(
        self, firing_id: str, *, after: int, limit: int
    ) -> list[Record] | None:
        """Return the rows that a firing wrote, after a number, without its own row.

        Returns:
            The rows, oldest first; None when the ledger does not have the firing.
        """
        ...

    async def group_changes(
        self, *, after: int, limit: int, upto: int | None = None
    ) -> GroupedChanges:
        """Return the rows after a number, in groups of rows that are alike.

        Args:
            after: The number of the last row of a firing; 0 for all rows.
            limit: About how many rows are read; the last firing is read whole.
            upto: The number of the last row of a firing; no later rows are read. None for all.
        """
        ...

    async def ledger_rows(self) -> int:
        """Return how many rows the ledger has."""
        ...

    async def last_row_before(self, at: datetime) -> int:
        """Return the number of the last row that was recorded before an instant; 0 for none."""
        ...

    async def decisions_of(
        self,
        episode_id: str,
        rules: Sequence[ConsolidationRule],
        versions: Mapping[str, EpisodeVersion],
    ) -> list[Decision]:
        """Return the decisions about an episode, one for each rule and channel.

        Args:
            episode_id: The episode; it need not exist any more.
            rules: The loaded rules. Other rules that evaluated the episode are included.
            versions: By the id of a loaded rule, the newest version as that rule reads it; read
                before this call.
        """
        ...

    async def export(self, *, after: int, limit: int) -> tuple[int, list[bytes]]:
        """Return the ledger rows after a number as lines of JSON, and the number of the last one.

        At the end of the ledger the list is empty, and the number is `after`.
        """
        ...

    async def count_quarantined(self) -> dict[str, int]:
        """Return how many episodes are quarantined, by rule."""
        ...

    async def quarantine(self) -> list[dict[str, Any]]:
        """Return the quarantined episodes, by rule, channel and id."""
        ...

    async def quarantine_page(
        self,
        rule: str | None,
        *,
        after: tuple[str, str, str] | None,
        limit: int,
        episodes: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return a page of the quarantined episodes, by rule, channel and id.

        Args:
            rule: Only entries of this rule; None for all.
            after: Rule, channel and episode of the entry before the page; None for the first page.
            limit: At most this many.
            episodes: Only entries of these episodes, which needs a rule; None for all.
        """
        ...

    async def users(self, prefix: str, *, after: str | None, limit: int) -> list[UserFacts]:
        """Return the users who have current facts, by name.

        Args:
            prefix: Only users whose names begin with this text.
            after: Only users after this one; None for the first page.
            limit: At most this many.
        """
        ...

    async def readings(self, rule_ids: Sequence[str]) -> dict[str, Readings]:
        """Return what became of the episodes that rules read last, by rule."""
        ...

    async def share(self, rule_ids: Sequence[str]) -> Share:
        """Return how many of the last episodes that rules read became facts."""
        ...

    async def last_batches(self) -> dict[str, LastBatch]:
        """Return the last batch of each rule."""
        ...
