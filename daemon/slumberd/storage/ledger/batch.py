"""Resolve one batch of claims and write its rows to facts, ledger and quarantine.

The caller begins the transaction of facts.db and ends it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import orjson

from slumberd.consolidation.claim import MANUAL, Claim, user_and_agent
from slumberd.consolidation.entry import Entry, deletion_impact
from slumberd.consolidation.incoming import (
    Candidate,
    Contested,
    Erased,
    HeldBack,
    Unreadable,
    order_of,
)
from slumberd.consolidation.precedence import MANUAL_RULE_ID, EffectiveClaim, MultiValued
from slumberd.consolidation.resolution import Resolution
from slumberd.consolidation.state import CurrentFact
from slumberd.errors import StoppedError
from slumberd.model.episode import instant, microseconds
from slumberd.model.fact_ids import channel_of
from slumberd.model.firing import MIN_ALARMING_LOSS, NO_LIMITS, Counts, Firing
from slumberd.model.record import Outcome, Record
from slumberd.model.scope import ErasedScopes
from slumberd.sql_statements import statements
from slumberd.storage.ledger.bulk_write import Row, insert, own_writes
from slumberd.storage.ledger.rows import (
    GENESIS,
    Draft,
    document_of,
    draft_of,
    firing_id_of,
    is_known_whose,
    record_key,
    require_key,
    seal,
    sources_of,
)
from slumberd.storage.ledger.similarity import BatchSimilarity
from slumberd.storage.ledger.state_loader import LoadedState
from slumberd.storage.sqlite.erased_scopes import forgotten
from slumberd.storage.sqlite.strict_json import written

T = TypeVar("T")

_SQL = statements("ledger")
_FACTS = statements("facts")

_ROWS_BETWEEN_CHECKS = 50
"""Rows between two checks for a cancelled firing; a row takes microseconds, or folds a key."""

GENERATION_BITS = 40
"""Log numbers take the low bits of a version: a restored log starts a new generation above."""


class OverLimitError(Exception):
    """A batch would delete more facts than its limits allow; the stores catch it."""


class Batch:
    """One batch of a firing, from its candidates to its rows.

    Attributes:
        number: The number of the firing's row in the ledger.
        at: The batch's instant, microseconds; never before the last recorded instant.
        head: The chain hash before the batch.
        loaded: The known state that the batch is resolved on.
        note: Keys that the firing's row has beside those of the firing.
        overwrites: Whether ``facts`` may have rows whose ids are new to the ledger.
        found: Rows that other programs wrote, by fact id; an equal row is not written again.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        firing: Firing,
        multi: MultiValued,
        depth: int,
        cancelled: Callable[[], bool] | None = None,
        on_decided: Callable[[], None] | None = None,
    ) -> None:
        self._is_cancelled = cancelled
        self._on_decided = on_decided
        self._connection = connection
        self._firing = firing
        last = connection.execute(_SQL["last_row"]).fetchone()
        self.number: int = last[0] + 1 if last else 1
        self.head: bytes = last[1] if last else GENESIS
        self._key = require_key(connection) if last else record_key(connection)
        recorded = connection.execute(_SQL["last_instant"]).fetchone()
        self.at = max(microseconds(firing.at), recorded[0] if recorded else -(2**62))
        self._generations = connection.execute(_SQL["generations"]).fetchall()
        self._generation = self._generations[0][1] if self._generations else 0
        self.loaded = LoadedState(connection, multi, depth)
        self.note: dict[str, Any] = {}
        self.overwrites = False
        self.found: dict[str, Row] = {}

    def commit(
        self, met: Mapping[str, Sequence[Candidate]], nearness: BatchSimilarity | None = None
    ) -> Outcome:
        """Resolve the candidates and write the result.

        Args:
            met: The candidates, by channel.
            nearness: Compares new facts with current facts; None when the rule does not ask.
        """
        versioned = {channel: self._versioned(ones) for channel, ones in met.items()}
        erased = forgotten(self._connection)
        if erased is not None:
            versioned = {
                channel: [_without_erased(one, erased) for one in ones]
                for channel, ones in versioned.items()
            }
        candidates = [one for ones in versioned.values() for one in ones]
        self.loaded.load(candidates)
        if waiting := [
            one.fact_id for one in candidates if one.reread or isinstance(one, HeldBack)
        ]:
            self.loaded.load_waiting(self._firing.rule_id, waiting)
        versioned = {
            channel: self._apply_past_decisions(ones) for channel, ones in versioned.items()
        }
        if nearness is not None:
            known_state = self.loaded.known_state
            versioned = {
                channel: nearness.compared(ones, known_state) for channel, ones in versioned.items()
            }
        resolution = self.resolution()
        counts = {channel: self._resolve(resolution, ones) for channel, ones in versioned.items()}
        self._check_limits(resolution)
        return self.write(resolution, counts)

    def _apply_past_decisions(self, ones: Sequence[Candidate]) -> Sequence[Candidate]:
        known_state = self.loaded.known_state
        known = known_state.evaluations
        return [
            known_state.with_earlier_claim(one) if one.fact_id in known else one for one in ones
        ]

    def _check_cancelled(self) -> None:
        # The engine interrupts a statement; between statements only this check does.
        if self._is_cancelled is not None and self._is_cancelled():
            raise StoppedError("the firing was cancelled before its commit")

    def _until_cancelled(self, ones: Iterable[T]) -> Iterator[T]:
        for number, one in enumerate(ones):
            if number % _ROWS_BETWEEN_CHECKS == 0:
                self._check_cancelled()
            yield one

    def _check_limits(self, resolution: Resolution) -> None:
        if self._firing.limits == NO_LIMITS:
            return
        impact = deletion_impact(resolution.entries)
        before = (
            self._connection.execute(_FACTS["count_facts"]).fetchone()[0]
            if impact.fewer > MIN_ALARMING_LOSS
            else 0
        )
        problem = self._firing.limits.describe_excess(impact, before)
        if problem:
            raise OverLimitError(problem)

    def resolution(self) -> Resolution:
        """Return a new resolution on the loaded state."""
        return Resolution(
            self.loaded.known_state, firing=self.number, at=self.at, again=self._firing.again
        )

    def _versioned(self, ones: Sequence[Candidate]) -> Sequence[Candidate]:
        if not self._generation:
            return ones
        return [
            one if isinstance(one, Erased) else one._replace(version=self._version(one.version))
            for one in ones
        ]

    def _version(self, seq: int) -> int:
        # A restored log keeps the numbers of its old rows.
        found = (number for after, number in self._generations if seq and after < seq)
        return seq | (next(found, 0) << GENERATION_BITS)

    def _resolve(self, resolution: Resolution, ones: Sequence[Candidate]) -> Counts:
        before, filtered = len(resolution.entries), resolution.filtered
        known, passed_over = resolution.known, resolution.passed_over
        for one in self._until_cancelled(sorted(ones, key=order_of)):
            resolution.apply(one)
        entered = resolution.entries[before:]
        met = len(ones) - (resolution.passed_over - passed_over)
        counts = counts_of(met, resolution.filtered - filtered, entered)
        return counts._replace(noop=counts.noop + resolution.known - known)

    def write(self, resolution: Resolution, counts: dict[str, Counts]) -> Outcome:
        """Write the rows of a resolution; return the outcome."""
        entries = resolution.entries
        outcome = self._outcome(entries, counts)
        ledger = [*seal(self._drafts(entries, counts), self.head, self._key)]
        current = resolution.current_facts().values()
        facts = [fact_row(one) for one in self._until_cancelled(current)]
        heads = [*self.loaded.changed()]
        self._check_cancelled()
        if self._on_decided is not None:
            self._on_decided()
        self._write_ledger(ledger, self._firing_row(entries, counts))
        self._write_references(entries)
        self._write_quarantine(entries)
        self._write_facts(facts, resolution.removed)
        self.loaded.save(heads)
        self._check_cancelled()
        return outcome

    def _outcome(self, entries: Sequence[Entry], counts: dict[str, Counts]) -> Outcome:
        firing = replace(self._firing, at=instant(self.at))
        firing_id = firing_id_of(firing.rule_id, self.number)
        records = [self._firing_record(firing_id, firing.at)]
        records += [self._record(entry, firing_id, firing.at) for entry in entries]
        return Outcome(firing, firing_id, counts, records, 0.0)

    def _write_ledger(self, rows: Sequence[Row], firing: Row) -> None:
        self._connection.execute(_SQL["add_firing"], firing)
        insert(self._connection, _SQL["add_row"], rows)

    def _last_seq(self, entries: Sequence[Entry]) -> int:
        return entries[-1].seq if entries else self.number

    def _drafts(self, entries: Sequence[Entry], counts: dict[str, Counts]) -> Iterator[Draft]:
        key_ids = self.loaded.key_ids
        yield self._firing_draft(counts, self._last_seq(entries))
        for entry in self._until_cancelled(entries):
            key_id = key_ids.setdefault(entry.key, entry.seq) if entry.key else None
            yield draft_of(entry, firing=self.number, key_id=key_id)

    def _firing_row(self, entries: Sequence[Entry], counts: dict[str, Counts]) -> Row:
        firing = self._firing
        return (
            self.number, firing.rule_id, firing.rule_hash, firing.trigger, self.at,
            self._last_seq(entries), self._generation, firing.upto.seq, firing.upto.eid,
            _counts_json(counts),
        )  # fmt: skip

    def _firing_draft(self, counts: dict[str, Counts], last_seq: int) -> Draft:
        firing = self._firing
        payload = orjson.dumps(
            {
                "rule": firing.rule_id,
                "rule_hash": firing.rule_hash,
                "trigger": firing.trigger,
                "at": _iso(self.at),
                "after": firing.after.seq,
                "upto": firing.upto.seq,
                "generation": self._generation,
                "last_seq": last_seq,
                "by": firing.by,
                **({"run": firing.run} if firing.run else {}),
                "counts": {channel: one._asdict() for channel, one in counts.items()},
                **self.note,
            }
        )
        own = self.number
        return own, own, own, "firing", "firing", "", 0, None, None, None, None, payload

    def _write_references(self, entries: Sequence[Entry]) -> None:
        named = [
            (name, entry.fact_id)
            for entry in entries
            if entry.event == "claim" and entry.candidate and entry.candidate.claim
            for name in entry.candidate.claim.names
        ]
        self._connection.executemany(_SQL["add_reference"], named)

    def _write_quarantine(self, entries: Sequence[Entry]) -> None:
        held = self._connection.execute(_SQL["any_quarantine"]).fetchone()[0]
        readable = [
            (entry.candidate.rule_id, _channel_of(entry), entry.candidate.eid)
            for entry in entries
            if held and entry.candidate and entry.candidate.version
            if entry.event not in ("quarantine", "known")
        ]
        self._connection.executemany(_SQL["drop_quarantine"], readable)
        self._connection.executemany(
            _SQL["put_quarantine"],
            [_quarantine_row(one) for one in entries if one.event == "quarantine"],
        )

    def _write_facts(self, current: Sequence[Row], gone: Iterable[str]) -> None:
        current_ids = {row[0] for row in current}
        dropped = [
            fact_id
            for fact_id in gone
            if fact_id not in current_ids and (self.overwrites or not self._is_new(fact_id))
        ]
        with own_writes(self._connection, rows=len(dropped) + len(current)):
            asked = {"ids": orjson.dumps(dropped).decode()}
            self._connection.execute(_FACTS["drop_facts"], asked)
            changed = [row for row in current if self.found.get(str(row[0])) != row]
            insert(self._connection, _FACTS["put_fact"], changed if self.found else current)

    def _is_new(self, fact_id: str) -> bool:
        evaluations = self.loaded.known_state.evaluations.get(fact_id)
        return evaluations is not None and evaluations != [] and evaluations[0].seq > self.number

    def _firing_record(self, firing_id: str, at: datetime) -> Record:
        return Record(
            self.number, firing_id, self._firing.rule_id, "firing", "", (), (), "", 1.0, at,
            run=self._firing.run,
        )  # fmt: skip

    def _record(self, entry: Entry, firing_id: str, at: datetime) -> Record:
        claim = entry.candidate.claim if entry.candidate else None
        return Record(
            entry.seq,
            firing_id,
            self._firing.rule_id,
            entry.effect,
            entry.fact_id,
            entry.replaces,
            _sources_of(entry),
            entry.reason,
            claim.confidence if claim else 1.0,
            at,
            *_owner_of(entry),
            self._firing.run,
        )


