"""Facts in one SQLite file: the specified table, and beside it the ledger of how it came to be."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import orjson

from slumberd.clock import SystemClock
from slumberd.core.brake import Held
from slumberd.core.delta import checked_delta
from slumberd.core.episode import EpisodeVersion, instant, microseconds
from slumberd.core.explanation import Decision, Explanation
from slumberd.core.fact import Fact, FactPattern
from slumberd.core.firing import START, Firing, Position
from slumberd.core.ground import Incoming
from slumberd.core.hand import (
    Said,
)
from slumberd.core.health import MigrationPlan, StoreHealth
from slumberd.core.law import HANDS, MultiValued
from slumberd.core.record import Break, Checkpoint, Outcome, Record
from slumberd.core.rule import ConsolidationRule
from slumberd.core.scope import Reach
from slumberd.errors import StaleWriterError, StoreError, StoreReplacedError
from slumberd.ports import AnyDelta, Clock
from slumberd.stores import inspection, migrations, schema
from slumberd.stores.batch import Batch, OverLimitError, number
from slumberd.stores.beliefs import channels_at
from slumberd.stores.explaining import decisions_of, why
from slumberd.stores.exporting import exported
from slumberd.stores.external import has_news, notice
from slumberd.stores.fact_erasure import Erasure, erase, find_scope
from slumberd.stores.finding import find, find_then
from slumberd.stores.forgetting import overwriting, scrub
from slumberd.stores.hands import HandAtWork
from slumberd.stores.ledger import GENESIS, firing_id_of, record_from
from slumberd.stores.looking import check_after_a_crash
from slumberd.stores.queries import statements
from slumberd.stores.replaying import Replay, rebuild
from slumberd.stores.sqlite import (
    Database,
    Pragmas,
    Synchronous,
    giving_up,
    snapshot,
    transaction,
)
from slumberd.stores.undoing import find_firing, undo
from slumberd.stores.verifying import verify

_SQL = statements("ledger")
_FACTS = statements("facts")

LINEAGE_DEPTH = 8
"""How many replaced assertions a fact's lineage names, unless configured otherwise."""

_BACKLOG_ROWS = 2_000
"""A batch of as many is one of a backlog: checkpoints would cost it a quarter of its time."""

_BACKLOG_PAGES, _EVERYDAY_PAGES = 50_000, 1_000
"""Pages of 4 KiB in the write-ahead log at which SQLite checkpoints."""

_EVERYTHING = 2**63 - 1

_REDRAWN = 2_000
"""Keys whose facts are written again at a time."""

_STORE = "sqlite_fact"


Values = tuple[Any, ...] | dict[str, Any]


