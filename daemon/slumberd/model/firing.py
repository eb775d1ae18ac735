"""Values of a firing: window, trigger, deletion limits, counts, ledger rows, outcome and report.

A batch that awaits approval is a value of a firing, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from slumberd.model.episode import EpisodeVersion
from slumberd.model.stages import KnownMarks

if TYPE_CHECKING:  # a command that reads facts imports no rules
    from slumberd.model.extraction import SummaryQuestion

MIN_ALARMING_LOSS = 100
"""A batch that leaves at most this many fewer facts never exceeds `max_delete_fraction`."""


class DeletionImpact(NamedTuple):
    """How many of the current facts a batch deletes.

    Attributes:
        lost: Facts that the batch deletes without a replacement.
        fewer: How many fewer facts are current after the batch; negative when there are more.
    """

    lost: int
    fewer: int


@dataclass(frozen=True, slots=True)
class Losses:
    """What the batches of one command have deleted so far.

    Attributes:
        start: The number of the command's first ledger row; 0 before its first batch.
        weights: For how many facts that are older than the command a current fact stands, by id. A
            fact that is missing here stands for itself if it is older, else for none.
        lost: The same of the facts that the command deleted without a replacement.
        fewer: How many fewer facts are current now; negative when there are more.
        current: How many facts were current before the command; 0 while it has deleted none.
    """

    start: int = 0
    weights: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    fewer: int = 0
    current: int = 0

    @property
    def impact(self) -> DeletionImpact:
        """How many facts the command has deleted."""
        return DeletionImpact(sum(self.lost.values()), self.fewer)


NO_LOSSES = Losses()


class Limits(NamedTuple):
    """The deletion limits: how many facts one command may delete without a replacement.

    Attributes:
        max_deletes: At most this many facts; None sets no limit.
        max_delete_fraction: At most this fraction of the current facts, 0 to 1; None sets no
            limit. Added facts count against deleted ones. The limit applies above
            `MIN_ALARMING_LOSS` facts.
    """

    max_deletes: int | None = None
    max_delete_fraction: float | None = None

    def over(self, general: Limits) -> Limits:
        """Return these limits, with those of `general` in place of None."""
        return Limits(
            general.max_deletes if self.max_deletes is None else self.max_deletes,
            general.max_delete_fraction
            if self.max_delete_fraction is None
            else self.max_delete_fraction,
        )

    def describe_excess(
        self, impact: DeletionImpact, current: int, subject: str = "this batch"
    ) -> str:
        """Return which limit a command exceeds, in words; empty when it exceeds none.

        Args:
            impact: The facts that the command would delete.
            current: How many facts are current before it.
            subject: What the words call it.
        """
        if self.max_deletes is not None and impact.lost > self.max_deletes:
            facts = "fact" if impact.lost == 1 else "facts"
            limit = f"the limit is {self.max_deletes:,} (max_deletes)"
            return f"{subject} would delete {impact.lost:,} {facts}; {limit}"
        fraction = self.max_delete_fraction
        if (
            fraction is not None
            and impact.fewer > MIN_ALARMING_LOSS
            and impact.fewer > fraction * current
        ):
            share = _percentage(impact.fewer / current, above=fraction)
            limit = f"the limit is {100 * fraction:g} % (max_delete_fraction)"
            return (
                f"{subject} would delete {impact.fewer:,} of {current:,} facts ({share}); {limit}"
            )
        return ""


def _percentage(fraction: float, *, above: float) -> str:
    """Return a fraction in percent, with as many digits as show that it is above another."""
    digits = 0 if round(100 * fraction) > 100 * above else 2
    return f"{100 * fraction:.{digits}f} %"


NO_LIMITS = Limits()


CHANNELS = "@channels"
"""The rule id of firings that change which predicates of a channel hold several objects."""


Again = Literal["", "backfill", "retry"]
"""The command that evaluates versions again which its rule has passed; empty for a firing."""


class HeldScope(NamedTuple):
    """What a command that awaits approval, or was rejected, evaluates.

    Attributes:
        again: The command.
        after: Of a firing, where its window begins in the log, exclusive.
        upto: Where its window ends, inclusive.
        between: Of a backfill, the instants of its episodes, microseconds: the first inclusive, the
            second exclusive; None for all.
        versions: Of a retry, the numbers of the versions in the log.
    """

    again: Again = ""
    after: int = 0
    upto: int = 0
    between: tuple[int, int] | None = None
    versions: Sequence[int] = ()

    def covers(self, seq: int, at: int) -> bool:
        """Return whether it evaluates a version, by its number and its instant."""
        if self.again == "retry":
            return seq in self.versions
        inside = self.between is None or self.between[0] <= at < self.between[1]
        return inside and self.after < seq <= self.upto


class HeldBatch(NamedTuple):
    """A batch, or a whole command, that awaits approval.

    Attributes:
        firing_id: The id by which a person approves or rejects it.
        upto: Its last log row, and the episode of that row.
        problem: The limit that it exceeds, in words.
        approved: Whether a person has approved it.
        rule_hash: The rule's content hash then; of `CHANNELS`, that of the setting.
        scope: What it evaluates.
        impact: What it would delete; None when an older slumberd held it back.
    """

    rule_id: str
    firing_id: str
    upto: tuple[int, str]
    problem: str
    approved: bool
    rule_hash: str = ""
    scope: HeldScope = HeldScope()
    impact: DeletionImpact | None = None

    def permits(self, rule_hash: str, impact: DeletionImpact) -> bool:
        """Return whether its approval also permits a later plan: of the same rule, not of more."""
        same = self.rule_hash in ("", rule_hash)
        return same and (self.impact is None or impact.lost <= self.impact.lost)


Trigger = Literal["every", "cron", "catchup", "manual", "demo", "backfill", "retry"]
"""Why a rule fires."""


class Position(NamedTuple):
    """A position in the episode log.

    Attributes:
        seq: Number of a log row, from 1; 0 lies before the first.
        eid: The episode of that row; it shows whether the episodes were restored from a backup.
    """

    seq: int = 0
    eid: str = ""


START = Position()
"""Before the first episode."""


class RulePosition(NamedTuple):
    """Where a rule is in the episode log.

    Attributes:
        position: Its last position; None for a new rule.
        held: Its batch that awaits approval, or is approved; None without one.
    """

    position: Position | None
    held: HeldBatch | None


class Timing(NamedTuple):
    """How late a firing is for the instants of its rule's cron expression.

    Attributes:
        missed_count: How many missed instants it catches up; 0 when it serves one on time.
        lateness_ms: How long after the newest instant it began; None without a cron expression.
    """

    missed_count: int = 0
    lateness_ms: int | None = None


UNTIMED = Timing()
"""The timing of a firing that serves no cron instant."""


class Window(NamedTuple):
    """Which versions of the episode log to consolidate.

    Attributes:
        after: Where the window begins, exclusive.
        upto: The number of its last log row, inclusive; None ends it with the log.
        limit: At most this many log rows.
        at: The firing's instant; None means now.
        between: Only episodes of these instants, microseconds: the first inclusive, the second
            exclusive; None takes all.
        episodes: Only the newest versions of these episodes, wherever they lie up to `upto`; None
            reads the log in order.
        dry_run: Whether the batch is only for a preview: the store marks nothing.
        marks: The marks in force of these episodes, all of one user and agent: the batch has what
            the stages of the rule change about them. None promotes facts.
        unrecorded: What follows an episode whose answer of the rule's language model is not
            recorded: ``wait`` ends the window before it, ``skip`` leaves it out.
        future: What follows a version whose instant is still to come: it is quarantined until then,
            or it is evaluated at once, while the clock cannot be trusted.
    """

    after: Position = START
    upto: int | None = None
    limit: int = 5_000
    at: datetime | None = None
    between: tuple[int, int] | None = None
    episodes: Sequence[str] | None = None
    dry_run: bool = False
    marks: KnownMarks | None = None
    unrecorded: Literal["wait", "skip"] = "wait"
    future: Literal["quarantine", "evaluate"] = "quarantine"


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """The versions in the half-open range ``(after, upto]`` of the episode log.

    Attributes:
        after: Exclusive.
        upto: Inclusive; equal to `after` when no log row lies above it.
        versions: The newest versions in the range, in log order, unmatched versions included.
        newest: The number of the last log row, in the same snapshot; 0 for an empty log.
        recorded_upto: The number of the last log row before the first version that is unrecorded;
            None when there is no such version.
    """

    after: Position
    upto: Position
    versions: list[EpisodeVersion] = field(default_factory=list)
    newest: int = 0
    recorded_upto: int | None = None


@dataclass(frozen=True, slots=True)
class Firing:
    """The consolidation of one batch: its rule, trigger, instant and window.

    Attributes:
        rule_id: The rule, or ``@manual`` for a manual edit.
        rule_hash: The rule's content hash; empty for manual edits.
        trigger: Why the rule fires.
        at: When it began.
        after: Where the window begins, exclusive.
        upto: Where the window ends, inclusive; the rule's watermark afterwards.
        by: Who requested it, as ``uid 1000``; empty when the rule was due.
        limits: The deletion limits of the batch.
        timing: How late it is for its cron instants.
        min_similarity: The least cosine at which a new fact is linked with a current one; None
            links none.
        run: The id of the command or the due cadence that the batch belongs to; empty when unknown.
        marks: Whether the batch marks episodes, and promotes none.
        reason: Why a person requested it; empty without a reason. It is not part of any scope, so
            no erasure removes it.
        losses: What earlier batches of its command have deleted.
        probes: Whether the batch is only written if it deletes nothing, since later batches of its
            command are not planned yet.
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
    min_similarity: float | None = None
    run: str = ""
    marks: bool = False
    reason: str = ""
    losses: Losses = NO_LOSSES
    probes: bool = False

    @property
    def again(self) -> bool:
        """Whether it evaluates versions that its rule has passed already."""
        return self.marks or self.trigger in ("backfill", "retry")


