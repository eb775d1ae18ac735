"""The store of facts in one shard of a PostgreSQL database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from slumberd.clock import Clock
from slumberd.search.vectors import TextComparer
from slumberd.storage.audit.results import Replay
from slumberd.storage.facts.apply import BACKLOG_ROWS, LINEAGE_DEPTH
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.postgres.engine import PostgresFactEngine
from slumberd.storage.postgres.shard_copies import PostgresCopies
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.sqlite.replay import rebuild


class PostgresFactStore(EngineFactStore):
    """Facts and their ledger in one shard of a database; implements `FactStore`.

    Attributes:
        engine: Opens the transactions of the shard.

    Args:
        address: The address of the shard's database, as ``postgresql://host/database``.
        lineage_depth: How many replaced assertions a fact's lineage names.
        clock: The time; None means the system's.
        key: The key of the ledger, from its first row on; None for a ledger without a key.
        comparer: Returns what compares texts, for rules that compare; None when there is none.
        backlog_rows: A batch of so many candidates counts as a backlog.
        read_address: The address of a replica, on which operations that only read run their reads;
            None without one.
    """

    def __init__(  # noqa: PLR0913 # one per setting
        self,
        address: str,
        *,
        shard: int = 0,
        lineage_depth: int = LINEAGE_DEPTH,
        clock: Clock | None = None,
        key: bytes | None = None,
        comparer: Callable[[], TextComparer] | None = None,
        backlog_rows: int = BACKLOG_ROWS,
        read_address: str | None = None,
    ) -> None:
        self._key = key
        self.engine = PostgresFactEngine(Shard(shard, address), key=key, read_address=read_address)
        super().__init__(
            self.engine,
            clock=clock,
            lineage_depth=lineage_depth,
            comparer=comparer,
            backlog_rows=backlog_rows,
        )

    async def replay(self, path: Path) -> Replay:
        """Rebuild the facts in a new SQLite file from the ledger alone, and compare.

        Args:
            path: The new file.

        Raises:
            OutputExistsError: The new file exists already.
            LedgerKeyError: The store does not have the key of the ledger's first row.
        """
        return await asyncio.to_thread(self._rebuild, path)

    def _rebuild(self, path: Path) -> Replay:
        engine = self.engine
        with TemporaryDirectory(prefix="slumberd-", dir=path.absolute().parent) as folder:
            copied = Path(folder, "facts.db")
            PostgresCopies(engine.shard).copy("facts", copied)
            return rebuild(copied, path, self.transactions.lineage_depth, self._key)
