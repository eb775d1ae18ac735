"""Report misspelled metadata keys, and episodes that are dated in the future, each once.

An episode of the future keeps newer claims from becoming current.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from threading import Lock

from slumberd.clock import Clock
from slumberd.model.episode import (
    Episode,
    EpisodeVersion,
    Misspelling,
    instant,
    microseconds,
    misspelled_keys,
)
from slumberd.observability.late_log import LateLogger, is_log_configured
from slumberd.storage.episodes.rows import Row

TOLERANCE_SECONDS = 300.0
"""How far a host's clock may be ahead of this machine's."""

_log = LateLogger()

_MOST_NAMED = 10
_MOST_REMEMBERED = 10_000
_MOST_KEYS = 100
"""Misspelled keys that one store reports."""

_Dated = tuple[str, int]
"""An episode's id, and its instant in microseconds."""


class FutureReporter:
    """Logs ``episode.future`` once for each episode that is dated too far in the future.

    Args:
        clock: Gives the current time.
        tolerance_seconds: How far in the future an instant may lie; infinite disables the reports.
    """

    def __init__(self, clock: Clock, tolerance_seconds: float) -> None:
        self._clock = clock
        self._tolerance_seconds = tolerance_seconds
        self._reported: set[_Dated] = set()
        self._lock = Lock()

    def report_rows(self, rows: Iterable[Row]) -> None:
        """Report those of the written rows that are dated too late."""
        # For timestamps in slumberd's form, text order is instant order.
        latest = self._latest().isoformat()
        ahead = [row for row in rows if row.timestamp > latest]
        if ahead:
            self._report(
                [(row.id, microseconds(datetime.fromisoformat(row.timestamp))) for row in ahead]
            )

    def report_versions(self, versions: Iterable[EpisodeVersion]) -> None:
        """Report those of the versions that a rule selects and that are dated too late."""
        latest = microseconds(self._latest())
        ahead = [
            version
            for version in versions
            if version.at > latest and version.matched and not version.fault
        ]
        if ahead:
            self._report([(version.id, version.at) for version in ahead])

    def _latest(self) -> datetime:
        try:
            return self._clock.now() + timedelta(seconds=self._tolerance_seconds)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def _report(self, found: Sequence[_Dated]) -> None:
        with self._lock:
            new = [dated for dated in dict.fromkeys(found) if dated not in self._reported]
            if len(self._reported) > _MOST_REMEMBERED:
                self._reported.clear()
            self._reported.update(new)
        if new:
            self._log(new)

    def _log(self, found: Sequence[_Dated]) -> None:
        ids = [id for id, _ in found[:_MOST_NAMED]]
        latest = instant(max(at for _, at in found)).isoformat()
        if not is_log_configured():
            # structlog writes to standard output by default, which belongs to the host.
            words = "episode.future: %d episodes, %s, are dated up to %s"
            logging.getLogger("slumberd").warning(words, len(found), ids, latest)
            return
        _log.warning(
            "episode.future",
            count=len(found),
            episode_ids=ids,
            latest=latest,
            tolerance_seconds=self._tolerance_seconds,
        )


def log_erased(count: int) -> None:
    """Log that episodes were put whose ids were erased; it names none of them."""
    if not is_log_configured():
        words = "episode.erased: %d episodes were put whose ids were erased"
        logging.getLogger("slumberd").warning(words, count)
    else:
        _log.warning("episode.erased", count=count)


def log_misspelling(found: Misspelling) -> None:
    """Log that metadata has a key that is probably misspelled."""
    _log.warning("metadata.misspelled", **found._asdict())


class SpellingReporter:
    """Reports a misspelled key at the first episode that has it.

    Args:
        report: Called for each such key.
    """

    def __init__(self, report: Callable[[Misspelling], None]) -> None:
        self._report = report
        self._reported: set[str] = set()

    def check(self, episode: Episode) -> None:
        """Report the misspelled keys of one episode."""
        for key, meant in misspelled_keys(episode.metadata):
            if key not in self._reported and len(self._reported) < _MOST_KEYS:
                self._reported.add(key)
                self._report(Misspelling(key, meant, episode.id))
