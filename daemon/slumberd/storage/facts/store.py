"""Facts in one SQLite file: the specified table, and beside it the ledger of how it came to be."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from threading import Event

from slumberd.consolidation.graph_promotion import Promoted, speaker_of
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.precedence import HANDS, MultiValued
from slumberd.errors import ExtraMissingError
from slumberd.model.delta import Delta, checked_delta
from slumberd.model.episode import microseconds
from slumberd.model.fact import Fact, aware
from slumberd.model.firing import Firing, Held, Trigger
from slumberd.model.record import Outcome, Record
from slumberd.model.scope import Reach
from slumberd.sql_statements import statements
from slumberd.storage.episodes.erased_content import Moments, learn_all
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
from slumberd.storage.ledger.manual_edits import HandAtWork
from slumberd.storage.ledger.similarity import Nearness
from slumberd.storage.ledger.undo import Undoer, UndoneFirings, Wanted, undo, undo_each
from slumberd.storage.sqlite.connection import giving_up, transaction
from slumberd.storage.sqlite.erased_scopes import overwriting, scrub

_SQL = statements("ledger")

_BACKLOG_ROWS = 2_000
"""A batch of as many is one of a backlog: checkpoints would cost it a quarter of its time."""

_BACKLOG_PAGES, _EVERYDAY_PAGES = 50_000, 1_000
"""Pages of 4 KiB in the write-ahead log at which SQLite checkpoints."""

_LOOK_SECONDS = 0.02
"""Between two looks whether a commit takes too long."""


class SQLiteFactStore(WatermarkTable):
    """Facts, and the ledger of every act behind them; implements ``FactStore`` and ``Ledger``.

    It is opened as a `FactFile` is, answers `FactReader` and keeps `WatermarkTable`.
    What is here writes claims.
    """

    async def pin(self, fact: Fact) -> None:
        """Declare a fact: insert it, or replace what has its id.

        A declared fact competes with no other. Where a rule or a person holds its id with a
        current fact, it is a manual edit of that. To state what competes, use `correct`.

        Raises:
            ValueError: The lineage is empty, or the confidence lies outside 0..1.
            InputError: Its id, user or agent holds NUL or no valid Unicode.
            FactConflictError: Another user, agent or channel holds the id.
        """
        said = assertion_of(fact)._replace(pinned_at=microseconds(aware(fact.pinned_at)))
        await self.manually(lambda hand: hand.declare(said))

    async def unpin(self, fact_id: str) -> None:
        """Remove a declared fact, or retract a promoted one; nothing when it is not current."""
        await self.manually(lambda hand: hand.remove(fact_id))

    async def correct(self, fact: Fact, *, by: str, reason: str) -> None:
        """State as a person what is so: it competes, and wins until a newer episode.

        Args:
            fact: What is so; it replaces the fact of its id. Its lineage may be empty, for who
                and why are added to it; its ``pinned_at`` becomes the moment.
            by: Who states it.
            reason: Why.

        Raises:
            ValueError: `by` or `reason` is empty, or the confidence lies outside 0..1.
            InputError: Its id, user or agent holds NUL or no valid Unicode.
            FactConflictError: Another user, agent or channel holds the id.
        """
        entry = lineage_entry(by, reason, self._clock.now())
        said = assertion_of(fact.model_copy(update={"lineage": [*fact.lineage, entry]}))
        await self.manually(lambda hand: hand.assert_(said, again=True), by=by)

    async def retract(self, *fact_ids: str, by: str, reason: str) -> None:
        """Retract facts as a person; those that are not current stay as they are.

        Args:
            fact_ids: Their ids, declared or promoted.
            by: Who retracts them.
            reason: Why.

        Raises:
            ValueError: `by` or `reason` is empty.
        """
        lineage = (lineage_entry(by, reason, self._clock.now()),)
        await self.manually(lambda hand: hand.take_out(fact_ids, lineage=lineage), by=by)

    async def apply_delta(self, delta: Delta, *, strict: bool = False) -> None:
        """Apply one delta, whole or not at all; applying it again changes nothing.

        Args:
            delta: From ``MemoryStore.consolidate``, or made by hand; of any class, for its
                ``kind`` says what it is.
            strict: Refuse ids in ``replaces`` that no fact was ever promoted under.

        Raises:
            ConsolidationRuleError: It is no delta, or its provenance is not whole; also a
                ``ValueError``.
            InputError: An id of it, its user or its agent holds NUL or no valid Unicode.
            FactConflictError: It speaks about a fact of another user, agent or channel, or
                `strict` and an id in ``replaces`` is unknown.
        """
        own = checked_delta(delta)
        await self.manually(lambda hand: hand.apply(own, strict=strict))

    async def manually(
        self, work: Callable[[HandAtWork], None], *, by: str = "", dry_run: bool = False
    ) -> Outcome | None:
        """Let a hand change facts directly; return what came of it, None when nothing did.

        Args:
            work: Does it; called in the store's own thread.
            by: Whose hand it is.
            dry_run: Say what would come of it, and write nothing.
        """
        firing = Firing(HANDS, "", "manual", self._clock.now(), by=by)

        def transact(connection: sqlite3.Connection) -> Outcome | None:
            with self._committing(connection, keep=not dry_run):
                hand = HandAtWork(connection, self._depth, firing)
                work(hand)
                return hand.finish()

        return await self._database.write(transact)

    async def promote(  # noqa: PLR0913 # how it is told in the ledger
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
        """Say what of a graph's facts is news, in one transaction: all of it or nothing.

        What was said before and has not changed is not said again, whatever became of it; nor is
        what a person has taken out or said over. Undoing its one firing takes all of it back.

        Args:
            facts: From `core.triple.facts_of`.
            rule_id: The rule; the ledger has it as `core.hearsay.speaker_of`.
            rule_hash: Of the rule's content; empty when it is none of a file.
            trigger: What made it due.
            at: The instant; now for None.
            by: Who asks for it; the rule itself when nobody does.
            dry_run: Say what would come of it, and write nothing.
            run: The id of the command or the due cadence that it belongs to.

        Raises:
            InputError: One of them cannot be kept as it is.
        """
        now = self._clock.now() if at is None else at
        told = f"rule:{rule_id}" + (f", {by}" if by else "")
        firing = Firing(speaker_of(rule_id), rule_hash, trigger, now, by=told, run=run)

        def transact(connection: sqlite3.Connection) -> Promoted:
            with self._committing(connection, keep=not dry_run):
                done = promote(connection, facts, self._depth, firing)
                succeed(connection, rule_id, now)
                return done

        return await self._database.write(transact)

    async def notice_external(self) -> list[Record]:
        """Record what other programs changed in the facts; return the rows that this adds.

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
        met: Mapping[str, Sequence[Candidate]],
        *,
        decided: Callable[[], None] | None = None,
        late: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Settle what a rule met: facts, ledger, quarantine, watermark in one transaction.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced; nothing is
                written.
            StoppedError: It was `late`; nothing is written.
        """
        self._close_at_once = False
        backlog = sum(map(len, met.values())) >= _BACKLOG_ROWS
        self._catching_up |= backlog
        written = Event()

        def work(connection: sqlite3.Connection) -> Outcome:
            if backlog:
                connection.execute(f"PRAGMA wal_autocheckpoint = {_BACKLOG_PAGES:d}")
            try:
                with self._committing(connection) as noticed, giving_up(connection, late):
                    done = self._resolve(connection, firing, met, late, decided)
                    outcome = replace(done, noticed=noticed)
                    written.set()
            except OverLimitError as over:
                with transaction(connection):
                    self._fence(connection)
                    return hold_batch(connection, firing, str(over), self._depth)
            return outcome

        if not backlog or late is None:
            return await self._database.write(work)
        # No progress handler ends the checkpoint after the commit of a backlog.
        with self._database.interrupting(
            lambda: written.is_set() and late(), every_seconds=_LOOK_SECONDS
        ):
            return await self._database.write(work)

    def leave(self) -> None:
        """Let the file be closed as it is, in the middle of a backlog; its next start tidies up."""
        self._close_at_once = True

    async def decide(self, held: Held, *, approve: bool, at: datetime, by: str) -> None:
        """Let a held batch go on, or pass over what it met; either way it is audited.

        Args:
            held: The batch.
            approve: Whether it may go on; its rule takes it up at its next firing.
            at: The moment.
            by: Who decides.
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

    async def rest(self) -> None:
        """Bring the file into its everyday order after a backlog; does nothing after none."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA wal_checkpoint = TRUNCATE")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_EVERYDAY_PAGES:d}")

        if self._catching_up:
            await self._database.write(work)
            self._catching_up = False

    async def rehearse(self, firing: Firing, met: Mapping[str, Sequence[Candidate]]) -> Outcome:
        """Settle as `commit` does, say what came of it, and write nothing."""
        return await self._transact(
            lambda connection: self._resolve(connection, firing, met), dry_run=True
        )

    def _resolve(
        self,
        connection: sqlite3.Connection,
        firing: Firing,
        met: Mapping[str, Sequence[Candidate]],
        late: Callable[[], bool] | None = None,
        decided: Callable[[], None] | None = None,
    ) -> Outcome:
        batch = Batch(connection, firing, channels_at(connection), self._depth, late, decided)
        outcome = batch.commit(met, self._nearness(connection, firing, late))
        # The watermark moves with the facts: a crash repeats a batch or finishes it, never half.
        self._move_watermark(connection, firing)
        if not firing.again:
            succeed(connection, firing.rule_id, outcome.firing.at)
        set_number(connection, "logged", max(self._logged, number(connection, "logged")))
        return outcome

    def _nearness(
        self, connection: sqlite3.Connection, firing: Firing, late: Callable[[], bool] | None
    ) -> Nearness | None:
        if firing.alike is None:
            return None
        if self._comparer is None:
            raise ExtraMissingError("vectors", f"rule {firing.rule_id!r} compares what it adds")
        return Nearness(connection, self._comparer(), firing.alike, late)

    async def undo(
        self, firing_id: str, *, at: datetime, by: str, dry_run: bool, run: str = ""
    ) -> Outcome:
        """Let every episode that a firing met first be again what it was before.

        Args:
            firing_id: The firing, of a rule or of hands, or an undoing.
            at: The moment.
            by: Who asks for it.
            dry_run: Say what would come of it, and write nothing.
            run: The id of the command that it belongs to.

        Raises:
            UsageError: There is no such firing, or it erased what it speaks of.
        """
        undoer = Undoer(at, by, run)
        return await self._transact(
            lambda connection: undo(connection, firing_id, self._depth, undoer),
            dry_run=dry_run,
        )

    async def undo_each(
        self, wanted: Wanted, undoer: Undoer, *, dry_run: bool, limit: int
    ) -> UndoneFirings:
        """Undo each of some firings that is not undone yet, all in one transaction.

        Args:
            wanted: Which firings.
            undoer: Who asks for it, when, and as part of which run.
            dry_run: Say what would come of it, and write nothing.
            limit: At most so many of the ledger's new rows are returned.

        Raises:
            UsageError: One of the firings erased what it speaks of; nothing was undone.
        """

        def work(connection: sqlite3.Connection) -> UndoneFirings:
            done = UndoneFirings(limit)
            with self._committing(connection, keep=not dry_run):
                for firing_id, outcome in undo_each(connection, wanted, self._depth, undoer):
                    done.add(firing_id, outcome)
            return done

        return await self._database.write(work)

    async def forget(  # noqa: PLR0913 # each is of the one who asks
        self,
        reach: Reach,
        eids: Iterable[str] = (),
        *,
        kept: Iterable[str] = (),
        key: bytes | None = None,
        moment: int,
        at: datetime,
        by: str,
        dry_run: bool,
    ) -> Erasure:
        """Erase a scope, and settle what it leaves; its bytes go with `scrub`.

        Args:
            reach: The scope.
            eids: Ids of its episodes, of which the ledger need not know.
            kept: Those of them that an episode of another scope has by now.
            key: Of the hashes of scopes, where this database has none yet.
            moment: Up to when it is forgotten, microseconds; not before its newest instant.
            at: The moment of asking.
            by: Who asks.
            dry_run: Say what would come of it, and write nothing.
        """

        def work(connection: sqlite3.Connection) -> Erasure:
            with overwriting(connection), self._committing(connection, keep=not dry_run):
                ids = frozenset(eids), frozenset(kept)
                erasing = Erasing(reach, *ids, moment, at, by, key)
                return erase(connection, erasing, depth=self._depth)

        return await self._database.write(work)

    async def end_erasures(self, reaches: Collection[Reach]) -> None:
        """Record that memory.db has done some erasures, too."""

        def work(connection: sqlite3.Connection) -> None:
            with overwriting(connection), transaction(connection):
                self._fence(connection)
                erasure.end(connection, reaches)

        await self._database.write(work)

    async def learn_erased(self, key: bytes, moments: Iterable[Moments]) -> None:
        """Remember the erased scopes that other databases remember by the same key."""

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                learn_all(connection, key, moments)

        await self._database.write(work)

    async def scrub(self) -> bool:
        """Write the file anew without what was erased; say whether its log could be emptied."""
        return await self._database.write(scrub)

    async def redraw(self, *, at: datetime) -> int:
        """Write every fact again when the depth of lineages is another than they have.

        Returns:
            How many keys there are; 0 when nothing was to do.
        """

        def work(connection: sqlite3.Connection) -> int:
            with self._committing(connection):
                return rewrite_lineages(connection, self._depth, at)

        return await self._database.write(work)

    async def set_channels(
        self, multi_valued: Mapping[str, frozenset[str]], *, at: datetime
    ) -> Outcome | None:
        """Take which predicates hold several objects; settle again the keys that this changes.

        Returns:
            What it did; None when nothing is new.
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
        """Take episodes off the list of the quarantined; return how many entries went.

        Args:
            rules: Only of these rules; None for all.
            episodes: Only these; None for all.
            at: The moment.
            by: Who asks for it.
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
