"""A server fails, and its standby takes over: the daemons go on, and the promises hold."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from slumberd import Memory, Triple
from slumberd.clock import SystemClock
from slumberd.model.errors import OldPrimaryError
from slumberd.storage.postgres.connection import connect
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.cluster.cluster_run import Cluster
from tests.support.builders import triple
from tests.support.daemons import Home
from tests.support.postgres_server import OwnServer
from tests.support.server_pair import running_pair
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

DATABASE = "memory"
CHECKPOINT = {
    "ts": "2026-01-01T00:00:00.000000Z",
    "level": "info",
    "event": "ledger.checkpoint",
    "rows": 99,
    "head": 64 * "0",
}
READ = "SELECT coalesce(min(seq), 0)::bigint FROM slumberd_0.slumberd_watermark"
APPLIED = """
SELECT seq
FROM slumberd_0.slumberd_ledger
WHERE firing IN (SELECT n FROM slumberd_0.slumberd_firings WHERE rule IN ('all', 'many'))
  AND seq != firing
"""
VERSIONS = 15
"""How many versions the rules read before the server fails, and after it."""
MOST_SECONDS = 120.0
"""A firing follows the promotion within 2 to 3 s, on a busy machine much later."""


class FailingCluster(Cluster):
    """A cluster whose server fails in the middle of a run.

    Attributes:
        promoted_at: When the standby took writes, in seconds since 1970.
    """

    promoted_at: float

    def have_accidents(self, deadline: float) -> None:
        """Let the server fail in the middle; let hosts fail before and after, in a long run."""
        seconds = deadline - time.monotonic()
        self._work(seconds / 2)
        self.fail_over(0)
        self.promoted_at = SystemClock().now().timestamp()
        self._work(seconds / 2)

    def _work(self, seconds: float) -> None:
        """Wait until the rules have read what is put now; have accidents first, in a long run."""
        [(read,)] = self.servers[0].rows(READ, DATABASE)
        if seconds > 10:
            super().have_accidents(time.monotonic() + seconds)
        wait_until(lambda: self.servers[0].rows(READ, DATABASE)[0][0] >= read + VERSIONS)

    def seconds_until_fired(self, instants: list[str]) -> float:
        """Return how long after the promotion the first firing was committed."""
        fired = (datetime.fromisoformat(one).timestamp() for one in instants)
        return min(one - self.promoted_at for one in fired if one > self.promoted_at)


def events_of(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the log lines of all hosts, but for the part of one that a daemon wrote last."""
    found = []
    for host in cluster.hosts:
        for part in host.log.read_bytes().split(b'{"ts":')[1:]:
            with suppress(orjson.JSONDecodeError):
                found.append(orjson.loads(b'{"ts":' + part))
    return found


@pytest.mark.parametrize(
    ("clocks", "seconds"),
    [
        pytest.param((0, 0), 0, id="quiet"),
        pytest.param((0, 0, 1, -1), 30, id="with accidents", marks=pytest.mark.nightly),
    ],
)
def test_failover_of_a_synchronous_pair_loses_nothing(
    tmp_path: Path, clocks: tuple[int, ...], seconds: float
) -> None:
    with running_pair(is_synchronous=True) as pair:
        address = pair.create_database(DATABASE)
        cluster = FailingCluster(
            [pair.primary], address, tmp_path, seed=1, standbys=[pair.standby], clocks=clocks
        )
        figures = cluster.run(seconds)
        applied = pair.standby.rows(APPLIED, DATABASE)

    events = events_of(cluster)
    logged = {event["seq"] for event in events if event["event"] == "delta.applied"}
    fired = [event["ts"] for event in events if event["event"] == "firing.completed"]
    assert figures.facts
    assert len(applied) > VERSIONS
    assert {number for (number,) in applied} - logged == set()
    if len(clocks) == 2:
        assert [event["event"] for event in events].count("daemon.ready") == 1
        assert cluster.seconds_until_fired(fired) < MOST_SECONDS


def put(address: str, *ids: str) -> None:
    """Put episodes as a program on another host does."""

    async def work() -> None:
        async with PostgresMemoryStore(address) as memory:
            await memory.put_many([triple(id, "alice", id, "x") for id in ids])

    asyncio.run(work())


def test_daemon_goes_on_after_a_failover_that_lost_the_last_commits(tmp_path: Path) -> None:
    with running_pair(is_synchronous=False) as pair:
        address = pair.create_database(DATABASE)
        home = Home(tmp_path, {"store": address, "postgres": {"lease": "3s"}})
        home.rule("all", cadence={"every": 1})
        with home.daemon() as daemon:
            put(address, "e1")
            daemon.wait_until_read(1)
            pair.wait_until_replayed()
            pair.cut()
            put(address, "e2", "e3")
            daemon.wait_until_read(3)
            pair.fail_over()
            lost = daemon.wait_for("store.tail_lost")
            daemon.wait_for("daemon.ready")
            put(address, "e4", "e2")
            daemon.wait_until_read(3)
        found = [fact["id"] for fact in home.facts()]
        verified = home.call("audit", "verify").stdout
        log = tmp_path / "daemon.log"
        log.write_bytes(b"\n".join(map(orjson.dumps, [CHECKPOINT, *daemon.seen])))
        against = home.call("audit", "verify", "--against", str(log), check=False).stdout
        marks = pair.standby.rows(
            "SELECT (SELECT max(seq) FROM slumberd_0.slumberd_watermark),"
            " (SELECT max(seq) FROM slumberd_0.slumberd_episode_log)",
            DATABASE,
        )

    events = [event["event"] for event in daemon.seen]
    assert (lost["written"], lost["last"]) == (5, 2)
    assert events.count("store.tail_lost") == 1
    assert sorted(found) == ["e1", "e2", "e4"]
    assert "verified: 5 rows" in verified
    assert "the ledger ends here" in against
    assert "rows 3 to 5 went in a failover" in against
    assert marks == [(3, 3)]


def test_old_primary_that_comes_back_is_refused() -> None:
    with running_pair(is_synchronous=False) as pair:
        address = pair.create_database(DATABASE)
        pair.wait_until_replayed()
        connect(address).close()
        pair.fail_over()
        connect(address).close()
        pair.primary.start()  # it is the first server of the address

        with pytest.raises(OldPrimaryError, match="an old primary on timeline 1"):
            connect(address)
        pair.primary.stop()
        connect(address).close()


async def test_daemon_answers_from_its_replica_whatever_was_put_before(tmp_path: Path) -> None:
    with running_pair(is_synchronous=False) as pair:
        address = pair.create_database(DATABASE)
        pair.wait_until_replayed()
        settings = {"read_address": pair.standby.address_of(DATABASE), "lease": "3s"}
        home = Home(tmp_path, {"store": address, "postgres": settings})
        home.rule("all", cadence={"every": 1})
        with home.daemon() as daemon:
            async with Memory.open(address, user="alice", agent="rag") as memory:
                for number in range(20):
                    text = f"The word of the hour is w{number}w."
                    await memory.remember(text, triples=[Triple("alice", f"p{number}", "tea")])
                    found = await memory.recall(f"w{number}w")
                    assert text in {hit.text for hit in found}
            assert daemon.stop() == 0
            events = {event["event"] for event in [*daemon.seen, *daemon.remaining()]}
        wait_until(lambda: count_reads(pair.standby) >= 20)

    assert "replica.left_out" not in events


def count_reads(server: OwnServer) -> int:
    """Return how often the tables of slumberd were read by an index."""
    [(count,)] = server.rows(
        "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_tables", DATABASE
    )
    return int(count)
