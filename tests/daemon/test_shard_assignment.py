"""Hosts that follow the assignment of shards end with all shards held, in equal parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slumberd.daemon.sharded_daemon import Assignment, assign_shards

pytestmark = pytest.mark.unit


def test_only_host_claims_every_free_shard() -> None:
    assert assign_shards({0: None, 1: None, 2: None}, [], "a", []) == Assignment([0, 1, 2])


def test_host_leaves_the_share_of_another_host() -> None:
    change = assign_shards(dict.fromkeys(range(4)), ["a", "b"], "a", [])

    assert change == Assignment([0, 1])


def test_hosts_begin_at_different_shards() -> None:
    free = dict.fromkeys(range(4))

    assert assign_shards(free, ["a", "b"], "b", []).claim == [2, 3]


def test_host_with_too_many_gives_back_the_latest_one() -> None:
    holders = dict.fromkeys(range(4), "a")

    assert assign_shards(holders, ["a", "b"], "a", [0, 1, 3, 2]) == Assignment([], 2)


def test_host_claims_no_shard_on_which_it_has_failed() -> None:
    free = dict.fromkeys(range(3))

    assert assign_shards(free, [], "a", [], resting={1}).claim == [0, 2]


def test_host_with_its_share_changes_nothing() -> None:
    holders = {0: "a", 1: "a", 2: "b"}

    assert assign_shards(holders, ["a", "b"], "a", [0, 1]) == Assignment([])
    assert assign_shards(holders, ["a", "b"], "b", [2]) == Assignment([])


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[dict[int, str | None], list[str]]:
    hosts = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    shards = draw(st.integers(1, 70))
    holders = draw(st.lists(st.sampled_from([None, *hosts]), min_size=shards, max_size=shards))
    return dict(enumerate(holders)), hosts


@given(_clusters())
def test_hosts_reach_a_state_in_which_nothing_changes(
    cluster: tuple[dict[int, str | None], list[str]],
) -> None:
    holders, hosts = cluster

    for _ in range(3 * len(holders) + 3):
        changed = False
        for host in hosts:
            held = [shard for shard, holder in holders.items() if holder == host]
            change = assign_shards(holders, hosts, host, held)
            for shard in change.claim:
                assert holders[shard] is None
                holders[shard] = host
            if change.give_back is not None:
                holders[change.give_back] = None
            changed = changed or change != Assignment([])
        if not changed:
            break

    counts = [[*holders.values()].count(host) for host in hosts]
    share = -(-len(holders) // len(hosts))
    assert None not in holders.values()
    assert max(counts) <= share
