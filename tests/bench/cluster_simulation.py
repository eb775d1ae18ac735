"""Simulate daemons on one database: ``python -m tests.bench.cluster_simulation``.

A model of queues with measured service times, no daemon and no database. It answers how long an
episode waits for its facts, how busy hosts and database are, and how long the shards of a lost host
stand still. `test_cluster_simulation.py` compares the model with closed forms.

The model: programs put episodes in bursts. Each burst belongs to a user and an agent, and so to a
shard. A host holds the leases of some shards, and consolidates them one after another: the shard
that waits longest, at most ``batch`` episodes. A batch first takes the processor of the host, then
a processor of the database, then its write-ahead log. A lost host takes its batch with it, and
another host claims the shards once their lease has ended.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from typing import NamedTuple

MICRO = 1e-6


@dataclass(frozen=True)
class Cluster:
    """A cluster and its load.

    Attributes:
        hosts: Daemons that consolidate.
        shards: Shards of the database.
        rate: Episodes that are put in a second.
        burst: Episodes of one user that are put at once.
        users: Pairs of a user and an agent.
        skew: The exponent of Zipf's law for the episodes of users; 0 makes all users equal.
        batch: The most episodes of one transaction.
        lease_seconds: How long a host holds a shard after its last renewal.
        look_seconds: How often a host looks for leases that have ended.
        lost_hosts: Hosts that are lost at once, in the middle of the time.
        seconds: The simulated time.
        firing_seconds: Time of a host for each batch, whatever its size.
        host_seconds: Processor time of a host for each episode.
        claim_seconds: The shortest and the longest time that a claim of leases takes.
        wake_seconds: From the commit of a put until an idle host knows of it.
        database_processors: Processors of the database.
        put_seconds: Processor time of the database for the put of an episode.
        put_bytes: Write-ahead log of the put of an episode.
        database_seconds: Processor time of the database to consolidate an episode.
        log_bytes: Write-ahead log of the consolidation of an episode.
        log_rate: Bytes of write-ahead log that the database writes in a second.
        exponential: Whether the times of hosts are exponentially distributed, for closed forms.
    """

    hosts: int = 1
    shards: int = 1
    rate: float = 1_000.0
    burst: int = 1
    users: int = 10_000
    skew: float = 1.0
    batch: int = 8_000
    lease_seconds: float = 10.0
    look_seconds: float = 1.0
    lost_hosts: int = 0
    seconds: float = 60.0
    firing_seconds: float = 0.005
    host_seconds: float = 45 * MICRO
    claim_seconds: tuple[float, float] = (0.001, 0.020)
    wake_seconds: float = 0.002
    database_processors: int = 8
    put_seconds: float = 25 * MICRO
    put_bytes: float = 1_500.0
    database_seconds: float = 45 * MICRO
    log_bytes: float = 2_900.0
    log_rate: float = 100e6
    exponential: bool = False


class Result(NamedTuple):
    """What a simulation found.

    Attributes:
        delays: Seconds from a put to its facts, one for each burst.
        put: Episodes that were put.
        consolidated: Episodes that were consolidated.
        batches: Batches that were committed.
        host_use: The work of each host that was not lost, to the simulated time. Above 1 a host
            is full: it works on after the last put.
        database_use: The work of the database's processors, to their time.
        log_use: The work of the write-ahead log, to its time.
        gaps: Seconds from the loss of a host until another one holds its shard, for each shard.
    """

    delays: list[float]
    put: int
    consolidated: int
    batches: int
    host_use: list[float]
    database_use: float
    log_use: float
    gaps: list[float]


class Station:
    """Servers with one queue; who comes first is served first.

    Attributes:
        busy_seconds: The sum of all times of service.

    Args:
        servers: How many are served at once.
    """

    def __init__(self, servers: int) -> None:
        self._free_at = [0.0] * servers
        self._servers = servers
        self.busy_seconds = 0.0

    def serve(self, at: float, seconds: float) -> float:
        """Return when a customer leaves; customers must come in the order of their instants."""
        start = max(at, heapq.heappop(self._free_at))
        heapq.heappush(self._free_at, start + seconds)
        self.busy_seconds += seconds
        return start + seconds

    def use(self, seconds: float) -> float:
        """Return the work that came, to what the servers can do in a time."""
        return self.busy_seconds / (self._servers * seconds)


@dataclass(slots=True)
class _Shard:
    """A shard, and its bursts that wait: when each was put, and its episodes."""

    holder: int = 0
    claimable_at: float = 0.0
    waiting: deque[tuple[float, int]] = field(default_factory=deque)


@dataclass(slots=True)
class _Host:
    shards: set[int] = field(default_factory=set)
    busy_seconds: float = 0.0
    is_idle: bool = True
    is_lost: bool = False


Event = tuple[float, int, Callable[..., None], tuple[object, ...]]


class Simulation:
    """One run of a cluster.

    Args:
        cluster: The cluster and its load.
        seed: Of all random numbers.
    """

    def __init__(self, cluster: Cluster, seed: int = 1) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._shards = [_Shard(holder=n % cluster.hosts) for n in range(cluster.shards)]
        self._hosts = [_Host() for _ in range(cluster.hosts)]
        for number, shard in enumerate(self._shards):
            self._hosts[shard.holder].shards.add(number)
        self._database = Station(cluster.database_processors)
        self._log = Station(1)
        self._events: list[Event] = []
        self._order = count()
        self._delays: list[float] = []
        self._gaps: list[float] = []
        self._put = self._consolidated = self._batches = 0
        self._lost_at = math.inf
        self._shard_of_user = [self._random.randrange(cluster.shards) for _ in range(cluster.users)]
        weights = (1 / place**cluster.skew for place in range(1, cluster.users + 1))
        self._users = [*accumulate(weights)]

    def run(self) -> Result:
        """Run until all that was put in time is consolidated, or ten times the time has passed."""
        cluster = self._cluster
        self._plan(0.0, self._take_burst)
        if cluster.lost_hosts:
            self._plan(cluster.seconds / 2, self._lose_hosts)
        last = 10 * cluster.seconds
        while self._events and self._events[0][0] < last:
            at, _, act, arguments = heapq.heappop(self._events)
            act(at, *arguments)
        return Result(
            self._delays,
            self._put,
            self._consolidated,
            self._batches,
            [host.busy_seconds / cluster.seconds for host in self._hosts if not host.is_lost],
            self._database.use(cluster.seconds),
            self._log.use(cluster.seconds),
            self._gaps,
        )

    def _plan(self, at: float, act: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._events, (at, next(self._order), act, arguments))

    def _take_burst(self, at: float) -> None:
        cluster = self._cluster
        if at > 0:
            user = bisect(self._users, self._random.random() * self._users[-1])
            shard = self._shard_of_user[min(user, cluster.users - 1)]
            self._put += cluster.burst
            stored = self._database.serve(at, cluster.burst * cluster.put_seconds)
            self._plan(stored, self._log_put, shard, at)
        then = at + self._random.expovariate(cluster.rate / cluster.burst)
        if then < cluster.seconds:
            self._plan(then, self._take_burst)

    def _log_put(self, at: float, shard: int, put: float) -> None:
        cluster = self._cluster
        then = self._log.serve(at, cluster.burst * cluster.put_bytes / cluster.log_rate)
        self._plan(then, self._arrive, shard, put)

    def _arrive(self, at: float, number: int, put: float) -> None:
        shard = self._shards[number]
        shard.waiting.append((put, self._cluster.burst))
        self._plan(at + self._cluster.wake_seconds, self._wake, shard.holder)

    def _wake(self, at: float, number: int) -> None:
        host = self._hosts[number]
        if host.is_lost or not host.is_idle:
            return
        waiting = [one for one in host.shards if self._shards[one].waiting]
        if not waiting:
            return
        chosen = min(waiting, key=lambda one: self._shards[one].waiting[0])
        taken = self._take(self._shards[chosen])
        host.is_idle = False
        episodes = sum(size for _, size in taken)
        seconds = self._cluster.firing_seconds + episodes * self._cluster.host_seconds
        if self._cluster.exponential:
            seconds = self._random.expovariate(1 / seconds)
        host.busy_seconds += seconds
        self._plan(at + seconds, self._send, number, chosen, taken, episodes)

    def _take(self, shard: _Shard) -> list[tuple[float, int]]:
        taken: list[tuple[float, int]] = []
        episodes = 0
        while shard.waiting and (
            not taken or episodes + shard.waiting[0][1] <= self._cluster.batch
        ):
            taken.append(shard.waiting.popleft())
            episodes += taken[-1][1]
        return taken

    def _send(
        self, at: float, number: int, shard: int, taken: list[tuple[float, int]], episodes: int
    ) -> None:
        """Let the database work on a batch, when its host has computed it."""
        if self._hosts[number].is_lost:
            # What was not committed is pending again.
            self._shards[shard].waiting.extendleft(reversed(taken))
            self._wake(at, self._shards[shard].holder)
            return
        then = self._database.serve(at, episodes * self._cluster.database_seconds)
        self._plan(then, self._write, number, taken, episodes)

    def _write(self, at: float, number: int, taken: list[tuple[float, int]], episodes: int) -> None:
        then = self._log.serve(at, episodes * self._cluster.log_bytes / self._cluster.log_rate)
        self._plan(then, self._commit, number, taken, episodes)

    def _commit(
        self, at: float, number: int, taken: list[tuple[float, int]], episodes: int
    ) -> None:
        self._delays += [at - put for put, _ in taken]
        self._consolidated += episodes
        self._batches += 1
        self._hosts[number].is_idle = True
        self._wake(at, number)

    def _lose_hosts(self, at: float) -> None:
        cluster = self._cluster
        self._lost_at = at
        for host in self._hosts[: cluster.lost_hosts]:
            host.is_lost = True
            # A host renews all of its leases together, each third of their time.
            ends = at + cluster.lease_seconds * self._random.uniform(2 / 3, 1)
            for shard in host.shards:
                self._shards[shard].claimable_at = ends
            host.shards = set()
        for number, host in enumerate(self._hosts):
            if not host.is_lost:
                look = cluster.look_seconds * self._random.random()
                self._plan(at + look, self._claim, number)

    def _claim(self, at: float, number: int) -> None:
        """Claim shards without a holder, up to a host's part of all shards."""
        cluster = self._cluster
        live = sum(not host.is_lost for host in self._hosts)
        wanted = math.ceil(cluster.shards / live) - len(self._hosts[number].shards)
        orphans = [
            one for one, shard in enumerate(self._shards) if self._hosts[shard.holder].is_lost
        ]
        free = [one for one in orphans if self._shards[one].claimable_at <= at]
        then = at + self._random.uniform(*cluster.claim_seconds)
        for shard in free[: max(0, wanted)]:
            self._shards[shard].holder = number
            self._plan(then, self._hold, number, shard)
        if orphans:
            self._plan(at + cluster.look_seconds, self._claim, number)

    def _hold(self, at: float, number: int, shard: int) -> None:
        self._hosts[number].shards.add(shard)
        self._gaps.append(at - self._lost_at)
        self._wake(at, number)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share, 0 to 1, of the values lie; 0 without values."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


