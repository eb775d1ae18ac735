"""Read the ledger, its quarantine, and the records of firings; nothing here writes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from slumberd.consolidation.explanation import Decision
from slumberd.consolidation.multi_valued_hints import MultiValuedHint, find_multi_valued_hints
from slumberd.model.episode import EpisodeVersion, instant
from slumberd.model.firing import Counts
from slumberd.model.record import Record
from slumberd.model.rule import ConsolidationRule
from slumberd.sql_statements import statements
from slumberd.storage.audit.explain import decisions_of, why
from slumberd.storage.audit.export import export_rows
from slumberd.storage.audit.replay import Replay, rebuild
from slumberd.storage.audit.verify import verify
from slumberd.storage.episodes.erased_content import remembered
from slumberd.storage.facts.lifecycle import FactFile, head_of
from slumberd.storage.facts.search import search, search_as_of
from slumberd.storage.ledger import promotion_feed
from slumberd.storage.ledger.erasure import Unfinished, find_scope, read_unfinished
from slumberd.storage.ledger.fact_rows import find, is_specified
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.rows import firing_id_of, record_from
from slumberd.storage.ledger.undo import Wanted, has_firings
from slumberd.storage.sqlite.connection import snapshot
from slumberd.storage.sqlite.erased_scopes import erased_scope_lookup

_SQL = statements("ledger")


class FactReader:
    """Reads of the ledger and of what it says about rules and episodes."""

    def __init__(self, file: FactFile) -> None:
        self._file = file

    async def channels(self) -> dict[str, frozenset[str]]:
        """Return which predicates are multi-valued now, by channel."""
        return await self._file.read(lambda connection: channels_at(connection).channels)

    async def find_multi_valued_hints(self) -> list[MultiValuedHint]:
        """Return the single-valued predicates on most of whose keys an object replaced another."""

        def work(connection: sqlite3.Connection) -> list[MultiValuedHint]:
            multi = channels_at(connection)  # slots of multi-valued predicates may remain
            counts = connection.execute(_SQL["object_counts"])
            return find_multi_valued_hints(row for row in counts if row[0] not in multi)

        return await self._file.read(work)

    async def counts(self, after: int, *, limit: int) -> list[tuple[int, str, list[Counts]]]:
        """Return number, rule, and counts by channel, of the batches after a number."""

        def work(connection: sqlite3.Connection) -> list[tuple[int, str, list[Counts]]]:
            found = connection.execute(_SQL["counts_after"], {"after": after, "limit": limit})
            return [
                (number, rule, [Counts(**values) for values in orjson.loads(counts).values()])
                for number, rule, counts in found
            ]

        return await self._file.read(work)

    async def last_firings(self) -> dict[str, tuple[int, datetime]]:
        """Return each rule's last batch: its number and instant."""
        found = await self._file.fetch_all("last_firings", ())
        return {rule: (number, instant(at)) for rule, number, at in found}

    async def has_any(self, wanted: Wanted) -> bool:
        """Return whether the ledger has a firing of a run, or any firing of a rule."""
        return await self._database.read(lambda connection: has_firings(connection, wanted))

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
        return await self._database.read(read_unfinished)

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
        return await self._file.read(lambda connection: records_after(connection, after, limit))

    async def records_of(self, fact_id: str) -> list[Record]:
        """Return the ledger rows of one fact id, oldest first."""
        found = await self._file.fetch_all("records_of_fact", {"fact_id": fact_id})
        return [record_from(row) for row in found]

    async def ledger_rows(self) -> int:
        """Return how many rows the ledger has."""
        row = await self._file.fetch_one("last_row", ())
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
            lambda connection: promotion_feed.page(
                connection, after, limit, current_only=current_only
            )
        )

    async def is_publishable(self, seq: int) -> bool:
        """Return whether a row still promotes the same fact, and was not erased."""
        return await self._database.read(
            lambda connection: promotion_feed.has_content(connection, seq)
        )

    async def published_position(self, reader: str) -> tuple[int, int]:
        """Return a reader's position: the last row it passed, and the number of refused rows."""
        return await self._database.read(
            lambda connection: promotion_feed.read_position(connection, reader)
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
        return await self._file.read(
            lambda connection: decisions_of(connection, episode_id, rules, versions)
        )

    async def replay(self, path: Path) -> Replay:
        """Rebuild the facts in a new file from the ledger alone, and compare.

        Raises:
            OutputExistsError: The new file exists already.
            LedgerKeyError: The store does not have the key of the ledger's first row.
        """
        file = self._file
        return await asyncio.to_thread(rebuild, file.path, path, file.lineage_depth, file.key)

    async def export(self, *, after: int, limit: int) -> tuple[int, list[bytes]]:
        """Return the ledger rows after a number as lines of JSON, and the number of the last one.

        At the end of the ledger the list is empty, and the number is `after`.
        """
        return await self._database.read(lambda connection: export_rows(connection, after, limit))

    async def count_quarantined(self) -> dict[str, int]:
        """Return how many episodes are quarantined, by rule."""
        return dict(await self._file.fetch_all("quarantine_by_rule", ()))

    async def quarantine(self) -> list[dict[str, Any]]:
        """Return the quarantined episodes, by rule, channel and id."""
        return await self._file.read(list_quarantine)


def records_after(connection: sqlite3.Connection, after: int, limit: int) -> list[Record]:
    """Return the ledger rows after a number, oldest first."""
    found = connection.execute(_SQL["records"], {"after": after, "limit": limit}).fetchall()
    return [record_from(row) for row in found]
