"""The connection is lost at a commit: nothing is lost, and nothing happens twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from slumberd.model.errors import StoreError
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.daemon.test_sharded_daemon import USERS, home_on, put, wait_for_facts
from tests.support.builders import triple
from tests.support.lossy_proxy import Loss, LossyProxy, lossy_proxy
from tests.support.postgres_server import OwnServer
from tests.support.shards import shard_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.acceptance

LOSSES: list[Loss] = ["request", "answer"]


@pytest.fixture(params=[1, 2], ids=["one shard", "two shards"])
def database(request: pytest.FixtureRequest, own_postgres: OwnServer) -> Iterator[str]:
    with own_postgres.database(shards=request.param) as name:
        yield name


@pytest.fixture
def proxied(own_postgres: OwnServer, database: str) -> Iterator[tuple[LossyProxy, str]]:
    with lossy_proxy(own_postgres, database) as found:
        yield found


@pytest.mark.cases(1)
@pytest.mark.parametrize("loss", LOSSES)
async def test_put_without_an_answer_is_made_again_without_a_second_episode(
    own_postgres: OwnServer, database: str, proxied: tuple[LossyProxy, str], loss: Loss
) -> None:
    proxy, address = proxied
    user = next(user for user in USERS if shard_of(user, 2) == 0)
    episode = triple("e1", user, "drinks", "tea", user=user)
    async with PostgresMemoryStore(address) as memory:
        await memory.newest()
        proxy.lose(loss, 1)

        with pytest.raises(StoreError, match="may be committed"):
            await memory.put_many([episode])
        counts = await memory.put_many([episode])

    assert proxy.lost == 1
    assert (counts.new, counts.unchanged) == ((1, 0) if loss == "request" else (0, 1))
    rows = own_postgres.rows("SELECT count(*) FROM slumberd_0.episodes", database)
    assert rows == [(1,)]


@pytest.mark.nightly
@pytest.mark.parametrize("loss", LOSSES)
def test_daemon_consolidates_once_what_it_could_not_commit(
    own_postgres: OwnServer,
    database: str,
    proxied: tuple[LossyProxy, str],
    loss: Loss,
    tmp_path: Path,
) -> None:
    proxy, address = proxied
    direct = own_postgres.address_of(database)
    home = home_on(tmp_path / "home", address)
    with home.started() as daemon:
        for day in range(1, 4):
            proxy.lose(loss, 2)
            put(direct, day)
            wait_until(lambda: proxy.is_done)
            wait_for_facts(own_postgres, direct, day)
        assert daemon.stop() == 0

    assert proxy.lost == 6
    assert "verified: " in home.call("--all-shards", "audit", "verify").stdout
    words = ("audit", "ls", "--json", "--limit", "1000")
    listed = home.call("--all-shards", *words).stdout.splitlines()
    sources = Counter(id for line in listed for id in orjson.loads(line)["source_episode_ids"])
    assert sources == {f"{user}-{day}": 1 for user in USERS for day in range(1, 4)}
