"""Protocols of the stores and logs that a consolidator works with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from slumberd.consolidation.incoming import Bounds, DeltaBatch
from slumberd.model.episode import EpisodeVersion, Misspelling
from slumberd.model.extraction import RecordedSummary
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.feed import EpisodeChanges, FeedPlace, LedgerChanges
from slumberd.model.firing import (
    DeletionImpact,
    Firing,
    HeldBatch,
    HeldScope,
    Outcome,
    Position,
    ReadWindow,
    Record,
    Report,
    RulePosition,
    Window,
)
from slumberd.model.record import Checkpoint
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import Access
from slumberd.model.stages import StagedEntry
from slumberd.search.vectors import Rows


class EpisodeLog(Protocol):
    """The log of a memory store: numbered versions of episodes, consolidated in windows."""

    async def window(self, rule: ConsolidationRule, window: Window) -> ReadWindow:
        """Read the versions of a window in one snapshot: rows, filter and decoding.

        Raises:
            FilterError: The rule's filter is not allowed, or ran over its time limit.
            LogRestoredError: The window begins after a row that is not in the log any more.
        """
        ...

    async def select(
        self, rule: ConsolidationRule, *, after: Position, limit: int, upto: int | None = None
    ) -> ReadWindow:
        """Read at most `limit` log rows above a position, none above `upto`, in one snapshot.

        An episode that was logged again after a read, and whose version lies outside of the
        window, keeps its number; its `reread` is set.

        Raises:
            FilterError: The rule's filter is not allowed, or ran over its time limit.
        """
        ...

    async def reread(
        self, rule: ConsolidationRule, eids: Sequence[str], *, upto: int
    ) -> list[EpisodeVersion]:
        """Read some episodes again; omit those that changed after the log row `upto`.

        Raises:
            FilterError: The rule's filter is not allowed, or ran over its time limit.
        """
        ...

    def embed(self, texts: Sequence[str]) -> Rows:
        """Return the vectors of texts; any thread may call it.

        Raises:
            ExtraMissingError: The extra ``vectors`` is not installed.
        """
        ...

    async def recorded_summaries(self, eids: Sequence[str]) -> dict[str, RecordedSummary]:
        """Return what language models wrote about groups that begin with these episodes, by key."""
        ...

    async def accesses(self, eids: Sequence[str]) -> dict[str, Access]:
        """Return how often and when some episodes were read; omit those that never were."""
        ...

    async def log_again_after_read(self, seen: Mapping[str, int]) -> None:
        """Log some episodes again, for every rule, once they are read.

        Args:
            seen: The number of known reads, by episode. An episode with more reads is logged now.
        """
        ...

    async def fsync(self) -> None:
        """Sync all rows that were read so far to disk, so that they survive a power cut."""
        ...

    async def consolidate(
        self, rule: ConsolidationRule, *, window: Window, bounds: Bounds = ...
    ) -> DeltaBatch:
        """Return the deltas that a rule requests for a window, with their claims.

        Unless it is a dry run, all that was read survives a power cut afterwards.

        Raises:
            FilterError: The rule's filter is not allowed, or ran over its time limit.
            StoppedError: The bounds cancelled the reading.
        """
        ...

    async def ids_by_owner(self, rule: ConsolidationRule) -> dict[tuple[str, str], list[str]]:
        """Return the ids of the readable episodes that a rule selects, by user and agent.

        Raises:
            FilterError: The rule's filter is not allowed, or ran over its time limit.
        """
        ...

    async def changed_ids(self, place: FeedPlace | None) -> EpisodeChanges:
        """Return which episodes were written or deleted after a place of the log.

        Args:
            place: None only asks for the last row, and the last deletion.
        """
        ...

    async def ids_of_user(self, user: str) -> set[str]:
        """Return the ids of a user's readable episodes."""
        ...

    async def purge(self, seqs: Mapping[str, int]) -> list[str]:
        """Delete episodes that have not changed; return the ids of those that were deleted.

        Args:
            seqs: The number of the newest log row of each, as the caller knows it.
        """
        ...

    async def newest(self) -> Position:
        """Return the last position of the log; the start when it is empty."""
        ...

    async def episode_at(self, seq: int) -> str | None:
        """Return the episode id of one log row; None when there is no such row."""
        ...

    async def pending(self, after: int, *, at_most: int, rule_id: str = "") -> int:
        """Count the log rows above a position that a rule may read; counting ends at `at_most`."""
        ...

    async def oldest_at(self, after: int, *, rule_id: str = "") -> datetime | None:
        """Return when the first episode above a position happened that a rule may read.

        None without an episode there, and for an unreadable timestamp.
        """
        ...

    async def changed(self) -> bool:
        """Return whether any connection committed since the last call; True at the first call."""
        ...


