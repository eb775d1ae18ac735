"""Count what each shard of a database holds, and what waits there."""

from __future__ import annotations

from slumberd.daemon.stores import database_status_of, inspections_of, shards_of
from slumberd.model.episode import instant
from slumberd.model.store_status import Backlog, LogRange
from slumberd.operations.daemon import ShardCounts, ShardList
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings
from slumberd.workers.scheduling.rule_status import start_of

_MOST_PENDING = 10**9
_NOTHING = Backlog(0, None)


def count_shards(settings: Settings, rules: RuleSet) -> ShardList:
    """Return a row of counts for each shard.

    Args:
        settings: The configuration, which names a database.

    Raises:
        StoreError: A store cannot be read.
    """
    database = database_status_of(settings)
    holders = {} if database is None else {one.shard: one.holder for one in database.shards}
    return ShardList(
        shards=[
            _count(settings.of_shard(shard), rules, shard, holders.get(shard))
            for shard in shards_of(settings)
        ]
    )


def _count(settings: Settings, rules: RuleSet, shard: int, holder: str | None) -> ShardCounts:
    episodes, facts = inspections_of(settings)
    seen = facts.status() if facts.exists() else None
    watermarks = {} if seen is None else seen.watermarks
    ranges = [
        LogRange(start, _MOST_PENDING, rule.id)
        for rule in rules.rules
        if rule.enabled and rule.reads_episodes
        if (start := start_of(rule, watermarks.get(rule.id))) is not None
    ]
    status = episodes.status(ranges) if episodes.exists() else None
    backlogs = status.backlogs.values() if status else ()
    longest = max(backlogs, key=lambda backlog: backlog.pending, default=_NOTHING)
    return ShardCounts(
        shard=shard,
        holder=holder,
        episodes=status.episodes if status else 0,
        facts=seen.facts if seen else 0,
        pending=longest.pending,
        oldest_pending=longest.oldest,
        fired_at=instant(max(seen.fired.values())) if seen and seen.fired else None,
    )
