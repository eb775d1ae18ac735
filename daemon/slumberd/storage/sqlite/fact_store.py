"""The store of facts in one SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event

from slumberd.clock import Clock
from slumberd.search.vectors import TextComparer
from slumberd.storage.audit.results import Replay
from slumberd.storage.facts.apply import BACKLOG_ROWS, LINEAGE_DEPTH
from slumberd.storage.facts.store import EngineFactStore
from slumberd.storage.file_paths import path_of
from slumberd.storage.sqlite.engine import CheckpointPolicy, SQLiteFactEngine
from slumberd.storage.sqlite.helpers import Helper
from slumberd.storage.sqlite.session import Pragmas, Synchronous


class SQLiteFactStore(EngineFactStore):
    """Facts and their ledger in one SQLite file; implements `FactStore`.

    Attributes:
        engine: Opens the transactions of the file.

    Args:
        path: The file; `bootstrap` creates it and its directory.
        synchronous: ``full`` survives a power cut, ``normal`` any crash of the process.
        lineage_depth: How many replaced assertions a fact's lineage names.
        clock: The time; None means the system's.
        key: The key of the ledger, from its first row on; None for a ledger without a key.
        traceless: Whether reads leave no files beside a database that no program has open; each
            read then opens the file.
        comparer: Returns what compares texts, for rules that compare; None when there is none.
        checkpoints: When SQLite checkpoints the write-ahead log.
        backlog_rows: A batch of so many candidates counts as a backlog.
        helpers: Processes that share reads which can be divided.
    """

    def __init__(  # noqa: PLR0913 # one per setting
        self,
        path: Path | str,
        *,
        synchronous: Synchronous = "full",
        lineage_depth: int = LINEAGE_DEPTH,
        clock: Clock | None = None,
        key: bytes | None = None,
        traceless: bool = False,
        comparer: Callable[[], TextComparer] | None = None,
        checkpoints: CheckpointPolicy = CheckpointPolicy(),  # noqa: B008 # immutable
        backlog_rows: int = BACKLOG_ROWS,
        helpers: Sequence[Helper] = (),
    ) -> None:
        self.path = path_of(path)
        self._key = key
        self.engine = SQLiteFactEngine(
            self.path,
            Pragmas(synchronous, cache_mebibytes=32),
            key=key,
            traceless=traceless,
            checkpoints=checkpoints,
            helpers=helpers,
        )
        super().__init__(
            self.engine,
            clock=clock,
            lineage_depth=lineage_depth,
            comparer=comparer,
            backlog_rows=backlog_rows,
        )

    async def replay(self, path: Path) -> Replay:
        """Rebuild the facts in a new file from the ledger alone, and compare.

        Args:
            path: The new file.

        Raises:
            OutputExistsError: The new file exists already.
            LedgerKeyError: The store does not have the key of the ledger's first row.
        """
        from slumberd.storage.sqlite.replay import rebuild  # the other commands never rebuild

        depth = self.transactions.lineage_depth
        stopped = Event()
        build = partial(rebuild, self.path, path, depth, self._key, cancelled=stopped.is_set)
        try:
            return await asyncio.to_thread(build)
        finally:
            stopped.set()  # a cancelled caller leaves no thread at work, and no file
