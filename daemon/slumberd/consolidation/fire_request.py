"""The request to fire one rule; what fires rules takes it as its only argument."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from slumberd.model.firing import UNTIMED, Timing, Trigger
from slumberd.model.rule import ConsolidationRule


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
    """

    rule: ConsolidationRule
    trigger: Trigger
    at: datetime
    by: str = ""
    stop: asyncio.Event | None = None
    timing: Timing = UNTIMED
    run: str = ""

    @property
    def stopped(self) -> bool:
        """Whether the firing was told to stop."""
        return self.stop is not None and self.stop.is_set()
