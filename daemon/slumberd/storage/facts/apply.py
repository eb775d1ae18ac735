"""Apply batches and manual edits: the transactions of a fact store, and where each rule is."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

import orjson

from slumberd.clock import Clock
from slumberd.consolidation.incoming import Candidate, Condition, DeltaBatch, future_detail, never
from slumberd.consolidation.manual import ManualBatch
from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.consolidation.withdrawal import withdraw
from slumberd.model.episode import FUTURE_TOLERANCE_SECONDS, latest_at, microseconds
from slumberd.model.episode import instant as as_instant
from slumberd.model.errors import ExtraMissingError, SkippedEpisodesError, StoreError
from slumberd.model.firing import (
    Firing,
    HeldBatch,
    HeldScope,
    Outcome,
    Position,
    Record,
    RulePosition,
)
from slumberd.model.record import Checkpoint
from slumberd.search.vectors import TextComparer
from slumberd.storage.engine import FactEngine, Row, Session, Values, Work
from slumberd.storage.facts.review import hold_batch, read_held
from slumberd.storage.ledger.batch import Batch, OverLimitError, number
from slumberd.storage.ledger.external_changes import record_changes
from slumberd.storage.ledger.firings import records_after
from slumberd.storage.ledger.future import withdraw_future
from slumberd.storage.ledger.manual_edits import FutureClaimFound, ManualEdits
from slumberd.storage.ledger.rows import GENESIS
from slumberd.storage.ledger.similarity import BatchSimilarity
from slumberd.storage.ledger.state_loader import read_end
from slumberd.storage.ledger.undo import Undoer

_SCOPE_KEY = "scope_key_1", "scope_key_2"
"""Two numbers in the store; together they are the key that hashes scopes in log lines."""

_NUMBER_BITS = 63
"""Bits of a number without its sign."""

LINEAGE_DEPTH = 8
"""How many replaced assertions a fact's lineage names, unless configured otherwise."""

BACKLOG_ROWS = 2_000
"""A batch of so many candidates counts as a backlog."""

_EVERYTHING = 2**63 - 1

Candidates = Mapping[str, Sequence[Candidate]]
"""Candidates by channel."""

T = TypeVar("T")


def read_scope_key(session: Session) -> bytes:
    """Return the key that hashes users and agents in log lines; empty when none was drawn."""
    halves = [number(session, name) for name in _SCOPE_KEY]
    return b"" if None in halves else b"".join(half.to_bytes(8) for half in halves)


