"""The store of episodes in one SQLite file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from pathlib import Path

from slumberd.clock import Clock
from slumberd.model.episode import PERSON, Misspelling, NaiveTimestamps
from slumberd.model.scope import ScopeMismatch
from slumberd.rules.filters import sandbox
from slumberd.storage.episodes.access_tracking import AccessLimits
from slumberd.storage.episodes.salience_gate import Embedding, no_embedder
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.episodes.writes import TOLERANCE_SECONDS, log_misspelling
from slumberd.storage.file_paths import path_of
from slumberd.storage.sqlite.engine import SQLiteEpisodeEngine
from slumberd.storage.sqlite.session import BUSY_SECONDS, Pragmas, Synchronous
from slumberd.storage.sqlite.watch import Watch

LOG_PAGES = 4_000
"""Pages of the write-ahead log at which SQLite checkpoints: 16 MiB. Random ids dirty pages all over
the file, many of them repeatedly. Fewer checkpoints write each page fewer times."""


class SQLiteMemoryStore(EngineMemoryStore):
    """Episodes in one SQLite file; implements ``MemoryStore`` and ``EpisodeLog``.

    Every method but `health` and `close` installs a table, an index or a trigger that is missing,
    and so repairs a table that another program has rebuilt.

    Attributes:
        engine: Opens the transactions of the file.

    Args:
        path: The file; the store creates it and its directories at the first use.
        synchronous: ``normal`` survives any crash of the process, ``full`` a power cut too.
        scope_mismatch: Which of scope key and content names the owner of a row, when they differ.
            Only rows of other programs differ. ``quarantine`` reads no such row.
        naive_timestamps: The zone of a timestamp without an offset, of episodes that are put and
            of rows of other programs: ``local``, as Python reads it, or ``utc``. With ``refuse``,
            `put` raises and such rows are quarantined.
        future_tolerance_seconds: The store logs ``episode.future`` for an instant that lies further
            in the future, when it is put and when a rule reads it. The rule quarantines it.
        filter_seconds: How long a rule's filter may take for one batch.
        busy_seconds: How long a statement waits for another process's lock.
        clock: The time of `consolidate`'s promotions, of `migrate` and of reads.
        traceless: Whether reads change neither the file nor its directory; each read opens it.
        misspelled: Called once for each key of metadata that is probably misspelled.
        access_limits: How many reads are recorded before they are written, and for how long.
        embedding: Makes the embedder, when a salience gate or a stage first needs it.
        person: The speakers whose words are those of the user.
    """

    def __init__(  # noqa: PLR0913 # one for each setting
        self,
        path: Path | str,
        *,
        synchronous: Synchronous = "normal",
        scope_mismatch: ScopeMismatch = "quarantine",
        naive_timestamps: NaiveTimestamps = "local",
        future_tolerance_seconds: float = TOLERANCE_SECONDS,
        filter_seconds: float = sandbox.SECONDS,
        busy_seconds: float = BUSY_SECONDS,
        clock: Clock | None = None,
        traceless: bool = False,
        misspelled: Callable[[Misspelling], None] = log_misspelling,
        access_limits: AccessLimits = AccessLimits(),  # noqa: B008 # immutable
        embedding: Embedding = no_embedder,
        person: Collection[str] = PERSON,
    ) -> None:
        self.path = path_of(path)
        pragmas = Pragmas(synchronous, log_pages=LOG_PAGES, busy_seconds=busy_seconds)
        self.engine = SQLiteEpisodeEngine(
            self.path, pragmas, naive=naive_timestamps, person=person, traceless=traceless
        )
        super().__init__(
            self.engine,
            scope_mismatch=scope_mismatch,
            naive_timestamps=naive_timestamps,
            future_tolerance_seconds=math.inf if traceless else future_tolerance_seconds,
            filter_seconds=filter_seconds,
            clock=clock,
            records_reads=not traceless,
            misspelled=misspelled,
            access_limits=access_limits,
            embedding=embedding,
            person=person,
        )

    def watch(self, notify: Callable[[], object], *, poll_seconds: float) -> Watch:
        """Return a watch that, once entered, calls back soon after any connection commits.

        Args:
            notify: The callback; called from a thread of the watch.
            poll_seconds: How long a commit may go unnoticed.
        """
        return Watch(self.path, notify, poll_seconds=poll_seconds)
