"""Decide which shards of a database a host takes, and which it gives back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Assignment(NamedTuple):
    """What a host changes about the shards that it holds.

    Attributes:
        claim: The free shards that it claims.
        give_back: A shard that it gives back, since it has more than its share; None without one.
    """

    claim: list[int]
    give_back: int | None = None


def assign_shards(
    holders: Mapping[int, str | None],
    hosts: Collection[str],
    own: str,
    held: Collection[int],
    *,
    resting: Collection[int] = (),
) -> Assignment:
    """Return what a host changes; when all hosts do so, each shard gets a holder.

    The share of a host is the number of shards over the number of hosts, rounded up. A host with
    less claims free shards. A host with more gives one back at a time: each shard stands still
    until its next holder has it.

    Args:
        holders: The holder of each shard; None for a free one.
        hosts: The names of the hosts that are alive; this host counts in any case.
        own: The name of this host.
        held: The shards that it holds, the latest last.
        resting: The shards that it does not claim now, since it has failed on them.
    """
    alive = sorted({*hosts, own})
    share = -(-len(holders) // len(alive))
    if len(held) > share:
        return Assignment([], [*held][-1])
    free = [shard for shard, holder in sorted(holders.items()) if holder is None]
    wanted = [shard for shard in free if shard not in held and shard not in resting]
    # Each host begins at another place, so that two seldom claim the same shard.
    start = alive.index(own) * len(wanted) // len(alive)
    return Assignment([*wanted[start:], *wanted[:start]][: share - len(held)])
