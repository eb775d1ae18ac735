"""Records: the rows of the ledger as callers see them, and the outcome of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from slumberd.core.firing import Counts, Firing

Kind = Literal["add", "update", "delete", "noop", "quarantine", "firing"]


class Record(NamedTuple):
    """One row of the ledger, without what is personal beyond ids.

    Attributes:
        seq: Its number; without gaps, in order of commit.
        firing_id: ``{rule}@{number of the firing's own row}``.
        rule_id: The rule, or ``@hand``.
        kind: What it did.
        fact_id: The fact it speaks of; empty for firings.
        replaces: The ids of the facts that went.
        source_episode_ids: Whence; empty for firings.
        reason: Why a noop or a quarantine; empty otherwise.
        confidence: 0 to 1.
        at: The firing's instant.
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one batch did.

    Attributes:
        firing: The firing, its instant as recorded.
        firing_id: Its id.
        channels: The accounting, by channel.
        records: The rows it added to the ledger, its own first.
        seconds: How long settling and committing took.
    """

    firing: Firing
    firing_id: str
    channels: dict[str, Counts]
    records: list[Record]
    seconds: float
