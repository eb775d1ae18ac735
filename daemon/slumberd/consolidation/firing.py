"""The parts of a firing: request and bounds, place in the log, the read ahead, and log lines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Literal, NamedTuple, Self, TypeVar

from slumberd.clock import Clock
from slumberd.consolidation.incoming import Condition
from slumberd.consolidation.protocols import DeltaLog, EpisodeLog, Ledger, Watermarks
from slumberd.model.firing import (
    NO_LIMITS,
    START,
    UNTIMED,
    Firing,
    Limits,
    Outcome,
    Position,
    Record,
    Timing,
    Trigger,
)
from slumberd.model.rule import ConsolidationRule

Batch = TypeVar("Batch")

CHECKPOINT_ROWS = 10_000
"""A checkpoint follows the first batch after this many rows."""

CHECKPOINT_SECONDS = 60.0
"""A checkpoint follows the first batch after this many seconds."""


class DryRunBounds(NamedTuple):
    """What bounds a dry run.

    Attributes:
        stop: When it is set, the dry run ends with `StoppedError`; None never ends it.
        part: The dry run reads at most this part of the log rows that one may read: 4 for a fourth.
    """

    stop: asyncio.Event | None = None
    part: int = 1

    @property
    def cancelled(self) -> Condition | None:
        """A thread-safe check whether the dry run must end; None when nothing ends it."""
        return None if self.stop is None else self.stop.is_set


UNBOUNDED = DryRunBounds()


@dataclass(frozen=True, slots=True)
class FireRequest:
    """The request to fire one rule.

    Attributes:
        rule: The rule.
        trigger: Why the rule fires.
        at: The firing's instant.
        by: The person who requested the firing; empty when the rule was due.
        stop: When it is set, the current batch is rolled back; committed batches stay.
        timing: How the firing relates to the instants of the rule's cron expression.
        run: The id that all batches of the run share.
        reason: Why the person requested the firing; empty without a reason.
    """

    rule: ConsolidationRule
    trigger: Trigger
    at: datetime
    by: str = ""
    stop: asyncio.Event | None = None
    timing: Timing = UNTIMED
    run: str = ""
    reason: str = ""

    @property
    def stopped(self) -> bool:
        """Whether the stop is requested."""
        return self.stop is not None and self.stop.is_set()


@dataclass(frozen=True, slots=True)
class FiringCall:
    """One firing under way: its request, and the bounds that it keeps.

    Attributes:
        request: The rule, and why, when and for whom it fires.
        limits: The deletion limits of one batch.
        ends_at: When the firing must end, on the monotonic clock.
        future: What becomes of versions whose instant is still to come.
    """

    request: FireRequest
    limits: Limits = NO_LIMITS
    ends_at: float = math.inf
    future: Literal["quarantine", "evaluate"] = "quarantine"

    def complete(self, firing: Firing) -> Firing:
        """Return the firing of a batch with what the request says of it."""
        request = self.request
        return replace(
            firing,
            trigger=request.trigger,
            by=request.by,
            limits=self.limits,
            timing=request.timing,
            run=request.run,
            reason=request.reason,
        )


async def is_in_log(episodes: EpisodeLog, position: Position) -> bool:
    """Return whether the log still has the episode that it had at a position."""
    return position == START or await episodes.episode_at(position.seq) == position.eid


async def resume_rule(
    episodes: EpisodeLog, watermarks: Watermarks, rule: ConsolidationRule, at: datetime
) -> Position:
    """Return where a rule resumes; step back when the log lost rows below its watermark.

    The log's row at the watermark must still have the same episode. If not, the episodes were
    restored from a backup, and the rule resumes where the log and the ledger last agree.

    Args:
        watermarks: How far the rules have read; a new rule gets a watermark.
        at: The instant, for a new rule.
    """
    mark = await watermarks.position(rule.id)
    if mark is None:
        return await begin_rule(episodes, watermarks, rule, at)
    if await is_in_log(episodes, mark):
        return mark
    return await step_back(episodes, watermarks, rule.id, mark)


async def begin_rule(
    episodes: EpisodeLog, watermarks: Watermarks, rule: ConsolidationRule, at: datetime
) -> Position:
    """Give a new rule its watermark, and return it."""
    mark = START if rule.start == "beginning" else await episodes.newest()
    if mark != START:
        await episodes.fsync()  # after a crash the log must not assign this number again
    await watermarks.begin(rule.id, mark, served=at)
    return mark


async def step_back(
    episodes: EpisodeLog, watermarks: Watermarks, rule_id: str, mark: Position
) -> Position:
    """Move a watermark back to where the log and the ledger last agree, and return it."""
    earlier = await last_agreement(episodes, watermarks, rule_id, mark)
    await watermarks.rewind(rule_id, earlier)
    return earlier


async def last_agreement(
    episodes: EpisodeLog, watermarks: Watermarks, rule_id: str, mark: Position
) -> Position:
    """Return the last end of a batch below a position at which log and ledger agree."""
    for earlier in await watermarks.batch_ends(rule_id):
        if earlier.seq < mark.seq and await is_in_log(episodes, earlier):
            return earlier
    return START


class ReadingAhead(Generic[Batch]):
    """Reads a rule's next batch while SQLite writes the last one; ends with its block.

    Reading and resolving need the interpreter; writing hardly does.

    Args:
        read: Reads the batch above a position.
    """

    def __init__(self, read: Callable[[Position], Awaitable[Batch]]) -> None:
        self._read = read
        self._group = asyncio.TaskGroup()
        self._next: asyncio.Task[Batch | Exception] | None = None
        self._is_open = False

    async def read(self, after: Position) -> Batch:
        """Return the batch above a position, which may have been read already."""
        if self._next is None:
            return await self._read(after)
        task, self._next = self._next, None
        batch = await task
        if isinstance(batch, Exception):
            raise batch
        return batch

    def follow(self, after: Position) -> Callable[[], None]:
        """Return a thread-safe function that starts reading the batch above a position."""
        loop = asyncio.get_running_loop()

        def begin_soon() -> None:
            """Start the read in the loop's next turn."""
            loop.call_soon_threadsafe(self._begin, after)

        return begin_soon

    def _begin(self, after: Position) -> None:
        # A commit that was cancelled may decide after the block has ended.
        if self._is_open:
            self._next = self._group.create_task(self._read_or_error(after))

    async def _read_or_error(self, after: Position) -> Batch | Exception:
        try:
            return await self._read(after)
        except Exception as error:  # noqa: BLE001 # `read` raises it; the group would end the commit
            return error

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        if self._next is not None:
            self._next.cancel()
        # The group does not get the block's error: it would wrap it.
        await self._group.__aexit__(None, None, None)


