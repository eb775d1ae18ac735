"""The state of stores as reports show it, and plans of their migrations. Reads no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from slumberd.model.firing import Counts
from slumberd.model.provenance import Lag
from slumberd.model.record import Rewrite

LATEST = 100
"""The number of episodes for which the newest batches of a rule are counted."""


class StoreHealth(BaseModel):
    """The state of one store.

    Attributes:
        ok: Whether it can be used.
        version: The schema version of the specified tables.
        fragment_count: The number of episodes, or of facts.
        node_count: The number of nodes; for graph stores only.
        embedding_hash: The hash of the embeddings; for vector stores only.
        fs_type: The file system's type, as ``ext4``; ``unknown`` if it cannot be determined.
        lock_state: Whether a process holds the write lock now.
        warnings: One sentence for each problem.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

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
        target_version: The version that ``_migrations`` records once all operations are done.
        operations: ``{"op": "add_column", "table": ..., "column": ..., "type": "TEXT",
            "nullable": True}``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    target_version: int
    operations: list[dict[str, Any]]


class Readings(NamedTuple):
    """How many versions of episodes a rule read last, and what became of them.

    Attributes:
        read: All of them; about `LATEST`, or more when a batch reads more.
        learned: Those that added, replaced or retracted a fact.
        said_nothing: Those whose text the rule found no triple in.
        filtered: Those that the filter did not select.
        quarantined: Those that could not be read.
        unchanged: The others: their facts were known, or newer ones hold.
    """

    read: int = 0
    learned: int = 0
    said_nothing: int = 0
    filtered: int = 0
    quarantined: int = 0
    unchanged: int = 0

    @property
    def learns_nothing(self) -> bool:
        """Whether the rule read `LATEST` episodes, and none of them states a fact for it."""
        return self.read >= LATEST and not self.learned and not self.unchanged


class Share(NamedTuple):
    """How many of the last versions of episodes that some rule read became facts.

    Attributes:
        episodes: The last of them, at most `LATEST`.
        learned: Those from which a rule learned something.
    """

    episodes: int = 0
    learned: int = 0


@dataclass(frozen=True, slots=True)
class HeldFiring:
    """A batch that awaits approval.

    Attributes:
        problem: The deletion limit that it exceeds.
    """

    firing_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """How far the publisher is with a provenance sink.

    Attributes:
        lag: The promotions that it has not published yet.
        refused: Rows that the sink refused, and that it will not publish again.
    """

    lag: Lag
    refused: int


@dataclass(frozen=True, slots=True)
class FactStoreStatus:
    """The state of a database of facts; instants are microseconds since 1970 UTC.

    Attributes:
        facts: How many facts are current.
        rows: How many rows the ledger has.
        unlogged: Rows of the ledger without a log line.
        triggered: Whether the triggers that notice other programs' writes are in place.
        watermarks: By rule the number of the last version that it has read.
        served: By rule the last instant of its cron expression that was served.
        fired: By rule the instant of its last batch.
        succeeded: By rule the instant of its last successful firing.
        outcomes: By rule the counts of its last batch, over all channels.
        quarantined: How many episodes are quarantined, by rule and reason.
        held: By rule the batch that awaits approval.
        sinks: By name the progress of each provenance sink.
        unfinished: Erasures that the database of episodes may not have finished.
        rewrites: Which stores may still have bytes of erasures.
        snapshots: The transactions that keep such bytes, in words, the oldest first.
        future: By rule the instants of its quarantined episodes of the future, in order.
        recorded: The instant of the last batch; None before the first one.
        latest_claim: The latest instant of a current claim; None without one.
        readings: By rule what became of the episodes that it read last.
    """

    facts: int
    rows: int
    unlogged: int
    triggered: bool
    watermarks: Mapping[str, int] = field(default_factory=dict)
    served: Mapping[str, int] = field(default_factory=dict)
    fired: Mapping[str, int] = field(default_factory=dict)
    succeeded: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, Counts] = field(default_factory=dict)
    quarantined: Mapping[tuple[str, str], int] = field(default_factory=dict)
    held: Mapping[str, HeldFiring] = field(default_factory=dict)
    sinks: Mapping[str, SinkProgress] = field(default_factory=dict)
    unfinished: int = 0
    rewrites: Sequence[Rewrite] = ()
    snapshots: Sequence[str] = ()
    future: Mapping[str, Sequence[int]] = field(default_factory=dict)
    recorded: int | None = None
    latest_claim: int | None = None
    readings: Mapping[str, Readings] = field(default_factory=dict)


class LastBatch(NamedTuple):
    """The last batch of a rule.

    Attributes:
        at: When it began.
        counts: What it did, over all channels.
    """

    at: datetime
    counts: Counts


class UserFacts(NamedTuple):
    """How many facts a user has.

    Attributes:
        agents: The agents that know them, in order; at most `MOST_AGENTS`.
        facts: How many there are, of all agents; marks and weights do not count.
    """

    user: str
    agents: list[str]
    facts: int


