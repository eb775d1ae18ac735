"""The rows of the ledger as callers see them, and the outcome of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from slumberd.model.firing import NO_LOSSES, Counts, Firing, HeldBatch, Losses

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


class FiringPlace(NamedTuple):
    """A place in the order of firings: before a number, and not after an instant.

    Attributes:
        number: Only firings with a smaller number.
        at: Only firings up to this instant, microseconds since 1970 UTC.
    """

    number: int
    at: int


class RecordedFiring(NamedTuple):
    """A firing as the ledger records it.

    Attributes:
        number: The number of its own row.
        firing_id: ``{rule}@{number}``.
        rule_id: The rule; edits, undos and erasures have ids that begin with ``@``.
        at: Its instant.
        trigger: Why it fired.
        by: The person or program that requested it; empty for a cadence.
        reason: Why it was requested; empty when no reason was given.
        counts: What became of the episode versions, in all channels together. A firing without
            a window, such as an undo, counts its rows.
        run: The id of the command or the due cadence that it belongs to; empty without one.
        undone_by: The firing that undid it; empty when it is not undone now.
        undoes: The firing that it undoes; empty when it is no undo.
    """

    number: int
    firing_id: str
    rule_id: str
    at: datetime
    trigger: str
    by: str
    reason: str
    counts: Counts
    run: str
    undone_by: str
    undoes: str


class ChangeGroup(NamedTuple):
    """Rows of one firing that are alike.

    Attributes:
        firing: The number of the firing's own row.
        rule_id: Its rule.
        at: Its instant.
        kind: What each row did.
        marks: Whether they concern marks or weights of episodes, not facts.
        user: Whose they are; empty when it is not known.
        agent: Who knows them; empty as `user`.
        rows: How many rows there are.
    """

    firing: int
    rule_id: str
    at: datetime
    kind: Kind
    marks: bool
    user: str
    agent: str
    rows: int


class GroupedChanges(NamedTuple):
    """The rows of some whole firings, in groups.

    Attributes:
        groups: The groups, by firing, oldest first.
        last: The number of the last row of these firings; where to go on.
        erasure: The number of the last erasure in the ledger; 0 for none. Rows before it may have
            changed: an erasure removes their owners.
    """

    groups: list[ChangeGroup]
    last: int
    erasure: int


class Break(NamedTuple):
    """The first defect of a ledger.

    Attributes:
        seq: The defective row, or the last row before a missing one; 0 for no single row.
        problem: What is wrong.
    """

    seq: int
    problem: str


class ForeignBlank(Break):
    """Nothing is wrong with a ledger but that another program blanked rows of it.

    Nobody can mend it, so it stops no backup and no copy.
    """

    __slots__ = ()


class Checkpoint(NamedTuple):
    """The length and the head of a ledger at one moment.

    Attributes:
        rows: The number of its last row.
        head: The chain hash of that row.
        logged_at: The timestamp of the log line with this checkpoint; empty when it is from no log.
    """

    rows: int
    head: bytes
    logged_at: str = ""


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
