"""Firings: one rule, let loose on one window of the episode log, at one instant.

The brake: a batch that would take out too much is held, until a person decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from slumberd.model.episode import EpisodeVersion

FEW = 100
"""By so many facts fewer alarms nobody, whatever part of all they are."""


class DeletionImpact(NamedTuple):
    """What a batch takes of the facts that stood before it.

    Attributes:
        lost: Facts that go without another in their place.
        fewer: By how many fewer facts stand after it; negative when there are more.
    """

    lost: int
    fewer: int


class Limits(NamedTuple):
    """How many facts one batch may take out without another in their place.

    Attributes:
        max_deletes: At most so many; None sets no bound.
        max_delete_fraction: By at most this part of those that stood there may be fewer, 0 to 1;
            None sets no bound. What is said today of other things than yesterday is no loss of
            memory, so what came counts against what went. Up to `FEW` it is not looked at.
    """

    max_deletes: int | None = None
    max_delete_fraction: float | None = None

    def over(self, general: Limits) -> Limits:
        """Return these limits, and of `general` what they leave open."""
        return Limits(
            general.max_deletes if self.max_deletes is None else self.max_deletes,
            general.max_delete_fraction
            if self.max_delete_fraction is None
            else self.max_delete_fraction,
        )

    def exceeded(self, impact: DeletionImpact, stood: int) -> str:
        """Say which limit a batch exceeds, in words; nothing when none.

        Args:
            impact: What it would take.
            stood: Facts that stood before it.
        """
        if self.max_deletes is not None and impact.lost > self.max_deletes:
            facts = "fact" if impact.lost == 1 else "facts"
            return f"{impact.lost:,} {facts} would go; max_deletes is {self.max_deletes:,}"
        fraction = self.max_delete_fraction
        if fraction is not None and impact.fewer > FEW and impact.fewer > fraction * stood:
            left = f"{stood - impact.fewer:,} of {stood:,} facts would be left"
            return f"{left}; max_delete_fraction is {fraction:g}"
        return ""


NO_LIMITS = Limits()


class Held(NamedTuple):
    """A batch that waits for a person.

    Attributes:
        rule_id: Its rule.
        firing_id: How it is approved or rejected.
        upto: Its last log row, and the episode of that row.
        problem: The limit that it exceeds, in words.
        approved: Whether it may go on.
    """

    rule_id: str
    firing_id: str
    upto: tuple[int, str]
    problem: str
    approved: bool


Trigger = Literal["every", "cron", "catchup", "manual", "demo", "backfill", "retry"]


class Position(NamedTuple):
    """A place in the episode log.

    Attributes:
        seq: Number of a log row, from 1; 0 lies before the first.
        eid: The episode of that row, by which a restored memory.db is noticed.
    """

    seq: int = 0
    eid: str = ""


START = Position()
"""Before the first episode."""


class Timing(NamedTuple):
    """How a firing stands to the instants of its rule's cron expression.

    Attributes:
        missed_count: How many instants it makes up for; 0 when it serves one, on time.
        lateness_ms: How long after the newest of them it began; None without a cron expression.
    """

    missed_count: int = 0
    lateness_ms: int | None = None


UNTIMED = Timing()
"""Of a firing that serves no instant."""


@dataclass(frozen=True, slots=True)
class Window:
    """The half-open stretch ``(after, upto]`` of the episode log, read.

    Attributes:
        after: Exclusive.
        upto: Inclusive; equal to `after` when nothing lay above it.
        versions: What still stands in the stretch, in log order; unmatched ones included.
    """

    after: Position
    upto: Position
    versions: list[EpisodeVersion] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Firing:
    """Why, when and under which version of a rule one batch is consolidated.

    Attributes:
        rule_id: The rule, or ``@manual`` for a person's or a program's direct change.
        rule_hash: The rule's content hash; empty for hands.
        trigger: What made it due.
        at: When it began.
        after: Where the window begins, exclusive.
        upto: Where it ends, inclusive; the rule's watermark afterwards.
        by: Who asked for it, as ``uid 1000``; empty when nobody did.
        limits: What it may take out at most.
        timing: How it stands to the instants that it serves.
        alike: From which cosine on what is added is compared with what stands; None never does.
        run: The id of the command or the due cadence that it is a batch of; empty when unknown.
    """

    rule_id: str
    rule_hash: str
    trigger: Trigger
    at: datetime
    after: Position = START
    upto: Position = START
    by: str = ""
    limits: Limits = NO_LIMITS
    timing: Timing = UNTIMED
    alike: float | None = None
    run: str = ""

    @property
    def again(self) -> bool:
        """Whether it goes over what its rule has passed already."""
        return self.trigger in ("backfill", "retry")


class Counts(NamedTuple):
    """What became of a window in one channel; ``read`` is the sum of the next six.

    Attributes:
        read: Versions of episodes.
        filtered: Not selected by the rule, and nothing of theirs to withdraw.
        added: Deltas of kind add.
        updated: Deltas of kind update.
        deleted: Deltas of kind delete.
        noop: Deltas of kind noop.
        quarantined: Versions that could not be read.
        restored: Facts that came back because another was withdrawn; beyond `read`.
    """

    read: int = 0
    filtered: int = 0
    added: int = 0
    updated: int = 0
    deleted: int = 0
    noop: int = 0
    quarantined: int = 0
    restored: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum, field by field."""
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))
