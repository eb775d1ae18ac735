"""Fakes of the ports, in memory. The contract suite of each port runs on its fake, too."""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import chain
from operator import attrgetter, mul
from typing import Self

from slumberd.consolidation.claim import user_and_agent
from slumberd.consolidation.incoming import (
    UNBOUNDED,
    Bounds,
    Candidate,
    Contested,
    DeltaBatch,
    Unreadable,
)
from slumberd.consolidation.stages.duplicates import no_vectors
from slumberd.model.episode import Episode, EpisodeVersion, Misspelling, instant, microseconds
from slumberd.model.errors import FilterError, LogRestoredError, SkippedEpisodesError, StoppedError
from slumberd.model.extraction import RecordedSummary
from slumberd.model.fact import Fact, FactPattern, matcher, place_after
from slumberd.model.feed import EpisodeChanges, FeedPlace, LedgerChanges
from slumberd.model.firing import (
    START,
    Counts,
    DeletionImpact,
    Firing,
    HeldBatch,
    HeldScope,
    Kind,
    Outcome,
    Position,
    ReadWindow,
    Record,
    Report,
    RulePosition,
    Window,
)
from slumberd.model.provenance import (
    Lag,
    Promotion,
    PromotionPage,
    ProvenanceBundle,
    assertion_document,
)
from slumberd.model.record import Checkpoint
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import Access
from slumberd.search.vectors import Rows
from slumberd.storage.episodes.windows import WindowReader
from tests.support import builders

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that does not move until a test moves it."""

    def __init__(self, at: datetime = builders.START) -> None:
        self._now = at
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, at: datetime) -> None:
        """Set the wall clock only, in either direction."""
        self._now = at


class FakeEpisodeLog:
    """An episode log in a list, without filters.

    Attributes:
        versions: The rows of the log; a row with `reread` was logged because of a read.
        queries: The names of the calls, without `changed`.
        fault: Every call raises it while it is set.
        failed: Is set when a call raised `fault`.
        reads: How each episode was read.
        held: The episodes to log again, and how many reads of each are known.
        at_once: Versions that are evaluated between two checks for cancellation.
    """

    def __init__(self, *ids: str) -> None:
        self.versions: list[EpisodeVersion] = []
        self.queries: list[str] = []
        self.fault: Exception | None = None
        self.failed = asyncio.Event()
        self.reads: dict[str, Access] = {}
        self.held: dict[str, int] = {}
        self.at_once = 500
        self._changed = True
        self.append(*ids)

    def append(self, *ids: str) -> None:
        """Log a new version of each of these episodes."""
        self.put(*map(builders.episode, ids))

    def append_many(self, count: int) -> None:
        """Log this many episodes with new ids."""
        first = self._last() + 1
        self.append(*(f"e{number}" for number in range(first, first + count)))

    def put(self, *episodes: Episode) -> None:
        """Log a new version of each of these episodes."""
        for episode in episodes:
            self.versions.append(builders.version_of(episode, seq=self._last() + 1))
        self._changed = True

    def read(self, *ids: str) -> None:
        """Count one read of each of these episodes."""
        for id in ids:
            self.reads[id] = Access(self.reads.get(id, Access()).reads + 1)
            self._log_again(id)

    def restore(self, length: int) -> None:
        """Go back to an earlier state of the log, as a backup does."""
        del self.versions[length:]
        self._changed = True

    async def newest(self) -> Position:
        self._record("newest")
        return Position(self.versions[-1].seq, self.versions[-1].id) if self.versions else START

    async def episode_at(self, seq: int) -> str | None:
        self._record("episode_at")
        return next((row.id for row in self.versions if row.seq == seq), None)

    async def pending(self, after: int, *, at_most: int, rule_id: str = "") -> int:
        self._record("pending")
        return min(len(self._above(after)), at_most)

    async def oldest_at(self, after: int, *, rule_id: str = "") -> datetime | None:
        self._record("oldest_at")
        newest = self._newest()
        ids = [row.id for row in self._above(after) if not row.reread]
        return instant(newest[ids[0]].at) if ids else None

    async def select(
        self, rule: ConsolidationRule, *, after: Position, limit: int, upto: int | None = None
    ) -> ReadWindow:
        self._record("select")
        self._refuse_filter(rule)
        newest = self._last()
        if after != START and next(
            (row.id for row in self.versions if row.seq == after.seq), None
        ) != (after.eid):
            raise LogRestoredError("the fake episode log", after.seq, after.eid)
        rows = self._above(after.seq)[:limit]
        if upto is not None:
            rows = [row for row in rows if row.seq <= upto]
        end = Position(rows[-1].seq, rows[-1].id) if rows else after
        return ReadWindow(after, end, self._current_in(rows), newest)

    async def window(self, rule: ConsolidationRule, window: Window) -> ReadWindow:
        after, upto = window.after, window.upto
        if window.episodes is None:
            return await self.select(rule, after=after, limit=window.limit, upto=upto)
        end = self._last() if upto is None else upto
        return ReadWindow(after, after, await self.reread(rule, window.episodes, upto=end))

    async def reread(
        self, rule: ConsolidationRule, eids: Sequence[str], *, upto: int
    ) -> list[EpisodeVersion]:
        self._record("reread")
        self._refuse_filter(rule)
        found = [version for id, version in self._newest().items() if id in eids]
        return sorted((version for version in found if version.seq <= upto), key=_seq)

    def embed(self, texts: Sequence[str]) -> Rows:
        return no_vectors(texts)

    async def changed_ids(self, place: FeedPlace | None) -> EpisodeChanges:
        self._record("changed_ids")
        last = self.versions[-1] if self.versions else None
        now = FeedPlace(START if last is None else Position(last.seq, last.id), 0)
        after = now.position.seq if place is None else place.position.seq
        return EpisodeChanges(now, {one.id: one.seq for one in self.versions if one.seq > after})

    async def ids_by_owner(self, rule: ConsolidationRule) -> dict[tuple[str, str], list[str]]:
        self._record("ids_by_owner")
        self._refuse_filter(rule)
        found: dict[tuple[str, str], list[str]] = {}
        for version in self._newest().values():
            if version.matched and not version.fault:
                found.setdefault((version.user, version.agent), []).append(version.id)
        return found

    async def ids_of_user(self, user: str) -> set[str]:
        self._record("ids_of_user")
        return {one.id for one in self._newest().values() if one.user == user and not one.fault}

    async def purge(self, seqs: Mapping[str, int]) -> list[str]:
        self._record("purge")
        newest = self._newest()
        gone = [id for id, seq in seqs.items() if id in newest and newest[id].seq == seq]
        self.versions = [row for row in self.versions if row.id not in gone]
        return gone

    async def recorded_summaries(self, eids: Sequence[str]) -> dict[str, RecordedSummary]:
        return {}  # the fake asks no language model

    async def accesses(self, eids: Sequence[str]) -> dict[str, Access]:
        self._record("accesses")
        return {eid: self.reads[eid] for eid in eids if eid in self.reads}

    async def log_again_after_read(self, seen: Mapping[str, int]) -> None:
        self._record("log_again_after_read")
        known = self._newest()
        self.held |= {id: reads for id, reads in seen.items() if id in known}
        for id in seen:
            self._log_again(id)

    async def fsync(self) -> None:
        self._record("fsync")

    async def consolidate(
        self, rule: ConsolidationRule, *, window: Window, bounds: Bounds = UNBOUNDED
    ) -> DeltaBatch:
        self._record("consolidate")
        at = window.at or builders.START
        return await WindowReader(
            self, at_once=self.at_once, future_tolerance_seconds=math.inf
        ).consolidate(rule, window, at=at, bounds=bounds)

    async def changed(self) -> bool:
        self._raise()
        changed, self._changed = self._changed, False
        return changed

    def _log_again(self, id: str) -> None:
        if id in self.held and self.reads.get(id, Access()).reads > self.held[id]:
            del self.held[id]
            row = self._newest()[id]._replace(reread=True)
            self.versions.append(row._replace(seq=self._last() + 1))
            self._changed = True

    def _current_in(self, rows: Sequence[EpisodeVersion]) -> list[EpisodeVersion]:
        """Return the newest versions of which these are rows; those that were only reread last."""
        newest = self._newest()
        found = [row for row in rows if newest[row.id].seq == row.seq]
        ids = {row.id for row in found}
        again = {row.id for row in rows if row.reread and row.seq > newest[row.id].seq} - ids
        return found + sorted((newest[id]._replace(reread=True) for id in again), key=_seq)

    def _newest(self) -> dict[str, EpisodeVersion]:
        return {row.id: row for row in self.versions if not row.reread}

    def _above(self, seq: int) -> list[EpisodeVersion]:
        return [row for row in self.versions if row.seq > seq]

    def _last(self) -> int:
        return self.versions[-1].seq if self.versions else 0

    def _refuse_filter(self, rule: ConsolidationRule) -> None:
        if rule.when_filter:
            raise FilterError(rule.id, "the fake episode log runs no filters")

    def _record(self, name: str) -> None:
        self._raise()
        self.queries.append(name)

    def _raise(self) -> None:
        if self.fault is not None:
            self.failed.set()
            raise self.fault


def _seq(version: EpisodeVersion) -> int:
    return version.seq


class FakeLedger:
    """A ledger and its watermarks. Each readable claim of a new fact id is an add.

    Attributes:
        outcomes: The outcome of each committed batch, oldest first.
        records: Every row, oldest first.
        logged: The last row whose log lines are written.
        queries: The names of the calls.
        fault: Every call raises it while it is set.
        holds: The batches that wait for a person, by rule.
        successes: When the last successful firing of each rule began.
        future: The instants that are still to come of quarantined episodes, by rule and id.
    """

    def __init__(self) -> None:
        self.future: dict[str, dict[str, datetime]] = {}
        self.outcomes: list[Outcome] = []
        self.records: list[Record] = []
        self.logged = 0
        self.queries: list[str] = []
        self.fault: Exception | None = None
        self.holds: dict[str, HeldBatch] = {}
        self.successes: dict[str, datetime] = {}
        self._watermarks: dict[str, Position] = {}
        self._served: dict[str, datetime] = {}
        self._quarantined: dict[str, set[str]] = {}
        self._facts: dict[str, Fact] = {}

    async def query(
        self,
        pattern: FactPattern,
        *,
        valid_at: datetime | None = None,
        believed_at: datetime | None = None,
    ) -> list[Fact]:
        self._record("query")
        assert valid_at is believed_at is None, "the fake ledger knows the current facts only"
        matches, after = matcher(pattern, lambda _, __: bool), place_after(pattern) or (0, "")
        found = sorted(filter(matches, self._facts.values()), key=attrgetter("id"))
        return [fact for fact in found if fact.id > after[1]][: pattern.limit]

    async def cited_episodes(self, eids: Sequence[str]) -> set[str]:
        self._record("cited_episodes")
        facts = [
            fact
            for fact in self._facts.values()
            if not fact.id.startswith(("@marks/", "@weights/"))
        ]
        entries = [entry for fact in facts for entry in fact.lineage]
        return {eid for entry in entries for eid in entry["source_episode_ids"]} & {*eids}

    async def stage_changes(self, place: Checkpoint | None) -> LedgerChanges:
        self._record("stage_changes")
        del place  # the fake has no facts of stages
        return LedgerChanges(Checkpoint(len(self.records), b""), 0)

    async def erasures_after(self, row: int) -> dict[int, bytes]:
        self._record("erasures_after")
        return {}  # the fake knows no erasures

    async def retracted_by_people(self, fact_ids: Sequence[str]) -> set[str]:
        self._record("retracted_by_people")
        return set()  # the fake knows no manual edits

    @property
    def ledger(self) -> Self:
        """The ledger; this object is the store, too."""
        return self

    @property
    def watermarks(self) -> Self:
        """The watermarks; this object has them, too."""
        return self

    async def position(self, rule_id: str) -> Position | None:
        self._record("position")
        return self._watermarks.get(rule_id)

    async def positions(self) -> dict[str, tuple[Position, datetime]]:
        self._record("positions")
        return {rule: (at, self._served[rule]) for rule, at in self._watermarks.items()}

    async def batch_ends(self, rule_id: str) -> list[Position]:
        self._record("batch_ends")
        return [outcome.firing.upto for outcome in self._batches_of(rule_id)][::-1]

    async def rewind(self, rule_id: str, to: Position) -> None:
        self._record("rewind")
        self._move(rule_id, to)
        self.holds.pop(rule_id, None)

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        self._record("begin")
        if rule_id not in self._watermarks:
            self._watermarks[rule_id] = at
            self._served[rule_id] = served

    async def served(self, rule_id: str) -> datetime | None:
        self._record("served")
        return self._served.get(rule_id)

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        self._record("serve")
        if succeeded_at is not None:
            self.successes[rule_id] = succeeded_at
        if rule_id in self._served:
            self._served[rule_id] = max(instant, self._served[rule_id])

    async def correct_served(self, rule_id: str, now: datetime) -> None:
        self._record("correct_served")
        self._served[rule_id] = min(now, self._served[rule_id])

    async def last_recorded_at(self) -> datetime | None:
        return None

    async def future_of_rules(self) -> dict[str, datetime]:
        self._record("future_of_rules")
        return {rule: min(found.values()) for rule, found in self.future.items() if found}

    async def future_upto(self, rule_id: str, latest: int, *, limit: int) -> list[str]:
        found = self.future.get(rule_id, {})
        due = sorted((at, eid) for eid, at in found.items() if microseconds(at) <= latest)
        return [eid for _, eid in due][:limit]

    async def drop_future(self, rule_id: str, episodes: Sequence[str], *, at: datetime) -> None:
        self._record("drop_future")
        for eid in episodes:
            self.future.get(rule_id, {}).pop(eid, None)

    async def apply_deltas(
        self,
        batch: DeltaBatch,
        *,
        dry_run: bool = False,
        on_decided: Callable[[], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Outcome:
        self._record("apply_deltas")
        if cancelled is not None and cancelled():
            raise StoppedError("the fake ledger was stopped")
        outcome = self._outcome(batch.firing, batch.candidates)
        if dry_run:
            return outcome
        position = self._watermarks.get(batch.firing.rule_id, START)
        if batch.firing.after.seq > position.seq:
            raise SkippedEpisodesError(batch.firing.rule_id, position.seq, batch.firing.after.seq)
        if on_decided is not None:
            on_decided()
        self.records.extend(outcome.records)
        self.outcomes.append(outcome)
        self._move(batch.firing.rule_id, batch.upto)
        for candidate in chain.from_iterable(batch.candidates.values()):
            self._note_quarantine(batch.firing.rule_id, candidate)
            self._note_fact(candidate, outcome)
        return outcome

    async def position_of(self, rule_id: str) -> RulePosition:
        self._record("position_of")
        return RulePosition(self._watermarks.get(rule_id), self.holds.get(rule_id))

    async def held(self) -> Mapping[str, HeldBatch]:
        self._record("held")
        return self.holds

    async def hold(
        self,
        firing: Firing,
        problem: str,
        scope: HeldScope,
        impact: DeletionImpact,
        instead_of: HeldBatch | None = None,
    ) -> Outcome:
        self._record("hold")
        firing_id = f"{firing.rule_id}@{len(self.records) + 1}"
        held = HeldBatch(
            firing.rule_id, firing_id, firing.upto, problem, False, firing.rule_hash, scope, impact
        )
        self.holds[firing_id if scope.again else firing.rule_id] = held
        return Outcome(firing, firing_id, {}, [], 0.0, held=held)

    async def rejections(self, rule_id: str, rule_hash: str) -> Mapping[str, HeldScope]:
        self._record("rejections")
        return {}

    async def quarantined_of(self, rule_id: str) -> list[str]:
        self._record("quarantined_of")
        return sorted(self._quarantined.get(rule_id, ()))

    async def unlogged(self, *, limit: int) -> list[Record]:
        self._record("unlogged")
        return self.records[self.logged :][:limit]

    async def mark_logged(self, seq: int) -> None:
        self._record("mark_logged")
        self.logged = max(self.logged, seq)

    async def checkpoint_after_backlog(self) -> None:
        self._record("checkpoint_after_backlog")

    def skip_checkpoint_on_close(self) -> None:
        self._record("skip_checkpoint_on_close")

    async def head(self) -> Checkpoint:
        self._record("head")
        return Checkpoint(len(self.records), sha256(repr(self.records).encode()).digest())

    def _move(self, rule_id: str, to: Position) -> None:
        self._watermarks[rule_id] = to
        self._served.setdefault(rule_id, _NEVER)
        if rule_id in self.holds and self.holds[rule_id].upto[0] <= to.seq:
            del self.holds[rule_id]

    def _batches_of(self, rule_id: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.firing.rule_id == rule_id]

    def _note_fact(self, candidate: Candidate, outcome: Outcome) -> None:
        claim = candidate.claim
        if claim is None or not claim.asserts:
            self._facts.pop(candidate.fact_id, None)
            return
        user, agent = user_and_agent(claim.owner)
        lineage = [{"rule_id": outcome.firing.rule_id, "source_episode_ids": [candidate.eid]}]
        self._facts[claim.fact_id] = Fact(
            id=claim.fact_id, user=user, agent=agent, payload=claim.payload, lineage=lineage,
            confidence=claim.confidence, pinned_at=outcome.firing.at,
        )  # fmt: skip

    def _note_quarantine(self, rule_id: str, candidate: Candidate) -> None:
        quarantined = self._quarantined.setdefault(rule_id, set())
        if isinstance(candidate, Unreadable | Contested):
            quarantined.add(candidate.eid)
        else:
            quarantined.discard(candidate.eid)

    def _outcome(self, firing: Firing, candidates: Mapping[str, Sequence[Candidate]]) -> Outcome:
        # The instants of a ledger never decrease.
        firing = replace(firing, at=max([firing.at, *(row.at for row in self.records[-1:])]))
        records = [self._firing_row(firing)]
        channels = {}
        for channel, in_channel in candidates.items():
            counts = Counts()
            for candidate in in_channel:
                row = self._row(candidate, records)
                counts = counts.plus(_COUNTS[row.kind] if row else Counts(read=1, filtered=1))
                records += [row] if row else []
            channels[channel] = counts
        return Outcome(firing, records[0].firing_id, channels, records, seconds=0.0)

    def _firing_row(self, firing: Firing) -> Record:
        seq = len(self.records) + 1
        return Record(
            seq=seq,
            firing_id=f"{firing.rule_id}@{seq}",
            rule_id=firing.rule_id,
            kind="firing",
            fact_id="",
            replaces=(),
            source_episode_ids=(),
            reason="",
            confidence=1.0,
            at=firing.at,
        )

    def _row(self, candidate: Candidate, batch: Sequence[Record]) -> Record | None:
        """Return the row of what a rule evaluated; None when its filter did not select it."""
        kind: Kind = "noop"
        reason = "known"
        if isinstance(candidate, Unreadable | Contested):
            kind, reason = "quarantine", candidate.reason
        elif candidate.claim is None:
            return None
        elif candidate.claim.asserts and not _promoted(candidate.fact_id, self.records, batch):
            kind, reason = "add", ""
        return batch[0]._replace(
            seq=batch[-1].seq + 1,
            kind=kind,
            fact_id=candidate.fact_id,
            source_episode_ids=(candidate.eid,),
            reason=reason,
        )

    def _record(self, name: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.queries.append(name)


_COUNTS: Mapping[Kind, Counts] = {
    "add": Counts(read=1, added=1),
    "noop": Counts(read=1, noop=1),
    "quarantine": Counts(read=1, quarantined=1),
}


def _promoted(fact_id: str, *ledgers: Sequence[Record]) -> bool:
    return any(row.fact_id == fact_id and row.kind == "add" for rows in ledgers for row in rows)


class FakeDeltaLog:
    """A log of deltas in lists.

    Attributes:
        lines: The records of the ``delta.applied`` lines.
        batches: The outcomes of the ``firing.completed`` lines.
        misspellings: What the ``metadata.misspelled`` lines report.
        heads: What the ``ledger.checkpoint`` lines report.
        calls_until_fault: After so many calls, `applied` raises once; None never does.
    """

    def __init__(self) -> None:
        self.calls_until_fault: int | None = None
        self.lines: list[Record] = []
        self.batches: list[Outcome] = []
        self.heads: list[Checkpoint] = []
        self.misspellings: list[Misspelling] = []
        self.reports: list[Report] = []

    def applied(self, records: Sequence[Record]) -> None:
        if self.calls_until_fault is not None:
            self.calls_until_fault -= 1
            if self.calls_until_fault < 0:
                self.calls_until_fault = None
                raise OSError(errno.ENOSPC, "no space left on device")
        self.lines.extend(without_firings(records))

    def completed(self, outcome: Outcome) -> None:
        self.batches.append(outcome)

    def misspelled(self, found: Sequence[Misspelling]) -> None:
        self.misspellings.extend(found)

    def finished(self, report: Report) -> None:
        self.reports.append(report)

    def checkpointed(self, head: Checkpoint) -> None:
        self.heads.append(head)


def without_firings(records: Sequence[Record]) -> list[Record]:
    """Return the rows that have a ``delta.applied`` line: all but the firings' own."""
    return [record for record in records if record.kind != "firing"]


