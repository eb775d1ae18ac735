"""Publish committed promotions to a provenance sink, at least once.

A sink that fails or hangs delays neither rules nor manual edits; the publisher retries later. The
position in the ledger moves after the sink has answered. So a crash repeats some promotions and
skips none. The sink that needs no extra is here, too: it appends lines of JSON to a file.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import orjson
import structlog

from slumberd.clock import Clock, set_within
from slumberd.file_modes import sync_to_disk
from slumberd.model.errors import ProvenanceError, StoreError, SupersededError
from slumberd.model.provenance import (
    Lag,
    Promotion,
    PromotionPage,
    ProvenanceBundle,
    assertion_document,
    bundle_of,
    slots_of,
)


class Promotions(Protocol):
    """The promotions of a ledger, and the position up to which each reader has published them."""

    async def promotions(self, after: int, *, limit: int, current_only: bool) -> PromotionPage:
        """Return the promotions in the rows that follow a row.

        Args:
            after: The number of that row.
            limit: The most rows that are read, of any kind.
            current_only: Whether only promotions whose fact is still current are returned.
        """
        ...

    async def is_publishable(self, seq: int) -> bool:
        """Return whether a row still promotes the same fact, and was not erased."""
        ...

    async def published_position(self, reader: str) -> tuple[int, int]:
        """Return a reader's position: the last row it passed, and the number of refused rows."""
        ...

    async def save_published_position(self, reader: str, seq: int, refused: int) -> None:
        """Save a reader's position, which `published_position` returns."""
        ...

    async def ledger_rows(self) -> int:
        """Return the number of rows of the ledger."""
        ...

    async def lag(self, reader: str) -> Lag:
        """Return how far a reader's position is behind the ledger."""
        ...


@runtime_checkable
class ProvenanceSink(Protocol):
    """A destination of assertions and their provenance.

    A sink gets each assertion at least once. After a crash or a timeout it may get one again, with
    equal template, slots and provenance.
    """

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        """Store an assertion; it is as durable as the sink makes it when this returns.

        Args:
            template: The kind of assertion.
            slots: The asserted values; no name begins with ``_``.
            provenance: The origin of the assertion.

        Raises:
            ProvenanceError: The assertion cannot be stored in any form; a retry is useless.
            Exception: Any other failure; the publisher retries.
        """
        ...


class SyncProvenanceSink(Protocol):
    """A synchronous `ProvenanceSink`, such as Stargraph's ``FathomAdapter``."""

    def assert_with_provenance(
        self, template: str, slots: dict[str, Any], provenance: ProvenanceBundle
    ) -> None:
        """Store an assertion; it is as durable as the sink makes it when this returns."""
        ...


PAGE_ROWS = 200
"""The most ledger rows that are read at a time; the position is saved after each page."""

POLL_SECONDS = 0.5
"""The pause before the publisher looks for new promotions, once it has published all."""

FIRST_RETRY_SECONDS = 1.0
"""The pause after the first failure; each further failure doubles it."""

_MAX_MESSAGE_CHARACTERS = 500
_MAX_DOUBLINGS = 20

_log = structlog.get_logger("slumberd")


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """How a publisher delivers promotions to its sink.

    Attributes:
        reader: The name under which the position in the ledger is saved. A new name starts at the
            beginning of the ledger.
        template: The template of every assertion.
        timeout_seconds: The time limit of the sink for one assertion.
        retry_seconds: The longest pause after failures.
        starts_empty: Whether the sink is empty when the daemon starts. Then the publisher first
            publishes all promotions whose fact is still current.
    """

    reader: str
    template: str = "slumberd.fact"
    timeout_seconds: float = 10.0
    retry_seconds: float = 300.0
    starts_empty: bool = False