Row = tuple[str, ...]


def one_active_host(cluster: Cluster) -> Iterator[Row]:
    """Yield how long episodes wait for the only host that consolidates, by the rate of puts."""
    yield "episodes/s", "delay p50", "delay p99", "host", "episodes a batch"
    most = 1 / _seconds_of_an_episode(cluster)
    for share in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97):
        rate = most * share
        burst = max(1, round(rate / 500))
        result = Simulation(replace(cluster, rate=rate, burst=burst)).run()
        size = result.consolidated / result.batches
        yield f"{rate:,.0f}", *_delays(result), f"{result.host_use[0]:.0%}", f"{size:,.0f}"


def _seconds_of_an_episode(cluster: Cluster) -> float:
    """Return the time of an episode in a large batch: of its host, the database and the log."""
    log = cluster.log_bytes / cluster.log_rate
    return cluster.host_seconds + cluster.database_seconds + log


def lost_host(cluster: Cluster) -> Iterator[Row]:
    """Yield how long shards stand still after the loss of a host, by the time of leases."""
    yield "lease", "hosts", "shards", "gap p50", "gap p99", "longest"
    for lease in (3.0, 5.0, 10.0, 20.0, 30.0):
        for hosts, shards in ((2, 1), (4, 64), (16, 64)):
            gaps: list[float] = []
            some = replace(
                cluster, hosts=hosts, shards=shards, lease_seconds=lease, lost_hosts=1, rate=200.0,
                seconds=4 * lease,
            )  # fmt: skip
            for seed in range(200 if shards == 1 else 40):
                gaps += Simulation(some, seed).run().gaps
            found = (percentile(gaps, 0.5), percentile(gaps, 0.99), max(gaps))
            yield f"{lease:.0f} s", str(hosts), str(shards), *(f"{gap:.1f} s" for gap in found)