class SQLiteFactStore:
    """Facts, and the ledger of every act behind them; implements ``FactStore`` and ``Ledger``.

    Args:
        path: The SQLite file; it and its directory are created by `bootstrap`.
        synchronous: ``full`` survives a power cut, ``normal`` any crash of the process.
        lineage_depth: How many replaced assertions a fact's lineage names.
        clock: What hands take as their moment.
        key: Of the ledger, from its first row on; None for a ledger without.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous = "full",
        lineage_depth: int = LINEAGE_DEPTH,
        clock: Clock | None = None,
        key: bytes | None = None,
    ) -> None:
        self.path = Path(path)
        self._database = Database(self.path, Pragmas(synchronous, cache_mebibytes=32), key=key)
        self._key = key
        self._depth = lineage_depth
        self._clock = clock or SystemClock()
        self._epoch: int | None = None
        self._head: Checkpoint | None = None
        self._logged = 0

    async def bootstrap(self) -> None:
        """Create the specified table and our own beside it; changes nothing where all is there.

        Raises:
            SchemaError: The file is no database, is damaged, or a newer slumberd wrote it.
            LedgerKeyError: The store has not the key that the ledger was begun with.
        """
        await self._database.check(check_after_a_crash)
        await self._database.write(schema.create)

    async def health(self) -> StoreHealth:
        """Say whether the store can be used; never raises for the state of its file."""
        return await inspection.health(self._database, table="facts")

    async def pulse(self) -> int:
        """Return how many rows were written, once the threads of the file have answered."""
        return await self._database.pulse()

    async def migrate(self, plan: MigrationPlan) -> None:
        """Add nullable columns to the specified table.

        Raises:
            MigrationNotSupportedError: The plan asks for anything else; nothing is done.
        """
        at = self._clock.now().isoformat()
        await self._database.write(
            lambda connection: migrations.add_columns(
                connection, plan, store=_STORE, tables=("facts",), at=at
            )
        )

    async def pin(self, fact: Fact) -> None:
        """Assert a fact by hand; it takes the place of whatever had its id.

        Raises:
            ValueError: The lineage is empty, or the confidence lies outside 0..1.
            FactConflictError: Another user, agent or channel holds the id.
        """
        if not fact.lineage:
            raise ValueError(f"fact {fact.id!r}: lineage must be non-empty")
        if not (math.isfinite(fact.confidence) and 0 <= fact.confidence <= 1):
            raise ValueError(f"fact {fact.id!r}: confidence must lie in 0..1")
        said = Said(
            fact.id, fact.user, fact.agent, dict(fact.payload), fact.confidence, fact.lineage,
            dict(fact.metadata),
        )  # fmt: skip
        await self.by_hand(lambda hand: hand.assert_(said, again=True))

    async def unpin(self, fact_id: str) -> None:
        """Take a fact out by hand; nothing happens when it does not stand."""
        await self.by_hand(lambda hand: hand.take_out((fact_id,)))

    async def apply_delta(self, delta: AnyDelta, *, strict: bool = False) -> None:
        """Apply one delta, whole or not at all; applying it again changes nothing.

        Args:
            delta: From ``MemoryStore.consolidate``, or made by hand.
            strict: Refuse ids in ``replaces`` that no fact was ever promoted under.

        Raises:
            ConsolidationRuleError: Its provenance is not whole; also a ``ValueError``.
            FactConflictError: It speaks about a fact of another user, agent or channel, or
                `strict` and an id in ``replaces`` is unknown.
        """
        checked_delta(delta)
        await self.by_hand(lambda hand: hand.apply(delta, strict=strict))

    async def by_hand(
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

    async def query(
        self,
        pattern: FactPattern,
        *,
        valid_at: datetime | None = None,
        believed_at: datetime | None = None,
    ) -> list[Fact]:
        """Return the facts that equal a pattern, by id.

        Args:
            pattern: What every fact must equal.
            valid_at: What was true then: only what had been said by that instant counts.
            believed_at: What was held then: only what had been recorded by that instant counts.
        """
        if valid_at is None and believed_at is None:
            return await self._database.read(lambda connection: find(connection, pattern))
        return await self._database.read(
            lambda connection: find_then(connection, pattern, self._depth, valid_at, believed_at)
        )

    async def watermark(self, rule_id: str) -> Position | None:
        """Return how far a rule has read; None for a rule that was never seen."""
        row = await self._one("watermark", (rule_id,))
        return Position(*row) if row else None

    async def watermarks(self) -> dict[str, tuple[Position, datetime]]:
        """Return every rule's watermark and the instant up to which it is served."""
        found = await self._all("watermarks", ())
        return {rule: (Position(seq, eid), instant(served)) for rule, seq, eid, served in found}

    async def marks(self, rule_id: str) -> list[Position]:
        """Return every place at which a batch of the rule ended, newest first."""
        return [Position(*row) for row in await self._all("marks", (rule_id,))]

    async def rewind(self, rule_id: str, to: Position) -> None:
        """Move a watermark back, after memory.db was restored from a backup.

        The first rule to notice begins a new generation of the log: versions met from now on
        count as newer than all that were met before.
        """

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                values = {"rule": rule_id, "seq": to.seq, "eid": to.eid, "served": 0}
                connection.execute(_SQL["set_watermark"], values)
                connection.execute(_SQL["release"], {"rule": rule_id, "seq": _EVERYTHING})
                generations = connection.execute(_SQL["generations"]).fetchall()
                generation = generations[0][1] if generations else 0
                last = connection.execute(_SQL["last_generation"], (rule_id,)).fetchone()
                if last and last[0] == generation:
                    connection.execute(_SQL["add_generation"], (generation + 1, to.seq))

        await self._database.write(work)

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        """Give a rule that was never seen its first watermark and served instant."""
        values = {
            "rule": rule_id,
            "seq": at.seq,
            "eid": at.eid,
            "served": microseconds(served),
        }
        await self._write_one("first_watermark", values)

    async def served(self, rule_id: str) -> datetime | None:
        """Return the instant up to which a rule's cron instants are served."""
        row = await self._one("served", (rule_id,))
        return instant(row[0]) if row else None

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        """Record that a rule's cron instants are served up to an instant; never moves back.

        Args:
            rule_id: The rule.
            instant: The last one that is served.
            succeeded_at: When the firing for it began; None when there was none.
        """

        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                values = {"rule": rule_id, "served": microseconds(instant)}
                connection.execute(_SQL["serve"], values)
                if succeeded_at is not None:
                    _succeed(connection, rule_id, succeeded_at)

        await self._database.write(work)

    async def successes(self) -> dict[str, datetime]:
        """Return when each rule's last firing that went well began; none of an older slumberd's."""

        def work(connection: sqlite3.Connection) -> dict[str, datetime]:
            if not inspection.has_table(connection, schema.SUCCESSES):
                return {}
            return {rule: instant(at) for rule, at in connection.execute(_SQL["successes"])}

        return await self._database.read(work)

    async def take_over(self) -> int:
        """Become the writer: whoever was before can commit no more. Return the new epoch."""

        def work(connection: sqlite3.Connection) -> int:
            with transaction(connection):
                epoch = number(connection, "epoch") + 1
                _set_number(connection, "epoch", epoch)
                self._head = _head(connection)
                return epoch

        self._epoch = await self._database.write(work)
        return self._epoch

    async def commit(
        self,
        firing: Firing,
        met: Mapping[str, Sequence[Incoming]],
        *,
        settled: Callable[[], None] | None = None,
        late: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Settle what a rule met: facts, ledger, quarantine, watermark in one transaction.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced; nothing is
                written.
            StoppedError: It was `late`; nothing is written.
        """

        def work(connection: sqlite3.Connection) -> Outcome:
            if sum(map(len, met.values())) >= _BACKLOG_ROWS:
                connection.execute(f"PRAGMA wal_autocheckpoint = {_BACKLOG_PAGES:d}")
            try:
                with self._committing(connection) as noticed, giving_up(connection, late):
                    done = self._settle(connection, firing, met, late)
                    outcome = replace(done, noticed=noticed)
                    if settled is not None:
                        settled()
            except OverLimitError as over:
                with transaction(connection):
                    return self._hold(connection, firing, str(over))
            return outcome

        return await self._database.write(work)

    def _hold(self, connection: sqlite3.Connection, firing: Firing, problem: str) -> Outcome:
        """Leave a batch undone, its watermark where it was, until a person decides."""
        self._fence(connection)
        passed = replace(firing, upto=firing.after)
        batch = Batch(connection, passed, channels_at(connection), self._depth)
        batch.note = {"held": problem}
        outcome = batch.write(batch.settlement(), {})
        connection.execute(_SQL["hold"], (firing.rule_id, batch.number, *firing.upto, problem))
        held = Held(firing.rule_id, outcome.firing_id, firing.upto, problem, approved=False)
        return replace(outcome, held=held)

    async def held(self) -> dict[str, Held]:
        """Return the batches that wait for a person, or may go on now, by rule."""
        return {
            rule: Held(rule, firing_id_of(rule, n), (seq, eid), problem, bool(approved))
            for rule, n, seq, eid, problem, approved in await self._all("held", ())
        }

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
                batch.write(batch.settlement(), {})
                if approve:
                    connection.execute(_SQL["approve"], (held.rule_id,))
                else:
                    self._move_watermark(connection, firing)

        await self._database.write(work)

    async def rest(self) -> None:
        """Bring the file into its everyday order after a backlog."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA wal_checkpoint = TRUNCATE")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_EVERYDAY_PAGES:d}")

        await self._database.write(work)

    async def rehearse(self, firing: Firing, met: Mapping[str, Sequence[Incoming]]) -> Outcome:
        """Settle as `commit` does, say what came of it, and write nothing."""
        return await self._transact(
            lambda connection: self._settle(connection, firing, met), dry_run=True
        )

    async def _transact(
        self, work: Callable[[sqlite3.Connection], Outcome], *, dry_run: bool
    ) -> Outcome:
        """Do something whole, as the only writer; with `dry_run` take it back again."""

        def transact(connection: sqlite3.Connection) -> Outcome:
            with self._committing(connection, keep=not dry_run) as noticed:
                return replace(work(connection), noticed=noticed)

        return await self._database.write(transact)

    @contextmanager
    def _committing(
        self, connection: sqlite3.Connection, *, keep: bool = True
    ) -> Iterator[list[Record]]:
        """Write as the only writer, once what other programs changed is recorded; yield that."""
        with transaction(connection, keep=keep):
            self._fence(connection)
            yield notice(connection, self._depth, self._clock.now())
            head = _head(connection)
        if keep:
            self._head = head

    def _settle(
        self,
        connection: sqlite3.Connection,
        firing: Firing,
        met: Mapping[str, Sequence[Incoming]],
        late: Callable[[], bool] | None = None,
    ) -> Outcome:
        batch = Batch(connection, firing, channels_at(connection), self._depth, late)
        outcome = batch.commit(met)
        # The watermark moves with the facts: a crash repeats a batch or finishes it, never half.
        self._move_watermark(connection, firing)
        if not firing.again:
            _succeed(connection, firing.rule_id, outcome.firing.at)
        _set_number(connection, "logged", max(self._logged, number(connection, "logged")))
        return outcome

    def _move_watermark(self, connection: sqlite3.Connection, firing: Firing) -> None:
        values = {"rule": firing.rule_id, **firing.upto._asdict(), "served": 0}
        connection.execute(_SQL["set_watermark"], values)
        connection.execute(_SQL["release"], values)

    async def undo(self, firing_id: str, *, at: datetime, by: str, dry_run: bool) -> Outcome:
        """Let every episode that a firing met first be again what it was before.

        Args:
            firing_id: The firing, of a rule or of hands, or an undoing.
            at: The moment.
            by: Who asks for it.
            dry_run: Say what would come of it, and write nothing.

        Raises:
            UsageError: There is no such firing, or it erased what it speaks of.
        """
        return await self._transact(
            lambda connection: undo(connection, firing_id, self._depth, at=at, by=by),
            dry_run=dry_run,
        )

    async def has_firing(self, firing_id: str) -> bool:
        """Say whether the ledger has such a firing."""
        found = await self._database.read(lambda connection: find_firing(connection, firing_id))
        return found is not None

    async def newest_in(self, reach: Reach) -> int:
        """Return the latest instant that a scope's acts speak of, microseconds; 0 without any."""

        def work(connection: sqlite3.Connection) -> int:
            with snapshot(connection):
                return find_scope(connection, reach).newest

        return await self._database.read(work)

    async def forget(
        self, reach: Reach, *, moment: int, at: datetime, by: str, dry_run: bool
    ) -> Erasure:
        """Erase a scope, and settle what it leaves; its bytes go with `scrub`.

        Args:
            reach: The scope.
            moment: Up to when it is forgotten, microseconds; not before its newest instant.
            at: The moment of asking.
            by: Who asks.
            dry_run: Say what would come of it, and write nothing.
        """

        def work(connection: sqlite3.Connection) -> Erasure:
            with overwriting(connection), self._committing(connection, keep=not dry_run):
                return erase(connection, reach, moment=moment, depth=self._depth, at=at, by=by)

        return await self._database.write(work)

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
                _set_number(connection, "depth", self._depth)
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

    async def channels(self) -> dict[str, frozenset[str]]:
        """Return which predicates hold several objects at once, by channel, as it counts now."""
        return await self._database.read(lambda connection: channels_at(connection).channels)

    async def unlogged(self, *, limit: int) -> list[Record]:
        """Return ledger rows whose log lines may not have been written, oldest first."""

        def work(connection: sqlite3.Connection) -> list[Record]:
            after = max(self._logged, number(connection, "logged"))
            return _records(connection, after, limit)

        return await self._database.read(work)

    async def mark_logged(self, seq: int) -> None:
        """Remember that log lines up to a ledger row are written; kept with the next commit."""
        self._logged = max(self._logged, seq)

    async def records(self, *, after: int = 0, limit: int = 1_000) -> list[Record]:
        """Return ledger rows above a number, oldest first."""
        return await self._database.read(lambda connection: _records(connection, after, limit))

    async def ledger_rows(self) -> int:
        """Return how many rows the ledger has."""
        row = await self._one("last_row", ())
        return row[0] if row else 0

    async def records_of(self, fact_id: str) -> list[Record]:
        """Return the ledger rows that speak of one fact id, oldest first."""
        found = await self._all("records_of_fact", {"fact_id": fact_id})
        return [record_from(row) for row in found]

    async def why(self, fact_id: str) -> Explanation:
        """Explain how a fact came and, when it no longer stands, how it went.

        Raises:
            NoInputError: No fact stands under the id, and the ledger does not speak of it.
        """
        return await self._database.read(lambda connection: why(connection, fact_id))

    async def decisions_of(
        self,
        episode_id: str,
        rules: Sequence[ConsolidationRule],
        versions: Mapping[str, EpisodeVersion],
    ) -> list[Decision]:
        """Return what became of an episode, by rule and channel; one decision for each.

        Args:
            episode_id: The episode; it need not be in memory any more.
            rules: Those that are loaded. Others that met it are told too.
            versions: By the id of a loaded rule, its newest version as that rule reads it; read
                before this is called.
        """
        return await self._database.read(
            lambda connection: decisions_of(connection, episode_id, rules, versions)
        )

    async def head(self) -> Checkpoint:
        """Return how far the ledger reaches, as committed, and its chain hash there."""
        return await self._database.read(_head)

    async def verify(self, against: Iterable[Checkpoint] = ()) -> tuple[int, str, Break | None]:
        """Recompute the chain, and replay it against the facts.

        Args:
            against: What was told of the ledger before, to be held against it; read from
                another thread.

        Returns:
            How many rows were read, the chain's head in hexadecimal, and the first break.

        Raises:
            LedgerKeyError: The store has not the key that the ledger was begun with.
        """
        return await self._database.read(
            lambda connection: verify(connection, self._depth, against)
        )

    async def replay(self, path: Path) -> Replay:
        """Build the facts again in a new file, from the ledger alone, and compare.

        Raises:
            OutputExistsError: The file is there already.
            LedgerKeyError: The store has not the key that the ledger was begun with.
        """
        return await asyncio.to_thread(rebuild, self.path, path, self._depth, self._key)

    async def exported(self, *, after: int, limit: int) -> tuple[int, list[bytes]]:
        """Return ledger rows above a number whole, a line of JSON each, and the last one's number.

        At the end of the ledger there are none, and the number is `after`.
        """
        return await self._database.read(lambda connection: exported(connection, after, limit))

    async def quarantined(self) -> dict[str, int]:
        """Return how many episodes are quarantined, by rule."""
        return dict(await self._all("quarantine_by_rule", ()))

    async def quarantined_of(self, rule_id: str) -> list[str]:
        """Return the ids of the episodes that are quarantined for a rule, in order."""
        return [row[0] for row in await self._all("quarantined", (rule_id,))]

    async def quarantine(self) -> list[dict[str, Any]]:
        """Return the quarantined episodes, by rule, channel and id."""
        names = ("rule_id", "channel", "episode_id", "reason", "detail", "seq")
        found = await self._all("list_quarantine", ())
        return [dict(zip(names, row, strict=True)) for row in found]

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
        found = [
            (entry["rule_id"], entry["channel"], entry["episode_id"])
            for entry in await self.quarantine()
            if rules is None or entry["rule_id"] in rules
            if episodes is None or entry["episode_id"] in episodes
        ]

        def work(connection: sqlite3.Connection) -> Outcome:
            firing = Firing("@quarantine", "", "manual", at, by=by)
            batch = Batch(connection, firing, channels_at(connection), self._depth)
            batch.note = {"dropped": len(found)}
            connection.executemany(_SQL["drop_quarantine"], found)
            return batch.write(batch.settlement(), {})

        if found:
            await self._transact(work, dry_run=dry_run)
        return len(found)

    async def last_firings(self) -> dict[str, tuple[int, datetime]]:
        """Return each rule's last batch: its number and instant."""
        found = await self._all("last_firings", ())
        return {rule: (number, instant(at)) for rule, number, at in found}

    async def close(self) -> None:
        """Keep what is known of the log lines, and close the file; the next use opens it."""
        if self._logged:
            with suppress(StoreError):  # then these lines are written once more, and no harm done
                await self._database.write(self._keep_logged)
        await self._database.close()

    def _keep_logged(self, connection: sqlite3.Connection) -> None:
        with transaction(connection):
            self._fence(connection)
            logged = max(self._logged, number(connection, "logged"))
            _set_number(connection, "logged", logged)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _one(self, query: str, values: Values) -> tuple[Any, ...] | None:
        found = await self._all(query, values)
        return found[0] if found else None

    async def _all(self, query: str, values: Values) -> list[tuple[Any, ...]]:
        return await self._database.read(
            lambda connection: connection.execute(_SQL[query], values).fetchall()
        )

    async def _write_one(self, query: str, values: dict[str, Any]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                self._fence(connection)
                connection.execute(_SQL[query], values)

        await self._database.write(work)

    def _fence(self, connection: sqlite3.Connection) -> None:
        if self._epoch is not None:
            current = number(connection, "epoch")
            if current != self._epoch:
                raise StaleWriterError(self.path, self._epoch, current)
            self._check_head(connection)

    def _check_head(self, connection: sqlite3.Connection) -> None:
        """Make sure that the ledger is the one that was written here, and not a restored one."""
        head = self._head
        if head is None or not head.rows:
            return
        row = connection.execute(_SQL["chain_at"], (head.rows,)).fetchone()
        if row is None or row[0] != head.head:
            raise StoreReplacedError(self.path, f"has not ledger row {head.rows} as it was written")


def _head(connection: sqlite3.Connection) -> Checkpoint:
    row = connection.execute(_SQL["last_row"]).fetchone()
    return Checkpoint(*row) if row else Checkpoint(0, GENESIS)


def _set_number(connection: sqlite3.Connection, name: str, value: int) -> None:
    connection.execute(_SQL["set_number"], {"name": name, "value": value})


def _succeed(connection: sqlite3.Connection, rule_id: str, at: datetime) -> None:
    connection.execute(_SQL["succeed"], {"rule": rule_id, "at": microseconds(at)})


def _records(connection: sqlite3.Connection, after: int, limit: int) -> list[Record]:
    found = connection.execute(_SQL["records"], {"after": after, "limit": limit}).fetchall()
    return [record_from(row) for row in found]


def _redraw(connection: sqlite3.Connection, keys: Sequence[str], depth: int, at: datetime) -> None:
    firing = Firing("@lineage", "", "manual", at)
    batch = Batch(connection, firing, channels_at(connection), depth)
    batch.note = {"lineage_depth": depth}
    batch.loaded.load_in_full(set(keys))
    settlement = batch.settlement()
    settlement.redraw()
    batch.write(settlement, {})


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
    settlement = batch.settlement()
    settlement.resettle(keys, before)
    return batch.write(settlement, {})