class Watermarks(Protocol):
    """How far each rule has read, what it waits for, and which log lines are written."""

    async def position(self, rule_id: str) -> Position | None:
        """Return the last position that a rule has read; None for a new rule."""
        ...

    async def positions(self) -> dict[str, tuple[Position, datetime]]:
        """Return each rule's watermark and the last cron instant that it has served."""
        ...

    async def batch_ends(self, rule_id: str) -> list[Position]:
        """Return every position at which a batch of the rule ended, newest first."""
        ...

    async def rewind(self, rule_id: str, to: Position) -> None:
        """Move a rule's watermark back, after the episodes were restored from a backup."""
        ...

    async def position_of(self, rule_id: str) -> RulePosition:
        """Return where a rule is in the log, and its batch that awaits approval, if any."""
        ...

    async def held(self) -> Mapping[str, HeldBatch]:
        """Return what awaits approval, or is approved: a batch by its rule, else by firing."""
        ...

    async def last_recorded_at(self) -> datetime | None:
        """Return the instant of the last batch; None before the first one."""
        ...

    async def future_of_rules(self) -> Mapping[str, datetime]:
        """Return the first instant that is still to come of each rule's quarantined episodes."""
        ...

    async def future_upto(self, rule_id: str, latest: int, *, limit: int) -> list[str]:
        """Return the first episodes of the future, up to an instant, that wait for a rule.

        Args:
            latest: Microseconds since 1970 UTC.
        """
        ...

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        """Record the first watermark and served instant of a new rule."""
        ...

    async def served(self, rule_id: str) -> datetime | None:
        """Return the instant up to which a rule's cron instants are served."""
        ...

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant; never move back.

        Args:
            instant: The last cron instant that is served.
            succeeded_at: When the firing for it began; None when there was no firing.
        """
        ...

    async def correct_served(self, rule_id: str, now: datetime) -> None:
        """Move the served instant of a rule back to now; it was recorded by a wrong clock."""
        ...

    async def unlogged(self, *, limit: int) -> list[Record]:
        """Return ledger rows whose log lines may not have been written, oldest first."""
        ...

    async def mark_logged(self, seq: int) -> None:
        """Record that the log lines up to a ledger row are written."""
        ...


class Ledger(Protocol):
    """The part of the ledger that consolidation uses beside `FactTarget`."""

    @property
    def watermarks(self) -> Watermarks:
        """How far each rule has read; `apply_deltas` moves the watermark of its rule."""
        ...

    async def hold(
        self,
        firing: Firing,
        problem: str,
        scope: HeldScope,
        impact: DeletionImpact,
        instead_of: HeldBatch | None = None,
    ) -> Outcome:
        """Record that a command awaits approval.

        Args:
            firing: The command's; its window ends where the command ends.
            problem: Why it is held back.
            scope: What it would evaluate.
            impact: What it would delete.
            instead_of: What waited for the same decision until now; None for a new one.
        """
        ...

    async def rejections(self, rule_id: str, rule_hash: str) -> Mapping[str, HeldScope]:
        """Return what people rejected of a rule with this content, by the held firing's id."""
        ...

    async def quarantined_of(self, rule_id: str) -> list[str]:
        """Return the ids of the episodes that are quarantined for a rule, in order."""
        ...

    async def drop_future(self, rule_id: str, episodes: Sequence[str], *, at: datetime) -> None:
        """Remove episodes whose instant has come, and that a rule no longer selects.

        Args:
            episodes: Their ids.
        """
        ...

    async def head(self) -> Checkpoint:
        """Return the last committed row number and its chain hash."""
        ...


