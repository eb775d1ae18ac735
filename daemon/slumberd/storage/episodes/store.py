"""Episodes in SQLite: the specification's memory store, and the log that the daemon reads."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Self, TypeVar, overload

from slumberd.clock import Clock, SystemClock
from slumberd.errors import MemoryScopeError
from slumberd.filters import sandbox
from slumberd.model.delta import AnyDelta
from slumberd.model.episode import Episode, EpisodeVersion, microseconds
from slumberd.model.firing import Position, Window
from slumberd.model.health import MigrationPlan, StoreHealth
from slumberd.model.naive_timestamps import NaiveTimestamps
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import Access
from slumberd.model.scope import PLACEHOLDER, Reach, Scope, ScopeMismatch
from slumberd.model.spelling import Misspelling
from slumberd.storage.episodes import access_tracking
from slumberd.storage.episodes import log as episode_log
from slumberd.storage.episodes.batch_deltas import classify_all, log_left_out
from slumberd.storage.episodes.erased_content import Moments, learn_all, remembered
from slumberd.storage.episodes.erasure import (
    EpisodeErasure,
    Found,
    erase_episodes,
    find_scope,
    ids_kept,
    scrub_memory,
)
from slumberd.storage.episodes.future import TOLERANCE_SECONDS, FutureReporter
from slumberd.storage.episodes.installation import Installation, warnings_of
from slumberd.storage.episodes.recent import recall
from slumberd.storage.episodes.rows import encode
from slumberd.storage.episodes.spelling import SpellingReporter, log_misspelling
from slumberd.storage.episodes.windows import Matching, Reader
from slumberd.storage.episodes.writes import Encode, GroupCommit, PutCounts, encode_readable, write
from slumberd.storage.sqlite import health as sqlite_health
from slumberd.storage.sqlite import migrations
from slumberd.storage.sqlite.connection import (
    BUSY_SECONDS,
    Pragmas,
    Synchronous,
    data_version,
    snapshot,
    transaction,
    translated,
)
from slumberd.storage.sqlite.database import Database, Place, TracelessDatabase, harden
from slumberd.storage.sqlite.recovery import check_after_a_crash
from slumberd.storage.sqlite.watch import Watch, tell_here

T = TypeVar("T")

_STORE = "sqlite_memory"
LOG_PAGES = 4_000
"""Of its write-ahead log, 16 MiB. Ids at random dirty pages all over the file, many of them again
and again: fewer checkpoints write and sync each of them fewer times."""


class _NotInstalledError(Exception):
    """A snapshot lacks something of ours; a control flow of this module."""


class SQLiteMemoryStore:
    """Episodes in one SQLite file; implements ``ports.MemoryStore`` and ``ports.EpisodeLog``.

    Every method but `health` and `close` bootstraps a file that lacks a table, an index or a
    trigger of ours, and so finds and mends a table that another program has rebuilt.

    Args:
        path: The file; created with its parents when it is first needed.
        synchronous: ``normal`` survives any crash of the process, ``full`` a power cut too.
        scope_mismatch: What counts when a row's scope key and its content name different
            owners, which only other programs' rows do. ``quarantine`` reads neither.
        naive_timestamps: How a timestamp without an offset is read, of an episode that is put and
            of rows of other programs: in the ``local`` zone, as Python reads it, or in ``utc``.
            ``refuse`` takes none: `put` raises, and such rows are not read.
        future_tolerance_seconds: An instant that lies further in the future is logged as
            ``episode.future``, when it is put and when a rule reads it.
        filter_seconds: How long a rule's filter may take for one batch.
        busy_seconds: How long a statement waits for another process's lock.
        clock: The promotion instant of `consolidate`, and the instants of `migrate` and of reads.
        traceless: Whether reads leave nothing, neither in a file nor beside one that nobody has
            open; each opens it.
        misspelled: Called by a put with a key of metadata that is probably misspelled; once for
            each such key.
    """

    def __init__(  # noqa: PLR0913 # one for each setting
        self,
        path: Path,
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
    ) -> None:
        self._path = Path(path)
        database = TracelessDatabase if traceless else Database
        pragmas = Pragmas(synchronous, log_pages=LOG_PAGES, busy_seconds=busy_seconds)
        self._database = database(self._path, pragmas)
        self._mismatch = scope_mismatch
        self._naive = naive_timestamps
        self._filter_seconds = filter_seconds
        self._clock = clock or SystemClock()
        tolerance = math.inf if traceless else future_tolerance_seconds
        self._future = FutureReporter(self._clock, tolerance)
        self._installation = Installation(self._path)
        self._puts = GroupCommit(
            self._installation.complete, partial(tell_here, self._path), naive=naive_timestamps
        )
        self._reads = access_tracking.AccessRecorder(
            lambda work: self._database.write(work),
            self._installation.complete,
            partial(tell_here, self._path),
        )
        self._notes = not traceless
        self._spelling = SpellingReporter(misspelled)
        self._stop = Event()
        self._seen: int | None = None
        self._hardened: Place | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the file; the next call opens it again, whatever lies there then.

        The reads that were noted are written first, if they can be without waiting.
        """
        await self._reads.close()
        self._installation.forget()
        self._seen = self._hardened = None
        await self._database.close()

    def stop(self) -> None:
        """End a pass under way, and every later one, with `StoppedError`; from any thread."""
        self._stop.set()

    async def bootstrap(self) -> None:
        """Create the table, its indexes and the episode log where they are missing.

        Raises:
            SchemaError: The file is no database or damaged, or its ``episodes`` of another form.
        """
        await self._database.check(check_after_a_crash)
        await self._database.write(self._installation.ensure)

    async def health(self) -> StoreHealth:
        """Say whether the store can be used; never raises for the file's state, creates nothing."""
        return await sqlite_health.health(self._database, table="episodes", warn=warnings_of)

    async def pulse(self) -> int:
        """Return how many rows were written, once the threads of the file have answered."""
        return await self._database.pulse()

    async def migrate(self, plan: MigrationPlan) -> None:
        """Add nullable columns to ``episodes``; what is there already is left alone.

        Raises:
            MigrationNotSupportedError: The plan asks for anything else; nothing is done.
        """
        await self.bootstrap()
        at = self._clock.now().isoformat()
        add = partial(migrations.add_columns, plan=plan, store=_STORE, tables=["episodes"], at=at)
        await self._database.write(add)

    @overload
    async def put(self, episode: Episode, *, user: str, session: str, agent: str) -> None: ...

    @overload
    async def put(
        self, episode: Episode, *, user: str, session: str, agent: str, strict: bool
    ) -> None: ...

    async def put(
        self, episode: Episode, *, user: str, session: str, agent: str, strict: bool = False
    ) -> None:
        """Write one episode; it is committed when this returns.

        The same episode again changes nothing; the same id with anything else in it is a new
        version. Puts that wait together share a transaction. Stargraph's placeholder scope
        (``anon``, ``default``, ``default``) stands for the episode's own.

        Args:
            episode: The episode.
            user: Must be the episode's own, as must `session` and `agent`.
            session: Part of the scope.
            agent: Part of the scope.
            strict: Refuse an episode that every rule would quarantine.

        Raises:
            MemoryScopeError: The scope is malformed, contradicts the episode, or the id belongs
                to another scope; nothing is written.
            InputError: A value of the episode would not come back equal.
            UnreadableEpisodeError: With `strict`, every rule would quarantine the episode.
        """
        scope = _scope_of(episode, Scope(user, session, agent))
        encoding = encode_readable if strict else encode
        row = encoding(episode, scope, operation="put", naive=self._naive)
        try:
            await self._puts.put(row, self._database.post)
        except Exception:
            with translated(self._path, self._database.pragmas):
                raise
        self._spelling.check(episode)
        self._future.report_rows([row])

    async def put_many(self, episodes: Sequence[Episode], *, strict: bool = False) -> PutCounts:
        """Write many episodes, each in its own scope, in one transaction.

        Args:
            episodes: The episodes.
            strict: Refuse all of them when every rule would quarantine one of them.

        Raises:
            MemoryScopeError: A scope is malformed, or an id belongs to another; nothing is written.
            InputError: A value of an episode would not come back equal; nothing is written.
            UnreadableEpisodeError: With `strict`, every rule would quarantine an episode; nothing
                is written.
        """
        encoding = encode_readable if strict else encode
        counts = await self._database.write(partial(self._write_many, episodes, encoding))
        for episode in episodes:
            self._spelling.check(episode)
        return counts

    def _write_many(
        self, episodes: Sequence[Episode], encode: Encode, connection: sqlite3.Connection
    ) -> PutCounts:
        encoded = partial(encode, operation="put", naive=self._naive)
        rows = [encoded(one, Scope(one.user, one.session, one.agent)) for one in episodes]
        with transaction(connection):
            self._installation.complete(connection)
            counts = write(connection, rows, self._naive)
        tell_here(self._path)
        self._future.report_rows(rows)
        return counts

    async def recent(
        self, user: str, session: str | None = None, agent: str | None = None, *, limit: int
    ) -> list[Episode]:
        """Return the latest episodes of a scope, newest first, equal instants by id from the last.

        Rows are found by their scope key, and by their content where the key does not name their
        owner. What cannot be read is left out, and so are rows whose content names another owner
        than the key, unless the store was told to trust the scope key.

        That they were read is noted, and written a little later; a rule's gate goes by it.

        Raises:
            MemoryScopeError: A part of the scope is malformed.
            ValueError: `limit` is below 1.
        """
        if limit < 1:
            raise ValueError(f"limit is {limit}; it must be at least 1")
        reach = Reach.of(user, session, agent)
        look = partial(recall, reach=reach, limit=limit, mismatch=self._mismatch, naive=self._naive)
        found = await self._read(look)
        if self._notes:
            self._reads.note([one.id for one in found], microseconds(self._clock.now()))
        return found

    async def consolidate(self, rule: ConsolidationRule) -> list[AnyDelta]:
        """Return one delta for each episode that the rule's filter selects; cumulative.

        A fact has the id that the daemon gives it. A rule of several channels has a delta for each.
        Episodes that cannot be read, or whose intent or ``replaces`` is malformed, are left out,
        and a warning says so: one of them must not stop the others.

        Raises:
            FilterError: The filter may not run.
        """
        reader = self._reader(rule)
        work = partial(classify_all, reader=reader, rule=rule, at=self._clock.now())
        deltas, faults = await self._read(work, prepare=reader.prepare)
        if faults:
            log_left_out(rule.id, faults)
        return deltas

    async def newest(self) -> Position:
        """Return the last place of the log; the start when it is empty."""
        return await self._read(episode_log.newest)

    async def episode_at(self, seq: int) -> str | None:
        """Return the episode id of one log row; None when there is no such row."""
        return await self._read(partial(episode_log.episode_at, seq=seq))

    async def pending(self, after: int, *, at_most: int) -> int:
        """Count the log rows above a place; counting ends at `at_most`."""
        return await self._read(partial(episode_log.pending, after=after, at_most=at_most))

    async def select(
        self, rule: ConsolidationRule, *, after: Position, limit: int, upto: int | None = None
    ) -> Window:
        """Read at most `limit` log rows above a place, none above `upto`, in one snapshot.

        Of each episode only the newest log row counts. What cannot be read is matched, with its
        fault; so is what the filter fails on. An episode that was logged again because somebody
        read it, and lies otherwise outside of the stretch, has the number that it had, and says so.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
            StoppedError: The store was told to stop.
        """
        reader = self._reader(rule)
        window = await self._read(
            partial(reader.window, after=after, limit=limit, upto=upto), prepare=reader.prepare
        )
        self._future.report_versions(window.versions)
        return window

    async def reread(
        self, rule: ConsolidationRule, eids: Sequence[str], *, upto: int
    ) -> list[EpisodeVersion]:
        """Read some episodes again; those that changed after a log row are left out.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
        """
        reader = self._reader(rule)
        return await self._read(partial(reader.named, eids=eids, upto=upto), prepare=reader.prepare)

    async def matching(self, rule: ConsolidationRule) -> Matching:
        """Count what a rule's filter selects now of all episodes, in one snapshot.

        It goes by what is stored, not by the log: an episode that was edited counts once, as it is
        now, and one that cannot be read counts as the filter takes it.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
            StoppedError: The store was told to stop.
        """
        reader = self._reader(rule)
        return await self._read(reader.matching, prepare=reader.prepare)

    async def accesses(self, eids: Sequence[str]) -> dict[str, Access]:
        """Return how some episodes were read; those that never were are left out."""
        return await self._read(partial(access_tracking.accesses, eids=eids))

    async def hold(self, seen: Mapping[str, int]) -> None:
        """Log some episodes again, for every rule, once somebody reads them.

        Args:
            seen: By episode, how many reads are known of; it is logged at once after one more.
        """

        def work(connection: sqlite3.Connection) -> bool:
            with transaction(connection):
                self._installation.complete(connection)
                return access_tracking.hold(connection, seen)

        if await self._database.write(work):
            tell_here(self._path)

    async def harden(self) -> None:
        """Let all that was read so far survive a power cut, whoever wrote it."""
        with translated(self._path, self._database.pragmas):
            self._hardened = await asyncio.to_thread(harden, self._path, self._hardened)

    async def changed(self) -> bool:
        """Say whether any connection committed since the last call; True at the first."""
        seen = await self._read(data_version)
        before, self._seen = self._seen, seen
        return seen != before

    def watch(self, tell: Callable[[], object], *, poll_seconds: float) -> Watch:
        """Return what calls back, once entered, soon after any connection has committed.

        Args:
            tell: Called from a thread of the watch.
            poll_seconds: How long a commit may go unnoticed.
        """
        return Watch(self._path, tell, poll_seconds=poll_seconds)

    async def episodes_in(self, reach: Reach) -> Found:
        """Return the episodes of a scope."""
        return await self._database.read(
            partial(find_scope, reach=reach, mismatch=self._mismatch, naive=self._naive)
        )

    async def ids_kept(self, reach: Reach, eids: Iterable[str]) -> set[str]:
        """Return those of some ids that an episode outside of a scope has."""
        return await self._database.read(
            partial(ids_kept, reach=reach, eids=eids, mismatch=self._mismatch)
        )

    async def erased_scopes(self) -> tuple[bytes | None, dict[bytes, int]]:
        """Return the key of the hashes of erased scopes, and up to when each is erased."""
        return await self._database.read(remembered)

    async def forget(
        self, reach: Reach, eids: Iterable[str], *, moment: int, key: bytes | None = None
    ) -> dict[str, int]:
        """Erase a scope; what it says up to the moment is refused from here on.

        Args:
            reach: The scope.
            eids: Ids of episodes of it that their host has deleted before.
            moment: Microseconds since 1970 UTC.
            key: Of the hashes of scopes, where this database has none yet.

        Returns:
            How many rows went, by table.
        """
        erase = partial(
            erase_episodes,
            erasure=EpisodeErasure(reach, frozenset(eids), moment, key),
            mismatch=self._mismatch,
        )
        erased = await self._database.write(erase)
        await self.harden()  # a certificate tells of it; a power cut must not bring it back
        return erased

    async def learn_erased(self, key: bytes, moments: Iterable[Moments]) -> None:
        """Remember the erased scopes that other databases remember by the same key."""

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                learn_all(connection, key, moments)

        await self._database.write(work)

    async def scrub(self) -> bool:
        """Write the file anew without what was erased; say whether its log could be emptied."""
        return await self._database.write(scrub_memory)

    def _reader(self, rule: ConsolidationRule) -> Reader:
        return Reader(
            rule,
            mismatch=self._mismatch,
            naive=self._naive,
            stop=self._stop,
            seconds=self._filter_seconds,
        )

    async def _read(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        prepare: Callable[[sqlite3.Connection], None] | None = None,
    ) -> T:
        """Return what `work` makes of one snapshot of a file that has all that is ours."""
        with translated(self._path, self._database.pragmas):
            missing = not self._path.exists()
        if missing:
            await self.bootstrap()

        def read(connection: sqlite3.Connection) -> T:
            if prepare is not None:
                prepare(connection)
            with snapshot(connection):
                if not self._installation.is_complete(connection):
                    raise _NotInstalledError
                return work(connection)

        try:
            return await self._database.read(read)
        except _NotInstalledError:
            await self.bootstrap()
            return await self._database.read(read)


def _scope_of(episode: Episode, given: Scope) -> Scope:
    """Return the scope that an episode is put into.

    Raises:
        MemoryScopeError: The given scope contradicts the episode.
    """
    own = Scope(episode.user, episode.session, episode.agent)
    if given not in (own, PLACEHOLDER):
        raise MemoryScopeError(
            tuple(given), "put", f"episode {episode.id!r} says that it belongs to {tuple(own)}"
        )
    return own
