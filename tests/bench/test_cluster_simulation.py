"""The simulation of a cluster agrees with closed forms of queueing theory, and loses nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import mean

import pytest

from tests.bench.cluster_simulation import Cluster, Simulation, Station, main, percentile

pytestmark = [pytest.mark.unit, pytest.mark.nightly]

CUSTOMERS = 100_000
QUICK = Cluster(
    firing_seconds=0.0,
    host_seconds=1.0,
    wake_seconds=0.0,
    put_seconds=0.0,
    put_bytes=0.0,
    database_seconds=0.0,
    log_bytes=0.0,
    batch=1,
    users=1,
    seconds=CUSTOMERS,
)
"""One host that serves one episode in a second; nothing else takes time."""


def exponential(chance: random.Random) -> float:
    return chance.expovariate(1)


def constant(_: random.Random) -> float:
    return 1.0


def waits(servers: int, load: float, service: Callable[[random.Random], float]) -> Iterator[float]:
    """Yield how long customers of a station wait; a service takes one second on average."""
    station, chance, at = Station(servers), random.Random(1), 0.0
    for _ in range(CUSTOMERS):
        at += chance.expovariate(load * servers)
        seconds = service(chance)
        yield station.serve(at, seconds) - at - seconds


def erlang_c(servers: int, load: float) -> float:
    """Return the share of the customers that wait in M/M/c, by Erlang's formula."""
    offered = servers * load
    terms = [offered**number / math.factorial(number) for number in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - load)
    return last / (sum(terms) + last)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_station_agrees_with_m_m_1(load: float) -> None:
    found = mean(waits(1, load, exponential))

    assert found == pytest.approx(load / (1 - load), rel=0.06)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_station_agrees_with_m_d_1(load: float) -> None:
    found = mean(waits(1, load, constant))

    assert found == pytest.approx(load / (2 * (1 - load)), rel=0.06)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.6), (8, 0.8), (16, 0.9)])
def test_a_station_agrees_with_m_m_c(servers: int, load: float) -> None:
    found = mean(waits(servers, load, exponential))

    assert found == pytest.approx(erlang_c(servers, load) / (servers * (1 - load)), rel=0.08)


def test_a_host_agrees_with_m_d_1() -> None:
    cluster = replace(QUICK, rate=0.7)

    result = Simulation(cluster).run()

    assert mean(result.delays) == pytest.approx(1 + 0.7 / (2 * 0.3), rel=0.05)
    assert result.host_use == [pytest.approx(0.7, rel=0.02)]


def test_a_host_agrees_with_m_m_1() -> None:
    cluster = replace(QUICK, rate=0.7, exponential=True)

    result = Simulation(cluster).run()

    assert mean(result.delays) == pytest.approx(1 / 0.3, rel=0.05)


def test_a_tandem_of_host_and_database_agrees_with_their_bottleneck() -> None:
    # A host waits for the commit of its batch, so its times and those of the database add up.
    cluster = replace(
        QUICK, rate=0.6, host_seconds=0.5, database_seconds=0.5, database_processors=1
    )

    result = Simulation(cluster).run()

    assert mean(result.delays) == pytest.approx(1 + 0.6 / (2 * 0.4), rel=0.05)
    assert result.database_use == pytest.approx(0.3, rel=0.02)


def test_large_batches_keep_up_with_a_load_that_single_episodes_cannot() -> None:
    cluster = Cluster(rate=1_000, firing_seconds=0.005, host_seconds=10e-6, seconds=20)

    alone = Simulation(replace(cluster, batch=1)).run()
    together = Simulation(cluster).run()

    assert percentile(alone.delays, 0.5) > 10
    assert percentile(together.delays, 0.99) < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_a_lost_host_loses_no_episode(seed: int) -> None:
    cluster = Cluster(hosts=4, shards=16, rate=3_000, burst=3, lost_hosts=2, lease_seconds=3.0)

    result = Simulation(cluster, seed).run()

    assert result.consolidated == result.put > 0
    assert len(result.gaps) == 8


def test_the_gap_after_a_loss_agrees_with_the_measured_one() -> None:
    """A prototype of 8 processes, 64 shards and leases of 3 s took 3.41 s for all shards."""
    cluster = Cluster(hosts=8, shards=64, rate=500, lost_hosts=1, lease_seconds=3.0, seconds=20)

    longest = [max(Simulation(cluster, seed).run().gaps) for seed in range(40)]

    assert min(longest) < 3.41 < max(longest)
    assert all(2 <= gap <= 4.1 for gap in longest)


def test_no_gap_is_longer_than_a_lease_and_a_look() -> None:
    cluster = Cluster(hosts=2, shards=1, rate=100, lost_hosts=1, lease_seconds=6.0)

    gaps = [gap for seed in range(50) for gap in Simulation(cluster, seed).run().gaps]

    assert min(gaps) >= 4
    assert max(gaps) <= 6 + 1 + 0.02


def test_the_busiest_user_bounds_what_more_hosts_gain() -> None:
    cluster = Cluster(
        hosts=4, shards=64, rate=20_000, burst=20, skew=2.0, database_processors=64, log_rate=1e12
    )

    uses = [max(Simulation(replace(cluster, hosts=hosts)).run().host_use) for hosts in (4, 16)]

    # With this skew one user has 61 % of all episodes, on one host.
    assert uses[1] > 0.8 * uses[0]


def test_the_same_seed_gives_the_same_result() -> None:
    cluster = Cluster(hosts=3, shards=12, rate=500, lost_hosts=1, seconds=10)

    first, second, other = (Simulation(cluster, seed).run() for seed in (1, 1, 2))

    assert first == second
    assert first != other


def test_percentiles_grow() -> None:
    values = [3.0, 1.0, 2.0, 4.0]

    found = [percentile(values, share) for share in (0.0, 0.3, 0.5, 0.99)]

    assert all(low <= high for low, high in pairwise(found))
    assert found[-1] == 4.0
    assert percentile([], 0.5) == 0.0


def test_the_command_prints_the_answer_to_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    main(["host", "--host-micros", "1000"])

    title, header, *rows = capsys.readouterr().out.strip().splitlines()
    assert title == "One active host"
    assert "delay p99" in header
    assert len(rows) == 7
