"""Run daemons, putters and accidents on one database, and check the promises at the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import psycopg

from tests.support.daemons import Home
from tests.support.oracle import OracleClaim, claims_in, current_claims
from tests.support.pooler import program, running_pooler
from tests.support.postgres_server import OwnServer
from tests.support.shards import shard_of
from tests.support.waiting import wait_until

CLOCK_HOURS = (0, 0, 1, -1)
"""By how much the clock of each host is wrong."""

PUTTERS = 3
LEASE_SECONDS = 3.0
USERS = ("alice", "bob", "carol")
AGENTS = ("rag", "coder")
ERASED_USER = "gone"
PUT = "SELECT slumberd_{shard}.put(%s, %s, %s, %s, %s)"


@dataclass
class Figures:
    """What happened in a run."""

    puts: int = 0
    rolled_back: int = 0
    kills: int = 0
    suspensions: int = 0
    cut_connections: int = 0
    restarts_of_the_server: int = 0
    edits: int = 0
    undone_edits: int = 0
    erasures: int = 0
    takeovers: int = 0
    log_rows: int = 0
    facts: int = 0


@dataclass
class Putter:
    """Puts and edits episodes of its own, each in a transaction that may roll back."""

    name: str
    address: str
    shards: int
    chance: random.Random
    episodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)
    rolled_back: int = 0

    def run(self, stop: threading.Event) -> None:
        """Put until `stop` is set; a put without an answer is made again."""
        while not stop.is_set():
            wanted = self._transaction()
            if self.chance.random() < 0.1:
                self._try(wanted, keep=False)
                self.rolled_back += 1
                continue
            while self._try(wanted, keep=True) is None:
                time.sleep(0.05)
            for episode in wanted:
                self.episodes[episode["id"]] = episode
                # Each content is new. After a lost answer, the second attempt changes nothing.
                self.versions[episode["id"]] += 1
            stop.wait(self.chance.random() * 0.05)

    def _transaction(self) -> list[dict[str, Any]]:
        """Return episodes of one shard."""
        ids = {
            f"{self.name}-{self.chance.randrange(400)}" for _ in range(self.chance.randint(1, 6))
        }
        found = [self._episode(id) for id in sorted(ids)]
        shard = shard_of(found[0]["user"], self.shards)
        return [one for one in found if shard_of(one["user"], self.shards) == shard]

    def _episode(self, id: str) -> dict[str, Any]:
        owner = random.Random(id)  # an episode keeps its owner
        metadata: dict[str, Any] = {
            "subject": f"s{self.chance.randrange(20)}",
            "predicate": "likes",
            "object": self.chance.randrange(10**9),
        }
        if self.chance.random() < 0.15:
            metadata["intent"] = "update"
            metadata["replaces"] = [f"{self.name}-{self.chance.randrange(400)}"]
        elif self.chance.random() < 0.1:
            metadata["intent"] = "delete"
        return {
            "id": id,
            "user": owner.choice(USERS),
            "agent": owner.choice(AGENTS),
            "at": self.chance.randrange(10**6),
            "metadata": metadata,
        }

    def _try(self, wanted: list[dict[str, Any]], *, keep: bool) -> list[str] | None:
        """Put episodes in one transaction; return the outcomes, or None without an answer."""
        with suppress(psycopg.Error):
            with psycopg.connect(self.address) as connection:
                row = put(connection, wanted, self.shards).fetchone()
                if not keep:
                    connection.rollback()
            return list(row[0]) if row else None
        return None


def put(
    connection: psycopg.Connection[Any], episodes: list[dict[str, Any]], shards: int
) -> psycopg.Cursor[Any]:
    """Put episodes of one shard."""
    statement = PUT.format(shard=shard_of(episodes[0]["user"], shards))
    return connection.execute(statement.encode(), put_values(episodes))


def put_values(episodes: list[dict[str, Any]]) -> tuple[list[Any], ...]:
    """Return the parameters of the function that puts."""
    keys = [f"/user/{each['user']}/session/s/agent/{each['agent']}/" for each in episodes]
    contents = [
        orjson.dumps(
            {
                "content": "",
                "source_node": "",
                "agent": e["agent"],
                "user": e["user"],
                "session": "s",
            }
        )
        for e in episodes
    ]
    # Seconds, since the precision of the oracle's instant does not matter.
    stamps = [
        f"2026-01-{1 + e['at'] // 86_400 % 28:02}T{e['at'] // 3_600 % 24:02}"
        f":{e['at'] // 60 % 60:02}:{e['at'] % 60:02}+00:00"
        for e in episodes
    ]
    metadatas = [orjson.dumps(each["metadata"]) for each in episodes]
    return [each["id"] for each in episodes], keys, contents, stamps, metadatas


@contextmanager
def pooler_before(server: OwnServer, database: str) -> Iterator[str]:
    """Yield the address of a database behind a pooler; empty where PgBouncer is not installed."""
    if program() is None:
        yield ""
        return
    with running_pooler(server, database) as address:
        yield address


def libfaketime() -> str | None:
    """Return the library that sets the clock of a process; None without the package faketime."""
    return next(map(str, Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


def wrong_clock(hours: int) -> dict[str, str]:
    """Return the environment of a process whose clock is wrong, where libfaketime is installed."""
    library = libfaketime()
    if not hours or library is None:
        return {}
    return {
        "LD_PRELOAD": library,
        "FAKETIME": f"{hours:+d}h",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


class Host:
    """A daemon that is started again whenever it ends.

    Args:
        home: Its configuration and rules.
        clock_hours: By how much its clock is wrong.
    """

    def __init__(self, home: Home, *, clock_hours: int = 0) -> None:
        self.home = home
        self._environment = {**os.environ, **wrong_clock(clock_hours)}
        self.log = home.folder / "daemon.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process of the daemon; 0 before the first."""
        return self._process.pid if self._process is not None else 0

    def keep_running(self, stop: threading.Event) -> None:
        """Start the daemon again whenever it ends, until `stop` is set."""
        with self.log.open("ab") as log:
            while not stop.is_set():
                self._process = subprocess.Popen(
                    self.home.command("run"), stderr=log, env=self._environment
                )
                while self._process.poll() is None and not stop.wait(0.1):
                    pass
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            if self._process is not None:
                self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to the daemon, if it runs."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)


