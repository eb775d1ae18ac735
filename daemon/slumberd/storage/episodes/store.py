"""The store of episodes: the specified memory store, and the episode log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Self, overload

from slumberd.clock import Clock, SystemClock
from slumberd.consolidation.incoming import UNBOUNDED, Bounds, DeltaBatch
from slumberd.model.arguments import (
    PLAIN,
    plain_value_error,
    require_object,
    require_objects,
    require_whole_number,
)
from slumberd.model.delta import AnyDelta
from slumberd.model.episode import (
    LATEST,
    PERSON,
    Episode,
    EpisodeVersion,
    Misspelling,
    NaiveTimestamps,
    microseconds,
)
from slumberd.model.errors import MemoryScopeError, RecordRefusedError
from slumberd.model.extraction import RecordedSummary
from slumberd.model.feed import EpisodeChanges, FeedPlace
from slumberd.model.firing import Position, ReadWindow, Window
from slumberd.model.record import ErasedList
from slumberd.model.rule import ConsolidationRule, own_rule
from slumberd.model.salience import Access
from slumberd.model.scope import PLACEHOLDER, Scope, ScopeFilter, ScopeMismatch
from slumberd.model.store_status import MigrationPlan, StoreHealth
from slumberd.rules.filters import sandbox
from slumberd.search.vectors import Rows
from slumberd.storage.engine import EpisodeEngine, Scrubbed, Scrubbing, Session
from slumberd.storage.episodes import access_tracking
from slumberd.storage.episodes import windows as episode_log
from slumberd.storage.episodes.access_tracking import AccessLimits, AccessRecorder
from slumberd.storage.episodes.answers import AnswerStore
from slumberd.storage.episodes.erasure import (
    EpisodeErasure,
    Found,
    NamedErasure,
    erase_episodes,
    erase_named,
    find_named,
    find_scope,
    ids_outside,
    purge_episodes,
    search_episodes,
    users_of,
)
from slumberd.storage.episodes.index_feed import IndexFeed
from slumberd.storage.episodes.log_pruning import LogPruner
from slumberd.storage.episodes.owned import OwnedEpisodes
from slumberd.storage.episodes.recent import recall
from slumberd.storage.episodes.rows import Row, encode, instant_or_none
from slumberd.storage.episodes.salience_gate import Embedding, no_embedder
from slumberd.storage.episodes.windows import (
    FIRST_PAGE,
    Matching,
    Reader,
    WindowReader,
    log_left_out,
    read_everything,
)
from slumberd.storage.episodes.writes import (
    CHANGES,
    TOLERANCE_SECONDS,
    Change,
    Encode,
    FutureReporter,
    GroupCommit,
    PutCounts,
    SpellingReporter,
    WriteRows,
    cause_of,
    encode_readable,
    log_erased,
    log_misspelling,
    refused_at,
    write_each_row,
)
from slumberd.storage.erased_scopes import Moments, learn_moments, read_erased_list
from slumberd.storage.protocols import Watch


class EngineMemoryStore:
    """Episodes on any engine; implements ``MemoryStore`` and ``EpisodeLog``.

    Args:
        records_reads: Whether the store records that `recent` returned episodes.
        write_rows: Writes the rows of puts.

    `SQLiteMemoryStore` explains the other settings.

    Attributes:
        answers: The recorded answers of language models.
        owned: The episodes of one user and agent, for the program that keeps them.
        feed: What indexes of the episodes read.
        pruner: Removes rows of the log that nobody needs any more.
    """

    def __init__(  # noqa: PLR0913 # one for each setting
        self,
        engine: EpisodeEngine,
        *,
        scope_mismatch: ScopeMismatch = "quarantine",
        naive_timestamps: NaiveTimestamps = "local",
        future_tolerance_seconds: float = TOLERANCE_SECONDS,
        filter_seconds: float = sandbox.SECONDS,
        clock: Clock | None = None,
        records_reads: bool = True,
        misspelled: Callable[[Misspelling], None] = log_misspelling,
        access_limits: AccessLimits = AccessLimits(),  # noqa: B008 # immutable
        embedding: Embedding = no_embedder,
        person: Collection[str] = PERSON,
        write_rows: WriteRows = write_each_row,
    ) -> None:
        self._engine = engine
        self._write_rows = write_rows
        self._mismatch = scope_mismatch
        self._naive = naive_timestamps
        self._person = person
        self._filter_seconds = filter_seconds
        self._clock = clock or SystemClock()
        self._future = FutureReporter(self._clock, future_tolerance_seconds)
        self._puts = GroupCommit(engine, naive=naive_timestamps, write_rows=write_rows)
        self._reads = AccessRecorder(engine, access_limits)
        self._records_reads = records_reads
        self._spelling = SpellingReporter(misspelled)
        self._windows = WindowReader(
            self, embedding, person=person, future_tolerance_seconds=future_tolerance_seconds
        )
        self.answers = AnswerStore(engine, self._reader)
        self.owned = OwnedEpisodes(engine, self._reads, scope_mismatch, naive_timestamps)
        self.feed = IndexFeed(engine, mismatch=scope_mismatch, naive=naive_timestamps)
        self.pruner = LogPruner(engine)
        self._seen: int | None = None

    @property
    def where(self) -> str:
        """The store in words, for errors and logs."""
        return self._engine.where

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the file; the next call opens the file that is at the path then.

        The store first writes the recorded reads, if it can without waiting.
        """
        await self._reads.close()
        self._seen = None
        await self._engine.close()

    def stop(self) -> None:
        """Make the running pass and every later one raise `StoppedError`; from any thread."""
        self._engine.halt()

    async def bootstrap(self) -> None:
        """Create the table, its indexes and the episode log where they are missing.

        Raises:
            SchemaError: The file is not a database or is damaged, or ``episodes`` has another form.
        """
        await self._engine.bootstrap()

    async def health(self) -> StoreHealth:
        """Report the health; never raises for the state of the file, and creates nothing."""
        return await self._engine.health()

    def watch(self, notify: Callable[[], object], *, poll_seconds: float) -> Watch:
        """Return a watch that, once entered, calls back soon after any process commits.

        Args:
            notify: The callback; may be called from another thread.
            poll_seconds: How long a commit may go unnoticed.
        """
        raise NotImplementedError

    async def pulse(self) -> int:
        """Return how many rows were written, after a read in each thread of the file."""
        return await self._engine.pulse()

    async def migrate(self, plan: MigrationPlan) -> None:
        """Add nullable columns to ``episodes``; existing columns stay as they are.

        Raises:
            MigrationNotSupportedError: The plan has another kind of step; nothing is changed.
        """
        require_object("plan", plan, "MigrationPlan")
        await self.bootstrap()
        await self._engine.migrate(plan, at=self._clock.now().isoformat())

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

        The same episode again changes nothing. The same id with another content is a new version.
        Puts that wait at the same time share a transaction. An episode that was erased by its id
        is not written, and the store logs ``episode.erased``. Stargraph's placeholder scope
        (``anon``, ``default``, ``default``) means the episode's own scope.

        Args:
            user: The user of the episode; must equal the episode's own.
            session: The session of the episode; must equal the episode's own.
            agent: The agent of the episode; must equal the episode's own.
            strict: Refuse an episode that every rule would quarantine.

        Raises:
            MemoryScopeError: The scope is malformed, contradicts the episode, or the id belongs
                to another scope; nothing is written.
            InputError: A value of the episode would not come back equal.
            UnreadableEpisodeError: With `strict`, every rule would quarantine the episode.
        """
        if type(episode) in PLAIN:
            raise plain_value_error("episode", episode, "Episode")
        scope = _scope_of(episode, Scope(user, session, agent))
        encoding = encode_readable if strict else encode
        row = encoding(episode, scope, operation="put", naive=self._naive)
        if await self._puts.put(row) == "erased":
            log_erased(1)
            return
        self._spelling.check(episode)
        self._future.report_rows([row])

    async def put_many(self, episodes: Sequence[Episode], *, strict: bool = False) -> PutCounts:
        """Write many episodes, each in its own scope, in one transaction.

        Args:
            strict: Refuse all of them when every rule would quarantine one of them.

        Raises:
            MemoryScopeError: A scope is malformed, or an id belongs to another; nothing is written.
            InputError: A value of an episode would not come back equal; nothing is written.
            UnreadableEpisodeError: With `strict`, every rule would quarantine an episode; nothing
                is written.
        """
        try:
            changes = Counter(await self.put_each(episodes, strict=strict))
        except RecordRefusedError as refused:
            raise cause_of(refused) from None
        return PutCounts(*(changes[change] for change in CHANGES))

    async def put_each(self, episodes: Sequence[Episode], *, strict: bool = False) -> list[Change]:
        """Write episodes as `put_many` does; return what each of them changed.

        Raises:
            RecordRefusedError: One of them is refused, and nothing is written; its cause says why.
        """
        require_objects("episodes", episodes, "Episode")
        encoding = encode_readable if strict else encode
        changes, rows = await self._engine.put(partial(self._write_each, episodes, encoding))
        self._engine.notify()
        if erased := changes.count("erased"):
            log_erased(erased)
        self._future.report_rows(rows)
        for episode in episodes:
            self._spelling.check(episode)
        return changes

    def _write_each(
        self, episodes: Sequence[Episode], encode: Encode, session: Session
    ) -> tuple[list[Change], list[Row]]:
        rows: list[Row] = []
        for position, episode in enumerate(episodes):
            scope = Scope(episode.user, episode.session, episode.agent)
            with refused_at(position):
                rows.append(encode(episode, scope, operation="put", naive=self._naive))
        changes: list[Change] = []
        for position, change in enumerate(self._write_rows(session, rows, self._naive)):
            with refused_at(position):
                if isinstance(change, MemoryScopeError):
                    raise change
            changes.append(change)
        return changes, rows

    async def recent(
        self, user: str, session: str | None = None, agent: str | None = None, *, limit: int
    ) -> list[Episode]:
        """Return the latest episodes of a scope, newest first; equal instants by id, descending.

        The store finds rows by their scope key, and by their content where the key does not name
        the owner. It leaves out unreadable rows, and rows whose content names another owner than
        the key, unless `scope_mismatch` is ``trust_scope``.

        The store records that the episodes were read, and writes that a little later. The salience
        gate of a rule uses these reads.

        Raises:
            MemoryScopeError: A part of the scope is malformed.
            ValueError: `limit` is below 1.
        """
        require_whole_number("limit", limit)
        if limit < 1:
            raise ValueError(f"limit is {limit}; it must be at least 1")
        scope = ScopeFilter.of(user, session, agent)
        search = partial(
            recall, scope=scope, limit=limit, mismatch=self._mismatch, naive=self._naive
        )
        found = await self._engine.read(search)
        if self._records_reads:
            self._reads.note([episode.id for episode in found], microseconds(self._clock.now()))
        return found

    @overload
    async def consolidate(self, rule: ConsolidationRule) -> list[AnyDelta]: ...

    @overload
    async def consolidate(
        self, rule: ConsolidationRule, *, window: Window, bounds: Bounds = UNBOUNDED
    ) -> DeltaBatch: ...

    async def consolidate(
        self, rule: ConsolidationRule, *, window: Window | None = None, bounds: Bounds = UNBOUNDED
    ) -> list[AnyDelta] | DeltaBatch:
        """Return what a rule requests: of all episodes its deltas, of a window its batch.

        Without a window the deltas are cumulative: one for each episode that the filter selects,
        by instant. Facts get the ids that the daemon gives them. A rule of several channels has a
        delta for each. One bad episode must not stop the others: an unreadable episode, or one
        with a malformed intent or ``replaces``, is left out with a logged warning.

        With a window the result is the batch that ``FactStore.apply_deltas`` takes. It also has
        the versions that the filter does not select, and those that cannot be read. Unless it is
        a dry run, all that was read survives a power cut afterwards.

        Args:
            window: The part of the episode log; None takes all episodes.
            bounds: What ends the reading of the window early.

        Raises:
            ConsolidationRuleError: A rule of the host's own class lacks a key, or is malformed.
            FilterError: The filter may not run, or ran over its time limit.
            StoppedError: `stop` was called, or the bounds cancelled the reading.
        """
        if type(rule) in PLAIN:
            raise plain_value_error("rule", rule, "ConsolidationRule")
        rule = own_rule(rule)
        now = self._clock.now()
        if window is not None:
            if type(window) in PLAIN:
                raise plain_value_error("window", window, "Window")
            return await self._windows.consolidate(rule, window, at=window.at or now, bounds=bounds)
        work = partial(read_everything, reader=self._reader(rule), rule=rule, at=now)
        found = (await self._engine.read(work)).classify()
        if found.faults:
            log_left_out(rule.id, found.faults)
        return found.deltas

    def embed(self, texts: Sequence[str]) -> Rows:
        """Return the vectors of texts; any thread may call it."""
        return self._windows.embed(texts)

    async def newest(self) -> Position:
        """Return the last place of the log; the start when it is empty."""
        return await self._engine.read(episode_log.newest)

    async def episode_at(self, seq: int) -> str | None:
        """Return the episode id of one log row; None when there is no such row."""
        return await self._engine.read(partial(episode_log.episode_at, seq=seq))

    async def pending(self, after: int, *, at_most: int, rule_id: str = "") -> int:
        """Count the log rows above a place that a rule may read; counting ends at `at_most`."""
        count = partial(episode_log.pending, after=after, at_most=at_most, rule_id=rule_id)
        return await self._engine.read(count)

    async def oldest_at(self, after: int, *, rule_id: str = "") -> datetime | None:
        """Return when the first episode above a position happened that a rule may read."""
        find = partial(episode_log.oldest_timestamp, after=after, rule_id=rule_id)
        text = await self._engine.read(find)
        return instant_or_none(text, self._naive)

    async def window(self, rule: ConsolidationRule, window: Window) -> ReadWindow:
        """Read the versions of a window in one snapshot: rows, filter and decoding.

        The window ends before the first episode that waits for a language model, or leaves such
        episodes out.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
            LogRestoredError: The window begins after a row that is not in the log any more.
            StoppedError: `stop` was called.
        """
        found = await self._engine.read(
            partial(self._reader(rule).read, window=window), cancelled=self._engine.halted.is_set
        )
        if window.episodes is None:
            self._future.report_versions(found.versions)
        return found

    async def select(
        self, rule: ConsolidationRule, *, after: Position, limit: int, upto: int | None = None
    ) -> ReadWindow:
        """Read at most `limit` log rows above a place, none above `upto`, in one snapshot.

        Of each episode only the newest log row counts. An episode that is unreadable, or on which
        the filter fails, is matched and has a fault. An episode that was logged again because it
        was read, and has no other row in the window, keeps its number and is marked as reread.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
            StoppedError: `stop` was called.
        """
        reader = self._reader(rule)
        window = await self._engine.read(
            partial(reader.window, after=after, limit=limit, upto=upto, goes_on=True),
            cancelled=self._engine.halted.is_set,
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
        return await self._engine.read(partial(reader.named, eids=eids, upto=upto))

    async def ids_by_owner(self, rule: ConsolidationRule) -> dict[tuple[str, str], list[str]]:
        """Return the ids of the readable episodes that a rule selects, by user and agent.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
            StoppedError: `stop` was called.
        """
        reader = self._reader(rule)
        return await self._engine.read(reader.ids_by_owner)

    async def changed_ids(self, place: FeedPlace | None) -> EpisodeChanges:
        """Return which episodes were written or deleted after a place of the log.

        Args:
            place: None only asks for the last row, and the last deletion.
        """
        return await self.feed.changed_ids(place)

    async def ids_of_user(self, user: str) -> set[str]:
        """Return the ids of a user's readable episodes."""
        found = await self.feed.read_scope(ScopeFilter(user, None, None))
        return {one.version.id for one in found.versions}

    async def purge(self, seqs: Mapping[str, int]) -> list[str]:
        """Delete episodes that have not changed; return the ids of those that were deleted.

        Args:
            seqs: The number of the newest log row of each, as the caller knows it.
        """
        return await self._engine.write(partial(purge_episodes, seqs=seqs))

    async def matching(self, rule: ConsolidationRule) -> Matching:
        """Count what a rule's filter selects now of all episodes.

        Each page has a snapshot of its own, so no firing waits for more than one page. An episode
        that is put meanwhile may count. The count uses the stored rows, not the log. An edited
        episode counts once, in its current version. An unreadable one counts when the filter
        selects its row.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
            StoppedError: `stop` was called.
        """
        reader, found = self._reader(rule), Matching()
        after: int | None = FIRST_PAGE
        while after is not None:
            page = partial(reader.match_page, found=found, after=after)
            found, after = await self._engine.read(page)
        return found

    async def recorded_summaries(self, eids: Sequence[str]) -> dict[str, RecordedSummary]:
        """Return what language models wrote about groups that begin with these episodes, by key."""
        return await self.answers.summaries(eids)

    async def accesses(self, eids: Sequence[str]) -> dict[str, Access]:
        """Return how often some episodes were read; episodes that were never read are left out."""
        return await self._engine.read(partial(access_tracking.accesses, eids=eids))

    async def log_again_after_read(self, seen: Mapping[str, int]) -> None:
        """Mark episodes that a gate holds back: the next read logs them again for every rule.

        Args:
            seen: By episode, the reads that the gate knew. With more reads, it is logged at once.
        """
        if await self._engine.write(partial(access_tracking.hold, seen=seen)):
            self._engine.notify()

    async def fsync(self) -> None:
        """Sync all that was read so far to the disk, whichever program wrote it."""
        await self._engine.fsync()

    async def changed(self) -> bool:
        """Return whether any connection committed since the last call; True at the first call."""
        seen = await self._engine.version()
        before, self._seen = self._seen, seen
        return seen != before

    async def episodes_in(self, scope: ScopeFilter, *, latest: int = LATEST) -> Found:
        """Return the episodes of a scope.

        Args:
            latest: The last instant that is not still to come, microseconds.
        """
        work = partial(find_scope, scope=scope, latest=latest)
        return await self._engine.read(partial(work, mismatch=self._mismatch, naive=self._naive))

    async def episodes_named(self, scope: ScopeFilter, eids: Iterable[str]) -> Found:
        """Return those of some episodes that are of a scope."""
        return await self._engine.read(
            partial(find_named, scope=scope, eids=eids, mismatch=self._mismatch)
        )

    async def users_of(self, eids: Iterable[str]) -> set[str]:
        """Return the users of some episodes."""
        return await self._engine.read(partial(users_of, eids=eids, mismatch=self._mismatch))

    async def ids_outside(self, scope: ScopeFilter, eids: Iterable[str]) -> set[str]:
        """Return those of the ids that belong to an episode outside of a scope."""
        return await self._engine.read(
            partial(ids_outside, scope=scope, eids=eids, mismatch=self._mismatch)
        )

    async def erased_scopes(self) -> ErasedList:
        """Return the list of erased scopes."""
        return await self._engine.read(read_erased_list)

    async def forget(
        self,
        scope: ScopeFilter,
        eids: Iterable[str],
        *,
        moment: int | None,
        key: bytes | None = None,
    ) -> dict[str, int]:
        """Erase a scope; episodes of it up to the moment are refused from now on.

        Args:
            eids: Ids of its episodes that their host has deleted before.
            moment: Microseconds since 1970 UTC; None erases only the episodes with these ids, and
                refuses them from now on.
            key: The key of the hashes of scopes, if this database has none yet.

        Returns:
            The number of erased rows, by table.
        """
        erase = await self._erasure(scope, frozenset(eids), moment, key)
        erased = await self._engine.write(erase)
        await self.fsync()  # the certificate must stay true after a power cut
        return erased

    async def _erasure(
        self, scope: ScopeFilter, eids: frozenset[str], moment: int | None, key: bytes | None
    ) -> Callable[[Session], dict[str, int]]:
        """Return the transaction of an erasure, after the search of the rows of a whole scope."""
        mismatch = self._mismatch
        if moment is None:
            named = NamedErasure(scope, eids, key)
            return partial(erase_named, erasure=named, mismatch=mismatch)
        erasure = EpisodeErasure(scope, eids, moment, key)
        before = await self._engine.read(
            partial(search_episodes, erasure=erasure, mismatch=mismatch)
        )
        return partial(erase_episodes, erasure=erasure, mismatch=mismatch, before=before)

    async def learn_erased(self, key: bytes, moments: Iterable[Moments]) -> None:
        """Store the erased scopes of other databases that have the same key."""
        await self._engine.write(partial(learn_moments, key=key, moments=moments))

    async def scrub(self, how: Scrubbing = Scrubbing()) -> Scrubbed:  # noqa: B008 # immutable
        """Remove the bytes of erased rows from the store and its logs; return what was done."""
        return await self._engine.scrub(how)

    def _reader(self, rule: ConsolidationRule) -> Reader:
        return Reader(
            rule,
            mismatch=self._mismatch,
            naive=self._naive,
            stop=self._engine.halted,
            seconds=self._filter_seconds,
            person=self._person,
        )


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
