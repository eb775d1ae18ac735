"""All reads of a file of facts; nothing here writes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from slumberd.consolidation.explanation import Decision, Explanation
from slumberd.consolidation.multi_valued_hints import MultiValuedHint, find_multi_valued_hints
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Counts, HeldBatch, Position
from slumberd.model.provenance import Lag, Page
from slumberd.model.record import Break, Checkpoint, Record
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.sql_statements import statements
from slumberd.storage.audit.explain import decisions_of, why
from slumberd.storage.audit.export import exported
from slumberd.storage.audit.partition import PART_ROWS
from slumberd.storage.audit.replay import Replay, rebuild
from slumberd.storage.audit.verify import verify
from slumberd.storage.episodes.erased_content import remembered
from slumberd.storage.facts.lifecycle import FactFile, head_of
from slumberd.storage.facts.search import search, search_as_of
from slumberd.storage.ledger import promotion_feed
from slumberd.storage.ledger.erasure import Unfinished, find_scope, unfinished
from slumberd.storage.ledger.fact_rows import find, is_specified
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.rows import firing_id_of, record_from
from slumberd.storage.ledger.undo import Wanted, has_any
from slumberd.storage.sqlite.connection import snapshot
from slumberd.storage.sqlite.erased_scopes import erased_scope_lookup

_SQL = statements("ledger")

_EARLIEST = -(2**62)
"""An instant before every other one, microseconds."""


class FactReader(FactFile):
    """Reads of the current facts, the ledger behind them, and the progress of each rule."""

    async def query(
        self,
        pattern: FactPattern,
        *,
        valid_at: datetime | None = None,
        believed_at: datetime | None = None,
    ) -> list[Fact]:
        """Return the facts that match a pattern, in its order; by id by default.

        Args:
            pattern: What every fact must match, the order, and the most facts to return.
            valid_at: What was true then: only claims of up to that instant count.
            believed_at: What was held then: only what was recorded by that instant counts.

        Raises:
            UsageError: The pattern holds invalid Unicode.
            PatternError: Its cursor, a glob or a regular expression is invalid.
            ExtraMissingError: It has a regular expression, and the extra ``regex`` is missing.
        """
        if valid_at is None and believed_at is None:
            finds = find if is_specified(pattern) else search
            return await self._database.read(lambda connection: finds(connection, pattern))
        return await self._database.read(
            lambda connection: search_as_of(connection, pattern, self._depth, valid_at, believed_at)
        )

    async def channels(self) -> dict[str, frozenset[str]]:
        """Return which predicates are multi-valued now, by channel."""
        return await self._database.read(lambda connection: channels_at(connection).channels)

    async def find_multi_valued_hints(self) -> list[MultiValuedHint]:
        """Return the single-valued predicates on most of whose keys an object replaced another."""

        def work(connection: sqlite3.Connection) -> list[MultiValuedHint]:
            multi = channels_at(connection)  # a slot from before a change may be there still
            counts = connection.execute(_SQL["object_counts"])
            return find_multi_valued_hints(row for row in counts if row[0] not in multi)

        return await self._database.read(work)

    async def watermark(self, rule_id: str) -> Position | None:
        """Return how far a rule has read; None for an unknown rule."""
        row = await self._fetch_one("watermark", (rule_id,))
        return Position(*row) if row else None

    async def watermarks(self) -> dict[str, tuple[Position, datetime]]:
        """Return every rule's watermark, and the last cron instant that it has served."""
        found = await self._fetch_all("watermarks", ())
        return {rule: (Position(seq, eid), instant(served)) for rule, seq, eid, served in found}

    async def batch_ends(self, rule_id: str) -> list[Position]:
        """Return every position at which a batch of the rule ended, newest first."""
        return [Position(*row) for row in await self._fetch_all("batch_ends", (rule_id,))]

    async def served(self, rule_id: str) -> datetime | None:
        """Return the instant up to which a rule's cron instants are served."""
        row = await self._fetch_one("served", (rule_id,))
        return instant(row[0]) if row else None

    async def successes(self) -> dict[str, datetime]:
        """Return when each rule's last successful firing began."""
        return {rule: instant(at) for rule, at in await self._fetch_all("successes", ())}

    async def counts(self, after: int, *, limit: int) -> list[tuple[int, str, list[Counts]]]:
        """Return number, rule, and counts by channel, of the batches after a number."""

        def work(connection: sqlite3.Connection) -> list[tuple[int, str, list[Counts]]]:
            found = connection.execute(_SQL["counts_after"], {"after": after, "limit": limit})
            return [
                (number, rule, [Counts(**values) for values in orjson.loads(counts).values()])
                for number, rule, counts in found
            ]

        return await self._database.read(work)

    async def last_firings(self) -> dict[str, tuple[int, datetime]]:
        """Return each rule's last batch: its number and instant."""
        found = await self._fetch_all("last_firings", ())
        return {rule: (number, instant(at)) for rule, number, at in found}

    async def held(self) -> dict[str, HeldBatch]:
        """Return the batches that await approval, or are approved, by rule."""
        return {
            rule: HeldBatch(rule, firing_id_of(rule, n), (seq, eid), problem, bool(approved))
            for rule, n, seq, eid, problem, approved in await self._fetch_all("held_batches", ())
        }

    async def has_any(self, wanted: Wanted) -> bool:
        """Return whether the ledger has a firing of a run, or any firing of a rule."""
        return await self._database.read(lambda connection: has_any(connection, wanted))

    async def episodes_in(self, reach: ScopeFilter) -> tuple[set[str], int]:
        """Return the ids of a scope's episodes that the ledger knows, and their latest instant.

        The instant is in microseconds, and 0 without episodes.
        """

        def work(connection: sqlite3.Connection) -> tuple[set[str], int]:
            with snapshot(connection):
                found = find_scope(connection, reach)
            return found.eids, found.newest

        return await self._database.read(work)

    async def unfinished(self) -> list[Unfinished]:
        """Return the erasures that may be incomplete in memory.db."""
        return await self._database.read(unfinished)

    async def erased_scopes(self) -> tuple[bytes | None, dict[bytes, int]]:
        """Return the key of the hashes of erased scopes, and the last erased instant of each."""
        return await self._database.read(remembered)

    async def has_erased_scopes(self, reach: ScopeFilter) -> bool:
        """Return whether the scope, or a wider one, was erased before."""
        scope = reach.user, reach.session or "", reach.agent or ""

        def work(connection: sqlite3.Connection) -> bool:
            past = erased_scope_lookup(connection)
            return past is not None and past.covers(*scope, _EARLIEST)

        return await self._database.read(work)

    async def records(self, *, after: int = 0, limit: int = 1_000) -> list[Record]:
        """Return the ledger rows after a number, oldest first."""
        return await self._database.read(lambda connection: records(connection, after, limit))

    async def records_of(self, fact_id: str) -> list[Record]:
        """Return the ledger rows of one fact id, oldest first."""
        found = await self._fetch_all("records_of_fact", {"fact_id": fact_id})
        return [record_from(row) for row in found]

    async def ledger_rows(self) -> int:
        """Return how many rows the ledger has."""
        row = await self._fetch_one("last_row", ())
        return row[0] if row else 0

    async def head(self) -> Checkpoint:
        """Return the number of the last committed ledger row, and its chain hash."""
        return await self._database.read(head_of)

    async def promotions(self, after: int, *, limit: int, current_only: bool) -> Page:
        """Return the promotions in the rows that follow a row.

        Args:
            after: The number of that row.
            limit: The most rows that are read, of any kind.
            current_only: Whether only promotions whose fact is still current are returned.
        """
        return await self._database.read(
            lambda connection: promotion_feed.page(connection, after, limit, standing=current_only)
        )

    async def is_publishable(self, seq: int) -> bool:
        """Return whether a row still promotes the same fact, and was not erased."""
        return await self._database.read(
            lambda connection: promotion_feed.has_content(connection, seq)
        )

    async def published_position(self, reader: str) -> tuple[int, int]:
        """Return a reader's position: the last row it passed, and the number of refused rows."""
        return await self._database.read(
            lambda connection: promotion_feed.place(connection, reader)
        )

    async def lag(self, reader: str) -> Lag:
        """Return how far a reader's position is behind the ledger."""
        return await self._database.read(lambda connection: promotion_feed.lag(connection, reader))

    async def why(self, fact_id: str) -> Explanation:
        """Explain how a fact became current, or how it was removed.

        Raises:
            NoInputError: Neither the facts nor the ledger have the id.
        """
        return await self._database.read(lambda connection: why(connection, fact_id))

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
        return await self._database.read(
            lambda connection: decisions_of(connection, episode_id, rules, versions)
        )

    async def verify(
        self, against: Iterable[Checkpoint] = (), *, chain_only: bool = False
    ) -> tuple[int, str, Break | None]:
        """Recompute the chain, and compare its replay with the facts.

        Args:
            against: Earlier checkpoints of the ledger to compare with; read in another thread.
            chain_only: Whether to check neither the content of the rows nor the facts.

        Returns:
            The number of rows, the head of the chain in hexadecimal, and the first break.

        Raises:
            LedgerKeyError: The store does not have the key of the ledger's first row.
        """
        return await self._database.read(
            lambda connection: verify(connection, self._depth, against, chain_only=chain_only)
        )

    async def replay(self, path: Path, *, part_rows: int = PART_ROWS) -> Replay:
        """Rebuild the facts in a new file from the ledger alone, and compare.

        Args:
            path: The new file.
            part_rows: Ledger rows that replay resolves at a time; more when they depend on each
                other.

        Raises:
            OutputExistsError: The new file exists already.
            LedgerKeyError: The store does not have the key of the ledger's first row.
        """
        return await asyncio.to_thread(
            rebuild, self.path, path, self._depth, self._key, part_rows=part_rows
        )

    async def exported(self, *, after: int, limit: int) -> tuple[int, list[bytes]]:
        """Return the ledger rows after a number as lines of JSON, and the number of the last one.

        At the end of the ledger the list is empty, and the number is `after`.
        """
        return await self._database.read(lambda connection: exported(connection, after, limit))

    async def quarantined(self) -> dict[str, int]:
        """Return how many episodes are quarantined, by rule."""
        return dict(await self._fetch_all("quarantine_by_rule", ()))

    async def quarantined_of(self, rule_id: str) -> list[str]:
        """Return the ids of the episodes that are quarantined for a rule, in order."""
        return [row[0] for row in await self._fetch_all("quarantined", (rule_id,))]

    async def channels_of(self, rule_id: str) -> set[str]:
        """Return all channels into which a rule has emitted."""
        found = await self._fetch_all("counts_by_content", (rule_id,))
        return {channel for (counts,) in found for channel in orjson.loads(counts)}

    async def promoted_by(self, rule_id: str, fact_ids: Sequence[str]) -> set[str]:
        """Return those of the fact ids that a rule has ever promoted."""
        asked = {"rule": rule_id, "ids": orjson.dumps(fact_ids).decode()}
        return {fact_id for (fact_id,) in await self._fetch_all("promoted_by", asked)}

    async def quarantine(self) -> list[dict[str, Any]]:
        """Return the quarantined episodes, by rule, channel and id."""
        names = ("rule_id", "channel", "episode_id", "reason", "detail", "seq")
        found = await self._fetch_all("list_quarantine", ())
        return [dict(zip(names, row, strict=True)) for row in found]


def records(connection: sqlite3.Connection, after: int, limit: int) -> list[Record]:
    """Return the ledger rows after a number, oldest first."""
    found = connection.execute(_SQL["records"], {"after": after, "limit": limit}).fetchall()
    return [record_from(row) for row in found]
