"""The kinds of findings of the doctor, and a finding with its remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning"]

KINDS: dict[str, tuple[Severity, str]] = {
    "config.invalid": ("error", "the configuration and the rule files have no mistakes"),
    "rules.ignored": ("warning", "slumberd reads every file that looks like a rule file"),
    "rules.stale": ("warning", "the running daemon uses the rules that are in the rule files"),
    "config.stale": ("warning", "the running daemon uses the configuration that is in the file"),
    "daemon.down": ("error", "a daemon runs; only `slumberd status --check` looks for it"),
    "daemon.silent": ("error", "a running daemon answers on its control socket"),
    "state.missing": ("error", "the state directory and its databases exist"),
    "state.unreadable": ("error", "the list of paused rules can be read"),
    "restore.unfinished": ("error", "every restore that was begun is finished"),
    "file.open": (
        "error", "others cannot read or write the state, and cannot write configuration or rules"
    ),
    "file.owner": ("error", "the owner of the state directory can write every file in it"),
    "store.unreadable": ("error", "each database can be opened, and slumberd created it"),
    "store.damaged": ("error", "PRAGMA quick_check finds no damage in any database"),
    "store.journal": ("error", "each database has a write-ahead log"),
    "store.network": ("error", "each database is on a local file system"),
    "store.triggers": ("error", "the triggers that record writes of other programs are in place"),
    "store.log": ("warning", "the write-ahead log of each database is at most 512 MiB"),
    "disk.low": ("error", "the disk has free space: 512 MiB, or 25 % of the databases if larger"),
    "clock.unsynchronised": ("warning", "the clock is synchronised, or the host does not say"),
    "clock.behind": ("error", "no recorded firing lies in the future"),
    "timezone.missing": ("error", "time zone data is installed, and has every configured zone"),
    "unit.missing": ("warning", "the systemd unit is installed, if the host runs systemd"),
    "unit.changed": ("warning", "the installed unit is the unit of this version"),
    "unit.user": ("error", "the user of the unit exists, and can read configuration and rules"),
    "rule.late": ("warning", "every enabled rule has fired when it was due"),
    "rule.degraded": ("error", "no rule has failed three times in a row or more"),
    "rule.held": ("error", "no batch awaits approval"),
    "erasure.contradicted": ("error", "no database holds content of an erased scope"),
    "erasure.unfinished": ("error", "every erasure is complete in all databases"),
    "episodes.quarantined": ("warning", "no episode is in quarantine"),
    "episodes.mismatched": ("warning", "the scope key and the content of each episode agree"),
    "episodes.future": ("warning", "no episode is dated in the future"),
    "claims.unreached": ("warning", "every retraction covers at least one assertion"),
    "facts.disagree": (
        "warning", "declared facts agree with the promoted facts of the same single-valued key"
    ),
    "metrics.unwritable": ("warning", "the daemon can write the file `metrics.textfile`"),
    "provenance.behind": ("warning", "the provenance sink is at most 10 minutes behind the ledger"),
    "log.unwritten": ("warning", "every row of the ledger has its log line"),
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
