"""The health of rules and of the daemon, and findings of the doctor.

Reads no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import reduce
from typing import Literal

from slumberd.model.firing import Counts
from slumberd.model.store_status import DatabaseStatus


@dataclass(frozen=True, slots=True)
class BatchTotals:
    """Totals of the committed batches of a ledger, of one rule or of all.

    Attributes:
        batches: Committed batches.
        read: Versions of episodes that were evaluated.
        changed: Facts that were added, replaced, deleted or restored.
        quarantined: Versions that could not be read.
    """

    batches: int = 0
    read: int = 0
    changed: int = 0
    quarantined: int = 0

    def plus(self, other: BatchTotals) -> BatchTotals:
        """Return the sum, field by field."""
        return BatchTotals(
            self.batches + other.batches,
            self.read + other.read,
            self.changed + other.changed,
            self.quarantined + other.quarantined,
        )

    @classmethod
    def of(cls, channels: Sequence[Counts]) -> BatchTotals:
        """Return the totals of one batch; a version counts once for all channels."""
        whole = reduce(Counts.plus, channels, Counts())
        changed = whole.added + whole.updated + whole.deleted + whole.restored
        read = max((counts.read for counts in channels), default=0)
        return cls(1, read, changed, whole.quarantined)


@dataclass(frozen=True, slots=True)
class LedgerCounters:
    """Counters that only grow, as long as the databases are the same.

    Attributes:
        versions: Versions of episodes that were ever put.
        by_rule: The totals of each rule, also of rules that no longer exist.
    """

    rows: int
    versions: int
    by_rule: Mapping[str, BatchTotals]

    @property
    def whole(self) -> BatchTotals:
        """The totals of all rules."""
        return reduce(BatchTotals.plus, self.by_rule.values(), BatchTotals())


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """How far one rule is, at one instant: what the heartbeat, `doctor` and `status` report.

    Attributes:
        watermark: The log position of the last version that it has read; None before it has
            read the log.
        pending: How many versions of episodes it has not read; counting may have ended early.
            None if this is unknown, and for a rule that reads no episodes.
        oldest_seconds: The age of the first pending episode; None without one.
        next_at: The next instant of its cron expression; None without one, or if it is disabled.
        due_at: Since when it has been due. None when it is not due; a rule that is disabled or
            paused, or whose batch awaits approval, is not.
        late_seconds: For how long it has been due; 0 when it is not due.
        paused: Whether a person paused it.
        held_firing_id: The firing id of its batch that awaits approval; empty without one.
        quarantined: How many episodes are quarantined for it.
        succeeded_at: When its last successful firing began; None for an instant of a wrong clock.
        ignored_served: The cron instant that it has served, as a wrong clock recorded it: it lies
            too far ahead, and now counts in its place. None without one.
    """

    rule_id: str
    watermark: int | None = None
    pending: int | None = None
    oldest_seconds: float | None = None
    next_at: datetime | None = None
    due_at: datetime | None = None
    late_seconds: float = 0.0
    paused: bool = False
    held_firing_id: str = ""
    quarantined: int = 0
    succeeded_at: datetime | None = None
    ignored_served: datetime | None = None


@dataclass(frozen=True, slots=True)
class RuleHealth:
    """The health of one enabled rule.

    Attributes:
        status: How far it is.
        failures: How many of its firings have failed in a row since the last successful one.
        failed: How many of its firings failed since the daemon started.
        tally: The totals of its batches; None when they are not counted.
    """

    status: RuleStatus
    failures: int = 0
    failed: int = 0
    tally: BatchTotals | None = None


@dataclass(frozen=True, slots=True)
class ProvenanceHealth:
    """How far a provenance sink is behind.

    Attributes:
        rows: Ledger rows that were not published yet.
        seconds: The age of the first of them; 0 when there is none.
        refused: Rows that are never published, because the sink accepts no form of them.
    """

    rows: int
    seconds: float
    refused: int


@dataclass(frozen=True, slots=True)
class DaemonHealth:
    """The health of the daemon.

    Attributes:
        at: The instant of all values.
        uptime_seconds: The time since the daemon started.
        loop_lag_seconds: The greatest delay of the event loop since the last collection.
        wal_bytes: The size of the write-ahead logs.
        rss_bytes: The resident memory; None if it cannot be determined.
        dropped: Log lines that were dropped.
        loaded: How many rules are loaded, disabled ones included.
        rules: The enabled rules.
        oldest_seconds: The age of the first episode that a rule has not read; None without one.
        next_at: The next cron instant of any rule; None when there is none.
        succeeded_at: When the last successful firing of any rule began.
        quarantined: Quarantined episodes, also of rules that no longer exist.
        held: Batches that await approval, also of such rules.
        provenance: How far the provenance sink is behind; None without a sink.
        tallies: Counters that only grow; None when they are not counted.
        database: The state of the database; None when files hold the stores.
        clock_behind_seconds: By how much the newest recorded instant lies ahead of the clock; 0
            when it does not. More than `memory.future_tolerance` means that the clock is or was
            wrong.
        index_bytes: About how much memory the indexes of searches take.
    """

    at: datetime
    uptime_seconds: float
    loop_lag_seconds: float
    wal_bytes: int
    rss_bytes: int | None
    dropped: int
    loaded: int
    rules: Sequence[RuleHealth]
    oldest_seconds: float | None
    next_at: datetime | None
    succeeded_at: datetime | None
    quarantined: int
    held: int
    provenance: ProvenanceHealth | None = None
    tallies: LedgerCounters | None = None
    database: DatabaseStatus | None = None
    clock_behind_seconds: float = 0.0
    index_bytes: int = 0

    @property
    def late_seconds(self) -> float:
        """For how long the most overdue rule has been due."""
        return max((rule.status.late_seconds for rule in self.rules), default=0.0)

    @property
    def failing(self) -> int:
        """How many rules have failed at their last firing."""
        return sum(rule.failures > 0 for rule in self.rules)

    @property
    def degraded(self) -> int:
        """How many rules have failed `DEGRADED_AFTER` times in a row or more."""
        return sum(rule.failures >= DEGRADED_AFTER for rule in self.rules)


@dataclass(frozen=True, slots=True)
class StandbyHealth:
    """The health of a daemon that waits for the holder of its database to end.

    Attributes:
        at: The instant of all values.
        uptime_seconds: The time since the daemon started.
    """

    at: datetime
    uptime_seconds: float


DEGRADED_AFTER = 3
"""A rule is degraded after this many failures in a row."""


Severity = Literal["error", "warning"]

KINDS: dict[str, tuple[Severity, str]] = {
    "config.invalid": ("error", "the configuration and the rule files have no mistakes"),
    "rules.ignored": ("warning", "slumberd reads every file that looks like a rule file"),
    "rules.stale": ("warning", "the running daemon uses the rules that are in the rule files"),
    "rules.outdated": ("warning", "rule files name nothing that the next release refuses"),
    "rules.doubtful": ("warning", "`slumberd check` has no warning about the rule files"),
    "config.stale": ("warning", "the running daemon uses the configuration that is in the file"),
    "daemon.down": ("error", "a daemon runs; only `slumberd status --check` looks for it"),
    "daemon.silent": ("error", "a running daemon answers on its control socket"),
    "state.missing": ("error", "the state directory and its databases exist"),
    "stage_notes.damaged": ("warning", "the notes of stages are what the stages would keep"),
    "state.unreadable": ("error", "the list of paused rules can be read"),
    "restore.unfinished": ("error", "every restore that was begun is finished"),
    "file.open": (
        "error", "others cannot read or write the state, and cannot write configuration or rules"
    ),
    "file.owner": ("error", "the owner of the state directory can write every file in it"),
    "store.unreadable": ("error", "each database can be opened, and slumberd created it"),
    "store.older": ("warning", "each database has the schema of this version"),
    "store.values": ("error", "slumberd could have written every value in its tables"),
    "store.damaged": ("error", "PRAGMA quick_check finds no damage in any database"),
    "store.journal": ("error", "each database has a write-ahead log"),
    "store.network": ("error", "each database is on a local file system"),
    "store.triggers": ("error", "the triggers that record writes of other programs are in place"),
    "store.log": ("warning", "the write-ahead log of each database is at most 512 MiB"),
    "disk.low": (
        "error",
        "the disk has free space: 4 times the databases, 64 to 512 MiB; 25 % of large ones",
    ),
    "clock.unsynchronised": ("warning", "the clock is synchronised, or the host does not say"),
    "clock.ahead": ("error", "no rule has served a cron instant that lies in the future"),
    "clock.behind": ("error", "no recorded firing lies in the future"),
    "timezone.missing": ("error", "time zone data is installed, and has every configured zone"),
    "unit.missing": ("warning", "the systemd unit is installed, if the host runs systemd"),
    "unit.changed": ("warning", "the installed unit is the unit of this version"),
    "unit.user": ("error", "the user of the unit exists, and can read configuration and rules"),
    "rule.late": ("warning", "every enabled rule has fired when it was due"),
    "rule.degraded": ("error", "no rule has failed three times in a row or more"),
    "rule.no_person": ("warning", "the latest episodes hold words of the person, if rules ask"),
    "rule.learns_nothing": (
        "warning", "each enabled rule learned something from the last 100 episodes that it read"
    ),
    "rule.held": ("error", "no batch awaits approval"),
    "facts.reduced": (
        "warning", "no more than `limits.alarm_fraction` of the facts went within 24 hours"
    ),
    "erasure.contradicted": ("error", "no database holds content of an erased scope or episode"),
    "erasure.foreign_blank": ("error", "an erasure names each blank row of the ledger"),
    "erasure.unlisted": (
        "error", "the lists of erased scopes have all that the ledger names as erased"
    ),
    "erasure.unfinished": ("error", "every erasure is complete in all databases"),
    "erasure.pending": ("warning", "no database has bytes of erased rows in its free space"),
    "episodes.quarantined": ("warning", "no episode is in quarantine"),
    "episodes.mismatched": ("warning", "the scope key and the content of each episode agree"),
    "episodes.future": ("warning", "no episode is dated in the future"),
    "search.damaged": ("warning", "each saved index of the search can be read"),
    "transcripts.no_person": (
        "warning", "each transcript with turns of a coding agent has turns of a person"
    ),
    "transcripts.unknown": (
        "warning", "hooks know at least nine tenths of the lines that a coding agent writes"
    ),
    "facts.future": ("error", "no current fact was said at an instant that is still to come"),
    "answers.waiting": (
        "warning", "no episode waits for the answer of a language model for more than an hour"
    ),
    "claims.unreached": ("warning", "every retraction covers at least one assertion"),
    "facts.disagree": (
        "warning", "declared facts agree with the promoted facts of the same single-valued key"
    ),
    "metrics.unwritable": ("warning", "the daemon can write the file `metrics.textfile`"),
    "provenance.behind": ("warning", "the provenance sink is at most 10 minutes behind the ledger"),
    "serve.exposed": (
        "warning", "the HTTP interface listens on one address, and not on all networks of the host"
    ),
    "log.unwritten": ("warning", "every row of the ledger has its log line"),
    "database.unreachable": ("error", "the database server answers, and lets the login connect"),
    "database.schema": ("error", "the database has the schema of this version, and can hold it"),
    "database.rights": ("error", "the login of the daemon may read and write in the database"),
    "database.unheld": ("error", "a daemon holds every shard of the database"),
    "database.inbox": (
        "warning", "while a daemon is active, no episode waits for its number for more than 60 s"
    ),
    "database.old_transaction": (
        "warning", "no transaction in the database is open for more than 10 minutes"
    ),
    "database.dead_rows": ("warning", "the tables of the database have few old versions of rows"),
    "database.wraparound": ("error", "the database server is far from running out of transactions"),
    "database.not_durable": ("error", "a commit in the database survives a crash of the server"),
    "database.read_only": ("error", "the database takes writes"),
    "database.replica": ("warning", "the replica for reads has all commits of the database"),
    "host.clock": ("warning", "the clock of each host is within 1 s of the database's"),
    "hosts.differ": ("warning", "all hosts have the same version of slumberd, and the same rules"),
}  # fmt: skip
"""By id: the severity, and the condition under which there is no such finding.

An id is never reused for another kind.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of an installation.

    Attributes:
        id: One of `KINDS`.
        subject: The file, rule or part of the host that has the problem.
        problem: What was found.
        remedy: What the operator can do about it.
    """

    id: str
    subject: str
    problem: str
    remedy: str

    @property
    def severity(self) -> Severity:
        """``error`` when something does not work or is not safe, else ``warning``."""
        return KINDS[self.id][0]

    def document(self) -> dict[str, str]:
        """Return the finding as a JSON object."""
        return {**asdict(self), "severity": self.severity}