def number(connection: sqlite3.Connection, name: str) -> int:
    """Return one of the store's numbers, such as ``epoch`` or ``logged``."""
    value: int = connection.execute(_SQL["number"], (name,)).fetchone()[0]
    return value


def _without_erased(met: Candidate, erased: ErasedScopes) -> Candidate:
    """Return a candidate, without content when its scope was erased."""
    if isinstance(met, Erased):
        return met
    user, agent = user_and_agent(met.owner)
    if not met.version or not erased.covers(user, met.session, agent, met.at):
        return met
    return Erased(reread=met.reread)


def _sources_of(entry: Entry) -> tuple[str, ...]:
    met = entry.candidate
    if met is not None and met.claim is not None and met.claim.precedence.rank == MANUAL:
        return sources_of(entry.fact_id, document_of(met.claim))
    if met is not None:
        return (met.eid,)
    return sources_of(entry.fact_id, {})


def _owner_of(entry: Entry) -> tuple[str, str]:
    """Return the user and agent of a row; empty when they are unknown."""
    met = entry.candidate
    if met is not None and met.owner and is_known_whose(entry.fact_id, entry.reason):
        return user_and_agent(met.owner)
    return user_and_agent(entry.key) if entry.key else ("", "")


def _channel_of(entry: Entry) -> str:
    return entry.candidate.owner.split("/")[2] if entry.candidate else channel_of(entry.fact_id)


