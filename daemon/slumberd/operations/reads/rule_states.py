"""What is known of one loaded rule: its file, its progress, and its last batch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slumberd.consolidation.graph_promotion import ledger_rule_id
from slumberd.model.cadence import Cron
from slumberd.model.firing import Counts
from slumberd.model.health import RuleStatus
from slumberd.model.rule import ConsolidationRule
from slumberd.model.store_status import Readings
from slumberd.observability.line_format import printable, timestamp


@dataclass(frozen=True, slots=True)
class RuleState:
    """One loaded rule and its status.

    Attributes:
        rule: The rule.
        file: The rule file that defines it.
        status: How far it is.
        oldest: The timestamp of the first pending episode, as its host wrote it.
        fired_at: When its last batch began; None before the first one.
        outcome: The counts of its last batch.
        readings: What became of the episodes that it read last; None before the first one.
    """

    rule: ConsolidationRule
    file: str
    status: RuleStatus
    oldest: str | None
    fired_at: datetime | None
    outcome: Counts | None
    readings: Readings | None = None

    @property
    def cadence(self) -> str:
        """The cadence in words, such as ``every 5`` or ``cron 0 3 * * *``."""
        due = self.rule.due
        if isinstance(due, Cron):
            return f"cron {due.expression}" + (f" {due.timezone}" if due.timezone else "")
        return f"every {due.count}"

    def document(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        status = self.status
        return {
            **self.rule.model_dump(),
            "file": printable(self.file),
            "watermark": status.watermark,
            "pending": status.pending,
            "fired_at": timestamp_or_none(self.fired_at),
            "last_success": timestamp_or_none(status.succeeded_at),
            "quarantined": status.quarantined,
            "held_firing_id": status.held_firing_id or None,
            "oldest_pending": printable(self.oldest) if self.oldest else None,
            "last_outcome": self.outcome._asdict() if self.outcome else None,
            "readings": self.readings._asdict() if self.readings else None,
            "next_at": timestamp_or_none(status.next_at),
            "paused": status.paused,
        }


def timestamp_or_none(at: datetime | None) -> str | None:
    """Return the text of an instant; None when there is none."""
    return timestamp(at) if at else None


def name_in_ledger(rule: ConsolidationRule) -> str:
    """Return the id under which the ledger has the firings of a rule."""
    return rule.id if rule.reads_episodes else ledger_rule_id(rule.id)