class FactTransactions:
    """The transactions of a store of facts and their ledger.

    Attributes:
        lineage_depth: How many replaced assertions a fact's lineage names.
        skips_checkpoint: Whether the store must close without a checkpoint.
        future_tolerance_seconds: How far ahead of the clock an instant is not of the future.
    """

    def __init__(
        self, engine: FactEngine, clock: Clock, lineage_depth: int = LINEAGE_DEPTH
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.lineage_depth = lineage_depth
        self.skips_checkpoint = False
        self.future_tolerance_seconds = FUTURE_TOLERANCE_SECONDS

    async def take_over(self) -> int:
        """Become the only writer: earlier writers can commit no more. Return the new epoch."""
        return await self.engine.take()

    async def scope_key(self) -> bytes:
        """Return the key that hashes users and agents in log lines; the first call draws it.

        The key is random. The store keeps it.
        """

        def work(session: Session) -> bytes:
            for name in _SCOPE_KEY:
                drawn = secrets.randbits(_NUMBER_BITS)
                session.do("ledger.add_number", {"name": name, "value": drawn})
            return read_scope_key(session)

        return await self.write(work)

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot, and return its result."""
        return await self.engine.read(work)

    async def fetch_one(self, query: str, values: Values = ()) -> Row | None:
        """Return the first row of a named query; None without rows."""
        return await self.engine.read(lambda session: session.one(query, values))

    async def fetch_all(self, query: str, values: Values = ()) -> list[Row]:
        """Return the rows of a named query."""
        return await self.engine.read(lambda session: session.rows(query, values))

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction, and return its result.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        return await self.engine.write(work)

    async def append(
        self,
        work: Work[T],
        *,
        keep: bool = True,
        cancelled: Callable[[], bool] | None = None,
    ) -> T:
        """Run `work`, which appends to the ledger, in one transaction; return its result.

        Changes of other programs are recorded first.

        Args:
            work: Appends the rows.
            keep: Whether to commit; else nothing is written.
            cancelled: Called often, in any thread; True cancels the transaction.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
            StoppedError: `cancelled` returned True; nothing is written.
        """

        def append(session: Session) -> T:
            self._record_changes(session)
            return work(session)

        return await self.engine.write(append, keep=keep, cancelled=cancelled)

    async def append_batch(
        self,
        work: Work[Outcome],
        *,
        keep: bool = True,
        cancelled: Callable[[], bool] | None = None,
        bulk: bool = False,
    ) -> Outcome:
        """Append as `append` does; the outcome includes the changes of other programs.

        Args:
            work: Appends the rows.
            keep: Whether to commit; else nothing is written.
            cancelled: Called often, in any thread; True cancels the transaction.
            bulk: Whether the transaction is part of a backlog.
        """

        def append(session: Session) -> Outcome:
            noticed = self._record_changes(session)
            return replace(work(session), noticed=noticed)

        return await self.engine.write(append, keep=keep, cancelled=cancelled, bulk=bulk)

    def _record_changes(self, session: Session) -> list[Record]:
        if not _has_external_changes(session):
            return []
        return record_changes(session, self.lineage_depth, self.clock.now())

    async def notice_external(self) -> list[Record]:
        """Record what other programs changed in the facts; return the new ledger rows.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        await self.engine.check_writer()
        if not await self.read(_has_external_changes):
            return []
        return await self.engine.write(self._record_changes)


def _has_external_changes(session: Session) -> bool:
    """Return whether another program changed a fact, and the ledger does not say so yet."""
    return bool(session.value("external_changes.any_change"))


def head_of(session: Session) -> Checkpoint:
    """Return the number of the last ledger row, and its chain hash."""
    row = session.one("ledger.last_row")
    return Checkpoint(*row) if row else Checkpoint(0, GENESIS)


def has_row(session: Session, place: Checkpoint) -> bool:
    """Return whether the ledger has just this row; it has the place before its first row."""
    return not place.rows or session.one("ledger.chain_at", (place.rows,)) == (place.head,)


def set_number(session: Session, name: str, value: int) -> None:
    """Set what `number` returns."""
    session.do("ledger.set_number", {"name": name, "value": value})


class WatermarkTable:
    """Where each rule is: watermark, served instant, last success, and what it waits for.

    A rule may wait for the approval of a batch, and for the instants of quarantined episodes. The
    class implements ``Watermarks``.
    """

    def __init__(self, transactions: FactTransactions) -> None:
        self._transactions = transactions
        self._logged = 0

    async def position(self, rule_id: str) -> Position | None:
        """Return the last position that a rule has read; None for an unknown rule."""
        row = await self._transactions.fetch_one("ledger.watermark", (rule_id,))
        return Position(*row) if row else None

    async def positions(self) -> dict[str, tuple[Position, datetime]]:
        """Return every rule's watermark, and the last cron instant that it has served."""
        return {
            rule: (Position(seq, eid), as_instant(served))
            for rule, seq, eid, served in await self._transactions.fetch_all("ledger.watermarks")
        }

    async def batch_ends(self, rule_id: str) -> list[Position]:
        """Return every position at which a batch of the rule ended, newest first."""
        return [
            Position(*row)
            for row in await self._transactions.fetch_all("ledger.batch_ends", (rule_id,))
        ]

    async def served(self, rule_id: str) -> datetime | None:
        """Return the instant up to which a rule's cron instants are served."""
        row = await self._transactions.fetch_one("ledger.served", (rule_id,))
        return as_instant(row[0]) if row else None

    async def successes(self) -> dict[str, datetime]:
        """Return when each rule's last successful firing began."""
        found = await self._transactions.fetch_all("ledger.successes")
        return {rule: as_instant(at) for rule, at in found}

    async def position_of(self, rule_id: str) -> RulePosition:
        """Return where a rule is in the log, and its batch that awaits approval, if any."""

        def work(session: Session) -> RulePosition:
            mark = session.one("ledger.watermark", (rule_id,))
            position = None if mark is None else Position(*mark)
            return RulePosition(position, _held(session).get(rule_id))

        return await self._transactions.read(work)

    async def held(self) -> dict[str, HeldBatch]:
        """Return the batches that await approval, or are approved, by rule."""
        return await self._transactions.read(_held)

    async def last_recorded_at(self) -> datetime | None:
        """Return the instant of the last batch; None before the first one."""
        end = await self._transactions.read(read_end)
        return as_instant(end.at) if end.has_batches else None

    async def future_of_rules(self) -> dict[str, datetime]:
        """Return the first instant that is still to come of each rule's quarantined episodes."""
        found = await self._transactions.fetch_all("ledger.future_of_rules")
        return {rule: datetime.fromisoformat(detail) for rule, detail in found}

    async def future_upto(self, rule_id: str, latest: int, *, limit: int) -> list[str]:
        """Return the first episodes of the future, up to an instant, that wait for a rule.

        Args:
            latest: Microseconds since 1970 UTC.
        """
        values = {"rule": rule_id, "latest": future_detail(latest), "limit": limit}
        return [row[0] for row in await self._transactions.fetch_all("ledger.future_upto", values)]

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        """Record the first watermark and served instant of a new rule."""
        first = {"rule": rule_id, **at._asdict(), "served": microseconds(served)}
        await self._transactions.write(lambda session: session.do("ledger.first_watermark", first))

    async def rewind(self, rule_id: str, to: Position) -> None:
        """Move a rule's watermark back, after the episodes were restored from a backup.

        The first rule that notices begins a new generation of the log: the versions of the new
        generation count as newer than all versions before.
        """

        def work(session: Session) -> None:
            _set_watermark(session, rule_id, to)
            session.do("ledger.drop_held_batch", {"rule": rule_id, "seq": _EVERYTHING})
            generations = session.rows("ledger.generations")
            generation = generations[0][1] if generations else 0
            last = session.one("ledger.last_generation", (rule_id,))
            if last and last[0] == generation:
                session.do("ledger.add_generation", (generation + 1, to.seq))

        await self._transactions.write(work)

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant; never move back.

        Args:
            instant: The last cron instant that is served.
            succeeded_at: When the firing for it began; None when there was no firing.
        """

        def work(session: Session) -> None:
            served = {"rule": rule_id, "served": microseconds(instant)}
            session.do("ledger.set_served", served)
            if succeeded_at is not None:
                record_success(session, rule_id, succeeded_at)

        await self._transactions.write(work)

    async def correct_served(self, rule_id: str, now: datetime) -> None:
        """Move the served instant of a rule back to now; it was recorded by a wrong clock."""
        served = {"rule": rule_id, "served": microseconds(now)}
        await self._transactions.write(lambda session: session.do("ledger.correct_served", served))

    async def unlogged(self, *, limit: int) -> list[Record]:
        """Return ledger rows whose log lines may not have been written, oldest first."""
        return await self._transactions.read(
            lambda session: records_after(session, self._logged_in(session), limit)
        )

    async def mark_logged(self, seq: int) -> None:
        """Record that the log lines up to a ledger row are written; saved with the next commit."""
        self._logged = max(self._logged, seq)

    async def save_logged(self) -> None:
        """Save up to which row the log lines are written, if the file can be written."""
        if self._logged:
            with suppress(StoreError):  # then the next start writes these lines again
                await self._transactions.write(self.save_logged_in)

    def save_logged_in(self, session: Session) -> None:
        """Save up to which row the log lines are written, in the caller's transaction."""
        session.do("ledger.raise_number", {"name": "logged", "value": self._logged})

    def advance(self, session: Session, firing: Firing) -> None:
        """Move a rule's watermark to the end of a batch, in the caller's transaction."""
        _set_watermark(session, firing.rule_id, firing.upto)
        session.do("ledger.drop_held_batch", {"rule": firing.rule_id, "seq": firing.upto.seq})

    def _logged_in(self, session: Session) -> int:
        return max(self._logged, number(session, "logged"))


def _held(session: Session) -> dict[str, HeldBatch]:
    """Return what awaits approval, or is approved: nothing, as a rule."""
    return read_held(session) if session.rows("ledger.held_batches") else {}


def record_success(session: Session, rule_id: str, at: datetime) -> None:
    """Record when the last successful firing of a rule began, in the caller's transaction."""
    session.do("ledger.set_success", {"rule": rule_id, "at": microseconds(at)})


def _set_watermark(session: Session, rule_id: str, to: Position) -> None:
    session.do("ledger.set_watermark", {"rule": rule_id, **to._asdict(), "served": 0})


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
