"""Effects: rules that read and read, and nothing ever comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import structlog

from slumberd.consolidation.consolidator import Report

PATIENCE = 3
"""So many firings in a row that read something and did nothing are told of."""

_log = structlog.get_logger("slumberd")


class Effects:
    """Logs ``rule.ineffective``, once until the rule has an effect again."""

    def __init__(self) -> None:
        self._in_vain: Counter[str] = Counter()

    def see(self, rule_id: str, reports: Iterable[Report], *, gated: bool = False) -> None:
        """Take notice of what one firing did, in all of its stores.

        Args:
            rule_id: The rule.
            reports: What it did.
            gated: Whether a gate may hold back all that the rule selects, as it is meant to.
        """
        counts = [one for report in reports for one in report.channels.values()]
        if any(one.added or one.updated or one.deleted or one.restored for one in counts):
            del self._in_vain[rule_id]
        elif gated and any(one.noop for one in counts):
            return
        elif read := max((one.read for one in counts), default=0):
            self._in_vain[rule_id] += 1
            if self._in_vain[rule_id] == PATIENCE:
                _log.warning("rule.ineffective", rule_id=rule_id, firings=PATIENCE, read=read)
