"""The promises hold on one database with many hosts, whatever happens to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster_run import Cluster, pooler_before
from tests.support.postgres_server import OwnServer

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.mark.nightly
@pytest.mark.parametrize(("shards", "seconds"), [(1, 30), (4, 60)])
def test_nothing_is_lost_or_done_twice(
    own_postgres: OwnServer, tmp_path: Path, shards: int, seconds: float
) -> None:
    with (
        own_postgres.database(shards=shards) as name,
        pooler_before(own_postgres, name) as pooler,
    ):
        address = own_postgres.address_of(name)
        cluster = Cluster(own_postgres, address, tmp_path, seed=1, pooler=pooler)
        figures = cluster.run(seconds)

    assert figures.kills
    assert figures.takeovers > 2
    assert figures.facts