class Counts(NamedTuple):
    """The accounting of a window in one channel; ``read`` is the sum of the next six.

    Attributes:
        read: Versions of episodes.
        filtered: Versions that the rule does not select, with nothing to withdraw.
        added: Deltas of kind add.
        updated: Deltas of kind update.
        deleted: Deltas of kind delete.
        noop: Deltas of kind noop.
        quarantined: Versions that could not be read.
        restored: Facts that were restored because another was withdrawn; not part of `read`.
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


Kind = Literal["add", "update", "delete", "noop", "quarantine", "firing"]


class Record(NamedTuple):
    """One row of the ledger, without personal data other than ids.

    Attributes:
        seq: Its number, in order of commit; without gaps, except before a row of ``@copy``.
        firing_id: ``{rule}@{number of the firing's own row}``.
        rule_id: The rule, or ``@manual``.
        kind: The delta, or ``quarantine`` or ``firing``.
        fact_id: The id of its fact; empty for firings.
        replaces: The ids of the facts that were removed.
        source_episode_ids: The episodes of the claim; empty for firings.
        reason: Why it is a noop or a quarantine; of a firing, why a person requested it; empty
            otherwise.
        confidence: 0 to 1.
        at: The firing's instant.
        user: The fact's user; empty when there is none, or it is unknown or erased.
        agent: The fact's agent; empty as `user`.
        run: The id of the command or the due cadence that the firing belongs to; empty when
            there was none.
    """

    seq: int
    firing_id: str
    rule_id: str
    kind: Kind
    fact_id: str
    replaces: tuple[str, ...]
    source_episode_ids: tuple[str, ...]
    reason: str
    confidence: float
    at: datetime
    user: str = ""
    agent: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one batch.

    Attributes:
        firing: The firing, with its recorded instant.
        firing_id: The firing's id.
        channels: The accounting, by channel.
        records: The rows that it added to the ledger, its own first.
        seconds: How long the resolution and the commit took.
        held: The batch that awaits approval, when nothing was written; None after a commit.
        noticed: The rows before its own, of other programs' changes to the facts.
        losses: What its command has deleted by now.
        probed: Whether nothing was written because the batch deletes facts, and later batches of
            its command are not planned yet.
    """

    firing: Firing
    firing_id: str
    channels: dict[str, Counts]
    records: list[Record]
    seconds: float
    held: HeldBatch | None = None
    noticed: list[Record] = field(default_factory=list)
    losses: Losses = NO_LOSSES
    probed: bool = False


@dataclass(slots=True)
class Report:
    """What one firing did, over all of its batches.

    Attributes:
        channels: The accounting, by channel.
        run: The id that all of its batches share.
        firing_ids: One for each batch, in order; empty when nothing was pending.
        dry_run: Whether nothing was written.
        records: Of a dry run, the rows that it would add to the ledger.
        unread: Of a dry run, how many log rows it did not read.
        held: The batch or command that awaits approval; nothing after it was read. After a dry
            run, what would await it, without a firing id.
        rejected: How many versions were left out because a person rejected them for this rule.
        cut_short: Whether a stop ended the firing while log rows were still pending.
        purged: The ids of the archived episodes that were deleted.
        unrecorded: Whether episodes wait for the answer of the rule's language model.
        summary_questions: The summaries that the rule's language model is to write.
    """

    rule_id: str
    channels: dict[str, Counts]
    run: str = ""
    firing_ids: list[str] = field(default_factory=list)
    dry_run: bool = False
    records: list[Record] = field(default_factory=list)
    unread: int = 0
    held: HeldBatch | None = None
    rejected: int = 0
    cut_short: bool = False
    purged: list[str] = field(default_factory=list)
    unrecorded: bool = False
    summary_questions: list[SummaryQuestion] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of one more batch."""
        self.held = outcome.held or self.held
        if self.dry_run:
            self.records.extend(outcome.records)
        elif outcome.held is None:
            self.firing_ids.append(outcome.firing_id)
        for channel, counts in outcome.channels.items():
            self.channels[channel] = self.channels.get(channel, Counts()).plus(counts)
