"""Write the ledger and the facts: batches of rules, edits, undo, and changes of settings."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from threading import Event
from typing import NamedTuple

import orjson

from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.precedence import MANUAL_RULE_ID, MultiValued
from slumberd.errors import ExtraMissingError
from slumberd.model.firing import Firing, HeldBatch
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.retrieval.protocols import TextComparer
from slumberd.sql_statements import statements
from slumberd.storage.facts.lifecycle import FactFile, head_of
from slumberd.storage.facts.review import drop_entries, hold_batch, list_quarantine, record_decision
from slumberd.storage.facts.settings_changes import change_channels, rewrite_lineages
from slumberd.storage.facts.watermarks import WatermarkTable, record_success
from slumberd.storage.ledger.batch import Batch, OverLimitError
from slumberd.storage.ledger.external_changes import has_changes
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.manual_edits import ManualEdits
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.storage.ledger.similarity import BatchSimilarity
from slumberd.storage.ledger.undo import Undoer, UndoneFirings, Wanted, undo, undo_each
from slumberd.storage.sqlite.connection import interrupting_when

_SQL = statements("ledger")


class CheckpointPolicy(NamedTuple):
    """When SQLite checkpoints the write-ahead log of the facts.

    Attributes:
        backlog_rows: A batch of so many rows counts as a backlog. Checkpoints as usual would make
            a backlog a quarter slower.
        backlog_pages: Pages of 4 KiB at which SQLite checkpoints during a backlog.
        usual_pages: Pages at which SQLite checkpoints after a backlog.
        check_seconds: Seconds between two checks whether to interrupt a commit.
    """

    backlog_rows: int = 2_000
    backlog_pages: int = 50_000
    usual_pages: int = 1_000
    check_seconds: float = 0.02


class SQLiteLedger:
    """The ledger of a fact store; implements ``Ledger``.

    Attributes:
        watermarks: How far each rule has read.
        skips_checkpoint: Whether the file must close without a checkpoint.

    Args:
        file: The file of facts.
        watermarks: Its table of watermarks.
        comparer: Returns what compares texts, for rules that compare; None when there is none.
        checkpoints: When SQLite checkpoints the write-ahead log.
    """

    def __init__(
        self,
        file: FactFile,
        watermarks: WatermarkTable,
        comparer: Callable[[], TextComparer] | None = None,
        checkpoints: CheckpointPolicy = CheckpointPolicy(),  # noqa: B008 # immutable
    ) -> None:
        self.watermarks = watermarks
        self.skips_checkpoint = False
        self._file = file
        self._comparer = comparer
        self._checkpoints = checkpoints
        self._catching_up = False

    async def commit(
        self,
        firing: Firing,
        candidates: Mapping[str, Sequence[Candidate]],
        *,
        on_decided: Callable[[], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Resolve a rule's candidates: facts, ledger, quarantine, watermark in one transaction.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced; nothing is
                written.
            StoppedError: `cancelled` returned True; nothing is written.
        """
        backlog = self._begin_commit(candidates)
        database, written = self._file.database, Event()

        def work(connection: sqlite3.Connection) -> Outcome:
            if backlog:
                self._delay_checkpoints(connection)
            try:
                with (
                    self._file.append_transaction(connection) as noticed,
                    interrupting_when(connection, cancelled),
                ):
                    done = self._resolve(connection, firing, candidates, cancelled, on_decided)
                    outcome = replace(done, noticed=noticed)
                    written.set()
            except OverLimitError as over:
                with self._file.transaction(connection):
                    return hold_batch(connection, firing, str(over), self._file.lineage_depth)
            return outcome

        if not backlog or cancelled is None:
            return await database.write(work)
        # No progress handler ends the checkpoint after the commit of a backlog.
        with database.interrupting(
            lambda: written.is_set() and cancelled(),
            every_seconds=self._checkpoints.check_seconds,
        ):
            return await database.write(work)

    def _begin_commit(self, candidates: Mapping[str, Sequence[Candidate]]) -> bool:
        """Return whether the candidates of a batch are a backlog, and remember it."""
        self.skips_checkpoint = False
        backlog = sum(map(len, candidates.values())) >= self._checkpoints.backlog_rows
        self._catching_up |= backlog
        return backlog

    def _delay_checkpoints(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA wal_autocheckpoint = {self._checkpoints.backlog_pages:d}")

    async def preview(
        self, firing: Firing, candidates: Mapping[str, Sequence[Candidate]]
    ) -> Outcome:
        """Resolve as `commit` does, return the outcome, and write nothing."""
        return await self._file.append_batch(
            lambda connection: self._resolve(connection, firing, candidates), keep=False
        )

    def _resolve(
        self,
        connection: sqlite3.Connection,
        firing: Firing,
        candidates: Mapping[str, Sequence[Candidate]],
        cancelled: Callable[[], bool] | None = None,
        on_decided: Callable[[], None] | None = None,
    ) -> Outcome:
        multi_valued, depth = channels_at(connection), self._file.lineage_depth
        batch = Batch(connection, firing, multi_valued, depth, cancelled, on_decided)
        outcome = batch.commit(candidates, self._similarity(connection, firing, cancelled))
        # The watermark moves with the facts: a crash repeats a batch or finishes it, never half.
        self.watermarks.advance(connection, firing)
        if not firing.again:
            record_success(connection, firing.rule_id, outcome.firing.at)
        self.watermarks.save_logged_in(connection)
        return outcome

    def _similarity(
        self, connection: sqlite3.Connection, firing: Firing, cancelled: Callable[[], bool] | None
    ) -> BatchSimilarity | None:
        if firing.min_similarity is None:
            return None
        if self._comparer is None:
            raise ExtraMissingError("vectors", f"rule {firing.rule_id!r} compares what it adds")
        return BatchSimilarity(connection, self._comparer(), firing.min_similarity, cancelled)

    async def checkpoint_after_backlog(self) -> None:
        """Checkpoint after a backlog, and checkpoint as usual from now on."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA wal_checkpoint = TRUNCATE")
            connection.execute(f"PRAGMA wal_autocheckpoint = {self._checkpoints.usual_pages:d}")

        if self._catching_up:
            await self._file.database.write(work)
            self._catching_up = False

    def skip_checkpoint_on_close(self) -> None:
        """Make `close` skip the checkpoint, during a backlog; the next start does it."""
        self.skips_checkpoint = True

    async def held(self) -> dict[str, HeldBatch]:
        """Return the batches that await approval, or are approved, by rule."""
        found = await self._file.fetch_all("held_batches", ())
        return {
            rule: HeldBatch(rule, firing_id_of(rule, n), (seq, eid), problem, bool(approved))
            for rule, n, seq, eid, problem, approved in found
        }

    async def decide(self, held: HeldBatch, *, approve: bool, at: datetime, by: str) -> None:
        """Approve or reject a batch that awaits approval; the ledger records the decision.

        Args:
            held: The batch.
            approve: Whether the rule commits it at its next firing; else the rule skips it.
            at: The moment.
            by: The person who decides.
        """

        def work(connection: sqlite3.Connection) -> None:
            depth = self._file.lineage_depth
            firing = record_decision(connection, held, approve=approve, at=at, by=by, depth=depth)
            if not approve:
                self.watermarks.advance(connection, firing)

        await self._file.write(work)

    async def head(self) -> Checkpoint:
        """Return the number of the last committed ledger row, and its chain hash."""
        return await self._file.read(head_of)

    async def channels_of(self, rule_id: str) -> set[str]:
        """Return all channels into which a rule has emitted."""
        found = await self._file.fetch_all("counts_by_content", (rule_id,))
        return {channel for (counts,) in found for channel in orjson.loads(counts)}

    async def promoted_by(self, rule_id: str, fact_ids: Sequence[str]) -> set[str]:
        """Return those of the fact ids that a rule has ever promoted."""
        values = {"rule": rule_id, "ids": orjson.dumps(fact_ids).decode()}
        return {fact_id for (fact_id,) in await self._file.fetch_all("promoted_by", values)}

    async def quarantined_of(self, rule_id: str) -> list[str]:
        """Return the ids of the episodes that are quarantined for a rule, in order."""
        return [row[0] for row in await self._file.fetch_all("quarantined", (rule_id,))]

    async def drop_quarantined(
        self,
        rules: Sequence[str] | None,
        episodes: Sequence[str] | None,
        *,
        at: datetime,
        by: str,
        dry_run: bool,
    ) -> int:
        """Remove entries from the quarantine; return how many.

        Args:
            rules: Only entries of these rules; None means all.
            episodes: Only entries of these episodes; None means all.
            at: The moment.
            by: The person.
            dry_run: Count, and write nothing.
        """
        entries = [
            entry
            for entry in await self._file.read(list_quarantine)
            if rules is None or entry["rule_id"] in rules
            if episodes is None or entry["episode_id"] in episodes
        ]
        if entries:
            depth = self._file.lineage_depth
            drop = partial(drop_entries, entries=entries, at=at, by=by, depth=depth)
            await self._file.append_batch(drop, keep=not dry_run)
        return len(entries)

    async def edit(
        self, work: Callable[[ManualEdits], None], *, by: str = "", dry_run: bool = False
    ) -> Outcome | None:
        """Run a manual edit; return its outcome, or None when it changed nothing.

        Args:
            work: Makes the edit; called in the store's own thread.
            by: The person.
            dry_run: Return the outcome, and write nothing.
        """
        firing = Firing(MANUAL_RULE_ID, "", "manual", self._file.clock.now(), by=by)

        def append(connection: sqlite3.Connection) -> Outcome | None:
            edits = ManualEdits(connection, self._file.lineage_depth, firing)
            work(edits)
            return edits.finish()

        return await self._file.append(append, keep=not dry_run)

    async def undo(
        self, firing_id: str, *, at: datetime, by: str, dry_run: bool, run: str = ""
    ) -> Outcome:
        """Withdraw every version that a firing was the first to evaluate.

        Args:
            firing_id: The firing of a rule, a manual edit, or an undo.
            at: The moment.
            by: The person.
            dry_run: Return the outcome, and write nothing.
            run: The id of the command that it belongs to.

        Raises:
            UsageError: There is no such firing, or it is an erasure.
        """
        undoer, depth = Undoer(at, by, run), self._file.lineage_depth
        return await self._file.append_batch(
            lambda connection: undo(connection, firing_id, depth, undoer), keep=not dry_run
        )

    async def undo_each(
        self, wanted: Wanted, undoer: Undoer, *, dry_run: bool, limit: int
    ) -> UndoneFirings:
        """Undo those of some firings that are not undone yet, all in one transaction.

        Args:
            wanted: Which firings.
            undoer: The person, the moment, and the run.
            dry_run: Return the outcome, and write nothing.
            limit: The most new ledger rows that are returned.

        Raises:
            UsageError: One of the firings is an erasure; nothing was undone.
        """

        def append(connection: sqlite3.Connection) -> UndoneFirings:
            done = UndoneFirings(limit)
            depth = self._file.lineage_depth
            for firing_id, outcome in undo_each(connection, wanted, depth, undoer):
                done.add(firing_id, outcome)
            return done

        return await self._file.append(append, keep=not dry_run)

    async def notice_external(self) -> list[Record]:
        """Record what other programs changed in the facts; return the new ledger rows.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """

        def look(connection: sqlite3.Connection) -> bool:
            self._file.check_writer(connection)
            return has_changes(connection)

        def append(connection: sqlite3.Connection) -> list[Record]:
            with self._file.append_transaction(connection) as noticed:
                return noticed

        if not await self._file.read(look):
            return []
        return await self._file.database.write(append)

    async def rewrite_facts(self, *, at: datetime) -> int:
        """Rewrite every fact when the configured depth of lineages has changed.

        Returns:
            The number of keys; 0 when the depth is unchanged.
        """
        depth = self._file.lineage_depth
        return await self._file.append(lambda connection: rewrite_lineages(connection, depth, at))

    async def set_channels(
        self, multi_valued: Mapping[str, frozenset[str]], *, at: datetime
    ) -> Outcome | None:
        """Store which predicates are multi-valued, and resolve the keys that this changes.

        Returns:
            The outcome; None when nothing changed.
        """
        multi = MultiValued(multi_valued)

        def work(connection: sqlite3.Connection) -> Outcome | None:
            if channels_at(connection).channels == multi.channels:
                return None
            with self._file.append_transaction(connection) as noticed:
                outcome = change_channels(connection, multi, self._file.lineage_depth, at)
                return replace(outcome, noticed=noticed)

        return await self._file.database.write(work)
