"""Facts in one SQLite file: the specified table, and beside it the ledger of how it came to be."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from threading import Event
from typing import Any

import orjson

from slumberd.consolidation.graph_promotion import Promoted, speaker_of
from slumberd.consolidation.incoming import Candidate
from slumberd.consolidation.manual import ManualAssertion
from slumberd.consolidation.precedence import HANDS, MultiValued
from slumberd.errors import ExtraMissingError
from slumberd.model.delta import Delta, checked_delta
from slumberd.model.episode import microseconds
from slumberd.model.fact import Fact, aware
from slumberd.model.firing import START, Firing, Held, Position, Trigger
from slumberd.model.record import Outcome, Record
from slumberd.model.scope import Reach
from slumberd.sql_statements import statements
from slumberd.storage.episodes.erased_content import Moments, learn_all
from slumberd.storage.facts.lifecycle import set_number
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

_REDRAWN = 2_000
"""Keys whose facts are written again at a time."""


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
        said = _said_by(fact)._replace(pinned_at=microseconds(aware(fact.pinned_at)))
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
        entry = self._entry_of(by, reason)
        said = _said_by(fact.model_copy(update={"lineage": [*fact.lineage, entry]}))
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
        lineage = (self._entry_of(by, reason),)
        await self.manually(lambda hand: hand.take_out(fact_ids, lineage=lineage), by=by)

    def _entry_of(self, by: str, reason: str) -> dict[str, Any]:
        if not by.strip() or not reason.strip():
            raise ValueError("'by' and 'reason' must be non-empty: who says it, and why")
        at = self._clock.now().isoformat()
        entry = {"kind": "hand", "rule_id": HANDS, "source_episode_ids": [], "promotion_ts": at}
        return {**entry, "by": by, "reason": reason}

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
        self._left = False
        backlog = sum(map(len, met.values())) >= _BACKLOG_ROWS
        self._catching_up |= backlog
        written = Event()

        def work(connection: sqlite3.Connection) -> Outcome:
            if backlog:
                connection.execute(f"PRAGMA wal_autocheckpoint = {_BACKLOG_PAGES:d}")
            try:
                with self._committing(connection) as noticed, giving_up(connection, late):
                    done = self._settle(connection, firing, met, late, decided)
                    outcome = replace(done, noticed=noticed)
                    written.set()
            except OverLimitError as over:
                with transaction(connection):
                    return self._hold(connection, firing, str(over))
            return outcome

        if not backlog or late is None:
            return await self._database.write(work)
        with self._halted(lambda: written.is_set() and late()):
            return await self._database.write(work)

    @contextmanager
    def _halted(self, late: Callable[[], bool]) -> Iterator[None]:
        """End what asks nobody whether it is late: the checkpoint after a commit of a backlog."""
        loop = asyncio.get_running_loop()
        looks: list[asyncio.TimerHandle] = []

        def look() -> None:
            if late():
                self._database.halt()
            looks[:] = [loop.call_later(_LOOK_SECONDS, look)]

        looks.append(loop.call_later(_LOOK_SECONDS, look))
        try:
            yield
        finally:
            looks.pop().cancel()

    def leave(self) -> None:
        """Let the file be closed as it is, in the middle of a backlog; its next start tidies up."""
        self._left = True

    def _hold(self, connection: sqlite3.Connection, firing: Firing, problem: str) -> Outcome:
        """Leave a batch undone, its watermark where it was, until a person decides."""
        self._fence(connection)
        passed = replace(firing, upto=firing.after)
        batch = Batch(connection, passed, channels_at(connection), self._depth)
        batch.note = {"held": problem, "held_upto": firing.upto.seq}
        outcome = batch.write(batch.resolution(), {})
        connection.execute(
            _SQL["add_held_batch"], (firing.rule_id, batch.number, *firing.upto, problem)
        )
        held = Held(firing.rule_id, outcome.firing_id, firing.upto, problem, approved=False)
        return replace(outcome, held=held)

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
                mark = Position(*connection.execute(_SQL["watermark"], (held.rule_id,)).fetchone())
                upto = mark if approve else Position(*held.upto)
                firing = Firing(held.rule_id, "", "manual", at, mark, upto, by)
                batch = Batch(connection, firing, channels_at(connection), self._depth)
                batch.note = {"approves" if approve else "rejects": held.firing_id}
                batch.write(batch.resolution(), {})
                if approve:
                    connection.execute(_SQL["approve_held_batch"], (held.rule_id,))
                else:
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
            lambda connection: self._settle(connection, firing, met), dry_run=True
        )

    def _settle(
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
                if number(connection, "depth") == self._depth:
                    return 0
                keys = [row[0] for row in connection.execute(_SQL["keys"]).fetchall()]
                for first in range(0, len(keys), _REDRAWN):
                    _redraw(connection, keys[first : first + _REDRAWN], self._depth, at)
                set_number(connection, "depth", self._depth)
                return len(keys)

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
                before = channels_at(connection)
                outcome = _change_channels(connection, before, multi, self._depth, at)
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
        found = [(one["rule_id"], one["channel"], one["episode_id"]) for one in entries]
        rows = sorted(one["seq"] for one in entries)

        def work(connection: sqlite3.Connection) -> Outcome:
            firing = Firing("@quarantine", "", "manual", at, by=by)
            batch = Batch(connection, firing, channels_at(connection), self._depth)
            batch.note = {"dropped": len(found), "rows": rows}
            connection.executemany(_SQL["drop_quarantine"], found)
            return batch.write(batch.resolution(), {})

        if found:
            await self._transact(work, dry_run=dry_run)
        return len(found)


def _said_by(fact: Fact) -> ManualAssertion:
    if not fact.lineage:
        raise ValueError(f"fact {fact.id!r}: lineage must be non-empty")
    if not (math.isfinite(fact.confidence) and 0 <= fact.confidence <= 1):
        raise ValueError(f"fact {fact.id!r}: confidence must lie in 0..1")
    return ManualAssertion(
        fact.id, fact.user, fact.agent, dict(fact.payload), fact.confidence, fact.lineage,
        dict(fact.metadata),
    )  # fmt: skip


def _redraw(connection: sqlite3.Connection, keys: Sequence[str], depth: int, at: datetime) -> None:
    firing = Firing("@lineage", "", "manual", at)
    batch = Batch(connection, firing, channels_at(connection), depth)
    batch.note = {"lineage_depth": depth}
    batch.loaded.load_in_full(set(keys))
    resolution = batch.resolution()
    resolution.redraw()
    batch.write(resolution, {})


def _change_channels(
    connection: sqlite3.Connection,
    before: MultiValued,
    after: MultiValued,
    depth: int,
    at: datetime,
) -> Outcome:
    firing = Firing("@channels", "", "manual", at, START, START)
    batch = Batch(connection, firing, after, depth)
    channels = {name: sorted(predicates) for name, predicates in after.channels.items()}
    batch.note = {"multi_valued": channels}
    connection.execute(_SQL["add_channels"], (batch.number, orjson.dumps(channels)))
    keys = {
        key
        for (key,) in connection.execute(_SQL["keys"]).fetchall()
        if (key in before) != (key in after)
    }
    batch.loaded.load_in_full(keys)
    resolution = batch.resolution()
    resolution.resettle(keys, before)
    return batch.write(resolution, {})
