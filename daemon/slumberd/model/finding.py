"""Findings of `doctor`: their kinds with stable ids, and the remedy of each finding."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning"]

KINDS: dict[str, tuple[Severity, str]] = {
    "config.invalid": ("error", "the configuration and the rule files have no mistake"),
    "rules.ignored": ("warning", "no file that looks like one of rules is passed over"),
    "rules.stale": ("warning", "the running daemon goes by the rules that the files say"),
    "config.stale": ("warning", "the running daemon goes by the configuration that there is"),
    "daemon.down": ("error", "a daemon runs; only `slumberd status --check` asks for it"),
    "daemon.silent": ("error", "a daemon that runs answers"),
    "state.missing": ("error", "the state directory and its databases are there"),
    "restore.unfinished": ("error", "no restore was begun and not finished"),
    "file.open": ("error", "only owner and group can read or write the files of slumberd"),
    "file.owner": ("error", "the owner of the state directory may write every file in it"),
    "store.unreadable": ("error", "each database can be opened, and is ours"),
    "store.damaged": ("error", "PRAGMA quick_check finds nothing in each database"),
    "store.journal": ("error", "each database has a write-ahead log"),
    "store.network": ("error", "no database lies on a network file system"),
    "store.triggers": ("error", "the triggers that note what other programs write are in place"),
    "store.log": ("warning", "the write-ahead log of each database is emptied now and then"),
    "disk.low": ("error", "the disk has room for what is still to come"),
    "clock.unsynchronised": ("warning", "the clock is synchronised, if the machine reports it"),
    "clock.behind": ("error", "no firing lies in the future"),
    "timezone.missing": ("error", "time zone data is there"),
    "unit.missing": ("warning", "the systemd unit is installed, where systemd is"),
    "unit.changed": ("warning", "the installed unit is the one of this version"),
    "unit.user": ("error", "the user of the unit is there, and may read configuration and rules"),
    "rule.late": ("warning", "every rule has fired when it was due"),
    "rule.degraded": ("error", "no rule has failed three times in a row or more"),
    "rule.held": ("error", "no batch waits for a person"),
    "erasure.contradicted": ("error", "no database holds what one of them remembers as erased"),
    "erasure.unfinished": ("error", "every erasure is done in all databases"),
    "episodes.quarantined": ("warning", "every episode could be read"),
    "episodes.mismatched": ("warning", "scope key and content agree on whom each row belongs to"),
    "episodes.future": ("warning", "no episode is dated in the future"),
    "acts.unreached": ("warning", "every retraction has reached something"),
    "facts.disagree": (
        "warning", "declared facts agree with the facts of the same single-valued key"
    ),
    "metrics.unwritable": ("warning", "the file of `metrics.textfile` can be written"),
    "provenance.behind": ("warning", "the provenance sink has every committed promotion"),
    "log.unwritten": ("warning", "every row of the ledger has its log line"),
}  # fmt: skip
"""By id: the severity, and what is true when there is no finding. Ids are never reused."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that a check found.

    Attributes:
        id: One of `KINDS`.
        subject: The file, rule or machine with the problem.
        problem: What is wrong.
        remedy: What a person can do about it.
    """

    id: str
    subject: str
    problem: str
    remedy: str

    @property
    def severity(self) -> Severity:
        """The severity; an error means that something does not work or is not safe."""
        return KINDS[self.id][0]

    def document(self) -> dict[str, str]:
        """Return the finding as a JSON object."""
        return {**asdict(self), "severity": self.severity}
