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
from slumberd.storage.audit.explain import decisions_of
from slumberd.storage.audit.export import export_rows
from slumberd.storage.audit.replay import Replay, rebuild
from slumberd.storage.facts.lifecycle import FactFile
from slumberd.storage.facts.review import list_quarantine
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.rows import record_from
from slumberd.storage.ledger.undo import Wanted, has_firings

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
        return await self._file.read(lambda connection: has_firings(connection, wanted))

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

        Args:
            path: The new file.
            part_rows: Ledger rows that replay resolves at a time; more when they depend on each
                other.

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
        return await self._file.read(lambda connection: export_rows(connection, after, limit))

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
