"""Protocols of the open stores: what the service, the commands and rule tests use of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol, Self, overload

from slumberd.consolidation.delta_batch import Bounds, Condition, DeltaBatch
from slumberd.consolidation.explanation import Explanation
from slumberd.consolidation.key_history import KeyHistory
from slumberd.consolidation.manual import ManualBatch
from slumberd.consolidation.protocols import CurrentFacts, EpisodeLog, Ledger, Watermarks
from slumberd.graph.promotion import GraphRuleTarget
from slumberd.language_models.budget import AnswerLog
from slumberd.model.delta import AnyDelta
from slumberd.model.episode import LATEST, Episode
from slumberd.model.erasures import ErasedList, RecordedErasures, Rewrite
from slumberd.model.firing import HeldBatch, Window
from slumberd.model.predicates import ChannelPlan, Several
from slumberd.model.record import Break, Checkpoint, Outcome, Record
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeFilter
from slumberd.operations.ledger_reader import LedgerReader
from slumberd.provenance.publisher import Promotions
from slumberd.retrieval.followed_scopes import EpisodeFeed, SearchedFacts
from slumberd.storage.audit.results import Replay
from slumberd.storage.engine import Scrubbed, Scrubbing
from slumberd.storage.episodes.erasure import Found
from slumberd.storage.episodes.windows import Matching
from slumberd.storage.episodes.writes import Change, PutCounts
from slumberd.storage.ledger.erasure import Erasure, Unfinished
from slumberd.storage.ledger.erasure_search import FactSources, ScopeContent
from slumberd.storage.ledger.future import FutureClaim
from slumberd.storage.ledger.undo import Undoer, UndoneFirings, Wanted
from slumberd.storage.protocols import Epoch, FactStore, MemoryStore, Watch


class OpenStore(Protocol):
    """A store that is closed at the end of its ``async with`` block."""

    @property
    def where(self) -> str:
        """The store in words, for the log."""
        ...

    async def close(self) -> None:
        """Close the store; the next use opens it again."""
        ...

    async def __aenter__(self) -> Self:
        """Return the store."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """Close the store."""
        ...


class Episodes(MemoryStore, EpisodeLog, OpenStore, Protocol):
    """An open store of episodes."""

    @overload
    async def consolidate(self, rule: ConsolidationRule) -> list[AnyDelta]: ...

    @overload
    async def consolidate(
        self, rule: ConsolidationRule, *, window: Window, bounds: Bounds = ...
    ) -> DeltaBatch: ...

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
        ...

    async def put_each(self, episodes: Sequence[Episode], *, strict: bool = False) -> list[Change]:
        """Write episodes as `put_many` does; return what each of them changed.

        Raises:
            RecordRefusedError: One of them is refused, and nothing is written; its cause says why.
        """
        ...

    async def matching(self, rule: ConsolidationRule) -> Matching:
        """Count what a rule's filter selects now of all episodes, in one snapshot.

        Raises:
            FilterError: The rule's filter must not run, or ran over its budget.
        """
        ...

    def watch(self, notify: Callable[[], object], *, poll_seconds: float) -> Watch:
        """Return a watch that, once entered, calls back soon after any process commits.

        Args:
            notify: The callback; may be called from another thread.
            poll_seconds: How long a commit may go unnoticed.
        """
        ...

    async def pulse(self) -> int:
        """Check that the store answers; return how many rows it has written."""
        ...

    @property
    def feed(self) -> EpisodeFeed:
        """What indexes of the episodes read."""
        ...

    @property
    def answers(self) -> AnswerLog:
        """The questions for language models, and their recorded answers."""
        ...

    def stop(self) -> None:
        """End the reads that run, and those that begin later, with `StoppedError`."""
        ...

    async def episodes_in(self, scope: ScopeFilter, *, latest: int = LATEST) -> Found:
        """Return the episodes of a scope.

        Args:
            scope: The scope.
            latest: The last instant that is not still to come, microseconds.
        """
        ...

    async def episodes_named(self, scope: ScopeFilter, eids: Iterable[str]) -> Found:
        """Return those of some episodes that are of a scope."""
        ...

    async def users_of(self, eids: Iterable[str]) -> set[str]:
        """Return the users of some episodes."""
        ...

    async def ids_outside(self, scope: ScopeFilter, eids: Iterable[str]) -> set[str]:
        """Return those of the ids that belong to an episode outside of a scope."""
        ...

    async def erased_scopes(self) -> ErasedList:
        """Return the list of erased scopes."""
        ...

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
            scope: The scope.
            eids: Ids of its episodes that their host has deleted before.
            moment: Microseconds since 1970 UTC; None erases only the episodes with these ids, and
                refuses them from now on.
            key: The key of the hashes of scopes, if this store has none yet.

        Returns:
            The number of erased rows, by table.
        """
        ...

    async def learn_erased(self, key: bytes, moments: Iterable[Mapping[bytes, int]]) -> None:
        """Record the erased scopes of other stores that have the same key."""
        ...

    async def scrub(self, how: Scrubbing = Scrubbing()) -> Scrubbed:  # noqa: B008 # immutable
        """Remove the bytes of erased rows from the store and its logs; return what was done."""
        ...