def _quarantine_row(entry: Entry) -> tuple[object, ...]:
    met = entry.candidate
    if not isinstance(met, Unreadable | Contested):
        raise TypeError(f"quarantine row {entry.seq} has no reason in its candidate")
    return (
        met.rule_id, _channel_of(entry), met.eid, met.version, met.owner, met.reason, met.detail,
        entry.seq,
    )  # fmt: skip


def counts_of(read: int, filtered: int, entered: Sequence[Entry]) -> Counts:
    """Count what became of the candidates, from their ledger rows."""
    kinds = Counter(entry.effect for entry in entered if entry.event != "restored")
    return Counts(
        read,
        filtered,
        kinds["add"],
        kinds["update"],
        kinds["delete"],
        kinds["noop"],
        kinds["quarantine"],
        sum(1 for entry in entered if entry.event == "restored"),
    )


def _counts_json(counts: Mapping[str, Counts]) -> bytes:
    return orjson.dumps({channel: one._asdict() for channel, one in counts.items()})


def fact_row(current: CurrentFact) -> Row:
    """Return the row of ``facts`` for a current fact."""
    counted = current.effective
    claim, _ = counted
    metadata = metadata_of(claim)
    row = (
        claim.fact_id,
        *user_and_agent(claim.owner),
        written(claim.payload),
        written(lineage_of(current)),
        claim.confidence,
        written(metadata) if metadata else b"{}",
        _iso(counted.pinned_at),
    )
    return row if claim.stored is None else _with_stored_bytes(row, claim.stored)


