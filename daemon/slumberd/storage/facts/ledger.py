"""Change what the ledger has recorded: approvals, quarantine, undo, and changes of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from slumberd.consolidation.delta_batch import Condition
from slumberd.consolidation.precedence import MultiValued
from slumberd.model.firing import CHANNELS, HeldBatch, Position, RulePosition
from slumberd.model.predicates import ChannelPlan, Several
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.storage.engine import Session
from slumberd.storage.facts.review import drop_entries, list_quarantine, record_decision
from slumberd.storage.facts.settings_changes import (
    change_channels,
    hold_channels,
    is_set,
    plan_channels,
    rewrite_lineages,
)
from slumberd.storage.facts.transactions import FactTransactions, head_of
from slumberd.storage.facts.watermarks import WatermarkTable
from slumberd.storage.ledger.rows import firing_id_of
from slumberd.storage.ledger.undo import Undoer, UndoneFirings, Wanted, undo, undo_each


class FactLedger:
    """The ledger of a fact store; implements ``Ledger``.

    Attributes:
        watermarks: How far each rule has read.

    Args:
        transactions: The transactions of the store of facts.
        watermarks: Its table of watermarks.
    """

    def __init__(self, transactions: FactTransactions, watermarks: WatermarkTable) -> None:
        self.watermarks = watermarks
        self._transactions = transactions

    async def checkpoint_after_backlog(self) -> None:
        """Checkpoint after a backlog, and checkpoint as usual from now on."""
        await self._transactions.engine.finish_backlog()

    def skip_checkpoint_on_close(self) -> None:
        """Make `close` skip the checkpoint, during a backlog; the next start does it."""
        self._transactions.skips_checkpoint = True

    async def position_of(self, rule_id: str) -> RulePosition:
        """Return where a rule is in the log, and its batch that awaits approval, if any."""

        def work(session: Session) -> RulePosition:
            mark = session.one("ledger.watermark", (rule_id,))
            position = None if mark is None else Position(*mark)
            return RulePosition(position, _read_held(session).get(rule_id))

        return await self._transactions.read(work)

    async def held(self) -> dict[str, HeldBatch]:
        """Return the batches that await approval, or are approved, by rule."""
        return await self._transactions.read(_read_held)

    async def decide(
        self, held: HeldBatch, *, approve: bool, at: datetime, by: str, reason: str = ""
    ) -> None:
        """Approve or reject a batch that awaits approval; the ledger records the decision.

        Args:
            held: The batch.
            approve: Whether the rule commits it at its next firing; else the rule skips it.
            at: The moment.
            by: The person who decides.
            reason: Why; empty without a reason.
        """

        def work(session: Session) -> None:
            depth = self._transactions.lineage_depth
            firing = record_decision(
                session, held, approve=approve, at=at, by=by, depth=depth, reason=reason
            )
            if not approve and held.rule_id != CHANNELS:
                self.watermarks.advance(session, firing)

        await self._transactions.write(work)

    async def head(self) -> Checkpoint:
        """Return the number of the last committed ledger row, and its chain hash."""
        return await self._transactions.read(head_of)

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
        reason: str = "",
    ) -> int:
        """Remove entries from the quarantine; return how many.

        Args:
            rules: Only entries of these rules; None means all.
            episodes: Only entries of these episodes; None means all.
            at: The moment.
            by: The person.
            dry_run: Count, and write nothing.
            reason: Why; empty without a reason.
        """
        entries = [
            entry
            for entry in await self._transactions.read(list_quarantine)
            if rules is None or entry["rule_id"] in rules
            if episodes is None or entry["episode_id"] in episodes
        ]
        if entries:
            depth = self._transactions.lineage_depth
            drop = partial(drop_entries, entries=entries, at=at, by=by, depth=depth, reason=reason)
            await self._transactions.append_batch(drop, keep=not dry_run)
        return len(entries)

    async def undo(  # noqa: PLR0913 # the fields of one request
        self,
        firing_id: str,
        *,
        at: datetime,
        by: str,
        dry_run: bool,
        run: str = "",
        reason: str = "",
        cancelled: Condition | None = None,
    ) -> Outcome:
        """Withdraw every version that a firing was the first to evaluate.

        Args:
            firing_id: The firing of a rule, a manual edit, or an undo.
            at: The moment.
            by: The person.
            dry_run: Return the outcome, and write nothing.
            run: The id of the command that it belongs to.
            reason: Why; empty without a reason.
            cancelled: Called often, in any thread; True cancels the undo. None never cancels.

        Raises:
            StoppedError: `cancelled` returned True; nothing is written.
            UsageError: There is no such firing, or it is an erasure.
        """
        undoer, depth = Undoer(at, by, run, reason), self._transactions.lineage_depth
        return await self._transactions.append_batch(
            lambda session: undo(session, firing_id, depth, undoer),
            keep=not dry_run,
            cancelled=cancelled,
        )

    async def undo_each(
        self,
        wanted: Wanted,
        undoer: Undoer,
        *,
        dry_run: bool,
        limit: int,
        cancelled: Condition | None = None,
    ) -> UndoneFirings:
        """Undo those of some firings that are not undone yet, all in one transaction.

        Args:
            wanted: Which firings.
            undoer: The person, the moment, the run, and the reason.
            dry_run: Return the outcome, and write nothing.
            limit: The most new ledger rows that are returned.
            cancelled: Called often, in any thread; True cancels the undo. None never cancels.

        Raises:
            StoppedError: `cancelled` returned True; nothing is written.
            UsageError: One of the firings is an erasure; nothing was undone.
        """

        def append(session: Session) -> UndoneFirings:
            done = UndoneFirings(limit)
            depth = self._transactions.lineage_depth
            for firing_id, outcome in undo_each(session, wanted, depth, undoer):
                done.add(firing_id, outcome)
            return done

        return await self._transactions.append(append, keep=not dry_run, cancelled=cancelled)

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

    async def plan_channels(self, channels: Mapping[str, Several]) -> ChannelPlan | None:
        """Return what a change of the multi-valued predicates would do; None without a change."""
        target, depth = MultiValued(channels), self._transactions.lineage_depth
        return await self._transactions.read(lambda session: plan_channels(session, target, depth))

    async def hold_channels(self, plan: ChannelPlan, problem: str, *, at: datetime) -> HeldBatch:
        """Let a change of the multi-valued predicates await approval; it may wait already."""
        depth = self._transactions.lineage_depth
        return await self._transactions.write(
            lambda session: hold_channels(session, plan, problem, depth, at)
        )

    async def set_channels(self, channels: Mapping[str, Several], *, at: datetime) -> list[Outcome]:
        """Store which predicates are multi-valued, and resolve the keys that this changes.

        Some keys are resolved at a time. A change that was interrupted goes on.

        Returns:
            The outcomes; none when nothing changed.
        """
        target, depth = MultiValued(channels), self._transactions.lineage_depth
        outcomes = []
        while not await self._transactions.read(lambda session: is_set(session, target)):
            outcomes.append(
                await self._transactions.append_batch(
                    lambda session: change_channels(session, target, depth, at)
                )
            )
        return outcomes


def _read_held(session: Session) -> dict[str, HeldBatch]:
    return {
        rule: HeldBatch(rule, firing_id_of(rule, n), (seq, eid), problem, bool(approved))
        for rule, n, seq, eid, problem, approved in session.rows("ledger.held_batches")
    }
