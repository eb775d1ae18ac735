"""The ports, in memory: as strict as the real ones, and without a clock of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import mul

from slumberd.consolidation.incoming import Candidate
from slumberd.errors import StoppedError
from slumberd.model.episode import EpisodeVersion
from slumberd.model.firing import START, Counts, Firing, Held, Position, Window
from slumberd.model.provenance import Lag, Page, Promotion, ProvenanceBundle, asserted
from slumberd.model.record import Checkpoint, Outcome, Record
from slumberd.model.rule import ConsolidationRule
from slumberd.model.salience import Access
from slumberd.model.spelling import Misspelling
from tests.support import builders

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class FakeClock:
    """Time stands still until a test moves it."""

    def __init__(self, at: datetime = builders.START) -> None:
        self._now = at
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, at: datetime) -> None:
        """Step the wall clock only, in either direction."""
        self._now = at


class FakeEpisodeLog:
    """A list of episode versions; every rule selects all of them.

    Attributes:
        versions: The rows of the log.
        queries: The names of the calls made, `changed` left out.
        fault: Raised by every call while it is set.
        failed: Set once it was raised.
        reads: How episodes were read.
        held: What was held back, and how many reads were known of.
    """

    def __init__(self, *ids: str) -> None:
        self.versions: list[EpisodeVersion] = []
        self.queries: list[str] = []
        self.fault: Exception | None = None
        self.failed = asyncio.Event()
        self.reads: dict[str, Access] = {}
        self.held: dict[str, int] = {}
        self._changed = True
        self.append(*ids)

    def append(self, *ids: str) -> None:
        """Put one more version of each of these episodes."""
        for id in ids:
            self.versions.append(builders.version(id, seq=self._newest() + 1))
        self._changed = True

    def append_many(self, count: int) -> None:
        """Put so many episodes with new ids."""
        first = self._newest() + 1
        self.append(*(f"e{number}" for number in range(first, first + count)))

    def restore(self, length: int) -> None:
        """Go back to an earlier state of the log, as a backup does."""
        del self.versions[length:]
        self._changed = True

    async def newest(self) -> Position:
        self._asked("newest")
        return Position(self.versions[-1].seq, self.versions[-1].id) if self.versions else START

    async def episode_at(self, seq: int) -> str | None:
        self._asked("episode_at")
        return next((version.id for version in self.versions if version.seq == seq), None)

    async def pending(self, after: int, *, at_most: int) -> int:
        self._asked("pending")
        return min(len(self._above(after)), at_most)

    async def select(
        self, rule: ConsolidationRule, *, after: Position, limit: int, upto: int | None = None
    ) -> Window:
        self._asked("select")
        versions = self._above(after.seq)[:limit]
        if upto is not None:
            versions = [version for version in versions if version.seq <= upto]
        end = Position(versions[-1].seq, versions[-1].id) if versions else after
        return Window(after, end, versions)

    async def reread(
        self, rule: ConsolidationRule, eids: Sequence[str], *, upto: int
    ) -> list[EpisodeVersion]:
        self._asked("reread")
        newest = {version.id: version for version in self.versions}
        return [newest[eid] for eid in eids if eid in newest and newest[eid].seq <= upto]

    async def accesses(self, eids: Sequence[str]) -> dict[str, Access]:
        self._asked("accesses")
        return {eid: self.reads[eid] for eid in eids if eid in self.reads}

    async def hold(self, seen: Mapping[str, int]) -> None:
        self._asked("hold")
        self.held |= seen

    async def harden(self) -> None:
        self._asked("harden")

    async def changed(self) -> bool:
        self._raise()
        changed, self._changed = self._changed, False
        return changed

    def _above(self, seq: int) -> list[EpisodeVersion]:
        return [version for version in self.versions if version.seq > seq]

    def _newest(self) -> int:
        return self.versions[-1].seq if self.versions else 0

    def _asked(self, name: str) -> None:
        self._raise()
        self.queries.append(name)

    def _raise(self) -> None:
        if self.fault is not None:
            self.failed.set()
            raise self.fault


class FakeLedger:
    """Watermarks, served instants and the rows of firings; settles nothing.

    Attributes:
        outcomes: Of every batch that was committed, oldest first.
        records: Every row, oldest first.
        logged: The last row whose log lines are written.
        queries: The names of the calls made.
        fault: Raised by every call while it is set.
        successes: When each rule last served an instant by a firing.
    """

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.records: list[Record] = []
        self.logged = 0
        self.queries: list[str] = []
        self.fault: Exception | None = None
        self.holds: dict[str, Held] = {}
        self._marks: dict[str, list[Position]] = {}
        self._served: dict[str, datetime] = {}
        self.successes: dict[str, datetime] = {}

    async def watermark(self, rule_id: str) -> Position | None:
        self._asked("watermark")
        marks = self._marks.get(rule_id)
        return marks[-1] if marks else None

    async def watermarks(self) -> dict[str, tuple[Position, datetime]]:
        self._asked("watermarks")
        return {rule: (marks[-1], self._served[rule]) for rule, marks in self._marks.items()}

    async def marks(self, rule_id: str) -> list[Position]:
        self._asked("marks")
        return self._marks.get(rule_id, [])[::-1]

    async def rewind(self, rule_id: str, to: Position) -> None:
        self._asked("rewind")
        self._marks[rule_id].append(to)

    async def begin(self, rule_id: str, at: Position, *, served: datetime) -> None:
        self._asked("begin")
        assert rule_id not in self._marks, f"rule {rule_id!r} was seen before"
        self._marks[rule_id] = [at]
        self._served[rule_id] = served

    async def served(self, rule_id: str) -> datetime | None:
        self._asked("served")
        return self._served.get(rule_id)

    async def serve(
        self, rule_id: str, instant: datetime, *, succeeded_at: datetime | None = None
    ) -> None:
        self._asked("serve")
        if succeeded_at is not None:
            self.successes[rule_id] = succeeded_at
        self._served[rule_id] = max(instant, self._served.get(rule_id, instant))

    async def commit(
        self,
        firing: Firing,
        met: Mapping[str, Sequence[Candidate]],
        *,
        decided: Callable[[], None] | None = None,
        late: Callable[[], bool] | None = None,
    ) -> Outcome:
        self._asked("commit")
        if late is not None and late():
            raise StoppedError("told to stop")
        outcome = self._outcome(firing, met)
        self.records.extend(outcome.records)
        self.outcomes.append(outcome)
        self._marks.setdefault(firing.rule_id, []).append(firing.upto)
        self._served.setdefault(firing.rule_id, _NEVER)
        return outcome

    async def held(self) -> Mapping[str, Held]:
        return self.holds

    async def quarantined_of(self, rule_id: str) -> list[str]:
        self._asked("quarantined_of")
        return []

    async def channels_of(self, rule_id: str) -> set[str]:
        return set()

    async def promoted_by(self, rule_id: str, fact_ids: Sequence[str]) -> set[str]:
        return set()

    async def rehearse(self, firing: Firing, met: Mapping[str, Sequence[Candidate]]) -> Outcome:
        self._asked("rehearse")
        return self._outcome(firing, met)

    async def unlogged(self, *, limit: int) -> list[Record]:
        self._asked("unlogged")
        return self.records[self.logged :][:limit]

    async def mark_logged(self, seq: int) -> None:
        self._asked("mark_logged")
        self.logged = max(self.logged, seq)

    async def rest(self) -> None:
        self._asked("rest")

    def leave(self) -> None:
        self._asked("leave")

    async def head(self) -> Checkpoint:
        self._asked("head")
        return Checkpoint(len(self.records), b"head")

    def _outcome(self, firing: Firing, met: Mapping[str, Sequence[Candidate]]) -> Outcome:
        record = self._record(firing)
        channels = {
            channel: Counts(read=len(incoming), noop=len(incoming))
            for channel, incoming in met.items()
        }
        return Outcome(firing, record.firing_id, channels, [record], seconds=0.0)

    def _record(self, firing: Firing) -> Record:
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

    def _asked(self, name: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.queries.append(name)


class FakeDeltaLog:
    """Remembers what would have been written."""

    def __init__(self) -> None:
        self.lines: list[Record] = []
        self.batches: list[Outcome] = []
        self.heads: list[Checkpoint] = []
        self.misspellings: list[Misspelling] = []

    def applied(self, records: Sequence[Record]) -> None:
        self.lines.extend(records)

    def completed(self, outcome: Outcome) -> None:
        self.batches.append(outcome)

    def misspelled(self, found: Sequence[Misspelling]) -> None:
        self.misspellings.extend(found)

    def checkpointed(self, head: Checkpoint) -> None:
        self.heads.append(head)


class FakeLogs:
    """Keeps the lines of deltas in a `FakeDeltaLog`."""

    def __init__(self, deltas: FakeDeltaLog | None = None) -> None:
        self.deltas = deltas or FakeDeltaLog()
        self.dropped = 0

    def keyed(self, _: bytes) -> FakeDeltaLog:
        return self.deltas


class FakeComparer:
    """Takes texts to be near that share words, by how many of them they share."""

    def near(
        self,
        texts: Sequence[str],
        *,
        first: int,
        least: float,
        most: int,
        late: Callable[[], bool] | None = None,
    ) -> Iterator[list[tuple[int, float]]]:
        known = sorted({word for text in texts for word in _words_of(text)})
        vectors = [_direction([_words_of(text).count(word) for word in known]) for text in texts]
        for number in range(first, len(texts)):
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
    """A ledger's rows, some of them promotions, and how far a sink was told.

    Attributes:
        rows: What each row promotes; None for a row that promotes nothing.
        erased: The numbers of those that were forgotten.
        standing: The numbers of those whose fact stands; None for all.
        places: The position that was saved last, by reader.
        longest: The most promotions that one page held.
        fault: Raised by every call while it is set.
    """

    def __init__(self, *rows: Promotion | None) -> None:
        self.rows = [*rows]
        self.erased: set[int] = set()
        self.standing: set[int] | None = None
        self.places: dict[str, tuple[int, int]] = {}
        self.longest = 0
        self.fault: Exception | None = None

    def promote(self, *kinds: bool) -> None:
        """Append rows, each a promotion or not."""
        for is_one in kinds:
            seq = len(self.rows) + 1
            self.rows.append(builders.promotion(seq) if is_one else None)

    async def promotions(self, after: int, *, limit: int, current_only: bool) -> Page:
        self._raise()
        found = [
            one
            for one in self.rows[after : after + limit]
            if one and one.seq not in self.erased
            if not (current_only and self.standing is not None and one.seq not in self.standing)
        ]
        self.longest = max(self.longest, len(found))
        return Page(found, min(after + limit, max(after, len(self.rows))))

    async def is_publishable(self, seq: int) -> bool:
        self._raise()
        return seq not in self.erased

    async def published_position(self, reader: str) -> tuple[int, int]:
        self._raise()
        return self.places.get(reader, (0, 0))

    async def save_published_position(self, reader: str, seq: int, refused: int) -> None:
        self._raise()
        self.places[reader] = seq, refused

    async def ledger_rows(self) -> int:
        self._raise()
        return len(self.rows)

    async def lag(self, reader: str) -> Lag:
        self._raise()
        rows = len(self.rows) - self.places.get(reader, (0, 0))[0]
        return Lag(rows, builders.START if rows else None)

    def _raise(self) -> None:
        if self.fault is not None:
            raise self.fault


class FakeSink:
    """A sink of provenance that keeps all that it is told.

    Attributes:
        told: Template, and what was asserted, in order.
        fault: Raised by every call while it is set.
        hangs: Whether it never answers.
        deaf: Whether it forgets, when it fails, what it was told in that call.
    """

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, str | int]]] = []
        self.fault: BaseException | None = None
        self.hangs = False
        self.deaf = True
        self.asked = asyncio.Event()

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        told = asserted(slots, provenance)
        self.asked.set()
        fails = self.fault is not None or self.hangs
        if not (fails and self.deaf):
            self.told.append((template, told))
        if self.fault is not None:
            raise self.fault
        if self.hangs:
            await asyncio.Event().wait()

    @property
    def seqs(self) -> list[int]:
        """The numbers of the rows that it was told of."""
        return [int(one["seq"]) for _, one in self.told]