class RuleProgressTable(Watermarks, Protocol):
    """How far each rule has read, and when it last succeeded."""

    async def successes(self) -> dict[str, datetime]:
        """Return the instant of each rule's last successful firing."""
        ...


class EditableLedger(Ledger, Protocol):
    """A ledger that people and settings change, too."""

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
        ...

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
        ...

    async def future_instants(self) -> Mapping[str, Sequence[int]]:
        """Return the instants of each rule's quarantined episodes of the future, in order.

        They are microseconds since 1970 UTC.
        """
        ...

    async def future_facts(self, latest: int) -> Sequence[FutureClaim]:
        """Return the current facts whose claims are later than an instant, in microseconds."""
        ...

    async def withdraw_future(
        self, latest: int, undoer: Undoer, *, dry_run: bool = False
    ) -> list[Outcome]:
        """Withdraw the claims later than an instant into the quarantine, in one transaction.

        Args:
            latest: Microseconds since 1970 UTC.
            undoer: The person, the moment, the run, and the reason.
            dry_run: Return the outcomes, and write nothing.
        """
        ...

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
        ...

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
        ...

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
        ...

    async def notice_external(self) -> list[Record]:
        """Record what other programs changed in the facts; return the new ledger rows.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        ...

    async def rewrite_facts(self, *, at: datetime) -> int:
        """Rewrite every fact when the configured depth of lineages has changed.

        Returns:
            The number of keys; 0 when the depth is unchanged.
        """
        ...

    async def adopt_law(self, *, at: datetime) -> Outcome | None:
        """Resolve from now on under the newest law, and record what it makes of the facts."""
        ...

    async def plan_channels(self, channels: Mapping[str, Several]) -> ChannelPlan | None:
        """Return what a change of the multi-valued predicates would do; None without a change."""
        ...

    async def hold_channels(self, plan: ChannelPlan, problem: str, *, at: datetime) -> HeldBatch:
        """Let a change of the multi-valued predicates await approval; it may wait already."""
        ...

    async def set_channels(self, channels: Mapping[str, Several], *, at: datetime) -> list[Outcome]:
        """Store which predicates are multi-valued, and resolve the keys that this changes.

        Some keys are resolved at a time. A change that was interrupted goes on.

        Returns:
            The outcomes; none when nothing changed.
        """
        ...


class FactErasures(Protocol):
    """Erases scopes from facts and ledger, and keeps the keyed hashes of erased scopes."""

    async def forget(  # noqa: PLR0913 # the fields of one request
        self,
        scope: ScopeFilter,
        eids: Iterable[str] = (),
        *,
        kept: Iterable[str] = (),
        alone: Iterable[str] = (),
        edits: Iterable[str] = (),
        key: bytes | None = None,
        moment: int | None,
        at: datetime,
        by: str,
        dry_run: bool,
        reason: str = "",
        cancelled: Condition | None = None,
    ) -> Erasure:
        """Erase a scope, or single episodes, and resolve what is left.

        `scrub` then removes the bytes.

        Args:
            scope: The scope.
            eids: Ids of its episodes; the ledger need not know them.
            kept: Those of them that now belong to an episode of another scope.
            alone: Those of them that are erased by their ids, whatever their instants.
            edits: Facts of manual edits and of other programs that are erased.
            key: The key of the hashes of scopes, if this store has none yet.
            moment: The last erased instant, microseconds; not before the scope's newest instant.
                None erases only the episodes of `alone`, and `edits`.
            at: The moment of the request.
            by: The person.
            dry_run: Return the outcome, and write nothing.
            reason: Why; empty without a reason. Later erasures keep it.
            cancelled: Called often, in any thread; True cancels the erasure. None never cancels.

        Raises:
            StoppedError: `cancelled` returned True; nothing is written.
        """
        ...

    async def end(self, erasures: Collection[Unfinished]) -> None:
        """Record that some erasures are complete in the store of episodes, too."""
        ...

    async def learn(self, key: bytes, moments: Iterable[Mapping[bytes, int]]) -> None:
        """Record the erased scopes of other stores that have the same key."""
        ...

    async def scrub(self, how: Scrubbing = Scrubbing()) -> Scrubbed:  # noqa: B008 # immutable
        """Remove the bytes of erased rows from the store and its logs; return what was done."""
        ...

    async def rewrites(self) -> list[Rewrite]:
        """Return which stores may have bytes of erasures, by store and row."""
        ...

    async def note_rewritten(self, some: Collection[Rewrite]) -> None:
        """Record that only the logs of some stores have old bytes."""
        ...

    async def end_rewrites(self, some: Collection[Rewrite]) -> None:
        """Record that no byte of some erasures is left in a store."""
        ...

    async def episodes_in(self, scope: ScopeFilter, *, latest: int = LATEST) -> ScopeContent:
        """Return what the ledger knows of a scope.

        Args:
            scope: The scope.
            latest: The last instant that is not still to come, microseconds.
        """
        ...

    async def sources_of(self, scope: ScopeFilter, fact_id: str) -> FactSources | None:
        """Return where a fact of a scope comes from; None when the scope never had it."""
        ...

    async def knows_episode(self, scope: ScopeFilter, eid: str) -> bool:
        """Return whether the ledger has content that comes from an episode of a scope."""
        ...

    async def owners_of(self, fact_ids: Collection[str]) -> set[str]:
        """Return the users that have claims of some fact ids."""
        ...

    async def find_unfinished(self) -> list[Unfinished]:
        """Return the erasures that may be incomplete in the store of episodes."""
        ...

    async def scopes(self) -> ErasedList:
        """Return the list of erased scopes."""
        ...

    async def recorded(self) -> RecordedErasures:
        """Return the erased scopes that the ledger records."""
        ...

    async def covers(self, scope: ScopeFilter) -> bool:
        """Return whether the scope, or a wider one, was erased before."""
        ...

    async def has_erased(self, user: str, eid: str) -> bool:
        """Return whether an episode of a user was erased by its id."""
        ...


class FactWriter(Epoch, Protocol):
    """The state of the one process that writes the facts."""

    async def scope_key(self) -> bytes:
        """Return the key that hashes users and agents in log lines; the first call draws it."""
        ...


class Facts(CurrentFacts, FactStore, GraphRuleTarget, OpenStore, SearchedFacts, Protocol):
    """An open store of facts."""

    @property
    def transactions(self) -> FactWriter:
        """Its writer."""
        ...

    @property
    def reads(self) -> LedgerReader:
        """Reads of the ledger."""
        ...

    @property
    def watermarks(self) -> RuleProgressTable:
        """How far each rule has read."""
        ...

    @property
    def ledger(self) -> EditableLedger:
        """Writes batches, edits and undos."""
        ...

    @property
    def erasures(self) -> FactErasures:
        """Erases scopes."""
        ...

    @property
    def promotion_feed(self) -> Promotions:
        """The promotions for provenance sinks."""
        ...

    @overload
    async def apply_deltas(
        self,
        batch: DeltaBatch,
        *,
        dry_run: bool = False,
        on_decided: Callable[[], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Outcome: ...

    @overload
    async def apply_deltas(
        self, batch: ManualBatch, *, dry_run: bool = False
    ) -> Outcome | None: ...

    async def pulse(self) -> int:
        """Check that the store answers; return how many rows it has written."""
        ...

    async def replay(self, path: Path) -> Replay:
        """Rebuild the facts in a new file from the ledger alone, and compare.

        Raises:
            OutputExistsError: The new file exists already.
            LedgerKeyError: The store does not have the key of the ledger's first row.
        """
        ...

    async def why(self, fact_id: str) -> Explanation:
        """Explain how a fact became current, or how it was removed.

        Raises:
            NoInputError: Neither the facts nor the ledger have the id.
        """
        ...

    async def history(self, fact_id: str, scope: ScopeFilter, *, most: int) -> KeyHistory:
        """Return which values of a fact's key were current, and when.

        Args:
            fact_id: The fact; it need not be current.
            scope: Whose fact it must be.
            most: At most so many periods of each clock, the latest ones.

        Raises:
            NoInputError: The scope has never had such a fact.
        """
        ...

    async def verify(
        self,
        against: Iterable[Checkpoint] = (),
        *,
        chain_only: bool = False,
        episodes: ErasedList | None = None,
    ) -> tuple[int, str, Break | None]:
        """Recompute the chain, and compare its replay with the facts.

        Args:
            against: Earlier checkpoints of the ledger to compare with.
            chain_only: Whether to check neither the content of the rows nor the facts.
            episodes: The list of erased scopes of the store of episodes; None skips it.

        Returns:
            The number of rows, the head of the chain in hexadecimal, and the first break.
        """
        ...
