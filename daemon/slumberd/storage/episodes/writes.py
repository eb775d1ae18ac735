"""Write episodes: rows, the transaction that waiting puts share, and what is reported of them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Literal, NamedTuple, get_args

from slumberd.clock import Clock
from slumberd.consolidation.claim import Fault, claim_of, statements_of
from slumberd.logs.late_log import LateLogger, is_log_configured
from slumberd.model.episode import (
    Episode,
    EpisodeVersion,
    Misspelling,
    NaiveTimestamps,
    instant,
    microseconds,
    misspelled_keys,
)
from slumberd.model.errors import (
    ForgottenError,
    InputError,
    MemoryScopeError,
    RecordRefusedError,
    RowRefusedError,
    UnreadableEpisodeError,
    UsageError,
)
from slumberd.model.scope import FACTS, PLACEHOLDER_KEY, ErasedScopes, Scope, scope_of
from slumberd.storage.engine import EpisodeEngine, Session, Transact
from slumberd.storage.episodes.rows import Row, decode, encode, owner_of, same
from slumberd.storage.erased_scopes import erased_scope_lookup

TOLERANCE_SECONDS = 300.0
"""How far a host's clock may be ahead of this machine's."""

_log = LateLogger()

_MOST_NAMED = 10
_MOST_REMEMBERED = 10_000
_MOST_KEYS = 100
"""Misspelled keys that one store reports."""

_Dated = tuple[str, int]
"""An episode's id, and its instant in microseconds."""


class FutureReporter:
    """Logs ``episode.future`` once for each episode that is dated too far in the future.

    Args:
        clock: Gives the current time.
        tolerance_seconds: How far in the future an instant may lie; infinite disables the reports.
    """

    def __init__(self, clock: Clock, tolerance_seconds: float) -> None:
        self._clock = clock
        self._tolerance_seconds = tolerance_seconds
        self._reported: set[_Dated] = set()
        self._lock = Lock()

    def report_rows(self, rows: Iterable[Row]) -> None:
        """Report those of the written rows that are dated too late."""
        # For timestamps in slumberd's form, text order is instant order.
        latest = self._latest().isoformat()
        ahead = [row for row in rows if row.timestamp > latest]
        if ahead:
            self._report(
                [(row.id, microseconds(datetime.fromisoformat(row.timestamp))) for row in ahead]
            )

    def report_versions(self, versions: Iterable[EpisodeVersion]) -> None:
        """Report those of the versions that a rule selects and that are dated too late."""
        latest = microseconds(self._latest())
        ahead = [
            version
            for version in versions
            if version.at > latest and version.matched and not version.fault
        ]
        if ahead:
            self._report([(version.id, version.at) for version in ahead])

    def _latest(self) -> datetime:
        try:
            return self._clock.now() + timedelta(seconds=self._tolerance_seconds)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def _report(self, found: Sequence[_Dated]) -> None:
        with self._lock:
            new = [dated for dated in dict.fromkeys(found) if dated not in self._reported]
            if len(self._reported) > _MOST_REMEMBERED:
                self._reported.clear()
            self._reported.update(new)
        if new:
            self._log(new)

    def _log(self, found: Sequence[_Dated]) -> None:
        ids = [id for id, _ in found[:_MOST_NAMED]]
        latest = instant(max(at for _, at in found)).isoformat()
        if not is_log_configured():
            # structlog writes to standard output by default, which belongs to the host.
            words = "episode.future: %d episodes, %s, are dated up to %s"
            logging.getLogger("slumberd").warning(words, len(found), ids, latest)
            return
        _log.warning(
            "episode.future",
            count=len(found),
            episode_ids=ids,
            latest=latest,
            tolerance_seconds=self._tolerance_seconds,
        )


def log_erased(count: int) -> None:
    """Log that episodes were put whose ids were erased; it names none of them."""
    if not is_log_configured():
        words = "episode.erased: %d episodes were put whose ids were erased"
        logging.getLogger("slumberd").warning(words, count)
    else:
        _log.warning("episode.erased", count=count)


def log_misspelling(found: Misspelling) -> None:
    """Log that metadata has a key that is probably misspelled."""
    _log.warning("metadata.misspelled", **found._asdict())


class SpellingReporter:
    """Reports a misspelled key at the first episode that has it.

    Args:
        report: Called for each such key.
    """

    def __init__(self, report: Callable[[Misspelling], None]) -> None:
        self._report = report
        self._reported: set[str] = set()

    def check(self, episode: Episode) -> None:
        """Report the misspelled keys of one episode."""
        for key, meant in misspelled_keys(episode.metadata):
            if key not in self._reported and len(self._reported) < _MOST_KEYS:
                self._reported.add(key)
                self._report(Misspelling(key, meant, episode.id))


Encode = Callable[..., Row]
"""Returns an episode as a row, as `codec.encode` does."""

Change = Literal["new", "changed", "unchanged", "erased"]

