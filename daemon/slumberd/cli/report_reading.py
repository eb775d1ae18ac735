"""Read what `slumberd report` prints, or writes into a file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from slumberd.daemon.stores import open_facts_if_present
from slumberd.model.firing import HeldBatch
from slumberd.operations.change_report import ChangeReport, read_changes
from slumberd.rules.settings import Settings


async def read_report(
    settings: Settings, since: datetime, limit: int
) -> tuple[ChangeReport, Mapping[str, HeldBatch]]:
    """Return what the ledger's rows of a time changed, and the batches that await approval.

    Args:
        since: The first instant.
        limit: At most this many of the largest batches.
    """
    async with open_facts_if_present(settings) as facts:
        if facts is None:
            return ChangeReport(), {}
        held = await facts.watermarks.held()
        awaiting = {rule: batch for rule, batch in held.items() if not batch.approved}
        return await read_changes(facts.reads, since, most=limit), awaiting


def held_document(batch: HeldBatch) -> dict[str, str]:
    """Return a batch that awaits approval as a JSON object."""
    return {
        "firing_id": batch.firing_id,
        "rule_id": batch.rule_id,
        "problem": batch.problem,
    }
