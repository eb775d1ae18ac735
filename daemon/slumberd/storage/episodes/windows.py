"""Read episodes for one rule, in one snapshot, and make the batch of a window.

What is read is a window of the log, some episodes by id, or all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from operator import itemgetter
from threading import Event
from typing import Any

from slumberd.consolidation.claim import Fault, as_stated
from slumberd.consolidation.deltas import names_of
from slumberd.consolidation.incoming import (
    UNBOUNDED,
    Bounds,
    Candidate,
    DeltaBatch,
    evaluate,
    set_aside_future,
)
from slumberd.consolidation.protocols import EpisodeLog
from slumberd.logs.late_log import LateLogger
from slumberd.model.episode import (
    FUTURE_TOLERANCE_SECONDS,
    PERSON,
    EpisodeVersion,
    NaiveTimestamps,
    latest_at,
)
from slumberd.model.errors import LogRestoredError, StoppedError
from slumberd.model.extraction import ModelSummariser, Questions, RecordedSummary
from slumberd.model.firing import START, Firing, Position, ReadWindow, Window
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import ScopeMismatch
from slumberd.model.stages import KnownMarks
from slumberd.rules.filters.sandbox import Filter, FilterResult
from slumberd.search.vectors import Rows
from slumberd.storage.engine import Session
from slumberd.storage.episodes.extracting import (
    Conversation,
    add_triples,
    find_questions,
    find_stated,
    is_unanswered,
)
from slumberd.storage.episodes.rows import FILTER_FAILED, decode, shown
from slumberd.storage.episodes.salience_gate import Embedding, SalienceGate, no_embedder

_log = LateLogger()

_MOST_NAMED = 20
"""Episodes that a warning names; it counts all of them."""


def newest(session: Session) -> Position:
    """Return the last position of the log."""
    row = session.one("episode_log.newest")
    return Position(row[0], shown(row[1])) if row else Position()


def latest_versions(
    session: Session, *, naive: NaiveTimestamps, limit: int
) -> list[EpisodeVersion]:
    """Return what the last rows of the log hold, oldest first.

    Args:
        session: Of the episodes.
        naive: How to read a timestamp without an offset.
        limit: At most this many rows of the log.
    """
    after = newest(session).seq - limit
    rows = session.rows("episode_log.window", {"after": max(after, 0), "limit": limit, "rule": ""})
    return [
        decode(row[0], row[5:], mismatch="trust_scope", naive=naive)
        for row in rows
        if row[4] is not None
    ]


def episode_at(session: Session, seq: int) -> str | None:
    """Return the episode id of one log row; None when there is no such row."""
    row = session.one("episode_log.episode_at", {"seq": seq})
    return shown(row[0]) if row else None


def _has_position(session: Session, position: Position, *, may_be_pruned: bool) -> bool:
    if position == START:
        return True
    found = episode_at(session, position.seq)
    if found is None and may_be_pruned:
        return bool(session.value("episode_log.is_inside", {"seq": position.seq}))
    return found == position.eid


def pending(session: Session, after: int, at_most: int, rule_id: str = "") -> int:
    """Count the log rows after a position that a rule may read, up to `at_most`."""
    values = {"after": after, "at_most": at_most, "rule": rule_id}
    counted: int = session.value("episode_log.pending", values)
    return counted


def oldest_timestamp(session: Session, after: int, rule_id: str = "") -> str | None:
    """Return the stored timestamp of the first episode after a position that a rule may read."""
    row = session.one("episode_log.oldest_timestamp", {"after": after, "rule": rule_id})
    return row[0] if row else None


@dataclass(frozen=True, slots=True)
class Matching:
    """How many of all episodes a rule's filter selects.

    Attributes:
        episodes: The number of episodes, readable or not, without their older versions.
        matched: The number that the filter selects.
        failed: The number on which the filter fails.
        problem: Why it fails on the first of them; empty when it does not.
    """

    episodes: int = 0
    matched: int = 0
    failed: int = 0
    problem: str = ""

    def plus(self, page: Sequence[int], result: FilterResult | None) -> Matching:
        """Return the counts with a page of rowids added; without a result, all of them match."""
        if result is None:
            return replace(
                self, episodes=self.episodes + len(page), matched=self.matched + len(page)
            )
        return Matching(
            self.episodes + len(page),
            self.matched + len(result.matched),
            self.failed + len(result.failed),
            self.problem or next(iter(result.failed.values()), ""),
        )


Found = tuple[int, int, Sequence[Any]]
"""A log row's number, the rowid of its episode, and the episode's columns."""

END_OF_LOG = 2**63 - 1
"""In place of the number of a log row."""

FIRST_PAGE = -(2**63)
"""The place before the first page of all episodes."""

PAGE_ROWS = 5_000
"""Episodes that a pass over all of them reads at a time, by default."""

DECODED_ROWS = 500
"""Episodes that are decoded, and extracted, between two checks for a stop, by default."""

_CLAIM_COLUMNS = frozenset({"intent", "subject", "predicate", "object"})
_TEXT_COLUMNS = _CLAIM_COLUMNS | {"content", "source_node", "speaker", "metadata"}


class Reader:
    """Reads episodes for one rule.

    Args:
        rule: The rule; its filter decides what matches.
        mismatch: Which of scope key and content names the owner, when they differ.
        naive: The zone of a timestamp without an offset.
        stop: When set, a running pass raises `StoppedError`.
        seconds: How long the filter may take for one batch.
        person: The speakers whose words are those of the user.
        page_rows: Episodes that a pass over all of them reads at a time.
        decoded_rows: Episodes that are decoded between two checks of `stop`.

    Raises:
        FilterError: The rule's filter may not run.
    """

    def __init__(  # noqa: PLR0913 # one for each setting
        self,
        rule: ConsolidationRule,
        *,
        mismatch: ScopeMismatch,
        naive: NaiveTimestamps,
        stop: Event,
        seconds: float,
        person: Collection[str] = PERSON,
        page_rows: int = PAGE_ROWS,
        decoded_rows: int = DECODED_ROWS,
    ) -> None:
        self._person = person
        self._page_rows = page_rows
        self._decoded_rows = decoded_rows
        self._decode = partial(decode, mismatch=mismatch, naive=naive)
        self._naive = naive
        self._stop = stop
        self._rule_id = rule.id
        self._extraction = rule.extract
        self._filter = _filter_of(rule.id, rule.when_filter, mismatch, stop, seconds)
        self._checked_columns = (
            sorted(_TEXT_COLUMNS & self._filter.reads) if self._filter is not None else []
        )

    def read(self, session: Session, window: Window) -> ReadWindow:
        """Return the versions of a window, up to the first that waits for a language model.

        Raises:
            LogRestoredError: The window begins after a row that is not in the log any more.
        """
        if window.episodes is not None:
            upto = END_OF_LOG if window.upto is None else window.upto
            versions = self.named(session, window.episodes, upto)
            if window.marks is None:
                versions = _recorded(versions)
            return ReadWindow(window.after, window.after, versions)
        window_of = partial(
            self.window, session, window.after, window.limit, goes_on=window.upto is not None
        )
        read = window_of(window.upto)
        if read.recorded_upto is None:
            return read
        if window.unrecorded == "skip":
            return replace(read, versions=_recorded(read.versions))
        recorded = window_of(read.recorded_upto)
        return replace(recorded, recorded_upto=read.recorded_upto)

    def window(
        self,
        session: Session,
        after: Position,
        limit: int,
        upto: int | None = None,
        *,
        goes_on: bool = False,
    ) -> ReadWindow:
        """Return the episodes of at most `limit` log rows after a position, none after `upto`.

        Args:
            session: Of the episodes.
            after: The position.
            goes_on: Whether the position ended a window just now: its row may have been pruned
                since then.

        Raises:
            LogRestoredError: The row at the position is not the episode of the position any more.
        """
        if not _has_position(session, after, may_be_pruned=goes_on):
            raise LogRestoredError(session.where, after.seq, after.eid)
        end_of_log = newest(session).seq
        rows = session.rows("episode_log.window", self._place(after.seq, limit))
        if upto is not None:
            rows = [row for row in rows if row[0] <= upto]
        if not rows:
            return ReadWindow(after, after, newest=end_of_log)
        end = Position(rows[-1][0], shown(rows[-1][1]))
        found, reread = _find_newest(session, rows)
        versions = self._versions(session, [*found, *reread])
        for place in range(len(found), len(versions)):
            versions[place] = versions[place]._replace(reread=True)
        recorded_upto = _recorded_upto(rows, versions, after)
        return ReadWindow(after, end, versions, end_of_log, recorded_upto)

    def questions(self, session: Session, after: int, limit: int, *, again: bool) -> Questions:
        """Return what a language model is to be asked about a window of the log.

        Args:
            session: Of the episodes.
            after: The number of the log row before the window.
            limit: At most this many log rows.
            again: Whether questions count whose recorded answer is ``refused`` or ``invalid``.
        """
        rows = session.rows("episode_log.window", self._place(after, limit))
        if not rows or self._extraction is None:
            return Questions([], rows[-1][0] if rows else after)
        found, reread = _find_newest(session, rows)
        versions = self._versions(session, [*found, *reread])
        wanted = [one for one in versions if one.unrecorded or (again and is_unanswered(one))]
        asked = find_questions(self._conversation(session), wanted, self._extraction)
        return Questions(asked, rows[-1][0], find_stated(versions))

    def _place(self, after: int, limit: int) -> dict[str, Any]:
        return {"after": after, "limit": limit, "rule": self._rule_id}

    def named(self, session: Session, eids: Sequence[str], upto: int) -> list[EpisodeVersion]:
        """Return some episodes by id, but none whose newest log row is after `upto`."""
        parameters = {"ids": [*eids]}
        rows = [row for row in session.rows("episode_log.moved", parameters) if row[0] is not None]
        found = [(row[0], row[1], row[2:]) for row in rows if row[0] <= upto]
        return self._versions(session, sorted(found, key=itemgetter(0)))

    def selected(self, session: Session) -> Iterator[EpisodeVersion]:
        """Yield every readable episode that the filter selects; no other is decoded.

        One whose text cannot be extracted has a fault. Those that wait for the answer of a language
        model are left out.
        """
        for versions in self._selected_pages(session):
            for version in self._with_triples(session, versions):
                if not version.unrecorded:
                    yield version

    def ids_by_owner(self, session: Session) -> dict[tuple[str, str], list[str]]:
        """Return the ids of the readable episodes that the filter selects, by user and agent."""
        found: dict[tuple[str, str], list[str]] = {}
        for versions in self._selected_pages(session):
            for version in versions:
                found.setdefault((version.user, version.agent), []).append(version.id)
        return found

    def _selected_pages(self, session: Session) -> Iterator[list[EpisodeVersion]]:
        after = -(2**63)
        while rows := session.rows("episodes.page", {"after": after, "limit": self._page_rows}):
            after = rows[-1][0]
            result = self._run_filter(session, [row[0] for row in rows])
            chosen = rows if result is None else [row for row in rows if row[0] in result.matched]
            for first in range(0, len(chosen), self._decoded_rows):
                self._check_stopped()
                found = self._decode_page(result, chosen[first : first + self._decoded_rows])
                yield [one for one in found if as_stated(one).matched and not one.fault]

    def _decode_page(
        self, result: FilterResult | None, rows: Sequence[tuple[Any, ...]]
    ) -> Iterator[EpisodeVersion]:
        for rid, *row in rows:
            if result is None:
                yield self._decode(0, row)
            else:
                yield self._decode_selected(result, 0, rid, row)

    def match_page(
        self, session: Session, found: Matching, after: int
    ) -> tuple[Matching, int | None]:
        """Count what the filter selects of a page of episodes, without decoding them.

        Args:
            session: Inside a snapshot.
            found: The counts of the pages before; they are added.
            after: The rowid where the page before ended; `FIRST_PAGE` for the first page.

        Returns:
            The counts, and where the page ended; None after the last page.
        """
        self._check_stopped()
        page = [rid for (rid,) in session.rows("episodes.rowids", (after, self._page_rows))]
        if not page:
            return found, None
        return found.plus(page, self._run_filter(session, page)), page[-1]

    def _versions(self, session: Session, found: Sequence[Found]) -> list[EpisodeVersion]:
        result = self._run_filter(session, [rid for _, rid, _ in found])
        versions: list[EpisodeVersion] = []
        for first in range(0, len(found), self._decoded_rows):
            self._check_stopped()
            some = found[first : first + self._decoded_rows]
            if result is None:
                decoded = [self._decode(seq, row) for seq, _, row in some]
            else:
                decoded = [self._decode_selected(result, *entry) for entry in some]
            versions += self._with_triples(session, [*map(as_stated, decoded)])
        return versions

    def _with_triples(
        self, session: Session, versions: list[EpisodeVersion]
    ) -> list[EpisodeVersion]:
        if self._extraction is None:
            return versions
        return add_triples(self._conversation(session), versions, self._extraction)

    def _conversation(self, session: Session) -> Conversation:
        return Conversation(session, self._decode, self._person)

    def _check_stopped(self) -> None:
        if self._stop.is_set():
            raise StoppedError("the store was stopped")

    def _run_filter(self, session: Session, rids: Sequence[int]) -> FilterResult | None:
        return None if self._filter is None else session.apply_filter(self._filter, rids)

    def _decode_selected(
        self, result: FilterResult, seq: int, rid: int, row: Sequence[Any]
    ) -> EpisodeVersion:
        matched = rid in result.matched
        version = self._decode(seq, row, matched=matched)
        if version.fault:
            return version
        problem = result.failed.get(rid) or self._find_cut_text(version, row)
        if problem:
            return version._replace(matched=True, fault=f"{FILTER_FAILED}: {problem}")
        return version

    def _find_cut_text(self, version: EpisodeVersion, row: Sequence[Any]) -> str:
        """Return which column the filter read in part: SQLite ends a text of JSON at U+0000."""
        for column in self._checked_columns:
            if "\0" in _text_of(version, column, row[4]):
                return f"{column} holds U+0000, where SQLite ends a text"
        return ""


def _recorded(versions: Sequence[EpisodeVersion]) -> list[EpisodeVersion]:
    """Return the versions that do not wait for the answer of a language model."""
    return [version for version in versions if not version.unrecorded]


def _text_of(version: EpisodeVersion, column: str, metadata: bytes | str) -> str:
    if column == "metadata":
        text = metadata if isinstance(metadata, str) else metadata.decode()
        return text.replace("\\u0000", "\0")
    value: Any = (
        version.metadata.get(column) if column in _CLAIM_COLUMNS else getattr(version, column)
    )
    return value if isinstance(value, str) else ""


@lru_cache(maxsize=256)
def _filter_of(
    rule_id: str, fragment: str, mismatch: ScopeMismatch, stop: Event, seconds: float
) -> Filter | None:
    """Return the filter of a rule, which is checked once; None for a rule without one."""
    if not fragment.strip():
        return None
    return Filter(rule_id, fragment, mismatch=mismatch, stop=stop, seconds=seconds)


def _recorded_upto(
    rows: Sequence[tuple[Any, ...]], versions: Sequence[EpisodeVersion], after: Position
) -> int | None:
    """Return the number of the last row before the first row of an unrecorded version."""
    waiting = {version.id for version in versions if version.unrecorded}
    if not waiting:
        return None
    last = after.seq
    for row in rows:
        if shown(row[1]) in waiting:
            break
        last = row[0]
    return last


def _find_newest(
    session: Session, rows: Sequence[tuple[Any, ...]]
) -> tuple[list[Found], list[Found]]:
    """Return, in log order, the rows that are the newest of an existing episode, and the rereads.

    A version is read at its newest log row only. At an older one, two rules that read at different
    moments would get different content under one number. A log row for a read is not a version: an
    episode that has only such rows in the window is in the second list, with its own number.
    """
    lost = [row[1] for row in rows if row[4] is None and isinstance(row[1], str)]
    moved = _find_moved(session, lost) if lost else {}
    found: dict[int, Found] = {}
    reread: dict[int, Found] = {}
    for seq, eid, is_reread, *stored in rows:
        newest, rowid, *columns = stored if stored[1] is not None else moved.get(eid, stored)
        if rowid is None or (newest is not None and newest > seq):
            continue
        if is_reread:
            reread[rowid] = (newest or seq, rowid, columns)
        else:
            found[rowid] = (seq, rowid, columns)
    again = [row for rowid, row in reread.items() if rowid not in found]
    return sorted(found.values(), key=itemgetter(0)), sorted(again, key=itemgetter(0))


def _find_moved(session: Session, eids: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Find by id the episodes that have another rowid now: replaced, or restored from a dump."""
    rows = session.rows("episode_log.moved", {"ids": [*eids]})
    return {row[2]: row for row in rows}


