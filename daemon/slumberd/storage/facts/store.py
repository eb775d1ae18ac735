"""The store of facts: what a host calls, and the parts behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Self, overload

from slumberd.clock import Clock, SystemClock
from slumberd.consolidation.explanation import Explanation
from slumberd.consolidation.graph_promotion import Promoted, ledger_rule_id
from slumberd.consolidation.incoming import Condition, DeltaBatch
from slumberd.consolidation.key_history import KeyHistory
from slumberd.consolidation.manual import (
    ApplyDelta,
    Assert,
    Declare,
    ManualBatch,
    Remove,
    Retract,
    assertion_of,
    lineage_entry,
)
from slumberd.model.arguments import (
    PLAIN,
    plain_value_error,
    require_instant,
    require_iterable,
    require_object,
    require_text,
    require_whole_number,
)
from slumberd.model.delta import Delta, validate_delta
from slumberd.model.episode import microseconds
from slumberd.model.fact import Fact, FactPattern, QuotedEpisode, SupersededByEpisode, assume_utc
from slumberd.model.feed import LedgerChanges
from slumberd.model.firing import START, Firing, Outcome, Trigger, Window
from slumberd.model.record import Break, Checkpoint, ErasedList
from slumberd.model.scope import ScopeFilter
from slumberd.model.store_status import MigrationPlan, StoreHealth
from slumberd.search.vectors import TextComparer
from slumberd.storage.audit.explain import why
from slumberd.storage.audit.key_history import history_of
from slumberd.storage.audit.results import Replay
from slumberd.storage.engine import FactEngine, Session
from slumberd.storage.facts.apply import (
    BACKLOG_ROWS,
    LINEAGE_DEPTH,
    DeltaApplier,
    FactTransactions,
    WatermarkTable,
    record_success,
)
from slumberd.storage.facts.erasures import ErasureTable
from slumberd.storage.facts.index_feed import FactFeed
from slumberd.storage.facts.ledger import FactLedger
from slumberd.storage.facts.promotion_feed import PromotionFeed
from slumberd.storage.facts.reads import FactReader
from slumberd.storage.facts.search import search, search_as_of
from slumberd.storage.facts.stage_changes import read_erasures, read_stage_changes
from slumberd.storage.ledger.fact_rows import find, is_specified
from slumberd.storage.ledger.graph_promotion import promote
from slumberd.storage.ledger.history import read_superseded


class EngineFactStore:
    """Facts and their ledger on any engine; implements `FactStore`.

    Programs call the methods of this class. The daemon and the commands also use its parts.

    Attributes:
        transactions: The transactions, and the only writer.
        reads: Reads of the ledger.
        watermarks: How far each rule has read.
        ledger: Writes batches, edits and undos; implements ``Ledger``.
        erasures: Erases scopes.
        promotion_feed: The promotions for provenance sinks; implements ``Promotions``.
        feed: What an index of the facts reads.

    Args:
        lineage_depth: How many replaced assertions a fact's lineage names.
        comparer: Returns what compares texts, for rules that compare; None when there is none.
        backlog_rows: A batch of so many candidates counts as a backlog.
    """

    def __init__(
        self,
        engine: FactEngine,
        *,
        clock: Clock | None = None,
        lineage_depth: int = LINEAGE_DEPTH,
        comparer: Callable[[], TextComparer] | None = None,
        backlog_rows: int = BACKLOG_ROWS,
    ) -> None:
        self.transactions = FactTransactions(engine, clock or SystemClock(), lineage_depth)
        self.reads = FactReader(self.transactions)
        self.watermarks = WatermarkTable(self.transactions)
        self.ledger = FactLedger(self.transactions, self.watermarks)
        self.erasures = ErasureTable(self.transactions)
        self.promotion_feed = PromotionFeed(self.transactions)
        self.feed = FactFeed(self.transactions)
        self._applier = DeltaApplier(self.transactions, self.watermarks, comparer, backlog_rows)

    @property
    def where(self) -> str:
        """The store in words, for errors and logs."""
        return self.transactions.engine.where

    async def bootstrap(self) -> None:
        """Create the missing tables, of the specification and of slumberd.

        Raises:
            SchemaError: The file is no database, is damaged, or a newer slumberd wrote it.
            LedgerKeyError: The key is not the one that the ledger was begun with.
        """
        await self.transactions.engine.bootstrap()

    async def health(self) -> StoreHealth:
        """Report the health; never raises for the state of the file, and creates nothing."""
        return await self.transactions.engine.health()

    async def pulse(self) -> int:
        """Check that the store answers; return how many rows it has written."""
        return await self.transactions.engine.pulse()

    async def migrate(self, plan: MigrationPlan) -> None:
        """Add nullable columns to ``facts``; existing columns stay as they are.

        Raises:
            MigrationNotSupportedError: The plan asks for anything else; nothing is done.
        """
        require_object("plan", plan, "MigrationPlan")
        await self.bootstrap()
        await self.transactions.engine.migrate(plan, at=self.transactions.clock.now().isoformat())

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
            valid_at: What was true then: only claims of up to that instant count.
            believed_at: What was held then: only what was recorded by that instant counts.

        Raises:
            UsageError: The pattern holds invalid Unicode, or an instant has no time zone.
            PatternError: Its cursor, a glob or a regular expression is invalid.
            ExtraMissingError: It has a regular expression, and the extra ``regex`` is missing.
        """
        require_object("pattern", pattern, "FactPattern")
        require_instant("valid_at", valid_at)
        require_instant("believed_at", believed_at)
        if valid_at is None and believed_at is None:
            finds = find if is_specified(pattern) else search
            return await self.transactions.read(lambda session: finds(session, pattern))
        depth = self.transactions.lineage_depth
        return await self.transactions.read(
            lambda session: search_as_of(session, pattern, depth, valid_at, believed_at)
        )

    async def find_superseded(
        self, episodes: Sequence[QuotedEpisode], *, valid_at: datetime | None = None
    ) -> SupersededByEpisode:
        """Return which claims of quoted episodes are not current any more, by episode.

        Args:
            episodes: The episodes, with the texts that are quoted.
            valid_at: What was true then: only claims of up to that instant count.
        """
        require_instant("valid_at", valid_at)
        if not episodes:
            return {}
        until = None if valid_at is None else microseconds(valid_at)
        depth = self.transactions.lineage_depth
        return await self.transactions.read(
            lambda session: read_superseded(session, episodes, depth=depth, valid_at=until)
        )

    async def pin(self, fact: Fact) -> None:
        """Declare a fact: insert it, or replace the fact of its id.

        A declared fact competes with no other. If its id is that of a current fact of a rule or a
        person, the call is a manual edit of that fact. `correct` states a fact that competes.

        Raises:
            ValueError: The lineage is empty, or the confidence lies outside 0..1.
            InputError: Its id, user or agent holds NUL or invalid Unicode.
            FactConflictError: Another user, agent or channel holds the id.
        """
        require_object("fact", fact, "Fact")
        declared = assertion_of(fact)._replace(pinned_at=microseconds(assume_utc(fact.pinned_at)))
        await self.apply_deltas(ManualBatch([Declare(declared)]))

    async def cited_episodes(self, eids: Sequence[str]) -> set[str]:
        """Return those of the episodes that the lineage of a current fact names.

        Facts of the channels ``marks`` and ``weights`` do not count. This reads all other facts.
        """
        parameters = {"ids": [*eids]}
        rows = await self.transactions.fetch_all("facts.cited_episodes", parameters)
        return {eid for (eid,) in rows}

    async def retracted_by_people(self, fact_ids: Sequence[str]) -> set[str]:
        """Return those of some facts that a manual edit has ever retracted or replaced.

        An edit that was undone counts, too. The facts must not be of the channel ``facts``.
        """
        parameters = {"ids": [*fact_ids]}
        rows = await self.transactions.fetch_all("facts.retracted_by_people", parameters)
        return {fact_id for (fact_id,) in rows}

    async def stage_changes(self, place: Checkpoint | None) -> LedgerChanges:
        """Return which facts of the channels of stages changed after a place of the ledger.

        Args:
            place: None only asks for the last row.
        """
        return await self.transactions.read(lambda session: read_stage_changes(session, place))

    async def erasures_after(self, row: int) -> dict[int, bytes]:
        """Return the chain hash of each erasure after a row of the ledger, by its row."""
        return await self.transactions.read(lambda session: read_erasures(session, row))

    async def unpin(self, fact_id: str) -> None:
        """Remove a declared fact, or retract a promoted one; nothing when it is not current."""
        require_text("fact_id", fact_id)
        await self.apply_deltas(ManualBatch([Remove(fact_id)]))

    async def correct(self, fact: Fact, *, by: str, reason: str) -> None:
        """State a fact as a person: it competes, and is current until a newer episode.

        Args:
            fact: The fact; it replaces the fact of its id. Its lineage may be empty: the store adds
                `by` and `reason`. Its ``pinned_at`` becomes the current instant.

        Raises:
            ValueError: `by` or `reason` is empty, or the confidence lies outside 0..1.
            InputError: Its id, user or agent holds NUL or invalid Unicode.
            FactConflictError: Another user, agent or channel holds the id.
        """
        require_object("fact", fact, "Fact")
        _require_author(by, reason)
        entry = lineage_entry(by, reason, self.transactions.clock.now())
        stated = assertion_of(fact.model_copy(update={"lineage": [*fact.lineage, entry]}))
        await self.apply_deltas(ManualBatch([Assert(stated)], by))

    async def retract(self, *fact_ids: str, by: str, reason: str) -> None:
        """Retract facts as a person; those that are not current stay as they are.

        Args:
            fact_ids: Their ids, declared or promoted.

        Raises:
            ValueError: `by` or `reason` is empty.
        """
        for fact_id in fact_ids:
            require_text("fact_ids", fact_id)
        _require_author(by, reason)
        lineage = (lineage_entry(by, reason, self.transactions.clock.now()),)
        await self.apply_deltas(ManualBatch([Retract(fact_ids, lineage)], by))

    async def apply_delta(self, delta: Delta, *, strict: bool = False) -> None:
        """Apply one delta, whole or not at all; applying it again changes nothing.

        Args:
            delta: From ``MemoryStore.consolidate``, or of the caller's own; of any class, since
                its ``kind`` defines it.
            strict: Refuse ids in ``replaces`` that no fact ever had.

        Raises:
            ConsolidationRuleError: It is not a delta, or its provenance is incomplete; also a
                ``ValueError``.
            InputError: An id of it, its user or its agent holds NUL or invalid Unicode.
            FactConflictError: It names a fact of another user, agent or channel, or an id in
                ``replaces`` is unknown and `strict` is set.
        """
        await self.apply_deltas(ManualBatch([ApplyDelta(validate_delta(delta), strict)]))

    @overload
    async def apply_deltas(
        self,
        batch: DeltaBatch,
        *,
        dry_run: bool = False,
        on_decided: Callable[[], None] | None = None,
        cancelled: Condition | None = None,
    ) -> Outcome: ...

    @overload
    async def apply_deltas(
        self, batch: ManualBatch, *, dry_run: bool = False
    ) -> Outcome | None: ...

    async def apply_deltas(
        self,
        batch: DeltaBatch | ManualBatch,
        *,
        dry_run: bool = False,
        on_decided: Callable[[], None] | None = None,
        cancelled: Condition | None = None,
    ) -> Outcome | None:
        """Apply a batch: facts, ledger, quarantine and watermark, in one transaction.

        Only this changes facts: what rules request for a window, and what people and programs
        edit. The batch of a window that would delete too many facts is held back for approval.

        Args:
            batch: From ``MemoryStore.consolidate`` with a window, or manual edits.
            dry_run: Return the outcome, and write nothing.
            on_decided: Called, in any thread, when only the writing of the batch is left.
            cancelled: Called often, in any thread; True cancels the batch. None never cancels.

        Returns:
            What changed; None when manual edits changed nothing.

        Raises:
            FactConflictError: An edit names a fact of another user, agent or channel.
            InputError: A value of an edit cannot be stored unchanged.
            SkippedEpisodesError: The batch begins after episodes that its rule has not read.
            StoppedError: `cancelled` returned True; nothing is written.
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        if isinstance(batch, ManualBatch):
            return await self._applier.edit(batch, dry_run=dry_run)
        if type(batch) in PLAIN:
            raise plain_value_error("batch", batch, "DeltaBatch")
        return await self._applier.apply(
            batch, dry_run=dry_run, on_decided=on_decided, cancelled=cancelled
        )

    async def checkpoint_after_backlog(self) -> None:
        """Checkpoint after a backlog, and checkpoint as usual from now on."""
        await self.transactions.engine.finish_backlog()

    def skip_checkpoint_on_close(self) -> None:
        """Make `close` skip the checkpoint, during a backlog; the next start does it."""
        self.transactions.skips_checkpoint = True

    async def next_window(self, rule_id: str, *, limit: int = 5_000) -> Window:
        """Return the window after what a rule has read; a new rule begins with the log.

        Args:
            limit: At most this many log rows.
        """
        require_text("rule_id", rule_id)
        require_whole_number("limit", limit)
        return Window(await self.watermarks.position(rule_id) or START, limit=limit)

    async def promote(  # noqa: PLR0913 # the fields of its ledger rows
        self,
        facts: Sequence[Fact],
        *,
        rule_id: str,
        rule_hash: str = "",
        trigger: Trigger = "manual",
        at: datetime | None = None,
        by: str = "",
        dry_run: bool = False,
        run: str = "",
        reason: str = "",
    ) -> Promoted:
        """Promote those facts of a graph that are new, in one transaction and one firing.

        An unchanged triple is not promoted again, whatever happened to its fact. Neither is a fact
        that a person has retracted or replaced.

        Args:
            facts: From `model.graph.facts_of`.
            rule_id: The rule that promotes; `ledger_rule_id` gives the id that the ledger records.
            rule_hash: The hash of the rule's content; empty for a rule without a file.
            trigger: What started it.
            at: The instant; None means now.
            by: The person who started it; empty for the rule itself.
            dry_run: Return the outcome, and write nothing.
            run: The id of the command or the due cadence that it belongs to.
            reason: Why that person started it; empty without a reason.

        Raises:
            InputError: A fact cannot be stored unchanged.
        """
        now = self.transactions.clock.now() if at is None else at
        author = f"rule:{rule_id}" + (f", {by}" if by else "")
        firing = Firing(
            ledger_rule_id(rule_id), rule_hash, trigger, now, by=author, run=run, reason=reason
        )

        def append(session: Session) -> Promoted:
            promoted = promote(session, facts, self.transactions.lineage_depth, firing)
            record_success(session, rule_id, now)
            return promoted

        return await self.transactions.append(append, keep=not dry_run)

    async def why(self, fact_id: str) -> Explanation:
        """Explain how a fact became current, or how it was removed.

        Raises:
            NoInputError: Neither the facts nor the ledger have the id.
        """
        require_text("fact_id", fact_id)
        return await self.transactions.read(lambda session: why(session, fact_id))

    async def history(self, fact_id: str, scope: ScopeFilter, *, most: int) -> KeyHistory:
        """Return which values of a fact's key were current, and when.

        Args:
            fact_id: The fact; it need not be current.
            scope: Whose fact it must be.
            most: At most so many periods of each clock, the latest ones.

        Raises:
            NoInputError: The scope has never had such a fact.
        """
        depth = self.transactions.lineage_depth
        return await self.transactions.read(
            lambda session: history_of(session, fact_id, scope, depth=depth, most=most)
        )

    async def replay(self, path: Path) -> Replay:
        """Rebuild the facts in a new file from the ledger alone, and compare.

        Args:
            path: The new file.

        Raises:
            OutputExistsError: The new file exists already.
            LedgerKeyError: The store does not have the key of the ledger's first row.
        """
        raise NotImplementedError

    async def verify(
        self,
        against: Iterable[Checkpoint] = (),
        *,
        chain_only: bool = False,
        episodes: ErasedList | None = None,
    ) -> tuple[int, str, Break | None]:
        """Recompute the chain, and compare its replay with the facts.

        Args:
            against: Earlier checkpoints of the ledger to compare with; read in another thread.
            chain_only: Whether to check neither the content of the rows nor the facts.
            episodes: The list of erased scopes of the store of episodes; None skips it.

        Returns:
            The number of rows, the head of the chain in hexadecimal, and the first break.

        Raises:
            LedgerKeyError: The store does not have the key of the ledger's first row.
        """
        from slumberd.storage.audit.verify import verify  # the other commands never verify

        require_iterable("against", against)
        depth = self.transactions.lineage_depth
        stopped = Event()
        try:
            return await self.transactions.engine.read(
                lambda session: verify(
                    session, depth, against, chain_only=chain_only, episodes=episodes
                ),
                cancelled=stopped.is_set,
            )
        finally:
            stopped.set()  # a cancelled caller leaves no thread at work

    async def close(self) -> None:
        """Close the file; the next call opens the file that is at the path then."""
        await self.watermarks.save_logged()
        await self.transactions.engine.close(at_once=self.transactions.skips_checkpoint)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _require_author(by: object, reason: object) -> None:
    require_text("by", by)
    require_text("reason", reason)
