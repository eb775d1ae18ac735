"""The store of facts in one SQLite file: all that writes the specified table and its ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from threading import Event

from slumberd.consolidation.graph_promotion import Promoted, ledger_rule_id
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.precedence import MANUAL_RULE_ID, MultiValued
from slumberd.errors import ExtraMissingError
from slumberd.model.delta import Delta, validate_delta
from slumberd.model.episode import microseconds
from slumberd.model.fact import Fact, aware
from slumberd.model.firing import Firing, HeldBatch, Trigger
from slumberd.model.record import Outcome, Record
from slumberd.model.scope import ScopeFilter
from slumberd.sql_statements import statements
from slumberd.storage.episodes.erased_content import Moments, learn_moments
from slumberd.storage.facts.lifecycle import set_number
from slumberd.storage.facts.manual_statements import assertion_of, lineage_entry
from slumberd.storage.facts.review import drop_entries, hold_batch, record_decision
from slumberd.storage.facts.settings_changes import change_channels, rewrite_lineages
from slumberd.storage.facts.watermarks import WatermarkTable, succeed
from slumberd.storage.ledger import erasure
from slumberd.storage.ledger.batch import Batch, OverLimitError, number
from slumberd.storage.ledger.erasure import Erasing, Erasure, erase
from slumberd.storage.ledger.external_changes import has_news
from slumberd.storage.ledger.graph_promotion import promote
from slumberd.storage.ledger.history import channels_at
from slumberd.storage.ledger.manual_edits import ManualEdits
from slumberd.storage.ledger.similarity import BatchSimilarity
from slumberd.storage.ledger.undo import Undoer, UndoneFirings, Wanted, undo, undo_each
from slumberd.storage.sqlite.connection import interrupting_when, transaction
from slumberd.storage.sqlite.erased_scopes import overwriting, scrub

_SQL = statements("ledger")


class SQLiteFactStore(WatermarkTable):
    """Facts, and the ledger of the claims behind them; implements ``FactStore`` and ``Ledger``.

    `FactFile` has the constructor and the life cycle, `FactReader` the reads, and `WatermarkTable`
    the progress of rules. This class writes claims.
    """

    async def pin(self, fact: Fact) -> None:
        """Declare a fact: insert it, or replace the fact of its id.

        A declared fact competes with no other. If its id is that of a current fact of a rule or a
        person, the call is a manual edit of that fact. `correct` states a fact that competes.

        Raises:
            ValueError: The lineage is empty, or the confidence lies outside 0..1.
            InputError: Its id, user or agent holds NUL or invalid Unicode.
            FactConflictError: Another user, agent or channel holds the id.
        """
        said = assertion_of(fact)._replace(pinned_at=microseconds(aware(fact.pinned_at)))
        await self.manually(lambda hand: hand.declare(said))

    async def unpin(self, fact_id: str) -> None:
        """Remove a declared fact, or retract a promoted one; nothing when it is not current."""
        await self.manually(lambda hand: hand.remove(fact_id))

    async def correct(self, fact: Fact, *, by: str, reason: str) -> None:
        """State a fact as a person: it competes, and is current until a newer episode.

        Args:
            fact: The fact; it replaces the fact of its id. Its lineage may be empty: the store adds
                `by` and `reason`. Its ``pinned_at`` becomes the current instant.
            by: The person.
            reason: The reason.

        Raises:
            ValueError: `by` or `reason` is empty, or the confidence lies outside 0..1.
            InputError: Its id, user or agent holds NUL or invalid Unicode.
            FactConflictError: Another user, agent or channel holds the id.
        """
        entry = lineage_entry(by, reason, self._clock.now())
        said = assertion_of(fact.model_copy(update={"lineage": [*fact.lineage, entry]}))
        await self.manually(lambda hand: hand.assert_(said, again=True), by=by)

    async def retract(self, *fact_ids: str, by: str, reason: str) -> None:
        """Retract facts as a person; those that are not current stay as they are.

        Args:
            fact_ids: Their ids, declared or promoted.
            by: The person.
            reason: The reason.

        Raises:
            ValueError: `by` or `reason` is empty.
        """
        lineage = (lineage_entry(by, reason, self._clock.now()),)
        await self.manually(lambda hand: hand.take_out(fact_ids, lineage=lineage), by=by)

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
        own = validate_delta(delta)
        await self.manually(lambda hand: hand.apply(own, strict=strict))

    async def manually(
        self, work: Callable[[ManualEdits], None], *, by: str = "", dry_run: bool = False
    ) -> Outcome | None:
        """Run a manual edit; return its outcome, or None when it changed nothing.

        Args:
            work: Makes the edit; called in the store's own thread.
            by: The person.
            dry_run: Return the outcome, and write nothing.
        """
        firing = Firing(MANUAL_RULE_ID, "", "manual", self._clock.now(), by=by)

        def transact(connection: sqlite3.Connection) -> Outcome | None:
            with self._committing(connection, keep=not dry_run):
                hand = ManualEdits(connection, self._depth, firing)
                work(hand)
                return hand.finish()

        return await self._database.write(transact)

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
    ) -> Promoted:
        """Promote those facts of a graph that are new, in one transaction and one firing.

        An unchanged triple is not promoted again, whatever happened to its fact. Neither is a fact
        that a person has retracted or replaced.

        Args:
            facts: From `core.triple.facts_of`.
            rule_id: The rule that promotes; `ledger_rule_id` gives the id that the ledger records.
            rule_hash: The hash of the rule's content; empty for a rule without a file.
            trigger: What started it.
            at: The instant; None means now.
            by: The person who started it; empty for the rule itself.
            dry_run: Return the outcome, and write nothing.
            run: The id of the command or the due cadence that it belongs to.

        Raises:
            InputError: A fact cannot be stored unchanged.
        """
        now = self._clock.now() if at is None else at
        author = f"rule:{rule_id}" + (f", {by}" if by else "")
        firing = Firing(ledger_rule_id(rule_id), rule_hash, trigger, now, by=author, run=run)

        def transact(connection: sqlite3.Connection) -> Promoted:
            with self._committing(connection, keep=not dry_run):
                done = promote(connection, facts, self._depth, firing)
                succeed(connection, rule_id, now)
                return done

        return await self._database.write(transact)

    async def notice_external(self) -> list[Record]:
        """Record what other programs changed in the facts; return the new ledger rows.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """

        def look(connection: sqlite3.Connection) -> bool:
            self._fence(connection)
            return has_news(connection)

        if not await self._database.read(look):
            return []

        def work(connection: sqlite3.Connection) -> list[Record]:
            with self._committing(connection) as noticed:
                return noticed

        return await self._database.write(work)

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
        self._close_at_once = False
        backlog = sum(map(len, candidates.values())) >= self._policy.backlog_rows
        self._catching_up |= backlog
        written = Event()

        def work(connection: sqlite3.Connection) -> Outcome:
            if backlog:
                connection.execute(f"PRAGMA wal_autocheckpoint = {self._policy.backlog_pages:d}")
            try:
                with (
                    self._committing(connection) as noticed,
                    interrupting_when(connection, cancelled),
                ):
                    done = self._resolve(connection, firing, candidates, cancelled, on_decided)
                    outcome = replace(done, noticed=noticed)
                    written.set()
            except OverLimitError as over:
                with transaction(connection):
                    self._fence(connection)
                    return hold_batch(connection, firing, str(over), self._depth)
            return outcome

        if not backlog or cancelled is None:
            return await self._database.write(work)
        # No progress handler ends the checkpoint after the commit of a backlog.
        with self._database.interrupting(
            lambda: written.is_set() and cancelled(), every_seconds=self._policy.check_seconds
        ):
            return await self._database.write(work)

    def skip_checkpoint_on_close(self) -> None:
        """Make `close` skip the checkpoint, during a backlog; the next start does it."""
        self._close_at_once = True

    async def decide(self, held: HeldBatch, *, approve: bool, at: datetime, by: str) -> None:
        """Approve or reject a batch that awaits approval; the ledger records the decision.

        Args:
            held: The batch.
            approve: Whether the rule commits it at its next firing; else the rule skips it.
            at: The moment.
            by: The person who decides.
        """

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                firing = record_decision(
                    connection, held, approve=approve, at=at, by=by, depth=self._depth
                )
                if not approve:
                    self._move_watermark(connection, firing)

        await self._database.write(work)

    async def checkpoint_after_backlog(self) -> None:
        """Checkpoint after a backlog, and checkpoint as usual from now on."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA wal_checkpoint = TRUNCATE")
            connection.execute(f"PRAGMA wal_autocheckpoint = {self._policy.usual_pages:d}")

        if self._catching_up:
            await self._database.write(work)
            self._catching_up = False

    async def preview(
        self, firing: Firing, candidates: Mapping[str, Sequence[Candidate]]
    ) -> Outcome:
        """Resolve as `commit` does, return the outcome, and write nothing."""
        return await self._transact(
            lambda connection: self._resolve(connection, firing, candidates), dry_run=True
        )

    def _resolve(
        self,
        connection: sqlite3.Connection,
        firing: Firing,
        candidates: Mapping[str, Sequence[Candidate]],
        cancelled: Callable[[], bool] | None = None,
        on_decided: Callable[[], None] | None = None,
    ) -> Outcome:
        batch = Batch(
            connection, firing, channels_at(connection), self._depth, cancelled, on_decided
        )
        outcome = batch.commit(candidates, self._nearness(connection, firing, cancelled))
        # The watermark moves with the facts: a crash repeats a batch or finishes it, never half.
        self._move_watermark(connection, firing)
        if not firing.again:
            succeed(connection, firing.rule_id, outcome.firing.at)
        set_number(connection, "logged", max(self._logged, number(connection, "logged")))
        return outcome

    def _nearness(
        self, connection: sqlite3.Connection, firing: Firing, cancelled: Callable[[], bool] | None
    ) -> BatchSimilarity | None:
        if firing.min_similarity is None:
            return None
        if self._comparer is None:
            raise ExtraMissingError("vectors", f"rule {firing.rule_id!r} compares what it adds")
        return BatchSimilarity(connection, self._comparer(), firing.min_similarity, cancelled)

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
        undoer = Undoer(at, by, run)
        return await self._transact(
            lambda connection: undo(connection, firing_id, self._depth, undoer),
            dry_run=dry_run,
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

        def work(connection: sqlite3.Connection) -> UndoneFirings:
            done = UndoneFirings(limit)
            with self._committing(connection, keep=not dry_run):
                for firing_id, outcome in undo_each(connection, wanted, self._depth, undoer):
                    done.add(firing_id, outcome)
            return done

        return await self._database.write(work)

    async def forget(  # noqa: PLR0913 # the fields of one request
        self,
        reach: ScopeFilter,
        eids: Iterable[str] = (),
        *,
        kept: Iterable[str] = (),
        key: bytes | None = None,
        moment: int,
        at: datetime,
        by: str,
        dry_run: bool,
    ) -> Erasure:
        """Erase a scope, and resolve what it leaves; `scrub` then removes the bytes.

        Args:
            reach: The scope.
            eids: Ids of its episodes; the ledger need not know them.
            kept: Those of them that now belong to an episode of another scope.
            key: The key of the hashes of scopes, if this database has none yet.
            moment: The last erased instant, microseconds; not before the scope's newest instant.
            at: The moment of the request.
            by: The person.
            dry_run: Return the outcome, and write nothing.
        """

        def work(connection: sqlite3.Connection) -> Erasure:
            with overwriting(connection), self._committing(connection, keep=not dry_run):
                ids = frozenset(eids), frozenset(kept)
                erasing = Erasing(reach, *ids, moment, at, by, key)
                return erase(connection, erasing, depth=self._depth)

        return await self._database.write(work)

    async def end_erasures(self, reaches: Collection[ScopeFilter]) -> None:
        """Record that some erasures are complete in memory.db, too."""

        def work(connection: sqlite3.Connection) -> None:
            with overwriting(connection), transaction(connection):
                self._fence(connection)
                erasure.end(connection, reaches)

        await self._database.write(work)

    async def learn_erased(self, key: bytes, moments: Iterable[Moments]) -> None:
        """Store the erased scopes of other databases that have the same key."""

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                learn_moments(connection, key, moments)

        await self._database.write(work)

    async def scrub(self) -> bool:
        """Rewrite the file without the erased bytes; return whether its log could be emptied."""
        return await self._database.write(scrub)

    async def rewrite_facts(self, *, at: datetime) -> int:
        """Rewrite every fact when the configured depth of lineages has changed.

        Returns:
            The number of keys; 0 when the depth is unchanged.
        """

        def work(connection: sqlite3.Connection) -> int:
            with self._committing(connection):
                return rewrite_lineages(connection, self._depth, at)

        return await self._database.write(work)

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
            with self._committing(connection) as noticed:
                outcome = change_channels(connection, multi, self._depth, at)
                return replace(outcome, noticed=noticed)

        return await self._database.write(work)

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
            for entry in await self.quarantine()
            if rules is None or entry["rule_id"] in rules
            if episodes is None or entry["episode_id"] in episodes
        ]
        if entries:
            drop = partial(drop_entries, entries=entries, at=at, by=by, depth=self._depth)
            await self._transact(drop, dry_run=dry_run)
        return len(entries)
