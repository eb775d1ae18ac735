"""Records: the rows of the ledger as callers see them, and the outcome of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from slumberd.model.firing import Counts, Firing, Held

Kind = Literal["add", "update", "delete", "noop", "quarantine", "firing"]


class Record(NamedTuple):
    """One row of the ledger, without what is personal beyond ids.

    Attributes:
        seq: Its number; without gaps, in order of commit.
        firing_id: ``{rule}@{number of the firing's own row}``.
        rule_id: The rule, or ``@manual``.
        kind: What it did.
        fact_id: The fact it speaks of; empty for firings.
        replaces: The ids of the facts that went.
        source_episode_ids: Whence; empty for firings.
        reason: Why a noop or a quarantine; empty otherwise.
        confidence: 0 to 1.
        at: The firing's instant.
        user: Whose fact it is; empty where that is unknown, nobody, or was erased.
        agent: Which agent's fact it is; as `user`.
        run: The id of the command or the due cadence that the firing is a batch of; empty when
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


class Break(NamedTuple):
    """The first thing that is wrong with a ledger.

    Attributes:
        seq: The row, or the last one before what is missing; 0 when no single row is meant.
        problem: What is wrong with it.
    """

    seq: int
    problem: str


class Checkpoint(NamedTuple):
    """How far a ledger reached, and the hash that stood at its end.

    Attributes:
        rows: The number of its last row.
        head: The chain hash of that row.
        told: When a log said so, in the log's words; empty when no log did.
    """

    rows: int
    head: bytes
    told: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one batch did.

    Attributes:
        firing: The firing, its instant as recorded.
        firing_id: Its id.
        channels: The accounting, by channel.
        records: The rows it added to the ledger, its own first.
        seconds: How long settling and committing took.
        held: That it waits for a person, and nothing was done; None when it was done.
        noticed: The rows before its own, for what other programs had changed in the facts.
    """

    firing: Firing
    firing_id: str
    channels: dict[str, Counts]
    records: list[Record]
    seconds: float
    held: Held | None = None
    noticed: list[Record] = field(default_factory=list)
