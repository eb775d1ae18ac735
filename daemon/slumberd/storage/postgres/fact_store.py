"""The store of facts in one shard of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable

from slumberd.clock import Clock
from slumberd.retrieval.protocols import TextComparer
from slumberd.storage.facts.delta_applier import BACKLOG_ROWS
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.facts.transactions import LINEAGE_DEPTH
from slumberd.storage.postgres.engine import PostgresFactEngine


class PostgresFactStore(EngineFactStore):
    """Facts and their ledger in one shard of a database; implements `FactStore`.

    Attributes:
        engine: Opens the transactions of the shard.

    Args:
        address: The address of the database, as ``postgresql://host/database``.
        shard: The shard.
        lineage_depth: How many replaced assertions a fact's lineage names.
        clock: The time; None means the system's.
        key: The key of the ledger, from its first row on; None for a ledger without a key.
        comparer: Returns what compares texts, for rules that compare; None when there is none.
        backlog_rows: A batch of so many candidates counts as a backlog.
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
    ) -> None:
        self.engine = PostgresFactEngine(address, shard, key=key)
        super().__init__(
            self.engine,
            clock=clock,
            lineage_depth=lineage_depth,
            comparer=comparer,
            backlog_rows=backlog_rows,
        )