class FakeLogs:
    """Returns one `FakeDeltaLog` for every key."""

    def __init__(self, deltas: FakeDeltaLog | None = None) -> None:
        self.deltas = deltas or FakeDeltaLog()
        self.dropped = 0

    def keyed(self, key: bytes) -> FakeDeltaLog:
        return self.deltas


class FakeComparer:
    """Compares texts by the number of words that they share."""

    def near(
        self,
        texts: Sequence[str],
        *,
        first: int,
        least: float,
        most: int,
        cancelled: Callable[[], bool] | None = None,
    ) -> Iterator[list[tuple[int, float]]]:
        known = sorted({word for text in texts for word in _words_of(text)})
        vectors = [_direction([_words_of(text).count(word) for word in known]) for text in texts]
        for number in range(first, len(texts)):
            if cancelled is not None and cancelled():
                raise StoppedError("the fake comparer was stopped")
            cosines = (
                (other, min(1.0, sum(map(mul, vectors[number], vectors[other]))))
                for other in range(max(0, number - most), number)
            )
            yield [(other, cosine) for other, cosine in cosines if cosine >= least]


def _words_of(text: str) -> list[str]:
    return [word.strip(".,!?") for word in text.split()]


def _direction(counts: Sequence[int]) -> tuple[float, ...]:
    length = sum(count * count for count in counts) ** 0.5 or 1.0
    return tuple(count / length for count in counts)


