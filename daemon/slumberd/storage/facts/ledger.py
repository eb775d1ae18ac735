"""Write the ledger and the facts: batches of rules, edits, undo, and changes of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial

import orjson

from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.precedence import MANUAL_RULE_ID, MultiValued
from slumberd.errors import ExtraMissingError
from slumberd.model.firing import Firing, HeldBatch
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.retrieval.protocols import TextComparer
from slumberd.storage.engine import Session
from slumberd.storage.facts.review import drop_entries, hold_batch, list_quarantine, record_decision
from slumberd.storage.facts.settings_changes import change_channels, rewrite_lineages
from slumberd.storage.facts.transactions import FactTransactions, head_of
from slumberd.storage.facts.watermarks import WatermarkTable, record_success
from slumberd.storage.ledger.batch import Batch, OverLimitError
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.manual_edits import ManualEdits
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.storage.ledger.similarity import BatchSimilarity
from slumberd.storage.ledger.undo import Undoer, UndoneFirings, Wanted, undo, undo_each

BACKLOG_ROWS = 2_000
"""A batch of so many candidates counts as a backlog."""


class FactLedger:
    """The ledger of a fact store; implements ``Ledger``.

    Attributes:
        watermarks: How far each rule has read.
        skips_checkpoint: Whether the file must close without a checkpoint.

    Args:
        transactions: The transactions of the store of facts.
        watermarks: Its table of watermarks.
        comparer: Returns what compares texts, for rules that compare; None when there is none.
        backlog_rows: A batch of so many candidates counts as a backlog.
    """

    def __init__(
        self,
        transactions: FactTransactions,
        watermarks: WatermarkTable,
        comparer: Callable[[], TextComparer] | None = None,
        backlog_rows: int = BACKLOG_ROWS,
    ) -> None:
        self.watermarks = watermarks
        self.skips_checkpoint = False
        self._transactions = transactions
        self._comparer = comparer
        self._backlog_rows = backlog_rows

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
        bulk = sum(map(len, candidates.values())) >= self._backlog_rows
        self.skips_checkpoint = False
        try:
            return await self._transactions.append_batch(
                lambda session: self._resolve(session, firing, candidates, cancelled, on_decided),
                cancelled=cancelled,
                bulk=bulk,
            )
        except OverLimitError as error:
            problem, depth = str(error), self._transactions.lineage_depth
        return await self._transactions.write(
            lambda session: hold_batch(session, firing, problem, depth)
        )

    async def preview(
        self, firing: Firing, candidates: Mapping[str, Sequence[Candidate]]
    ) -> Outcome:
        """Resolve as `commit` does, return the outcome, and write nothing."""
        return await self._transactions.append_batch(
            lambda session: self._resolve(session, firing, candidates), keep=False
        )

    def _resolve(
        self,
        session: Session,
        firing: Firing,
        candidates: Mapping[str, Sequence[Candidate]],
        cancelled: Callable[[], bool] | None = None,
        on_decided: Callable[[], None] | None = None,
    ) -> Outcome:
        multi_valued, depth = channels_at(session), self._transactions.lineage_depth
        batch = Batch(session, firing, multi_valued, depth, cancelled, on_decided)
        outcome = batch.commit(candidates, self._similarity(session, firing, cancelled))
        # The watermark moves with the facts: a crash repeats a batch or finishes it, never half.
        self.watermarks.advance(session, firing)
        if not firing.again:
            record_success(session, firing.rule_id, outcome.firing.at)
        self.watermarks.save_logged_in(session)
        return outcome

    def _similarity(
        self, session: Session, firing: Firing, cancelled: Callable[[], bool] | None
    ) -> BatchSimilarity | None:
        if firing.min_similarity is None:
            return None
        if self._comparer is None:
            raise ExtraMissingError("vectors", f"rule {firing.rule_id!r} compares what it adds")
        return BatchSimilarity(session, self._comparer(), firing.min_similarity, cancelled)

    async def checkpoint_after_backlog(self) -> None:
        """Checkpoint after a backlog, and checkpoint as usual from now on."""
        await self._transactions.engine.finish_backlog()

    def skip_checkpoint_on_close(self) -> None:
        """Make `close` skip the checkpoint, during a backlog; the next start does it."""
        self.skips_checkpoint = True

    async def held(self) -> dict[str, HeldBatch]:
        """Return the batches that await approval, or are approved, by rule."""
        found = await self._transactions.fetch_all("ledger.held_batches")
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

        def work(session: Session) -> None:
            depth = self._transactions.lineage_depth
            firing = record_decision(session, held, approve=approve, at=at, by=by, depth=depth)
            if not approve:
                self.watermarks.advance(session, firing)

        await self._transactions.write(work)

    async def head(self) -> Checkpoint:
        """Return the number of the last committed ledger row, and its chain hash."""
        return await self._transactions.read(head_of)

    async def channels_of(self, rule_id: str) -> set[str]:
        """Return all channels into which a rule has emitted."""
        found = await self._transactions.fetch_all("ledger.counts_by_content", (rule_id,))
        return {channel for (counts,) in found for channel in orjson.loads(counts)}

    async def promoted_by(self, rule_id: str, fact_ids: Sequence[str]) -> set[str]:
        """Return those of the fact ids that a rule has ever promoted."""
        values = {"rule": rule_id, "ids": [*fact_ids]}
        return {
            fact_id
            for (fact_id,) in await self._transactions.fetch_all("ledger.promoted_by", values)
        }

    async def quarantined_of(self, rule_id: str) -> list[str]:
        """Return the ids of the episodes that are quarantined for a rule, in order."""
        return [
            row[0] for row in await self._transactions.fetch_all("ledger.quarantined", (rule_id,))
        ]

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
            for entry in await self._transactions.read(list_quarantine)
            if rules is None or entry["rule_id"] in rules
            if episodes is None or entry["episode_id"] in episodes
        ]
        if entries:
            depth = self._transactions.lineage_depth
            drop = partial(drop_entries, entries=entries, at=at, by=by, depth=depth)
            await self._transactions.append_batch(drop, keep=not dry_run)
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
        firing = Firing(MANUAL_RULE_ID, "", "manual", self._transactions.clock.now(), by=by)

        def append(session: Session) -> Outcome | None:
            edits = ManualEdits(session, self._transactions.lineage_depth, firing)
            work(edits)
            return edits.finish()

        return await self._transactions.append(append, keep=not dry_run)

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
        undoer, depth = Undoer(at, by, run), self._transactions.lineage_depth
        return await self._transactions.append_batch(
            lambda session: undo(session, firing_id, depth, undoer), keep=not dry_run
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

        def append(session: Session) -> UndoneFirings:
            done = UndoneFirings(limit)
            depth = self._transactions.lineage_depth
            for firing_id, outcome in undo_each(session, wanted, depth, undoer):
                done.add(firing_id, outcome)
            return done

        return await self._transactions.append(append, keep=not dry_run)

    async def notice_external(self) -> list[Record]:
        """Record what other programs changed in the facts; return the new ledger rows.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        return await self._transactions.notice_external()

    async def rewrite_facts(self, *, at: datetime) -> int:
        """Rewrite every fact when the configured depth of lineages has changed.

        Returns:
            The number of keys; 0 when the depth is unchanged.
        """
        depth = self._transactions.lineage_depth
        return await self._transactions.append(lambda session: rewrite_lineages(session, depth, at))

    async def set_channels(
        self, multi_valued: Mapping[str, frozenset[str]], *, at: datetime
    ) -> Outcome | None:
        """Store which predicates are multi-valued, and resolve the keys that this changes.

        Returns:
            The outcome; None when nothing changed.
        """
        multi, depth = MultiValued(multi_valued), self._transactions.lineage_depth
        if await self._transactions.read(lambda session: channels_at(session).channels) == (
            multi.channels
        ):
            return None
        return await self._transactions.append_batch(
            lambda session: change_channels(session, multi, depth, at)
        )
