"""The promises hold on the shards of two servers with many hosts, whatever happens to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from slumberd.storage.postgres.shard_additions import add_shard
from tests.cluster.cluster_run import Cluster, cluster_on_pairs
from tests.support.postgres_server import OwnServer, running_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


class ShortCluster(Cluster):
    """A cluster that kills one host and suspends one, while users are moved."""

    def have_accidents(self, deadline: float) -> None:
        """Have each accident once, and wait for a move after it."""
        for kind in ("kill", "suspend"):
            self.have_accident(kind)
            self._wait_for_moves(self.figures.moves + 1)

    def _wait_for_moves(self, count: int) -> None:
        wait_until(lambda: self.figures.moves >= count)


def test_hosts_that_fail_while_users_move_lose_nothing_and_do_nothing_twice(
    own_postgres: OwnServer, tmp_path: Path
) -> None:
    with (
        own_postgres.database(shards=2) as name,
        running_server() as other,
        other.empty_database() as other_name,
    ):
        address, place = own_postgres.address_of(name), other.address_of(other_name)
        for _ in range(2):
            add_shard(address, place)
        cluster = ShortCluster([own_postgres, other], address, tmp_path, seed=1, clocks=(0, 0))
        figures = cluster.run(0)

    assert (figures.kills, figures.suspensions) == (1, 1)
    assert figures.takeovers > 2
    assert figures.moves >= 2
    assert figures.facts


@pytest.mark.nightly
def test_nothing_is_lost_or_done_twice_whatever_fails(tmp_path: Path) -> None:
    with cluster_on_pairs(tmp_path, seed=1, shards=8) as cluster:
        figures = cluster.run(1_800)

    assert figures.kills
    assert figures.takeovers > 2
    assert figures.failovers == 2
    assert figures.moves
    assert figures.facts
