"""Read the ledger, its quarantine, and the records of firings; nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import orjson

from slumberd.consolidation.explanation import Decision
from slumberd.consolidation.key_history import MultiValuedHint, find_multi_valued_hints
from slumberd.model.episode import EpisodeVersion, instant, microseconds
from slumberd.model.firing import Counts, Record
from slumberd.model.predicates import Several
from slumberd.model.record import FiringPlace, GroupedChanges, RecordedFiring, Retraction, Shrinkage
from slumberd.model.store_status import MOST_AGENTS, LastBatch, Readings, Share, UserFacts
from slumberd.storage.audit.explain import decisions_of
from slumberd.storage.audit.export import export_rows
from slumberd.storage.engine import Session
from slumberd.storage.facts.apply import FactTransactions, read_scope_key
from slumberd.storage.facts.review import list_quarantine, read_quarantine_page
from slumberd.storage.facts.search import upper_bound
from slumberd.storage.ledger.firings import (
    firings_before,
    group_changes,
    read_retractions,
    read_shrinkage,
    readings_of,
    records_after,
    records_of_firing,
    share_of,
)
from slumberd.storage.ledger.history import channels_at, seq_at
from slumberd.storage.ledger.rows import record_from
from slumberd.storage.ledger.undo import Wanted, has_firings

if TYPE_CHECKING:  # a command that reads facts imports no rules
    from slumberd.model.rule import ConsolidationRule

_USER = itemgetter(0)


def list_users(session: Session, prefix: str, after: str | None, limit: int) -> list[UserFacts]:
    """Return the users who have current facts, by name.

    The index finds each user and agent, however many facts they have.

    Args:
        session: Inside a snapshot.
        prefix: Only users whose names begin with this text.
        after: Only users after this one; None for the first page.
    """
    # NUL is the first character: no text lies between a text and that text with NUL appended.
    low = prefix if after is None else max(prefix, f"{after}\0")
    # Where the index has long names in a shorter form, only the whole name before finds its place.
    values = {"low": low, "high": upper_bound(prefix), "prefix": prefix, "after": after or ""}
    owners = (
        (user, agent, facts)
        for user, agent, facts in session.stream("facts.owners_from", values)
        # Marks alone are no facts, and a name that is no text is of an unreadable fact.
        if facts and isinstance(user, str) and isinstance(agent, str)
    )
    users = (_sum_up(user, found) for user, found in groupby(owners, key=_USER))
    return list(islice(users, limit))


def _sum_up(user: str, owners: Iterator[tuple[str, str, int]]) -> UserFacts:
    found = [(agent, facts) for _, agent, facts in owners]
    agents = [agent for agent, _ in found[:MOST_AGENTS]]
    return UserFacts(user, agents, sum(facts for _, facts in found))


class FactReader:
    """Reads of the ledger and of what it says about rules and episodes."""

    def __init__(self, transactions: FactTransactions) -> None:
        self._transactions = transactions

    async def channels(self) -> dict[str, Several]:
        """Return which predicates are multi-valued now, by channel."""
        return await self._transactions.read(lambda session: channels_at(session).channels)

    async def find_multi_valued_hints(self) -> list[MultiValuedHint]:
        """Return the single-valued predicates on most of whose keys an object replaced another."""

        def work(session: Session) -> list[MultiValuedHint]:
            multi = channels_at(session)  # slots of multi-valued predicates may remain
            counts = session.stream("ledger.object_counts")
            return find_multi_valued_hints(row for row in counts if row[0] not in multi)

        return await self._transactions.read(work)

    async def counts(self, after: int, *, limit: int) -> list[tuple[int, str, list[Counts]]]:
        """Return number, rule, and counts by channel, of the batches after a number."""

        def work(session: Session) -> list[tuple[int, str, list[Counts]]]:
            found = session.stream("ledger.counts_after", {"after": after, "limit": limit})
            return [
                (number, rule, [Counts(**values) for values in orjson.loads(counts).values()])
                for number, rule, counts in found
            ]

        return await self._transactions.read(work)

    async def last_firings(self) -> dict[str, tuple[int, datetime]]:
        """Return each rule's last batch: its number and instant."""
        found = await self._transactions.fetch_all("ledger.last_firings")
        return {rule: (number, instant(at)) for rule, number, at in found}

    async def last_batches(self) -> dict[str, LastBatch]:
        """Return the last batch of each rule."""
        found = await self._transactions.fetch_all("inspection.last_firings")
        return {rule: LastBatch(instant(at), sum_channels(counts)) for rule, _, at, counts in found}

    async def readings(self, rule_ids: Sequence[str]) -> dict[str, Readings]:
        """Return what became of the episodes that rules read last, by rule."""
        return await self._transactions.read(lambda session: readings_of(session, rule_ids))

    async def share(self, rule_ids: Sequence[str]) -> Share:
        """Return how many of the last episodes that rules read became facts."""
        return await self._transactions.read(lambda session: share_of(session, rule_ids))

    async def has_any(self, wanted: Wanted) -> bool:
        """Return whether the ledger has a firing of a run, or any firing of a rule."""
        return await self._transactions.read(lambda session: has_firings(session, wanted))

    async def records(self, *, after: int = 0, limit: int = 1_000) -> list[Record]:
        """Return the ledger rows after a number, oldest first."""
        return await self._transactions.read(lambda session: records_after(session, after, limit))

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
        """
        return await self._transactions.read(
            lambda session: firings_before(
                session, place, rule_id=rule_id, run=run, since=since, limit=limit
            )
        )

    async def records_of_firing(
        self, firing_id: str, *, after: int, limit: int
    ) -> list[Record] | None:
        """Return the rows that a firing wrote, after a number, without its own row.

        Returns:
            The rows, oldest first; None when the ledger does not have the firing.
        """
        return await self._transactions.read(
            lambda session: records_of_firing(session, firing_id, after=after, limit=limit)
        )

    async def group_changes(
        self, *, after: int, limit: int, upto: int | None = None
    ) -> GroupedChanges:
        """Return the rows after a number, in groups of rows that are alike.

        Args:
            after: The number of the last row of a firing; 0 for all rows.
            limit: About how many rows are read; the last firing is read whole.
            upto: The number of the last row of a firing; no later rows are read. None for all.
        """
        return await self._transactions.read(
            lambda session: group_changes(session, after, limit=limit, upto=upto)
        )

    async def records_of(self, fact_id: str) -> list[Record]:
        """Return the ledger rows of one fact id, oldest first."""
        found = await self._transactions.fetch_all("ledger.records_of_fact", {"fact_id": fact_id})
        return [record_from(row) for row in found]

    async def ledger_rows(self) -> int:
        """Return how many rows the ledger has."""
        row = await self._transactions.fetch_one("ledger.last_row")
        return row[0] if row else 0

    async def scope_key(self) -> bytes:
        """Return the key that hashes users and agents in log lines; empty when none was drawn."""
        return await self._transactions.read(read_scope_key)

    async def shrinkage(self, since: int) -> Shrinkage:
        """Return how the number of facts changed since an instant, in microseconds."""
        return await self._transactions.read(lambda session: read_shrinkage(session, since))

    async def retractions(self, after: int) -> list[Retraction]:
        """Return what each firing retracted whose ledger row is after a number, oldest first."""
        return await self._transactions.read(lambda session: read_retractions(session, after))

    async def last_row_before(self, at: datetime) -> int:
        """Return the number of the last row that was recorded before an instant; 0 for none."""
        before = microseconds(at) - 1
        return await self._transactions.read(lambda session: seq_at(session, before))

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
        return await self._transactions.read(
            lambda session: decisions_of(session, episode_id, rules, versions)
        )

    async def export(self, *, after: int, limit: int) -> tuple[int, list[bytes]]:
        """Return the ledger rows after a number as lines of JSON, and the number of the last one.

        At the end of the ledger the list is empty, and the number is `after`.
        """
        return await self._transactions.read(lambda session: export_rows(session, after, limit))

    async def count_quarantined(self) -> dict[str, int]:
        """Return how many episodes are quarantined, by rule."""
        return dict(await self._transactions.fetch_all("ledger.quarantine_by_rule"))

    async def quarantine(self) -> list[dict[str, Any]]:
        """Return the quarantined episodes, by rule, channel and id."""
        return await self._transactions.read(list_quarantine)

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
            episodes: Only entries of these episodes, which needs a rule; None for all.
        """
        return await self._transactions.read(
            lambda session: read_quarantine_page(session, rule, after, limit, episodes)
        )

    async def users(self, prefix: str, *, after: str | None, limit: int) -> list[UserFacts]:
        """Return the users who have current facts, by name.

        Args:
            prefix: Only users whose names begin with this text.
            after: Only users after this one; None for the first page.
        """
        return await self._transactions.read(
            lambda session: list_users(session, prefix, after, limit)
        )


def sum_channels(counts: bytes) -> Counts:
    """Return the counts of a firing over all channels, from the column of its row."""
    channels = [Counts(**channel) for channel in orjson.loads(counts).values()]
    return reduce(Counts.plus, channels, Counts())
