"""Write a state directory into all shards of a database, and read it there again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from slumberd.model.record import Break
from slumberd.storage.engine import Row
from slumberd.storage.postgres.copies.shard_division import ShardDivision
from slumberd.storage.postgres.copies.shard_rows import ShardRows
from slumberd.storage.sqlite.file_rows import Erasures, LogEnd, Table


class DividedShards:
    """The empty shards of a database, among which rows are divided.

    Args:
        division: Says to which shards a row belongs.
        shards: All shards, in order.
    """

    def __init__(self, division: ShardDivision, shards: Sequence[ShardRows]) -> None:
        self._division = division
        self._shards = shards

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Write each row into the shards to which it belongs."""
        for shard, its_rows in self._division.divide(table, rows).items():
            self._shards[shard].write(table, its_rows)

    def write_log_end(self, end: LogEnd) -> None:
        """Let the log of each shard continue with the numbers after these."""
        for shard in self._shards:
            shard.write_log_end(end)

    def write_erasures(self, erasures: Erasures) -> None:
        """Write the erased scopes, which are those of the whole database."""
        self._shards[0].write_erasures(erasures)

    def write_copied(self, head: str, at: datetime, by: str) -> None:
        """Add a row to the ledger of each shard: from where the rows before it are.

        Args:
            head: The head of the source's chain.
            at: The instant.
            by: Who copies.
        """
        for place, shard in enumerate(self._shards):
            shard.write_copied(self._division.copied(head, place), at, by)


class CopiedShard:
    """The rows of a shard, without the row that says from where they were copied.

    Attributes:
        copied: The content of that row; None without such a row.
    """

    def __init__(self, shard: ShardRows) -> None:
        self._shard = shard
        newest = shard.copied()
        self._number = newest[0] if newest else None
        self.copied = newest[1] if newest else None
        self.tables = shard.tables

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        return self._shard.count(table)

    def read(self, table: Table) -> Iterator[Row]:
        """Yield the rows of a table, in the order of its key."""
        own = self._number if table.name in ("ledger", "firings") else None
        return (row for row in self._shard.read(table) if row[0] != own)

    def verify(self) -> Break | None:
        """Verify the ledger of the shard; return its first break."""
        return self._shard.verify()

    def log_end(self) -> LogEnd:
        """Return the last numbers of the log."""
        return self._shard.log_end()

    def erasures(self) -> Erasures:
        """Return the erased scopes."""
        return self._shard.erasures()
