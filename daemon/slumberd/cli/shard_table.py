"""Print what each shard of a database holds, one row a shard."""

from __future__ import annotations

from slumberd.cli.output import number, print_json, print_table
from slumberd.daemon.shard_counts import count_shards
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings

COLUMNS = ("shard", "held by", "episodes", "facts", "pending", "oldest", "last firing")


def print_shards(settings: Settings, rules: RuleSet, *, json: bool) -> None:
    """Print the counts of all shards.

    Args:
        settings: The configuration, which names no shard.
        json: Whether to print JSON.
    """
    counted = count_shards(settings, rules)
    if json:
        print_json(counted.document())
        return
    print_table(
        COLUMNS,
        (
            (
                one.shard, one.holder, number(one.episodes), number(one.facts),
                number(one.pending), one.oldest_pending, one.fired_at,
            )
            for one in counted.shards
        ),
    )  # fmt: skip
