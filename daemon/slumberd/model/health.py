"""What a store says about itself, and what may be asked of its tables.

How the daemon and its rules are, at one instant. Reads no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from slumberd.model.firing import Counts


class StoreHealth(BaseModel):
    """The state of one store.

    Attributes:
        ok: Whether it can be used.
        version: Of the specified tables.
        fragment_count: Episodes, or facts.
        node_count: Of graph stores.
        embedding_hash: Of vector stores.
        fs_type: The file system's type, as ``ext4``; ``unknown`` where it cannot be told.
        lock_state: Whether somebody holds the write lock now.
        warnings: One sentence for each thing that is not as it should be.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ok: bool
    version: int
    fragment_count: int | None = None
    node_count: int | None = None
    embedding_hash: str | None = None
    fs_type: str
    lock_state: Literal["free", "held"]
    warnings: list[str] = Field(default_factory=list)


class MigrationPlan(BaseModel):
    """Changes to a specified table; only nullable columns can be added.

    Attributes:
        target_version: Recorded in ``_migrations`` once all operations are done.
        operations: ``{"op": "add_column", "table": ..., "column": ..., "type": "TEXT",
            "nullable": True}``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target_version: int
    operations: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Tally:
    """What all batches of a ledger came to, of one rule or of all.

    Attributes:
        batches: That were committed.
        read: Versions of episodes that were evaluated.
        changed: Facts that were added, replaced, taken out or brought back.
        quarantined: Versions that could not be read.
    """

    batches: int = 0
    read: int = 0
    changed: int = 0
    quarantined: int = 0

    def plus(self, other: Tally) -> Tally:
        """Return the sum, field by field."""
        return Tally(
            self.batches + other.batches,
            self.read + other.read,
            self.changed + other.changed,
            self.quarantined + other.quarantined,
        )

    @classmethod
    def of(cls, channels: Sequence[Counts]) -> Tally:
        """Return what one batch came to; a version is read once for all channels."""
        whole = reduce(Counts.plus, channels, Counts())
        changed = whole.added + whole.updated + whole.deleted + whole.restored
        read = max((one.read for one in channels), default=0)
        return cls(1, read, changed, whole.quarantined)


@dataclass(frozen=True, slots=True)
class Tallies:
    """What only grows, as long as the databases are the same.

    Attributes:
        rows: Of the ledger.
        versions: Of episodes, that were ever put.
        by_rule: What the batches of each rule came to, also of rules that are no more.
    """

    rows: int
    versions: int
    by_rule: Mapping[str, Tally]

    @property
    def whole(self) -> Tally:
        """What the batches of all rules came to."""
        return reduce(Tally.plus, self.by_rule.values(), Tally())


@dataclass(frozen=True, slots=True)
class RuleVitals:
    """How one rule is that is enabled.

    Attributes:
        rule_id: The rule.
        pending: How many versions of episodes wait for it; counting may have ended early.
        oldest_seconds: How old the first of them is; None when none waits.
        late_seconds: For how long it has been due; 0 when it is not.
        succeeded_at: When its last firing that went well began.
        failures: Of its firings, in a row, since then.
        quarantined: How many episodes it could not read.
        held: How many of its batches wait for a person.
        failed: How many of its firings failed since the daemon started.
        tally: What its batches came to; None when nobody counts.
    """

    rule_id: str
    pending: int
    oldest_seconds: float | None
    late_seconds: float
    succeeded_at: datetime | None
    failures: int
    quarantined: int
    held: int
    failed: int = 0
    tally: Tally | None = None


@dataclass(frozen=True, slots=True)
class ProvenanceVitals:
    """How far a sink of provenance is behind.

    Attributes:
        rows: Of the ledger, that it was not told of yet.
        seconds: How old the first of them is; 0 without any.
        refused: Rows that it will never be told of, for they have no form that it takes.
    """

    rows: int
    seconds: float
    refused: int


@dataclass(frozen=True, slots=True)
class Vitals:
    """How the daemon is.

    Attributes:
        at: When it was looked.
        uptime_seconds: Since its start.
        loop_lag_seconds: How late the event loop was, at worst, since it was looked last.
        wal_bytes: Of the write-ahead logs.
        rss_bytes: Of memory; None where that cannot be told.
        dropped: Lines of the log that were lost.
        loaded: How many rules there are, disabled ones included.
        rules: Those that are enabled.
        oldest_seconds: How old the first episode is that any rule has not read; None without one.
        next_at: The next instant of any rule; None when none comes.
        succeeded_at: When the last firing of any rule that went well began.
        quarantined: Episodes, also of rules that are not there any more.
        held: Batches that wait for a person, also of such rules.
        provenance: How far its sink is behind; None when there is none.
        tallies: What only grows; None when nobody counts.
    """

    at: datetime
    uptime_seconds: float
    loop_lag_seconds: float
    wal_bytes: int
    rss_bytes: int | None
    dropped: int
    loaded: int
    rules: Sequence[RuleVitals]
    oldest_seconds: float | None
    next_at: datetime | None
    succeeded_at: datetime | None
    quarantined: int
    held: int
    provenance: ProvenanceVitals | None = None
    tallies: Tallies | None = None

    @property
    def late_seconds(self) -> float:
        """For how long the rule has been due that has been so longest."""
        return max((rule.late_seconds for rule in self.rules), default=0.0)

    @property
    def failing(self) -> int:
        """How many rules failed at their last firing."""
        return sum(rule.failures > 0 for rule in self.rules)

    @property
    def degraded(self) -> int:
        """How many rules failed so often that somebody should look."""
        return sum(rule.failures >= DEGRADED_AFTER for rule in self.rules)


DEGRADED_AFTER = 3
"""So many failures in a row are no passing trouble."""
