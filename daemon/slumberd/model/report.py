"""The report on one firing: the sum of its batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from slumberd.model.extraction import SummaryQuestion
from slumberd.model.firing import Counts, HeldBatch
from slumberd.model.record import Outcome, Record


@dataclass(slots=True)
class Report:
    """What one firing did, over all of its batches.

    Attributes:
        rule_id: The rule.
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
