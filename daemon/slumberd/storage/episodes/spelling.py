"""Report keys of metadata that are probably misspelled, each once."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from slumberd.model.episode import Episode, Misspelling, misspelled_keys

_log = structlog.get_logger("slumberd")

_MOST_REPORTED = 100
"""Keys that one store reports."""


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
            if key not in self._reported and len(self._reported) < _MOST_REPORTED:
                self._reported.add(key)
                self._report(Misspelling(key, meant, episode.id))