def read_everything(
    session: Session, reader: Reader, rule: ConsolidationRule, at: datetime
) -> DeltaBatch:
    """Return a batch of all episodes that a rule selects, for the deltas of the specification.

    It has no candidates: a store of facts applies the batches of windows only.
    """
    versions = [*reader.selected(session)]
    named = sorted(names_of(versions))
    others = reader.named(session, named, END_OF_LOG) if named else []
    channels: dict[str, list[Candidate]] = {name: [] for name in rule.then_emits}
    return DeltaBatch(Firing(rule.id, rule.content_hash, "manual", at), channels, versions, others)


def log_left_out(rule_id: str, faults: Mapping[str, Fault]) -> None:
    """Log which episodes have no delta, and why."""
    reasons = Counter(fault.reason for fault in faults.values())
    _log.warning(
        "episodes.left_out",
        rule_id=rule_id,
        reasons=dict(sorted(reasons.items())),
        episode_ids=sorted(faults)[:_MOST_NAMED],
    )


EVALUATED_AT_ONCE = 500
"""Versions that are evaluated between two checks for cancellation."""


class WindowReader:
    """Turns windows of an episode log into batches of requested deltas.

    Args:
        embedding: Makes the embedder, when a salience gate or a stage first needs it.
        at_once: Versions that it evaluates between two checks for cancellation.
        person: The speakers whose words are those of the user.
        future_tolerance_seconds: A version whose instant lies further ahead of the firing's instant
            is still to come.
    """

    def __init__(
        self,
        log: EpisodeLog,
        embedding: Embedding = no_embedder,
        at_once: int = EVALUATED_AT_ONCE,
        person: Collection[str] = PERSON,
        future_tolerance_seconds: float = FUTURE_TOLERANCE_SECONDS,
    ) -> None:
        self._person = person
        self._log = log
        self._future_tolerance_seconds = future_tolerance_seconds
        self._gate = SalienceGate(log, embedding)
        self._embedding = embedding
        self._at_once = at_once

    async def consolidate(
        self,
        rule: ConsolidationRule,
        window: Window,
        *,
        at: datetime,
        bounds: Bounds = UNBOUNDED,
    ) -> DeltaBatch:
        """Return what a rule requests for a window.

        Unless it is a dry run, all that was read survives a power cut afterwards, and the
        episodes that the gate holds back are logged again once they are read.

        Args:
            at: The firing's instant.
            bounds: What ends the reading early.

        Raises:
            FilterError: The rule's filter is not allowed, or ran over its time limit.
            LogRestoredError: The window begins after a row that is not in the log any more.
            StoppedError: The bounds cancelled the reading.
        """
        if window.marks is not None:
            return await self._mark(rule, window, window.marks, at)
        read = await self._log.window(rule, window)
        wanted = self._wanted(read.versions, window, at)
        versions = wanted
        if rule.salience is not None:
            versions = await self._gate.apply(wanted, rule, at, bounds=bounds)
        if len(versions) < len(wanted):
            # Each log row has at most one version. The embedder has cached their vectors.
            read = await self._log.window(rule, window._replace(limit=len(versions)))
            versions = await self._gate.apply(
                self._wanted(read.versions, window, at), rule, at, bounds=Bounds(bounds.cancelled)
            )
        candidates: dict[str, list[Candidate]] = {name: [] for name in rule.channels}
        if versions:
            candidates = await asyncio.to_thread(self._evaluate, versions, rule, bounds)
        firing = _firing_of(rule, window.after, read.upto, at)
        waits = read.recorded_upto is not None
        batch = DeltaBatch(firing, candidates, versions, newest=read.newest, unrecorded=waits)
        # A window without versions is synced, too: the watermark moves over its rows.
        if not window.dry_run and (versions or not batch.is_empty):
            await self._secure(batch)
        return batch

    async def _mark(
        self, rule: ConsolidationRule, window: Window, known: KnownMarks, at: datetime
    ) -> DeltaBatch:
        """Return the batch of what a rule's stages change about marks."""
        from slumberd.consolidation.marks import evaluate_marks  # no command that reads needs it

        read = await self._log.window(rule, window)
        recorded: Mapping[str, RecordedSummary] = {}
        if isinstance(rule.summariser, ModelSummariser):
            ids = [version.id for version in read.versions]
            recorded = await self._log.recorded_summaries(ids)
        marks = await asyncio.to_thread(
            evaluate_marks,
            self._wanted(read.versions, window, at),
            rule,
            known,
            at,
            embed=self.embed,
            recorded=recorded,
            person=self._person,
            future_tolerance_seconds=self._future_tolerance_seconds,
        )
        firing = _firing_of(rule, window.after, read.upto, at)
        candidates = {name: marks.candidates.get(name, []) for name in rule.channels}
        # The watermark has passed these episodes, so they are synced to disk.
        return DeltaBatch(
            replace(firing, marks=True, min_similarity=None),
            candidates,
            unsummarised=marks.unsummarised,
            summary_questions=marks.questions,
            staged=marks.staged,
        )

    def _wanted(
        self, versions: Sequence[EpisodeVersion], window: Window, at: datetime
    ) -> Sequence[EpisodeVersion]:
        """Return the versions of a window; those that are still to come are set aside."""
        latest = None
        if window.future == "quarantine":
            latest = latest_at(at, self._future_tolerance_seconds)
        return set_aside_future(_between(versions, window), latest)

    def embed(self, texts: Sequence[str]) -> Rows:
        """Return the vectors of texts; only here a stage makes the embedder."""
        return self._embedding().rows(texts)

    def _evaluate(
        self, versions: Sequence[EpisodeVersion], rule: ConsolidationRule, bounds: Bounds
    ) -> dict[str, list[Candidate]]:
        found: dict[str, list[Candidate]] = {name: [] for name in rule.channels}
        for first in range(0, len(versions), self._at_once):
            if bounds.cancelled():
                raise StoppedError("the firing was cancelled")
            for name, candidates in evaluate(versions[first : first + self._at_once], rule).items():
                found[name] += candidates
        return found

    async def _secure(self, batch: DeltaBatch) -> None:
        # Before the store of facts records what the gate holds back. In the other order, a crash
        # in between would leave episodes that no rule evaluates again, even after a read.
        if seen := batch.reads_of_held_back:
            await self._log.log_again_after_read(seen)
        # The episodes must survive a power cut before their facts do. Otherwise the log would give
        # their numbers to new episodes, which the watermark has passed already.
        await self._log.fsync()


def _between(versions: Sequence[EpisodeVersion], window: Window) -> Sequence[EpisodeVersion]:
    if window.between is None:
        return versions
    first, end = window.between
    return [version for version in versions if first <= version.at < end]


def _firing_of(rule: ConsolidationRule, after: Position, upto: Position, at: datetime) -> Firing:
    return Firing(
        rule.id,
        rule.content_hash,
        "manual",
        at,
        after,
        upto,
        limits=rule.limits,
        min_similarity=None if rule.similarity is None else rule.similarity.min,
    )
