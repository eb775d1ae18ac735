"""Log what fails where no caller waits for an error, or where the others go on."""

from __future__ import annotations

import logging

import structlog

_log = structlog.get_logger("slumberd")


def log_consolidation_failure(error: Exception) -> None:
    """Log that a pass failed for one owner, or could not read."""
    if _has_log("tiers.consolidation_failed", error):
        _log.error("tiers.consolidation_failed", error=type(error).__name__, message=str(error))


def log_source_failure(error: Exception) -> None:
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


def _has_log(event: str, error: Exception) -> bool:
    """Return whether slumberd's log is set up; else tell the log of the host."""
    if structlog.is_configured():
        return True
    # structlog would write to standard output, which belongs to the host.
    logging.getLogger("slumberd").error("%s: %s: %s", event, type(error).__name__, error)
    return False