class DeltaLines:
    """Writes a log line for each ledger row, after its commit.

    Attributes:
        behind: Whether ledger rows have no log lines yet.

    Args:
        log: The log that gets the lines.
        clock: Measures the time between checkpoints.
        at_once: At most this many lines are written, and at most this many pending ones are read,
            between two checks for a cancellation.
    """

    def __init__(self, ledger: Ledger, log: DeltaLog, clock: Clock, *, at_once: int) -> None:
        self._ledger = ledger
        self._log = log
        self._at_once = at_once
        self._checkpoints = Checkpoints(ledger, log, clock)
        self.behind = False

    async def complete(
        self, outcome: Outcome, *, cancelled: Callable[[], bool] | None = None
    ) -> None:
        """Log that a batch is committed; write its lines first.

        Args:
            outcome: The batch.
            cancelled: Once it returns True, the other lines are written later, or at the next
                start.
        """
        if cancelled is not None and cancelled():
            self.behind = True
        elif self.behind:
            await self.write_pending(cancelled)
        else:
            await self._write([*outcome.noticed, *outcome.records], cancelled)
        self._log.completed(outcome)

    async def write_pending(self, cancelled: Callable[[], bool] | None = None) -> int:
        """Write the pending lines, as long as the log takes them; return how many."""
        written = 0
        while (records := await self._ledger.watermarks.unlogged(limit=self._at_once)) and (
            await self._write(records, cancelled)
        ):
            written += len(records)
        return written

    async def checkpoint(self) -> None:
        """Log the ledger's number of rows and its head."""
        await self._checkpoints.write()

    async def _write(self, records: Sequence[Record], cancelled: Callable[[], bool] | None) -> bool:
        """Write the lines of records; return False when some of them must be written later."""
        # Until all are written, the next attempt begins after the last record that is marked.
        self.behind = True
        count = await self._write_portions(records, cancelled)
        if not count:
            return False
        await self._ledger.watermarks.mark_logged(records[count - 1].seq)
        await self._checkpoints.follow(records[count - 1].seq)
        self.behind = count < len(records)
        return not self.behind

    async def _write_portions(
        self, records: Sequence[Record], cancelled: Callable[[], bool] | None
    ) -> int:
        """Write lines until a cancellation, or until the log takes no more; return how many."""
        for first in range(0, len(records), self._at_once):
            if cancelled is not None and cancelled():
                return first
            portion = records[first : first + self._at_once]
            if not await asyncio.to_thread(self._try_to_write, portion):
                return first
        return len(records)

    def _try_to_write(self, records: Sequence[Record]) -> bool:
        """Write the lines of some records; return False when the log reader is too slow."""
        try:
            self._log.applied(records)
        except TimeoutError:
            return False
        return True


class Checkpoints:
    """Decides when a checkpoint is due, and writes it.

    Args:
        log: The log that gets the checkpoint.
        clock: Measures the time between checkpoints.
    """

    def __init__(self, ledger: Ledger, log: DeltaLog, clock: Clock) -> None:
        self._ledger = ledger
        self._log = log
        self._clock = clock
        self._rows = 0
        self._at = clock.monotonic()

    async def follow(self, rows: int) -> None:
        """Write a checkpoint if one is due; `rows` is the ledger's number of rows."""
        grown, since = rows - self._rows, self._clock.monotonic() - self._at
        if grown >= CHECKPOINT_ROWS or since >= CHECKPOINT_SECONDS:
            await self.write()

    async def write(self) -> None:
        """Write a checkpoint."""
        head = await self._ledger.head()
        self._log.checkpointed(head)
        self._rows, self._at = head.rows, self._clock.monotonic()
