"""The request to fire one rule, and the bounds of the firing."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple

from slumberd.consolidation.delta_batch import Condition
from slumberd.model.firing import (
    NO_LIMITS,
    UNTIMED,
    Firing,
    Limits,
    Timing,
    Trigger,
)
from slumberd.model.rule import ConsolidationRule


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
