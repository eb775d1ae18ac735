"""Change what the ledger has recorded: approvals, quarantine, undo, and changes of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from slumberd.consolidation.incoming import FUTURE, Condition
from slumberd.consolidation.precedence import MultiValued, newest_law
from slumberd.model.firing import (
    CHANNELS,
    DeletionImpact,
    Firing,
    HeldBatch,
    HeldScope,
    Outcome,
    Record,
)
from slumberd.model.predicates import ChannelPlan, Several
from slumberd.model.record import Checkpoint
from slumberd.storage.engine import Session
from slumberd.storage.facts.apply import FactTransactions, WatermarkTable, head_of
from slumberd.storage.facts.review import (
    accept_clock,
    drop_entries,
    hold_batch,
    list_quarantine,
    read_rejections,
    record_decision,
)
from slumberd.storage.facts.settings_changes import (
    change_channels,
    change_law,
    hold_channels,
    is_set,
    plan_channels,
    rewrite_lineages,
)
from slumberd.storage.ledger.future import (
    FutureClaim,
    find_future_facts,
    future_instants,
    withdraw_future,
)
from slumberd.storage.ledger.state_loader import law_at
from slumberd.storage.ledger.undo import Undoer, UndoneFirings, Wanted, undo, undo_each


class FactLedger:
    """The ledger of a fact store; implements ``Ledger``.

    Attributes:
        watermarks: How far each rule has read.

    Args:
        transactions: The transactions of the store of facts.
    """

    def __init__(self, transactions: FactTransactions, watermarks: WatermarkTable) -> None:
        self.watermarks = watermarks
        self._transactions = transactions

    async def decide(
        self, held: HeldBatch, *, approve: bool, at: datetime, by: str, reason: str = ""
    ) -> None:
        """Approve or reject a batch that awaits approval; the ledger records the decision.

        Args:
            approve: Whether the rule commits it at its next firing; else the rule skips it.
            by: The person who decides.
            reason: Why; empty without a reason.
        """

        def work(session: Session) -> None:
            depth = self._transactions.lineage_depth
            firing = record_decision(
                session, held, approve=approve, at=at, by=by, depth=depth, reason=reason
            )
            if not approve and not held.scope.again and held.rule_id != CHANNELS:
                self.watermarks.advance(session, firing)

        await self._transactions.write(work)

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
        depth = self._transactions.lineage_depth
        return await self._transactions.append_batch(
            lambda session: hold_batch(
                session, firing, problem, scope, impact, depth, instead_of=instead_of
            )
        )

    async def rejections(self, rule_id: str, rule_hash: str) -> dict[str, HeldScope]:
        """Return what people rejected of a rule with this content, by the held firing's id."""
        return await self._transactions.read(
            lambda session: read_rejections(session, rule_id, rule_hash)
        )

    async def head(self) -> Checkpoint:
        """Return the number of the last committed ledger row, and its chain hash."""
        return await self._transactions.read(head_of)

    async def quarantined_of(self, rule_id: str) -> list[str]:
        """Return the ids of the episodes that are quarantined for a rule, in order."""
        return [
            row[0] for row in await self._transactions.fetch_all("ledger.quarantined", (rule_id,))
        ]

    async def accept_clock(
        self, *, at: datetime, by: str, dry_run: bool = False, reason: str = ""
    ) -> Outcome:
        """Record that the clock is right, and that later recorded instants come from a wrong one.

        Args:
            at: What the clock says.
            by: The person; empty when the kernel reports a synchronised clock.
            dry_run: Return the outcome, and write nothing.
            reason: Why; empty without a reason.
        """
        depth = self._transactions.lineage_depth
        accept = partial(accept_clock, at=at, by=by, depth=depth, reason=reason)
        return await self._transactions.append_batch(accept, keep=not dry_run)

    async def future_instants(self) -> dict[str, list[int]]:
        """Return the instants of each rule's quarantined episodes of the future, in order.

        They are microseconds since 1970 UTC.
        """
        return future_instants(await self._transactions.fetch_all("ledger.future_instants"))

    async def future_facts(self, latest: int) -> list[FutureClaim]:
        """Return the current facts whose claims are later than an instant, in microseconds."""
        return await self._transactions.read(partial(find_future_facts, latest=latest))

    async def withdraw_future(
        self, latest: int, undoer: Undoer, *, dry_run: bool = False
    ) -> list[Outcome]:
        """Withdraw the claims later than an instant into the quarantine, in one transaction.

        Args:
            latest: Microseconds since 1970 UTC.
            undoer: The person, the moment, the run, and the reason.
            dry_run: Return the outcomes, and write nothing.
        """

        def append(session: Session) -> list[Outcome]:
            return [*withdraw_future(session, latest, self._transactions.lineage_depth, undoer)]

        return await self._transactions.append(append, keep=not dry_run)

    async def drop_future(self, rule_id: str, episodes: Sequence[str], *, at: datetime) -> None:
        """Remove episodes whose instant has come, and that a rule no longer selects.

        Args:
            episodes: Their ids.
        """
        wanted = set(episodes)
        entries = [
            entry
            for entry in await self._transactions.read(list_quarantine)
            if entry["rule_id"] == rule_id and entry["reason"] == FUTURE
            if entry["episode_id"] in wanted
        ]
        if entries:
            depth = self._transactions.lineage_depth
            drop = partial(drop_entries, entries=entries, at=at, by="", depth=depth)
            await self._transactions.append_batch(drop, keep=True)

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

    async def adopt_law(self, *, at: datetime) -> Outcome | None:
        """Resolve from now on under the newest law, and record what it makes of the facts.

        Returns:
            The outcome; None when the ledger is under this law already, or has no rows.

        Raises:
            SchemaError: The ledger is under a newer law.
        """

        def is_newest(session: Session) -> bool:
            return law_at(session) == newest_law()

        depth = self._transactions.lineage_depth
        if await self._transactions.read(is_newest):
            return None
        return await self._transactions.append_batch(
            lambda session: change_law(session, newest_law(), depth, at)
        )

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
