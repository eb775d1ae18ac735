"""Turn a fact that a person or a program states into a manual assertion."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from slumberd.consolidation.manual import ManualAssertion
from slumberd.consolidation.precedence import MANUAL_RULE_ID
from slumberd.model.fact import Fact


def assertion_of(fact: Fact) -> ManualAssertion:
    """Return a fact as a manual assertion.

    Raises:
        ValueError: The lineage is empty, or the confidence lies outside 0..1.
    """
    if not fact.lineage:
        raise ValueError(f"fact {fact.id!r}: lineage must be non-empty")
    if not (math.isfinite(fact.confidence) and 0 <= fact.confidence <= 1):
        raise ValueError(f"fact {fact.id!r}: confidence must lie in 0..1")
    return ManualAssertion(
        fact.id, fact.user, fact.agent, dict(fact.payload), fact.confidence, fact.lineage,
        dict(fact.metadata),
    )  # fmt: skip


def lineage_entry(by: str, reason: str, at: datetime) -> dict[str, Any]:
    """Return the lineage entry that says who edited a fact, why and when.

    Raises:
        ValueError: `by` or `reason` is empty.
    """
    if not by.strip() or not reason.strip():
        raise ValueError("'by' and 'reason' must be non-empty: name the author and the reason")
    return {
        "kind": "manual",
        "rule_id": MANUAL_RULE_ID,
        "source_episode_ids": [],
        "promotion_ts": at.isoformat(),
        "by": by,
        "reason": reason,
    }