def shards_of_hosts(cluster: Cluster) -> Iterator[Row]:
    """Yield how well shards divide skewed users among hosts that are half busy on average.

    The database is so large that it does not matter.
    """
    yield "hosts", "shards", "Zipf", "busiest host, to the mean", "delay p50", "delay p99"
    for hosts in (2, 4, 8, 16, 64):
        rate = 0.5 * hosts / (cluster.host_seconds + cluster.database_seconds)
        for shards in (16, 64, 256):
            if shards < hosts:
                continue
            for skew in (0.0, 0.8, 1.0):
                some = replace(
                    cluster, hosts=hosts, shards=shards, rate=rate, skew=skew,
                    burst=max(1, round(rate / 1_000)), database_processors=10 * hosts,
                    log_rate=1e12, seconds=20.0,
                )  # fmt: skip
                result = Simulation(some).run()
                mean = sum(result.host_use) / hosts
                busiest = f"{max(result.host_use) / mean:.2f}"
                yield str(hosts), str(shards), f"{skew:.1f}", busiest, *_delays(result)


def full_database(cluster: Cluster) -> Iterator[Row]:
    """Yield how busy one database is, by the rate of puts."""
    yield "episodes/s", "hosts", "processors", "log", "delay p50", "delay p99", "databases"
    for rate in (5_000, 10_000, 20_000, 30_000, 40_000, 60_000, 100_000):
        hosts = math.ceil(rate * _seconds_of_an_episode(cluster) / 0.6)
        some = replace(
            cluster, rate=float(rate), hosts=hosts, shards=max(cluster.shards, 4 * hosts),
            burst=max(1, rate // 1_000), skew=0.5, seconds=20.0,
        )  # fmt: skip
        result = Simulation(some).run()
        needed = math.ceil(max(result.database_use, result.log_use) / 0.7)
        use = f"{result.database_use:.0%}", f"{result.log_use:.0%}"
        yield f"{rate:,}", str(hosts), *use, *_delays(result), str(needed)


def _delays(result: Result) -> tuple[str, str]:
    return _shown(percentile(result.delays, 0.5)), _shown(percentile(result.delays, 0.99))


def _shown(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


QUESTIONS: dict[str, tuple[Callable[[Cluster], Iterator[Row]], str]] = {
    "host": (one_active_host, "One active host"),
    "loss": (lost_host, "A host is lost: until another one holds its shards"),
    "shards": (shards_of_hosts, "Hosts and shards, users by Zipf's law"),
    "database": (full_database, "One database"),
}


def main(words: Sequence[str] | None = None) -> None:
    """Answer the questions that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.cluster_simulation", description=__doc__
    )
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=", ".join(QUESTIONS))
    figures: dict[str, tuple[float, str]] = {
        "host-micros": (45, "of a host, to consolidate an episode"),
        "put-micros": (25, "of the database, to put an episode"),
        "database-micros": (45, "of the database, to consolidate an episode"),
        "firing-ms": (5, "of a host, for each batch"),
        "put-bytes": (1_500, "of log, to put an episode"),
        "log-bytes": (2_900, "of log, to consolidate an episode"),
        "log-rate": (100, "of the disk, MB a second"),
    }
    for name, (default, meaning) in figures.items():
        parser.add_argument(f"--{name}", type=float, default=default, help=f"{meaning} ({default})")
    parser.add_argument("--processors", type=int, default=8, help="of the database (8)")
    options = parser.parse_args(words)
    cluster = Cluster(
        firing_seconds=options.firing_ms / 1e3,
        host_seconds=options.host_micros * MICRO,
        database_processors=options.processors,
        put_seconds=options.put_micros * MICRO,
        put_bytes=options.put_bytes,
        database_seconds=options.database_micros * MICRO,
        log_bytes=options.log_bytes,
        log_rate=options.log_rate * 1e6,
    )
    for name in options.questions or QUESTIONS:
        answer, title = QUESTIONS[name]
        rows = [*answer(cluster)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        print(f"\n{title}")
        for row in rows:
            print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


if __name__ == "__main__":
    main()
