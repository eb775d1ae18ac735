"""Apply batches of requested deltas, and manual edits, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import orjson

from slumberd.consolidation.delta_batch import Condition, DeltaBatch, never
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.manual import ManualBatch
from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.consolidation.withdrawals import withdraw
from slumberd.errors import ExtraMissingError, SkippedEpisodesError
from slumberd.model.episode import latest_at
from slumberd.model.firing import Firing, HeldScope
from slumberd.model.record import Outcome
from slumberd.retrieval.vectors import TextComparer
from slumberd.storage.engine import Session
from slumberd.storage.facts.review import hold_batch
from slumberd.storage.facts.transactions import FactTransactions
from slumberd.storage.facts.watermarks import WatermarkTable, record_success
from slumberd.storage.ledger.batch import Batch, OverLimitError
from slumberd.storage.ledger.future import withdraw_future
from slumberd.storage.ledger.manual_edits import FutureClaimFound, ManualEdits
from slumberd.storage.ledger.similarity import BatchSimilarity
from slumberd.storage.ledger.undo import Undoer

BACKLOG_ROWS = 2_000
"""A batch of so many candidates counts as a backlog."""

Candidates = Mapping[str, Sequence[Candidate]]
"""Candidates by channel."""


class DeltaApplier:
    """Resolves what is requested, and writes facts, ledger, quarantine and watermark.

    Args:
        transactions: The transactions of the store of facts.
        watermarks: How far each rule has read.
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
        self._transactions = transactions
        self._watermarks = watermarks
        self._comparer = comparer
        self._backlog_rows = backlog_rows
        self._channels: dict[str, tuple[str, frozenset[str]]] = {}

    async def apply(
        self,
        batch: DeltaBatch,
        *,
        dry_run: bool = False,
        on_decided: Callable[[], None] | None = None,
        cancelled: Condition | None = None,
    ) -> Outcome:
        """Apply the batch of a window; hold it back when it exceeds its deletion limits.

        Raises:
            SkippedEpisodesError: The batch begins after episodes that its rule has not read.
        """
        self._transactions.skips_checkpoint = False
        resolve = partial(
            self._resolve if dry_run else self._resolve_and_advance,
            batch=batch,
            on_decided=on_decided,
            cancelled=cancelled or never,
        )
        try:
            return await self._transactions.append_batch(
                resolve,
                keep=not dry_run,
                cancelled=cancelled,
                bulk=batch.size >= self._backlog_rows and not dry_run,
            )
        except OverLimitError as error:
            if not error.problem:
                return Outcome(batch.firing, "", {}, [], 0.0, probed=True)
            hold = partial(
                hold_batch,
                firing=batch.firing,
                problem=error.problem,
                scope=HeldScope(after=batch.firing.after.seq, upto=batch.firing.upto.seq),
                impact=error.impact,
                depth=self._transactions.lineage_depth,
            )
        return await self._transactions.engine.write(hold, keep=not dry_run)

    def _resolve_and_advance(
        self,
        session: Session,
        batch: DeltaBatch,
        on_decided: Callable[[], None] | None,
        cancelled: Condition,
    ) -> Outcome:
        firing = batch.firing
        _refuse_gap(session, firing)
        outcome = self._resolve(session, batch, on_decided, cancelled)
        # The watermark moves with the facts: a crash repeats a batch or finishes it, never half.
        self._watermarks.advance(session, firing)
        if not firing.again:
            record_success(session, firing.rule_id, outcome.firing.at)
        self._watermarks.save_logged_in(session)
        return outcome

    def _resolve(
        self,
        session: Session,
        batch: DeltaBatch,
        on_decided: Callable[[], None] | None,
        cancelled: Condition,
    ) -> Outcome:
        """Resolve a batch without its watermark."""
        firing, depth = batch.firing, self._transactions.lineage_depth
        work = Batch(session, firing, depth, cancelled=cancelled, on_decided=on_decided)
        return work.apply(
            {**batch.candidates, **self._withdrawn(session, batch)},
            self._similarity(session, firing, cancelled),
        )

    def _withdrawn(self, session: Session, batch: DeltaBatch) -> Candidates:
        """Return candidates that withdraw versions in channels that the rule has left."""
        left = self._emitted_channels(session, batch.firing) - batch.candidates.keys()
        if not left or not batch.versions:
            return {}
        rule_id = batch.firing.rule_id
        withdrawn = withdraw(batch.versions, rule_id, left)
        ids = [candidate.fact_id for found in withdrawn.values() for candidate in found]
        rows = session.rows("ledger.promoted_by", {"rule": rule_id, "ids": ids})
        promoted = {fact_id for (fact_id,) in rows}
        applicable = {
            name: [candidate for candidate in found if candidate.fact_id in promoted]
            for name, found in withdrawn.items()
        }
        return {name: found for name, found in applicable.items() if found}

    def _emitted_channels(self, session: Session, firing: Firing) -> frozenset[str]:
        """Return every channel into which a rule has emitted before."""
        content_hash, channels = self._channels.get(firing.rule_id, ("", frozenset()))
        # A rule of one content always emits into the same channels, so one query is enough.
        if content_hash != firing.rule_hash or not content_hash:
            found = session.rows("ledger.counts_by_content", (firing.rule_id,))
            channels = frozenset(name for (counts,) in found for name in orjson.loads(counts))
            self._channels[firing.rule_id] = firing.rule_hash, channels
        return channels

    def _similarity(
        self, session: Session, firing: Firing, cancelled: Condition
    ) -> BatchSimilarity | None:
        if firing.min_similarity is None:
            return None
        if self._comparer is None:
            raise ExtraMissingError("vectors", f"rule {firing.rule_id!r} compares what it adds")
        return BatchSimilarity(session, self._comparer(), firing.min_similarity, cancelled)

    async def edit(self, batch: ManualBatch, *, dry_run: bool = False) -> Outcome | None:
        """Apply manual edits; return their outcome, or None when they changed nothing."""
        now = self._transactions.clock.now()
        firing = Firing(MANUAL_RULE_ID, "", "manual", now, by=batch.by)

        def work(session: Session) -> Outcome | None:
            try:
                return self._edit(session, batch, firing)
            except FutureClaimFound as found:
                latest = latest_at(now, self._transactions.future_tolerance_seconds)
                depth, undoer = self._transactions.lineage_depth, Undoer(now, batch.by)
                for _ in withdraw_future(session, latest, depth, undoer, owner=found.owner):
                    pass
                return self._edit(session, batch, firing)

        return await self._transactions.append(work, keep=not dry_run)

    def _edit(self, session: Session, batch: ManualBatch, firing: Firing) -> Outcome | None:
        edits = ManualEdits(
            session,
            self._transactions.lineage_depth,
            firing,
            tolerance_seconds=self._transactions.future_tolerance_seconds,
            refuses_future=True,
        )
        for edit in batch.edits:
            edits.run(edit)
        return edits.finish()


def _refuse_gap(session: Session, firing: Firing) -> None:
    """Refuse a batch whose watermark would pass over rows that the rule has not read."""
    mark = session.one("ledger.watermark", (firing.rule_id,))
    position = 0 if mark is None else mark[0]
    if firing.after.seq > position:
        raise SkippedEpisodesError(firing.rule_id, position, firing.after.seq)
