"""Classify all episodes that a rule selects, as the specification's consolidate does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import structlog

from slumberd.consolidation.batch_deltas import Classified, classify, names_of
from slumberd.consolidation.claim import Fault
from slumberd.model.rule import ConsolidationRule
from slumberd.storage.engine import Session
from slumberd.storage.episodes.windows import Reader

_log = structlog.get_logger("slumberd")

_MOST_NAMED = 20
"""Episodes that a warning names; it counts all of them."""

_NEWEST = 2**63 - 1


def classify_all(
    session: Session, reader: Reader, rule: ConsolidationRule, at: datetime
) -> Classified:
    """Return a delta for each episode that the rule selects, and the faults of the others."""
    versions = [*reader.selected(session)]
    named = sorted(names_of(versions))
    others = reader.named(session, named, _NEWEST) if named else []
    return classify(versions, rule, at=at, others=others)


def log_left_out(rule_id: str, faults: Mapping[str, Fault]) -> None:
    """Log which episodes have no delta, and why."""
    reasons = Counter(fault.reason for fault in faults.values())
    _log.warning(
        "episodes.left_out",
        rule_id=rule_id,
        reasons=dict(sorted(reasons.items())),
        episode_ids=sorted(faults)[:_MOST_NAMED],
    )
