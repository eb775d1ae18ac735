"""Read all episodes that a rule selects, for the specified form of consolidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from slumberd.consolidation.batch_deltas import names_of
from slumberd.consolidation.claim import Fault
from slumberd.consolidation.delta_batch import DeltaBatch
from slumberd.consolidation.incoming import Candidate
from slumberd.model.firing import Firing
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.late_log import LateLogger
from slumberd.storage.engine import Session
from slumberd.storage.episodes.windows import Reader

_log = LateLogger()

_MOST_NAMED = 20
"""Episodes that a warning names; it counts all of them."""

_NEWEST = 2**63 - 1


def read_everything(
    session: Session, reader: Reader, rule: ConsolidationRule, at: datetime
) -> DeltaBatch:
    """Return a batch of all episodes that a rule selects, for the deltas of the specification.

    It has no candidates: a store of facts applies the batches of windows only.
    """
    versions = [*reader.selected(session)]
    named = sorted(names_of(versions))
    others = reader.named(session, named, _NEWEST) if named else []
    channels: dict[str, list[Candidate]] = {name: [] for name in rule.then_emits}
    return DeltaBatch(Firing(rule.id, rule.content_hash, "manual", at), channels, versions, others)


def log_left_out(rule_id: str, faults: Mapping[str, Fault]) -> None:
    """Log which episodes have no delta, and why."""
    reasons = Counter(fault.reason for fault in faults.values())
    _log.warning(
        "episodes.left_out",
        rule_id=rule_id,
        reasons=dict(sorted(reasons.items())),
        episode_ids=sorted(faults)[:_MOST_NAMED],
    )