CHANGES: tuple[Change, ...] = get_args(Change)

WriteRows = Callable[[Session, Sequence[Row], NaiveTimestamps], Sequence[Change | MemoryScopeError]]
"""Writes rows in a transaction; returns for each what changed, or the error that refuses it."""


class PutCounts(NamedTuple):
    """The outcome of writing many episodes.

    Attributes:
        new: The number of new ids.
        changed: The number of ids that were stored with another content.
        unchanged: The number of ids that were stored with the same content.
        erased: The number of ids that were erased; nothing is written of them.
    """

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    erased: int = 0

    @property
    def stored(self) -> int:
        """How many of the ids are stored."""
        return self.new + self.changed + self.unchanged


def encode_readable(
    episode: Episode, scope: Scope, *, operation: str, naive: NaiveTimestamps = "local"
) -> Row:
    """Return an episode as a row, unless every rule would quarantine that row.

    Raises:
        InputError: A value of the episode would not come back equal.
        MemoryScopeError: A part of the scope is malformed.
        UnreadableEpisodeError: Every rule would quarantine the row.
    """
    row = encode(episode, scope, operation=operation, naive=naive)
    version = decode(0, row, mismatch="quarantine")
    # An episode makes the same claim in every channel.
    for statement in statements_of(version):
        found = claim_of(statement, FACTS)
        if isinstance(found, Fault):
            raise UnreadableEpisodeError(row.id, found.reason, found.detail)
    return row


@contextmanager
def refused_at(position: int) -> Iterator[None]:
    """Say of an error which episode of several it refuses.

    Args:
        position: The place of the episode, from 0.

    Raises:
        RecordRefusedError: The block refused an episode; its cause says why.
    """
    try:
        yield
    except (InputError, MemoryScopeError, UsageError) as error:
        raise RecordRefusedError(position, str(error)) from error


@contextmanager
def refused_among(positions: Sequence[int]) -> Iterator[None]:
    """Say of the refusal of one of some episodes where that one is among all of them.

    Args:
        positions: The places of these episodes among all.

    Raises:
        RecordRefusedError: The block refused an episode; its cause says why.
    """
    try:
        yield
    except RecordRefusedError as refused:
        place = positions[refused.position]
        raise RecordRefusedError(place, refused.problem) from cause_of(refused)


def write(session: Session, rows: Sequence[Row], naive: NaiveTimestamps = "local") -> list[Change]:
    """Write rows within the caller's transaction, all or none; return what each of them changed.

    Args:
        rows: What to write.
        naive: The zone of a stored timestamp without an offset.

    Raises:
        MemoryScopeError: An id belongs to another scope.
    """
    changes: list[Change] = []
    for change in write_each_row(session, rows, naive):
        if isinstance(change, MemoryScopeError):
            raise change
        changes.append(change)
    return changes


def cause_of(refused: RecordRefusedError) -> BaseException:
    """Return why an episode is refused, for a caller that names only one."""
    return refused.__cause__ or refused


def write_each_row(
    session: Session, rows: Sequence[Row], naive: NaiveTimestamps
) -> list[Change | MemoryScopeError]:
    """Write rows by statements that read, insert and update one row each."""
    past = erased_scope_lookup(session) if session.one("erased_scopes.exists") else None
    if _write_new(session, rows, past):
        return ["new"] * len(rows)
    return [_write_or_refuse(session, row, past, naive) for row in rows]


def _write_new(session: Session, rows: Sequence[Row], past: ErasedScopes | None) -> bool:
    """Insert all rows when all ids are new, the usual case; else write none and return False."""
    ids = {row.id for row in rows}
    if past is not None or len(ids) != len(rows) or len(rows) == 1:
        return False
    if session.one("episodes.any_of_ids", {"ids": [*ids]}):
        return False
    session.insert("episodes.insert", rows)
    return True


def _write_row(
    session: Session, row: Row, past: ErasedScopes | None, naive: NaiveTimestamps
) -> Change:
    if past is not None and _is_erased(row, past):
        return "erased"
    # Not by ON CONFLICT: it would run other programs' triggers for unchanged rows, too.
    found = session.one("episodes.by_id", (row.id,))
    if found is None:
        session.do("episodes.insert", row)
        return "new"
    before = Row(*found)
    _check_owner(row, before)
    if same(row, before, naive):
        return "unchanged"
    session.do("episodes.update", (row.content, row.timestamp, row.metadata, row.id))
    return "changed"


def _write_or_refuse(
    session: Session, row: Row, past: ErasedScopes | None, naive: NaiveTimestamps
) -> Change | MemoryScopeError:
    """Write a row, or return why it is refused."""
    try:
        return _write_row(session, row, past, naive)
    except MemoryScopeError as error:
        return error


