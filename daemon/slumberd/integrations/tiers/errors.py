"""The errors of the tiered memory API, and the log lines of those that no caller waits for."""

from __future__ import annotations

import asyncio
import logging

import structlog

from slumberd.model.errors import SlumberdError


class MemorySystemError(SlumberdError):
    """The base of the errors of the tiered memory API."""


class MemoryStoreError(MemorySystemError):
    """A store of memories failed.

    Attributes:
        store: Its name, as ``database``; None when unknown.
    """

    def __init__(self, message: str, store: str | None = None) -> None:
        super().__init__(message)
        self.store = store


class MemoryCapacityError(MemorySystemError):
    """A store is full.

    Attributes:
        capacity: The most entries; None when the limit is of another kind.
    """

    def __init__(self, message: str, capacity: int | None = None) -> None:
        super().__init__(message)
        self.capacity = capacity


class EmbeddingError(MemorySystemError):
    """A text could not be embedded."""


class ConsolidationError(MemorySystemError):
    """Entries could not be summarised."""


class FactExtractionError(MemorySystemError):
    """Triples could not be extracted from an entry.

    Attributes:
        entry_id: The entry; None when unknown.
    """

    def __init__(self, message: str, *, entry_id: str | None = None) -> None:
        super().__init__(message)
        self.entry_id = entry_id


_log = structlog.get_logger("slumberd")


HOST_ERRORS = (Exception, asyncio.CancelledError)
"""What a part of a host raises; see `raise_if_cancelled`."""


def raise_if_cancelled(error: BaseException) -> None:
    """Raise a cancellation of this task again; one inside a part of the host is its error."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error


def log_consolidation_failure(error: BaseException) -> None:
    """Log that a pass failed for one owner, or could not read."""
    if _has_log("tiers.consolidation_failed", error):
        _log.error("tiers.consolidation_failed", error=type(error).__name__, message=str(error))


def log_source_failure(error: BaseException) -> None:
    """Log that a store of a search failed."""
    if _has_log("tiers.source_failed", error):
        _log.error("tiers.source_failed", error=type(error).__name__, message=str(error))


def log_subscriber_failure(error: Exception) -> None:
    """Log that a subscriber failed."""
    if _has_log("tiers.subscriber_failed", error):
        _log.error("tiers.subscriber_failed", error=type(error).__name__, message=str(error))


def log_summary_failure(error: Exception) -> None:
    """Log that entries could not be summarised."""
    if _has_log("tiers.summary_failed", error):
        _log.error("tiers.summary_failed", error=type(error).__name__, message=str(error))


def _has_log(event: str, error: BaseException) -> bool:
    """Return whether slumberd's log is set up; else tell the log of the host."""
    if structlog.is_configured():
        return True
    # structlog would write to standard output, which belongs to the host.
    logging.getLogger("slumberd").error("%s: %s: %s", event, type(error).__name__, error)
    return False