MOST_AGENTS = 100
"""The most agents that are named of one user."""


class LogRange(NamedTuple):
    """The end of the episode log that a rule has not read.

    Attributes:
        after: The last row that the rule has read.
        at_most: The most versions that are counted after it.
    """

    after: int
    at_most: int
    rule_id: str = ""


class Backlog(NamedTuple):
    """The versions of episodes after one row of the episode log.

    Attributes:
        pending: How many there are; counting may have ended early.
        oldest: The timestamp of the first episode, as its host wrote it; None without one.
    """

    pending: int
    oldest: str | None


class EpisodeStoreStatus(NamedTuple):
    """The state of a store of episodes.

    Attributes:
        episodes: How many episodes there are.
        backlogs: What lies in each range of the log that was asked for.
    """

    episodes: int
    backlogs: Mapping[LogRange, Backlog]


class StoreLocation(NamedTuple):
    """Where a store keeps its files.

    Attributes:
        file_system: The type of the file system, as ``ext4``.
        log: The write-ahead log.
    """

    file_system: str
    log: str


class StoreSizes(NamedTuple):
    """The bytes that a store takes; 0 for what does not exist.

    Attributes:
        content: The store without its log.
        log: The write-ahead log.
    """

    content: int
    log: int

    @property
    def total(self) -> int:
        """The bytes of both."""
        return self.content + self.log


class ShardHolder(NamedTuple):
    """Who may write a shard of a database.

    Attributes:
        holder: The host and the process that hold it; None when nobody does.
        held_seconds: How long the lease of the holder still lasts; 0 without a holder.
        free_seconds: For how long nobody has held it; 0 while it is held.
    """

    shard: int
    holder: str | None
    held_seconds: float
    free_seconds: float


class HostStatus(NamedTuple):
    """A daemon that uses a database, as it said last.

    Attributes:
        name: The host and the process.
        seen_seconds: When it said so, in seconds before now.
        role: ``active`` or ``standby``.
        version: Its version of slumberd.
        rules_hash: The hash of its rules; empty while it does not say.
        rules_version: The version of its rules; None for rules of its own files.
        clock_offset_seconds: How far its clock is ahead of the database's.
    """

    name: str
    seen_seconds: float
    role: str
    version: str
    rules_hash: str
    rules_version: int | None
    clock_offset_seconds: float


class OldestTransaction(NamedTuple):
    """The transaction that keeps the oldest versions of rows.

    Attributes:
        name: The process, prepared transaction or replication slot that has it.
        seconds: Its age; None when the server does not tell it to this login.
        xids: How many transactions began after it.
    """

    name: str
    seconds: float | None
    xids: int


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """The state of a PostgreSQL database that several hosts use.

    Attributes:
        where: The database in words.
        server: The version of the server.
        bytes: The bytes of all tables and indexes of slumberd.
        shards: Who holds each shard.
        hosts: The daemons that use it.
        unnumbered: Versions of episodes without a number in the log; at most 100,000 are counted.
        unnumbered_seconds: The age of the oldest of them; 0 without any.
        requests: Requests of commands that wait for an answer.
        oldest_transaction: The oldest transaction of this database; None when there is none.
        dead_rows: By table, its rows and its old versions of rows, where there are too many.
        transaction_age: How many transactions ago the oldest database of the server was frozen.
        is_durable: Whether a commit is on the disk when it is reported.
        is_read_only: Whether the database takes no writes, such as that of a replica.
    """

    where: str
    server: str
    bytes: int
    shards: Sequence[ShardHolder]
    hosts: Sequence[HostStatus]
    unnumbered: int
    unnumbered_seconds: float
    requests: int
    oldest_transaction: OldestTransaction | None
    dead_rows: Mapping[str, tuple[int, int]]
    transaction_age: int
    is_durable: bool
    is_read_only: bool

    @property
    def oldest_transaction_seconds(self) -> float:
        """The age of the oldest transaction; 0 without one, and when the server does not tell."""
        oldest = self.oldest_transaction
        return oldest.seconds or 0.0 if oldest else 0.0

    @property
    def unheld_shards(self) -> int:
        """How many shards no daemon holds."""
        return sum(shard.holder is None for shard in self.shards)

    def hosts_seen_within(self, seconds: float) -> list[HostStatus]:
        """Return the hosts that said something in the last seconds."""
        return [host for host in self.hosts if host.seen_seconds <= seconds]


class DatabaseLogin(NamedTuple):
    """What the login of slumberd may do in a database.

    Attributes:
        server: The version of the server.
        step: The number of the last step of the schema.
        shards: How many shards there are.
        rights: What it may do: ``consolidate``, ``put`` and ``read``.
    """

    server: str
    step: int
    shards: int
    role: str
    rights: list[str]
