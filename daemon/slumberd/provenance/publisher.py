"""The courier: tells a sink of provenance what a ledger promoted, once that is committed.

It goes its own way: a sink that fails or hangs holds up neither rules nor hands, and is told later.
Its place in the ledger moves when the sink has answered, so that after a crash the sink is told of
some rows again, and never of fewer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf

import structlog

from slumberd.clock import Clock, set_within
from slumberd.errors import ProvenanceError, StoreError, SupersededError
from slumberd.model.provenance import Promotion, asserted, bundle_of, slots_of
from slumberd.provenance.protocols import Promotions, ProvenanceSink

PAGE_ROWS = 200
"""Rows of a ledger that are held in memory at a time, and after which its place is kept."""

LOOK_SECONDS = 0.5
"""Between two looks for what was committed."""

FIRST_RETRY_SECONDS = 1.0
"""After the first failure; twice as long after each further one."""

_MOST_OF_A_MESSAGE = 500
_MOST_DOUBLINGS = 20

_log = structlog.get_logger("slumberd")


@dataclass(frozen=True, slots=True)
class Terms:
    """How a sink is told.

    Attributes:
        reader: Under which name the place in the ledger is kept: a sink of another name begins
            at its beginning.
        template: What kind of assertion a promotion is.
        timeout_seconds: How long it may take to answer.
        retry_seconds: The longest rest after failures.
        forgetful: Whether it begins empty: then it is told first of what stands, from the
            beginning of the ledger.
    """

    reader: str
    template: str = "slumberd.fact"
    timeout_seconds: float = 10.0
    retry_seconds: float = 300.0
    forgetful: bool = False


class Courier:
    """Tells one sink of one ledger's promotions, in order, each at least once.

    Whatever cannot be encoded, or is refused with a `ProvenanceError`, is passed over and counted;
    any other failure is tried again until it passes. What was erased is told to nobody.

    Args:
        ledger: The fact store.
        sink: What is told; it must not block the event loop.
        clock: The time.
        terms: How it is told.
    """

    def __init__(
        self, ledger: Promotions, sink: ProvenanceSink, clock: Clock, terms: Terms
    ) -> None:
        self._ledger = ledger
        self._sink = sink
        self._clock = clock
        self._terms = terms
        self._kept: tuple[int, int] | None = None
        self._seq = self._refused = self._anew_up_to = 0
        self._failures = 0
        self._failing = False
        self._retry_at = -inf

    async def keep(self, stop: asyncio.Event) -> None:
        """Tell whatever is committed, until `stop` is set; a sink under way is let go then.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._turn_until(stop))
                await stop.wait()
                work.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _turn_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await set_within(stop, await self.turn())

    async def turn(self) -> float:
        """Tell of one page, unless it is too early after a failure.

        Returns:
            After how many seconds to come again; 0 when there may be more to tell.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        early = self._retry_at - self._clock.monotonic()
        if early > 0:
            return early
        before = self._seq
        try:
            await self._tell_page()
        except SupersededError:
            raise
        except Exception as error:  # noqa: BLE001 - a sink is anybody's, and holds up nothing here
            return await self._set_back(error, got_on=self._seq > before)
        self._recover()
        return 0.0 if self._seq > before else LOOK_SECONDS

    async def _tell_page(self) -> None:
        if self._kept is None:
            await self._begin()
        anew = self._anew_up_to - self._seq
        limit = min(anew, PAGE_ROWS) if anew > 0 else PAGE_ROWS
        page = await self._ledger.promotions(self._seq, limit=limit, standing=anew > 0)
        try:
            for told in page.promotions:
                await self._tell(told)
                self._seq = told.seq
            self._seq = page.upto
        finally:
            await self._keep_place()

    async def _begin(self) -> None:
        place = await self._ledger.asserted(self._terms.reader)
        self._seq, self._refused = place
        if self._terms.forgetful:
            self._anew_up_to = await self._ledger.ledger_rows()
            self._seq = 0
        self._kept = place

    async def _keep_place(self) -> None:
        place = self._seq, self._refused
        if place != self._kept:
            await self._ledger.mark_asserted(self._terms.reader, *place)
            self._kept = place

    async def _tell(self, told: Promotion) -> None:
        # It may have been forgotten since its page was read.
        if not await self._ledger.is_told(told.seq):
            return
        slots, bundle = slots_of(told), bundle_of(told)
        try:
            asserted(slots, bundle)
            async with asyncio.timeout(self._terms.timeout_seconds):
                await self._sink.assert_with_provenance(self._terms.template, slots, bundle)
        except ProvenanceError as error:
            self._refused += 1
            _log.warning(
                "provenance.refused",
                seq=told.seq,
                slot=error.slot,
                message=error.reason[:_MOST_OF_A_MESSAGE],
            )
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            raise _GaveUpError("it gave up") from error

    async def _set_back(self, error: Exception, *, got_on: bool) -> float:
        self._failures = 1 if got_on else self._failures + 1
        doublings = min(self._failures - 1, _MOST_DOUBLINGS)
        pause = min(FIRST_RETRY_SECONDS * 2.0**doublings, self._terms.retry_seconds)
        self._retry_at = self._clock.monotonic() + pause
        if not self._failing:
            self._failing = True
            rows, seconds = await self._lag()
            message = str(error)[:_MOST_OF_A_MESSAGE] or self._unsaid(error)
            _log.warning(
                "provenance.failed",
                rows=rows,
                seconds=seconds,
                error=type(error).__name__,
                message=message,
            )
        return pause

    def _unsaid(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._terms.timeout_seconds:g} s"
        return ""

    async def _lag(self) -> tuple[int | None, float | None]:
        try:
            lag = await self._ledger.lag(self._terms.reader)
        except StoreError:  # it is what fails
            return None, None
        return lag.rows, lag.seconds(self._clock.now())

    def _recover(self) -> None:
        if self._failing:
            _log.info("provenance.resumed")
        self._failing, self._failures = False, 0


class _GaveUpError(Exception):
    """A sink ended its own call as if it had been told to."""


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