class ProvenancePublisher:
    """Publishes the promotions of one ledger to one sink, in order, each at least once.

    A promotion that cannot be encoded, or that the sink refuses with a `ProvenanceError`, is
    skipped and counted. After any other failure the publisher retries until it succeeds. An erased
    promotion is not published.

    Args:
        ledger: The fact store.
        sink: The sink; it must not block the event loop.
        policy: How promotions are delivered.
    """

    def __init__(
        self, ledger: Promotions, sink: ProvenanceSink, clock: Clock, policy: DeliveryPolicy
    ) -> None:
        self._ledger = ledger
        self._sink = sink
        self._clock = clock
        self._policy = policy
        self._saved_position: tuple[int, int] | None = None
        self._seq = self._refused = self._republish_up_to = 0
        self._failures = 0
        self._failing = False
        self._retry_at = -inf

    async def run(self, stop: asyncio.Event) -> None:
        """Publish all committed promotions until `stop` is set; then cancel a pending assertion.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._publish_until(stop))
                await stop.wait()
                work.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _publish_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await set_within(stop, await self.publish_page())

    async def publish_page(self) -> float:
        """Publish one page of promotions, unless a pause after a failure is not over.

        Returns:
            The seconds until the next call; 0 when there may be more to publish.

        Raises:
            SupersededError: Another daemon has taken over, or the store was replaced.
        """
        pause = self._retry_at - self._clock.monotonic()
        if pause > 0:
            return pause
        before = self._seq
        try:
            await self._publish_next_page()
        except SupersededError:
            raise
        except Exception as error:  # noqa: BLE001 - a sink may raise anything, and delays nothing
            return await self._record_failure(error, progressed=self._seq > before)
        self._recover()
        return 0.0 if self._seq > before else POLL_SECONDS

    async def _publish_next_page(self) -> None:
        if self._saved_position is None:
            await self._load_position()
        remaining = self._republish_up_to - self._seq
        limit = min(remaining, PAGE_ROWS) if remaining > 0 else PAGE_ROWS
        page = await self._ledger.promotions(self._seq, limit=limit, current_only=remaining > 0)
        try:
            for promotion in page.promotions:
                await self._publish(promotion)
                self._seq = promotion.seq
            self._seq = page.upto
        finally:
            await self._save_position()

    async def _load_position(self) -> None:
        position = await self._ledger.published_position(self._policy.reader)
        self._seq, self._refused = position
        if self._policy.starts_empty:
            self._republish_up_to = await self._ledger.ledger_rows()
            self._seq = 0
        self._saved_position = position

    async def _save_position(self) -> None:
        position = self._seq, self._refused
        if position != self._saved_position:
            await self._ledger.save_published_position(self._policy.reader, *position)
            self._saved_position = position

    async def _publish(self, promotion: Promotion) -> None:
        # An erasure may have removed the promotion since its page was read.
        if not await self._ledger.is_publishable(promotion.seq):
            return
        slots, bundle = slots_of(promotion), bundle_of(promotion)
        try:
            assertion_document(slots, bundle)
            async with asyncio.timeout(self._policy.timeout_seconds):
                await self._sink.assert_with_provenance(self._policy.template, slots, bundle)
        except ProvenanceError as error:
            self._refused += 1
            _log.warning(
                "provenance.refused",
                seq=promotion.seq,
                slot=error.slot,
                message=error.reason[:_MAX_MESSAGE_CHARACTERS],
            )
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            raise _SinkCancelledError("the sink cancelled the assertion itself") from error

    async def _record_failure(self, error: Exception, *, progressed: bool) -> float:
        """Set and return the pause before the next attempt; log the first of several failures."""
        self._failures = 1 if progressed else self._failures + 1
        doublings = min(self._failures - 1, _MAX_DOUBLINGS)
        pause = min(FIRST_RETRY_SECONDS * 2.0**doublings, self._policy.retry_seconds)
        self._retry_at = self._clock.monotonic() + pause
        if not self._failing:
            self._failing = True
            rows, seconds = await self._lag()
            message = str(error)[:_MAX_MESSAGE_CHARACTERS] or self._default_message(error)
            _log.warning(
                "provenance.failed",
                rows=rows,
                seconds=seconds,
                error=type(error).__name__,
                message=message,
            )
        return pause

    def _default_message(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._policy.timeout_seconds:g} s"
        return ""

    async def _lag(self) -> tuple[int | None, float | None]:
        try:
            lag = await self._ledger.lag(self._policy.reader)
        except StoreError:  # the store itself may be what fails
            return None, None
        return lag.rows, lag.seconds(self._clock.now())

    def _recover(self) -> None:
        if self._failing:
            _log.info("provenance.resumed")
        self._failing, self._failures = False, 0


class _SinkCancelledError(Exception):
    """A sink raised `CancelledError` although its caller was not cancelled."""


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


MODE = 0o640
"""Assertions hold personal data, so only owner and group may read the file."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC


class FileSink:
    """Appends assertions to a file; implements `ProvenanceSink`.

    A line is ``{"template": …, "slots": {…}}``; the provenance is in the slots ``_origin`` and so
    on. Once a call has returned, its line survives a power cut. Each call opens the file, so it may
    be renamed or removed at any time. A crash or a full disk may leave an incomplete line; the next
    call starts a new line, and repeats the assertion.

    Args:
        path: The file; it is created for owner and group if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # One thread: while a disk hangs, no further threads pile up behind it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="file-sink")

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        """Append an assertion.

        Raises:
            ProvenanceError: The assertion cannot be stored in any form.
            OSError: The line cannot be written completely.
        """
        line = orjson.dumps(
            {"template": template, "slots": assertion_document(slots, provenance)},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, _append, self._path, line)

    async def close(self) -> None:
        """Accept no more assertions; do not wait for one that is being written."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _append(path: Path, line: bytes) -> None:
    file = os.open(path, _FLAGS, MODE)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{str(path)!r} is not a regular file")
        if status.st_size and os.pread(file, 1, status.st_size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(file, line) :]
        os.fdatasync(file)
        if not status.st_size:
            sync_to_disk(path.parent)
    finally:
        os.close(file)
