"""The store of episodes in one shard of a PostgreSQL database."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from slumberd.clock import Clock
from slumberd.model.episode import PERSON, Misspelling, NaiveTimestamps
from slumberd.model.errors import ForgottenError, MemoryScopeError
from slumberd.model.scope import scope_of
from slumberd.rules.filters import sandbox
from slumberd.storage.engine import Session
from slumberd.storage.episodes.access_tracking import AccessLimits
from slumberd.storage.episodes.rows import Row
from slumberd.storage.episodes.salience_gate import Embedding, no_embedder
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.episodes.writes import (
    CHANGES,
    TOLERANCE_SECONDS,
    Change,
    log_misspelling,
    taken_id_error,
)
from slumberd.storage.postgres.engine import PostgresEpisodeEngine
from slumberd.storage.postgres.session import PostgresSession
from slumberd.storage.postgres.shard_map import Shard
from slumberd.storage.postgres.watch import PostgresWatch


class PostgresMemoryStore(EngineMemoryStore):
    """Episodes in one shard of a database; implements ``MemoryStore`` and ``EpisodeLog``.

    The other arguments are those of `SQLiteMemoryStore`.

    Attributes:
        engine: Opens the transactions of the shard.

    Args:
        address: The address of the shard's database, as ``postgresql://host/database``.
        read_only: Whether the store writes nothing but the numbers of what was put, not even that
            episodes were read.
        read_address: The address of a replica, on which operations that only read run their reads;
            None without one.
    """

    def __init__(  # noqa: PLR0913 # one for each setting
        self,
        address: str,
        *,
        shard: int = 0,
        naive_timestamps: NaiveTimestamps = "local",
        future_tolerance_seconds: float = TOLERANCE_SECONDS,
        filter_seconds: float = sandbox.SECONDS,
        clock: Clock | None = None,
        read_only: bool = False,
        misspelled: Callable[[Misspelling], None] = log_misspelling,
        access_limits: AccessLimits = AccessLimits(),  # noqa: B008 # immutable
        embedding: Embedding = no_embedder,
        person: Collection[str] = PERSON,
        read_address: str | None = None,
    ) -> None:
        self._watch: PostgresWatch | None = None
        self.engine = PostgresEpisodeEngine(
            Shard(shard, address),
            naive=naive_timestamps,
            person=person,
            must_number=not read_only,
            read_address=read_address,
        )
        super().__init__(
            self.engine,
            naive_timestamps=naive_timestamps,
            future_tolerance_seconds=math.inf if read_only else future_tolerance_seconds,
            filter_seconds=filter_seconds,
            clock=clock,
            records_reads=not read_only,
            misspelled=misspelled,
            access_limits=access_limits,
            embedding=embedding,
            person=person,
            write_rows=put_rows,
        )

    def watch(self, notify: Callable[[], object], *, poll_seconds: float) -> PostgresWatch:
        """Return a watch that, once entered, calls back soon after any host commits.

        Args:
            notify: The callback; called from a thread of the watch.
            poll_seconds: How long a commit may go unnoticed.
        """
        self._watch = PostgresWatch(self.engine.shard, notify, poll_seconds=poll_seconds)
        return self._watch

    async def changed(self) -> bool:
        """Return whether any connection committed since the last call; True at the first call.

        With a watch, a call without news asks the server nothing.
        """
        if self._watch is None:
            return await super().changed()
        if not self._watch.take_news():
            return False
        try:
            return await super().changed()
        except BaseException:
            self._watch.note_news()
            raise


_ERASED_SCOPE = "erased"
_ERASED_ID = "erased_id"


def put_rows(
    session: Session, rows: Sequence[Row], _: NaiveTimestamps = "local"
) -> list[Change | MemoryScopeError]:
    """Put rows; return for each what changed, or the error that refuses it.

    Raises:
        InputError: An id or a scope key is too long for an index of the database.
    """
    if not rows:
        return []
    ids, keys, contents, timestamps, metadatas = (
        list(column) for column in zip(*rows, strict=True)
    )
    parameters = {
        "ids": ids,
        "scope_keys": keys,
        "contents": contents,
        "timestamps": timestamps,
        "metadatas": metadatas,
    }
    outcomes: list[str] = session.value("episodes.put", parameters)
    if isinstance(session, PostgresSession):
        # The server does not say how many rows a function wrote.
        session.written += sum(outcome in ("new", "changed") for outcome in outcomes)
    return [_change_of(row, outcome) for row, outcome in zip(rows, outcomes, strict=True)]


def _change_of(row: Row, outcome: str) -> Change | MemoryScopeError:
    if outcome == _ERASED_SCOPE:
        return ForgottenError(tuple(scope_of(row.scope_key) or ()), row.id)
    if outcome == _ERASED_ID:
        return "erased"
    for change in CHANGES:
        if change == outcome:
            return change
    return taken_id_error(row)