COLUMNS = (
    "fact_id", "user", "agent", "payload", "lineage", "confidence", "metadata", "pinned_at",
)  # fmt: skip
"""The columns of ``facts`` in the order of the specification."""


def _with_stored_bytes(row: Row, stored: Mapping[str, Sequence[str]]) -> Row:
    """Return a row with the bytes that another program wrote."""
    return tuple(
        _value(*stored[column]) if column in stored else value
        for column, value in zip(COLUMNS, row, strict=True)
    )


def _value(kind: str, text: str) -> str | bytes:
    return text.encode() if kind == "blob" else text


def metadata_of(claim: Claim) -> dict[str, Any]:
    """Return the metadata of the fact that a claim asserts."""
    if claim.near:
        return {"possible_duplicate": [fact_id for fact_id, _ in claim.near]}
    return claim.metadata or {}


def lineage_of(current: CurrentFact) -> list[dict[str, Any]]:
    """Return the lineage of a current fact."""
    claim, promoters = current.effective
    own = (
        list(claim.lineage)
        if promoters[0][0] == MANUAL_RULE_ID
        else _own_entries(current.effective)
    )
    # A pinned fact keeps the lineage of its pin; other facts link the assertions they replaced.
    return own if claim.metadata is not None else [*own, *current.trail]


@lru_cache(maxsize=1024)
def _iso(at: int) -> str:
    return instant(at).isoformat()


def _own_entries(counted: EffectiveClaim) -> list[dict[str, object]]:
    sources = [counted.claim.precedence.id]
    return [
        {"rule_id": rule_id, "source_episode_ids": sources, "promotion_ts": _iso(at)}
        for rule_id, at in counted.promoters
    ]