class Cluster:
    """One database, and all who use it.

    Attributes:
        server: The server that takes writes now.

    Args:
        server: The server; the run restarts it.
        address: The address of the database.
        folder: For the state directories of the hosts.
        seed: Of all random choices.
        pooler: The address of the database behind a pooler, through which one program puts; empty
            without one.
        clocks: By how much the clock of each host is wrong, in hours.
    """

    def __init__(
        self,
        server: OwnServer,
        address: str,
        folder: Path,
        seed: int,
        *,
        pooler: str = "",
        clocks: Sequence[int] = CLOCK_HOURS,
    ) -> None:
        self.server = server
        self._address = address
        self._database = urlsplit(address).path.removeprefix("/")
        self._chance = random.Random(seed)
        self._shards = len(server.rows("SELECT 1 FROM slumberd.shards", self._database))
        self._last_rows: dict[int, int] = {}
        self.figures = Figures()
        self.hosts = [
            self._host(folder / f"host{number}", clock_hours)
            for number, clock_hours in enumerate(clocks)
        ]
        self._putters = [
            Putter(
                f"p{number}",
                pooler if pooler and number == 0 else address,
                self._shards,
                random.Random(f"{seed}-{number}"),
            )
            for number in range(PUTTERS)
        ]
        self._edits: dict[str, str] = {}
        self._undone: set[str] = set()
        self._desk = self._host(folder / "desk").home

    def _host(self, folder: Path, clock_hours: int = 0) -> Host:
        settings = {"store": self._address, "postgres": {"lease": f"{LEASE_SECONDS:g}s"}}
        home = Home(folder, settings)
        home.rule("all", cadence={"every": 1})
        home.rule("many", cadence={"every": 20}, then_emits=["notes"])
        return Host(home, clock_hours=clock_hours)

    def run(self, seconds: float) -> Figures:
        """Run for some seconds, then wait until all is consolidated, and check it.

        Raises:
            AssertionError: A promise is broken.
        """
        with self._running([host.keep_running for host in self.hosts]):
            works = [*(putter.run for putter in self._putters), self._edit, self._erase]
            with self._running(works):
                self.have_accidents(time.monotonic() + seconds)
            self._forget()
            fire = ("--all-shards", "fire", "--all")
            wait_until(lambda: self._desk.slumberd(*fire, check=False).returncode == 0)
            self._wait_until_consolidated()
        self._check()
        return self.figures

    @contextmanager
    def _running(self, works: Sequence[Callable[[threading.Event], None]]) -> Iterator[None]:
        stop = threading.Event()
        failed: list[BaseException] = []

        def guarded(work: Callable[[threading.Event], None]) -> None:
            try:
                work(stop)
            except BaseException as error:  # noqa: BLE001 # raised in the thread of the test
                failed.append(error)

        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        if failed:
            raise failed[0]

    def have_accidents(self, deadline: float) -> None:
        """Kill, suspend and cut off hosts, and restart the server, until the deadline."""
        while time.monotonic() < deadline:
            host = self._next_host()
            match self._chance.choice(("kill", "kill", "suspend", "cut", "restart")):
                case "kill":
                    host.signal(signal.SIGKILL)
                    self.figures.kills += 1
                case "suspend":
                    host.signal(signal.SIGSTOP)
                    time.sleep(LEASE_SECONDS * self._chance.choice((0.3, 1.5)))
                    host.signal(signal.SIGCONT)
                    self.figures.suspensions += 1
                case "cut":
                    with suppress(psycopg.Error):
                        self.server.end_connections(self._database)
                    self.figures.cut_connections += 1
                case _ if self._chance.random() < 0.3:
                    self.server.stop(at_once=True)
                    self.server.start()
                    self.figures.restarts_of_the_server += 1
                case _:
                    pass
            time.sleep(self._chance.random() * 2)

    def _next_host(self) -> Host:
        """Return a host that holds a shard more often than another."""
        with suppress(psycopg.Error):
            holders = {
                holder or "" for (holder,) in self._rows("SELECT holder FROM {schema}.lease")
            }
            active = [
                host for host in self.hosts if any(f"/{host.pid}/" in holder for holder in holders)
            ]
            if active and self._chance.random() < 0.6:
                return self._chance.choice(active)
        return self._chance.choice(self.hosts)

    def _edit(self, stop: threading.Event) -> None:
        """State facts as a person, about subjects of its own, and undo some."""
        number = 0
        while not stop.is_set():
            number += 1
            subject, stated = f"edited{number % 5}", f"o{number}"
            if self._pin(subject, stated):
                self._edits[subject] = stated
            else:
                self._edits.pop(subject, None)  # it may be done, or not
            if number % 2 == 0:
                self._undo_an_edit(f"edited-undone{number}")
            stop.wait(0.2)

    def _erase(self, stop: threading.Event) -> None:
        """Erase a user again and again, while others edit and undo."""
        while not stop.is_set():
            self._forget()
            stop.wait(1)

    def _pin(self, subject: str, stated: str) -> str:
        """Return the firing of a fact that a person states; empty when it may be done, or not."""
        pinned = self._desk.slumberd(
            "pin", "--user", "alice", "--agent", "rag", "--subject", subject, "--predicate", "is",
            "--object", stated, "--reason", "test", "--json", check=False,
        )  # fmt: skip
        if pinned.returncode != 0:
            return ""
        self.figures.edits += 1
        return str(orjson.loads(pinned.stdout)["firing_id"])

    def _undo_an_edit(self, subject: str) -> None:
        firing = self._pin(subject, "wrong")
        shard = str(shard_of("alice", self._shards))
        words = ("--shard", shard, "undo", firing)
        if firing and self._desk.slumberd(*words, check=False).returncode == 0:
            self._undone.add(subject)
            self.figures.undone_edits += 1

    def _forget(self) -> None:
        """Put an episode of the erased user, and erase the user."""
        episode = {"id": "gone", "user": ERASED_USER, "agent": "rag", "at": 5, "metadata": {}}
        with suppress(psycopg.Error), psycopg.connect(self._address) as connection:
            put(connection, [episode], self._shards)
        done = self._desk.slumberd("forget", "--user", ERASED_USER, "--yes", check=False)
        self.figures.erasures += done.returncode == 0

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement in each shard; it has places for shard and schema."""
        each = [
            statement.format(shard=shard, schema=f"slumberd_{shard}")
            for shard in range(self._shards)
        ]
        return self.server.rows(" UNION ALL ".join(each), self._database)

    def _wait_until_consolidated(self) -> None:
        def is_done() -> bool:
            behind = self._rows(
                "SELECT 1 FROM {schema}.slumberd_watermark AS watermark, {schema}.log_ends"
                " WHERE watermark.seq < log_ends.seq"
                " UNION ALL SELECT 1 FROM {schema}.inbox"
            )
            return not behind

        wait_until(is_done)

    def _check(self) -> None:
        self._check_log()
        self._check_counts()
        self._check_facts()
        verified = self._desk.slumberd("--all-shards", "audit", "verify")
        assert verified.stdout.count("verified: ") == self._shards
        self.figures.puts = sum(sum(putter.versions.values()) for putter in self._putters)
        self.figures.rolled_back = sum(putter.rolled_back for putter in self._putters)
        logs = [host.log.read_bytes() for host in self.hosts]
        self.figures.takeovers = sum(log.count(b'"event":"daemon.ready"') for log in logs)

    def _check_log(self) -> None:
        """Each committed version has one number, and the numbers have no gap."""
        counted = self._rows(
            "SELECT {shard}, count(*), coalesce(max(seq), 0) FROM {schema}.slumberd_episode_log"
        )
        assert [last for _, _, last in counted] == [rows for _, rows, _ in counted]
        logged = dict(
            self._rows("SELECT eid, count(*) FROM {schema}.slumberd_episode_log GROUP BY eid")
        )
        for putter in self._putters:
            for id, versions in putter.versions.items():
                assert logged[id] == versions, (id, logged[id], versions)
        self._last_rows = {shard: last for shard, _, last in counted if last}
        self.figures.log_rows = sum(self._last_rows.values())

    def _check_counts(self) -> None:
        """Each version that a firing has read has one outcome; each rule has read the whole log."""
        firings = self._rows(
            "SELECT rule, {shard}, counts, upto_seq FROM {schema}.slumberd_firings"
            " WHERE rule IN ('all', 'many')"
        )
        for rule, _, counts, _ in firings:
            for channel in orjson.loads(counts).values():
                read, _ = channel.pop("read"), channel.pop("restored")
                assert read == sum(channel.values()), (rule, read, channel)
        ends: dict[tuple[str, int], int] = {}
        for rule, shard, _, end in firings:
            ends[rule, shard] = max(end, ends.get((rule, shard), 0))
        assert ends == {
            (rule, shard): last
            for rule in ("all", "many")
            for shard, last in self._last_rows.items()
        }

    def _expected_objects(self, channel: str) -> dict[str, Any]:
        """Return the object of each fact that the oracle expects in a channel, by id."""
        claims: list[OracleClaim] = []
        for putter in self._putters:
            for episode in putter.episodes.values():
                claims += claims_in({**episode, "at": put_values([episode])[3][0]}, channel)
        return {id: claim.object for id, claim in current_claims(claims, set()).items()}

    def _check_facts(self) -> None:
        expected = self._expected_objects("facts") | self._expected_objects("notes")
        listed = self._desk.slumberd("--all-shards", "facts", "--json", "--limit", "1000000")
        found = {fact["id"]: fact for fact in map(orjson.loads, listed.stdout.splitlines())}
        edited = {
            fact["payload"]["subject"]: fact["payload"]["object"]
            for fact in found.values()
            if str(fact["payload"]["subject"]).startswith("edited")
        }
        promoted = {
            id: fact["payload"]["object"]
            for id, fact in found.items()
            if not str(fact["payload"]["subject"]).startswith("edited")
        }
        assert promoted == expected
        assert edited.items() >= self._edits.items()
        assert not edited.keys() & self._undone
        assert not [fact for fact in found.values() if fact["user"] == ERASED_USER]
        assert self._rows("SELECT 1 FROM {schema}.episodes WHERE id = 'gone'") == []
        self.figures.facts = len(promoted)