class FakePromotions:
    """A ledger of promotions, and the positions of its readers.

    Attributes:
        rows: The promotion of each row; None for a row without one.
        erased: The numbers of the erased rows.
        current: The numbers of the rows whose fact is current; None for all rows.
        positions: The last saved position of each reader.
        longest: The number of promotions of the longest page.
        fault: Every call raises it while it is set.
    """

    def __init__(self, *rows: Promotion | None) -> None:
        self.rows = [*rows]
        self.erased: set[int] = set()
        self.current: set[int] | None = None
        self.positions: dict[str, tuple[int, int]] = {}
        self.longest = 0
        self.fault: Exception | None = None

    def promote(self, *kinds: bool) -> None:
        """Append a row for each value; it is a promotion when the value is true."""
        for is_promotion in kinds:
            seq = len(self.rows) + 1
            self.rows.append(builders.promotion(seq) if is_promotion else None)

    async def promotions(self, after: int, *, limit: int, current_only: bool) -> PromotionPage:
        self._raise()
        found = [
            row
            for row in self.rows[after : after + limit]
            if row and row.seq not in self.erased
            if not (current_only and self.current is not None and row.seq not in self.current)
        ]
        self.longest = max(self.longest, len(found))
        return PromotionPage(found, min(after + limit, max(after, len(self.rows))))

    async def is_publishable(self, seq: int) -> bool:
        self._raise()
        return seq not in self.erased

    async def published_position(self, reader: str) -> tuple[int, int]:
        self._raise()
        return self.positions.get(reader, (0, 0))

    async def save_published_position(self, reader: str, seq: int, refused: int) -> None:
        self._raise()
        self.positions[reader] = seq, refused

    async def ledger_rows(self) -> int:
        self._raise()
        return len(self.rows)

    async def lag(self, reader: str) -> Lag:
        self._raise()
        rows = len(self.rows) - self.positions.get(reader, (0, 0))[0]
        return Lag(rows, builders.START if rows else None)

    def _raise(self) -> None:
        if self.fault is not None:
            raise self.fault


class FakeSink:
    """A provenance sink that records its assertions.

    Attributes:
        assertions: The template and the slots of each assertion, in order.
        fault: Every call raises it while it is set.
        hangs: Whether a call never returns.
        deaf: Whether a failing call records nothing.
        called: Is set when a call begins.
    """

    def __init__(self) -> None:
        self.assertions: list[tuple[str, dict[str, str | int]]] = []
        self.fault: BaseException | None = None
        self.hangs = False
        self.deaf = True
        self.called = asyncio.Event()

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        document = assertion_document(slots, provenance)
        self.called.set()
        fails = self.fault is not None or self.hangs
        if not (fails and self.deaf):
            self.assertions.append((template, document))
        if self.fault is not None:
            raise self.fault
        if self.hangs:
            await asyncio.Event().wait()

    @property
    def seqs(self) -> list[int]:
        """The numbers of the asserted rows."""
        return [int(slots["seq"]) for _, slots in self.assertions]
