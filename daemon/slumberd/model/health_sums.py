"""Sum the health figures of the shards of a process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, TypeVar

from slumberd.model.health import (
    BatchTotals,
    DaemonHealth,
    LedgerCounters,
    ProvenanceHealth,
    RuleHealth,
    RuleStatus,
)

T = TypeVar("T", bound=Any)


def sum_health(parts: Sequence[DaemonHealth]) -> DaemonHealth:
    """Return the figures of a process that runs the daemons of several shards.

    Counts are added. Of ages and delays, the greatest counts; of coming instants, the first. What
    the shards share is taken once.

    Args:
        parts: The figures of each shard, at least one.
    """
    by_rule: dict[str, list[RuleHealth]] = defaultdict(list)
    for part in parts:
        for rule in part.rules:
            by_rule[rule.status.rule_id].append(rule)
    return replace(
        parts[0],
        at=max(part.at for part in parts),
        uptime_seconds=max(part.uptime_seconds for part in parts),
        loop_lag_seconds=max(part.loop_lag_seconds for part in parts),
        rules=[_sum_rule(of_shards) for of_shards in by_rule.values()],
        oldest_seconds=_greatest(part.oldest_seconds for part in parts),
        next_at=_first(part.next_at for part in parts),
        succeeded_at=_greatest(part.succeeded_at for part in parts),
        quarantined=sum(part.quarantined for part in parts),
        held=sum(part.held for part in parts),
        provenance=_sum_provenance([part.provenance for part in parts if part.provenance]),
        clock_behind_seconds=max(part.clock_behind_seconds for part in parts),
        index_bytes=sum(part.index_bytes for part in parts),
        tallies=_sum_tallies([part.tallies for part in parts if part.tallies]),
    )


def _sum_rule(parts: Sequence[RuleHealth]) -> RuleHealth:
    tallies = [part.tally for part in parts if part.tally is not None]
    return RuleHealth(
        sum_rule_status([part.status for part in parts]),
        failures=max(part.failures for part in parts),
        failed=sum(part.failed for part in parts),
        tally=reduce(BatchTotals.plus, tallies) if tallies else None,
    )


def sum_rule_status(parts: Sequence[RuleStatus]) -> RuleStatus:
    """Return how far a rule is in several shards, as `sum_health` sums.

    Args:
        parts: How far it is in each shard, at least one.
    """
    pending = [part.pending for part in parts if part.pending is not None]
    return RuleStatus(
        parts[0].rule_id,
        pending=sum(pending) if pending else None,
        oldest_seconds=_greatest(part.oldest_seconds for part in parts),
        next_at=_first(part.next_at for part in parts),
        due_at=_first(part.due_at for part in parts),
        late_seconds=max(part.late_seconds for part in parts),
        paused=any(part.paused for part in parts),
        held_firing_id=next((part.held_firing_id for part in parts if part.held_firing_id), ""),
        quarantined=sum(part.quarantined for part in parts),
        succeeded_at=_greatest(part.succeeded_at for part in parts),
        ignored_served=_greatest(part.ignored_served for part in parts),
    )


def _sum_provenance(parts: Sequence[ProvenanceHealth]) -> ProvenanceHealth | None:
    if not parts:
        return None
    return ProvenanceHealth(
        sum(part.rows for part in parts),
        max(part.seconds for part in parts),
        sum(part.refused for part in parts),
    )


def _sum_tallies(parts: Sequence[LedgerCounters]) -> LedgerCounters | None:
    if not parts:
        return None
    by_rule: dict[str, BatchTotals] = defaultdict(BatchTotals)
    for part in parts:
        for rule_id, totals in part.by_rule.items():
            by_rule[rule_id] = by_rule[rule_id].plus(totals)
    return LedgerCounters(
        sum(part.rows for part in parts), sum(part.versions for part in parts), dict(by_rule)
    )


def _greatest(values: Iterable[T | None]) -> T | None:
    return max((value for value in values if value is not None), default=None)


def _first(values: Iterable[T | None]) -> T | None:
    return min((value for value in values if value is not None), default=None)