def _is_erased(row: Row, past: ErasedScopes) -> bool:
    """Return whether the episode of a row was erased by its id.

    Raises:
        ForgottenError: The row is of an erased scope.
    """
    scope = scope_of(row.scope_key)
    if scope is None:
        return False
    if past.has_episode(scope.user, row.id):
        return True
    at = microseconds(datetime.fromisoformat(row.timestamp))
    if past.covers(*scope, at):
        raise ForgottenError(tuple(scope), row.id)
    return False


def _check_owner(row: Row, before: Row) -> None:
    ours, key = scope_of(row.scope_key), str(before.scope_key)
    if row.scope_key == key and "%" not in key and key != PLACEHOLDER_KEY:
        return
    theirs = owner_of(key, before.content, "quarantine") or scope_of(key)
    if ours != theirs:
        raise taken_id_error(row)


def taken_id_error(row: Row) -> MemoryScopeError:
    """Return the error for a row whose id another scope has."""
    # One text, whoever has the id: it may be another tenant.
    scope = tuple(scope_of(row.scope_key) or ())
    violation = f"episode {row.id!r} belongs to another scope; give it another id, or a key"
    return MemoryScopeError(scope, "put", violation)


class Waiting:
    """One waiting put; once it is finished, `outcome` is what changed, or why it is refused."""

    __slots__ = ("finished", "loop", "outcome", "row", "woken")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.finished = False
        self.outcome: Change | Exception | None = None
        self.loop = asyncio.get_running_loop()
        self.woken = self.loop.create_future()

    async def wake(self) -> None:
        """Return when the put is finished, or must request a flush again."""
        await self.woken
        if not self.finished:
            self.woken = self.loop.create_future()

    def finish(self, outcome: Change | Exception) -> None:
        """Store the outcome; the thread of the caller may read it at the same time."""
        self.outcome = outcome
        self.finished = True


class GroupCommit:
    """Commits all puts that wait for the engine's writing thread in one transaction.

    The first put queues a flush for that thread. Later puts wait until that flush runs: it takes
    all waiting puts, and wakes them. When the flush cannot be queued, since the store does not
    open, the first put raises the error, and the next one tries again.

    Args:
        naive: The zone of a timestamp without an offset.
    """

    def __init__(
        self,
        engine: EpisodeEngine,
        *,
        naive: NaiveTimestamps = "local",
        write_rows: WriteRows = write_each_row,
    ) -> None:
        self._engine = engine
        self._naive: NaiveTimestamps = naive
        self._write_rows = write_rows
        self._queue: deque[Waiting] = deque()
        self._flush_requested = Lock()

    async def put(self, row: Row) -> Change | None:
        """Return what changed, when the row is committed."""
        waiting = Waiting(row)
        self._queue.append(waiting)
        try:
            while not waiting.finished:
                # A flush that another put requested has not run yet, and takes this put, too.
                if self._flush_requested.acquire(blocking=False):
                    await self._request_flush()
                await waiting.wake()
        except BaseException:
            self._withdraw(waiting)
            raise
        if isinstance(waiting.outcome, Exception):
            raise waiting.outcome
        return waiting.outcome

    async def _request_flush(self) -> None:
        try:
            await self._engine.post(self._flush)
        except BaseException:
            self._flush_requested.release()
            _wake(self._queue.copy())
            raise

    def _flush(self, transact: Transact) -> None:
        self._flush_requested.release()
        puts = self._take()
        try:
            outcomes = self._commit(transact, puts)
        except Exception as error:  # noqa: BLE001 # every put gets the error
            outcomes = [error for _ in puts]
        for put, outcome in zip(puts, outcomes, strict=True):
            put.finish(outcome)
        try:
            self._engine.notify()
        finally:
            _wake(puts)

    def _commit(self, transact: Transact, puts: Sequence[Waiting]) -> list[Change | Exception]:
        """Commit the puts; return for each what changed, or the error that refused it."""
        try:
            return transact(lambda session: self._write(session, puts))
        except (InputError, RowRefusedError) as error:
            if len(puts) == 1:
                return [error]
            # The store, or a constraint or trigger of another program, refused one: find it.
            return [outcome for put in puts for outcome in self._commit(transact, [put])]

    def _write(self, session: Session, puts: Sequence[Waiting]) -> list[Change | Exception]:
        return [*self._write_rows(session, [put.row for put in puts], self._naive)]

    def _withdraw(self, waiting: Waiting) -> None:
        # A running flush may have taken the put already.
        with suppress(ValueError, IndexError):
            self._queue.remove(waiting)

    def _take(self) -> list[Waiting]:
        puts: list[Waiting] = []
        with suppress(IndexError):
            while True:
                puts.append(self._queue.popleft())
        return puts


def _wake(puts: Iterable[Waiting]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
    for put in puts:
        by_loop.setdefault(put.loop, []).append(put)
    for loop, some in by_loop.items():
        # In a loop that has ended, no put waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resume, some)


def _resume(puts: Sequence[Waiting]) -> None:
    for put in puts:
        if not put.woken.done():
            put.woken.set_result(None)
