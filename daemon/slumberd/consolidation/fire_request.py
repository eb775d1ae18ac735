"""The request to fire one rule, the bounds of the firing, and the report on it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from datetime import datetime

from slumberd.model.firing import (
    NO_LIMITS,
    UNTIMED,
    Counts,
    Firing,
    HeldBatch,
    Limits,
    Timing,
    Trigger,
)
from slumberd.model.record import Outcome, Record
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
        """Whether the stop is requested."""
        return self.stop is not None and self.stop.is_set()


@dataclass(frozen=True, slots=True)
class FiringCall:
    """One firing under way: its request, and the bounds that it keeps.

    Attributes:
        request: The rule, and why, when and for whom it fires.
        limits: The deletion limits of one batch.
        ends_at: When the firing must end, on the monotonic clock.
    """

    request: FireRequest
    limits: Limits = NO_LIMITS
    ends_at: float = math.inf

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
        )


@dataclass(slots=True)
class Report:
    """What one firing did, over all of its batches.

    Attributes:
        rule_id: The rule.
        channels: The accounting, by channel.
        run: The id that all of its batches share.
        firing_ids: One for each batch, in order; empty when nothing was pending.
        dry_run: Whether nothing was written.
        records: Of a dry run, the rows that it would add to the ledger.
        unread: Of a dry run, how many log rows it did not read.
        held: The batch that awaits approval; nothing after it was read.
        cut_short: Whether a stop ended the firing while log rows were still pending.
        purged: The ids of the archived episodes that were deleted.
    """

    rule_id: str
    channels: dict[str, Counts]
    run: str = ""
    firing_ids: list[str] = field(default_factory=list)
    dry_run: bool = False
    records: list[Record] = field(default_factory=list)
    unread: int = 0
    held: HeldBatch | None = None
    cut_short: bool = False
    purged: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of one more batch."""
        self.held = outcome.held
        if self.dry_run:
            self.records.extend(outcome.records)
        elif outcome.held is None:
            self.firing_ids.append(outcome.firing_id)
        for channel, counts in outcome.channels.items():
            self.channels[channel] = self.channels.get(channel, Counts()).plus(counts)