class FactTarget(Protocol):
    """The store of facts, as far as consolidation uses it."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of the store."""
        ...

    @property
    def watermarks(self) -> Watermarks:
        """How far each rule has read; `apply_deltas` moves the watermark of its rule."""
        ...

    async def cited_episodes(self, eids: Sequence[str]) -> set[str]:
        """Return those of the episodes that the lineage of a current fact names.

        Facts of the channel ``marks`` do not count.
        """
        ...

    async def retracted_by_people(self, fact_ids: Sequence[str]) -> set[str]:
        """Return those of some facts that a manual edit has ever retracted or replaced.

        An edit that was undone counts, too. The facts must not be of the channel ``facts``.
        """
        ...

    async def stage_changes(self, place: Checkpoint | None) -> LedgerChanges:
        """Return which facts of the channels of stages changed after a place of the ledger.

        Args:
            place: None only asks for the last row.
        """
        ...

    async def erasures_after(self, row: int) -> dict[int, bytes]:
        """Return the chain hash of each erasure after a row of the ledger, by its row."""
        ...

    async def query(
        self,
        pattern: FactPattern,
        *,
        valid_at: datetime | None = None,
        believed_at: datetime | None = None,
    ) -> list[Fact]:
        """Return the facts that match a pattern, in its order; by id by default.

        Args:
            pattern: What every fact must match, the order, and the most facts to return.
            valid_at: What was true then: only claims of up to that instant count. None means now.
            believed_at: What was held then: only what was recorded by then counts. None means now.
        """
        ...

    async def checkpoint_after_backlog(self) -> None:
        """Checkpoint the write-ahead log after a backlog; do nothing when there was none."""
        ...

    def skip_checkpoint_on_close(self) -> None:
        """Skip the checkpoint at closing, in the middle of a backlog; the next start does it."""
        ...

    async def apply_deltas(
        self,
        batch: DeltaBatch,
        *,
        dry_run: bool = False,
        on_decided: Callable[[], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Resolve a batch; write facts, ledger, quarantine and watermark in one transaction.

        Args:
            batch: Its ``upto`` becomes the rule's watermark.
            dry_run: Return the outcome, and write nothing.
            on_decided: Called, in any thread, when the resolution is done and only writing is left.
            cancelled: Called often, in any thread; True cancels the batch. None never cancels.

        Raises:
            StoppedError: `cancelled` returned True; nothing is written.
            SupersededError: Another daemon has taken over, or the store was replaced; nothing is
                written.
        """
        ...


Owner = tuple[str, str]
"""A user and an agent."""


class StagePlace(NamedTuple):
    """Up to where the notes of a rule know the stores.

    Attributes:
        fingerprint: All that the result of the stages depends on beside the stores.
        position: The last row of the episode log.
        deletion: The number of the last deletion of an episode.
        ledger: The last row of the ledger.
        at: The instant of the firing, microseconds since 1970 UTC.
    """

    fingerprint: str
    position: Position
    deletion: int
    ledger: Checkpoint
    at: int


class StageNotes(Protocol):
    """What is kept of the episodes that the stages of one rule have seen; open, in one thread.

    Each method raises `StageNotesError` when they are damaged.
    """

    @property
    def reading(self) -> str:
        """A text that changes with the settings that say how episodes are read."""
        ...

    def place(self) -> StagePlace | None:
        """Return up to where the notes know the stores; None when there are none."""
        ...

    def clear(self) -> None:
        """Drop all that is kept for the rule, at once."""
        ...

    def erasures(self) -> dict[int, tuple[bytes, str | None]]:
        """Return the erasures that the notes follow, by ledger row: its chain hash, and the user.

        The user is None when nothing was left of the user.
        """
        ...

    def due(self, at: int) -> list[tuple[Owner, str]]:
        """Return the episodes that time may have changed by an instant, with their owners."""
        ...

    def owners_of(self, eids: Collection[str]) -> list[tuple[str, Owner]]:
        """Return those of the episodes that the notes have, with their owners."""
        ...

    def eids(self, owner: Owner) -> set[str]:
        """Return the ids of an owner's episodes."""
        ...

    def entries(self, owner: Owner, eids: Collection[str]) -> list[StagedEntry]:
        """Return what is kept of some episodes of an owner."""
        ...

    def traced(self, owner: Owner, traces: Collection[int]) -> list[tuple[int, str]]:
        """Return an owner's episodes that have one of the traces, with the trace."""
        ...

    def texts(self, owner: Owner, assertion: int) -> list[tuple[str, str, bytes]]:
        """Return an owner's episodes with one assertion, with their texts and vectors."""
        ...

    def archived(self, upto: int) -> list[str]:
        """Return the episodes that the rule archived by an instant."""
        ...

    def save(self, owner: Owner, entries: Sequence[StagedEntry], gone: Collection[str]) -> None:
        """Keep some episodes of an owner, instead of what was kept of them.

        Args:
            gone: The ids of those of which nothing is kept any more.
        """
        ...

    def finish(self, place: StagePlace) -> None:
        """Commit all that was saved, and up to where the notes know the stores."""
        ...

    def close(self) -> None:
        """Close the notes; what is not committed is dropped."""
        ...


class StageIndex(Protocol):
    """Where the notes of all rules are."""

    def open(self, rule_id: str, *, writes: bool) -> StageNotes:
        """Open the notes of a rule; damaged ones are dropped first.

        Raises:
            StoreError: They cannot be opened.
        """
        ...

    def erase(self, user: str, eids: Collection[str]) -> int:
        """Remove all bytes about a user; return of how many episodes there were notes.

        Until `note_erasure` says otherwise, the next firing of each rule looks at all episodes.

        Args:
            eids: The ids of the episodes that are erased.

        Raises:
            StoreError: They cannot be removed.
        """
        ...

    def note_erasure(self, number: int, chain: bytes, user: str | None) -> None:
        """Record that the notes follow an erasure: the next firings look at one user only.

        Args:
            number: The ledger row of the erasure.
            chain: Its chain hash.
            user: Whose episodes are looked at again; None when nothing is left of the user.

        Raises:
            StoreError: It cannot be written; then the next firings look at all episodes.
        """
        ...


class DeltaLog(Protocol):
    """The log of committed deltas."""

    def applied(self, records: Sequence[Record]) -> None:
        """Write one ``delta.applied`` line for each record, in order.

        Raises:
            TimeoutError: The log reader is too slow; give the records again later.
            OSError: The lines cannot be written.
        """
        ...

    def completed(self, outcome: Outcome) -> None:
        """Write the ``firing.completed`` line of one batch."""
        ...

    def finished(self, report: Report) -> None:
        """Write the ``firing.finished`` line of a firing: the sum of its batches."""
        ...

    def misspelled(self, found: Sequence[Misspelling]) -> None:
        """Write one ``metadata.misspelled`` line for each key that is probably misspelled."""
        ...

    def checkpointed(self, head: Checkpoint) -> None:
        """Write a ``ledger.checkpoint`` line: the ledger's number of rows and its head."""
        ...


class Logs(Protocol):
    """The log output, before the key is known that hashes users and agents."""

    def keyed(self, key: bytes) -> DeltaLog:
        """Return the log of deltas that hashes users and agents with a key, if it hashes them.

        Args:
            key: The key of the hashes; empty when lines do not hash.
        """
        ...


class CountedLogs(Logs, Protocol):
    """The log output with a count of its dropped lines."""

    @property
    def dropped(self) -> int:
        """How many lines were dropped because the reader was too slow; never a delta's line."""
        ...
