"""Run daemons, putters, moves and accidents on the shards of a map, and check the promises."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import psycopg

from slumberd.model.errors import SlumberdError
from slumberd.storage.postgres.shard_additions import add_shard
from slumberd.storage.postgres.shard_map import Shard, ShardMap
from tests.support.daemons import Home
from tests.support.oracle import OracleClaim, claims_in, current_claims
from tests.support.postgres_server import OwnServer
from tests.support.server_pair import running_pair
from tests.support.waiting import wait_until

CLOCK_HOURS = (0, 0, 1, -1)
"""By how much the clock of each host is wrong."""

PUTTERS = 3
LEASE_SECONDS = 3.0
DATABASE = "memory"
USERS = ("alice", "bob", "carol", "dan", "erin", "frank")
AGENTS = ("rag", "coder")
ERASED_USER = "gone"
UNDOING_USER = "una"
"""A user who is never moved: a firing from before a move cannot be undone."""

ENGINE_ERRORS = (SlumberdError, psycopg.Error)

BEHIND = """
SELECT mark.rule, log.eid
FROM slumberd_watermark AS mark
INNER JOIN slumberd_episode_log AS log ON log.seq > mark.seq AND log.eid != ''
WHERE NOT EXISTS (
  SELECT 1 FROM skipped_versions AS skipped
  WHERE skipped.rule = mark.rule AND log.seq BETWEEN skipped.first AND skipped.last
)
UNION ALL
SELECT '', eid FROM inbox
UNION ALL
SELECT '', "user" FROM moved_users WHERE leaves_for IS NOT NULL
"""
"""What a rule has not read, has no number yet, or is being moved."""

EVALUATED = """
SELECT ledger.version, firings.rule
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE firings.rule IN ('all', 'many')
  AND ledger.what IN (1, 2, 3, 4, 8)
  AND ledger.salt IS NOT NULL
"""
NEWEST = (
    "SELECT max(seq) FROM slumberd_episode_log WHERE rid IS NOT NULL AND eid != '' GROUP BY eid"
)


@dataclass
class Figures:
    """What happened in a run."""

    puts: int = 0
    rolled_back: int = 0
    kills: int = 0
    suspensions: int = 0
    cut_connections: int = 0
    restarts_of_a_server: int = 0
    failovers: int = 0
    moves: int = 0
    edits: int = 0
    undone_edits: int = 0
    erasures: int = 0
    takeovers: int = 0
    log_rows: int = 0
    facts: int = 0


def put_into(
    shards: ShardMap, episodes: list[dict[str, Any]], *, keep: bool = True
) -> list[str] | None:
    """Put episodes of one user in one transaction; return the outcomes, or None without an answer.

    Args:
        shards: The map of the shards.
        episodes: What to put.
        keep: Whether the transaction is committed, and not rolled back.
    """
    with suppress(*ENGINE_ERRORS):
        shard = shards.find(episodes[0]["user"])
        with psycopg.connect(shard.address) as connection:
            statement = f"SELECT {shard.schema}.put(%s, %s, %s, %s, %s)"
            row = connection.execute(statement.encode(), put_values(episodes)).fetchone()
            if not keep:
                connection.rollback()
        return list(row[0]) if row else None
    return None


@dataclass
class Putter:
    """Puts and edits episodes of its own, each in a transaction that may roll back."""

    name: str
    address: str
    chance: random.Random
    episodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)
    rolled_back: int = 0

    def run(self, stop: threading.Event) -> None:
        """Put until `stop` is set; a put without an answer is made again."""
        with closing(ShardMap(self.address)) as shards:
            while not stop.is_set():
                self._put(shards, self._transaction())
                stop.wait(self.chance.random() * 0.05)

    def _put(self, shards: ShardMap, wanted: list[dict[str, Any]]) -> None:
        if self.chance.random() < 0.1:
            put_into(shards, wanted, keep=False)
            self.rolled_back += 1
            return
        while put_into(shards, wanted) is None:
            time.sleep(0.05)
        for episode in wanted:
            self.episodes[episode["id"]] = episode
            # Each content is new. After a lost answer, the second attempt changes nothing.
            self.versions[episode["id"]] += 1

    def _transaction(self) -> list[dict[str, Any]]:
        ids = {
            f"{self.name}-{self.chance.randrange(400)}" for _ in range(self.chance.randint(1, 6))
        }
        episodes = [self._episode(id) for id in sorted(ids)]
        return [one for one in episodes if one["user"] == episodes[0]["user"]]

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
    """The shards of one map on some servers, and all who use them.

    Attributes:
        servers: The servers that take writes now.
        standbys: What follows each of them; none is left after a failover.

    Args:
        servers: The servers; the run restarts them.
        address: The address of the database that has the map.
        folder: For the state directories of the hosts.
        seed: Of all random choices.
        standbys: A synchronous standby of each server, or no standbys.
        clocks: By how much the clock of each host is wrong, in hours.
    """

    def __init__(
        self,
        servers: Sequence[OwnServer],
        address: str,
        folder: Path,
        seed: int,
        *,
        standbys: Sequence[OwnServer] = (),
        clocks: Sequence[int] = CLOCK_HOURS,
    ) -> None:
        self.servers = [*servers]
        self.standbys = dict(enumerate(standbys))
        self._address = address
        self._database = urlsplit(address).path.removeprefix("/")
        self._seed = seed
        self._chance = random.Random(seed)
        with closing(ShardMap(address)) as shards:
            self._shards: list[Shard] = shards.shards()
        self.figures = Figures()
        self.hosts = [
            self._host(folder / f"host{number}", clock_hours)
            for number, clock_hours in enumerate(clocks)
        ]
        self._putters = [
            Putter(f"p{number}", address, random.Random(f"{seed}-{number}"))
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
            if len(self._shards) > 1:
                works.append(self._move)
            with self._running(works):
                self.have_accidents(time.monotonic() + seconds)
            wait_until(self._forget)
            words = ("--all-shards", "fire", "--all")
            wait_until(lambda: self._desk.slumberd(*words, check=False).returncode == 0)
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
        """Kill, suspend and cut off hosts, restart servers, and fail over, until the deadline."""
        kinds = ("kill", "kill", "suspend", "cut", "restart", "fail over")
        while time.monotonic() < deadline:
            kind = self._chance.choice(kinds)
            if kind in kinds[:4] or self._chance.random() < 0.3:
                self.have_accident(kind)
            time.sleep(self._chance.random() * 2)
        for number in [*self.standbys]:
            self.fail_over(number)

    def have_accident(self, kind: str) -> None:
        """Have one accident of a host or a server."""
        host, number = self._next_host(), self._chance.randrange(len(self.servers))
        match kind:
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
                    self.servers[number].end_connections(self._database)
                self.figures.cut_connections += 1
            case "restart":
                self.servers[number].stop(at_once=True)
                self.servers[number].start()
                self.figures.restarts_of_a_server += 1
            case _ if number in self.standbys:
                self.fail_over(number)
            case _:
                pass

    def fail_over(self, number: int) -> None:
        """Kill a server, and promote its standby."""
        self.servers[number].kill()
        self.servers[number] = self.standbys.pop(number)
        self.servers[number].promote()
        self.figures.failovers += 1

    def _next_host(self) -> Host:
        """Return a host that holds a shard more often than another."""
        with suppress(psycopg.Error):
            holders = {holder or "" for _, holder in self._rows("SELECT holder FROM lease")}
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
            if self._pin("alice", subject, stated):
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

    def _move(self, stop: threading.Event) -> None:
        """Move users to other shards, one after the other."""
        chance = random.Random(f"{self._seed}-moves")
        with closing(ShardMap(self._address)) as shards:
            while not stop.is_set():
                user, target = chance.choice((*USERS, ERASED_USER)), chance.choice(self._shards)
                with suppress(SlumberdError):
                    if shards.find(user).number != target.number:
                        words = ("move", "--user", user, "--to", str(target.number))
                        moved = self._desk.slumberd(*words, check=False)
                        self.figures.moves += moved.returncode == 0
                stop.wait(0.1)

    def _pin(self, user: str, subject: str, stated: str) -> str:
        """Return the firing of a fact that a person states; empty when it may be done, or not."""
        pinned = self._desk.slumberd(
            "pin", "--user", user, "--agent", "rag", "--subject", subject, "--predicate", "is",
            "--object", stated, "--reason", "test", "--json", check=False,
        )  # fmt: skip
        if pinned.returncode != 0:
            return ""
        self.figures.edits += 1
        return str(orjson.loads(pinned.stdout)["firing_id"])

    def _undo_an_edit(self, subject: str) -> None:
        firing = self._pin(UNDOING_USER, subject, "wrong")
        with suppress(SlumberdError), closing(ShardMap(self._address)) as shards:
            words = ("--shard", str(shards.find(UNDOING_USER).number), "undo", firing)
            if firing and self._desk.slumberd(*words, check=False).returncode == 0:
                self._undone.add(subject)
                self.figures.undone_edits += 1

    def _forget(self) -> bool:
        """Put an episode of the erased user, and erase the user; return whether it was erased."""
        episode = {"id": "gone", "user": ERASED_USER, "agent": "rag", "at": 5, "metadata": {}}
        with closing(ShardMap(self._address)) as shards:
            put_into(shards, [episode])
        done = self._desk.slumberd("forget", "--user", ERASED_USER, "--yes", check=False)
        self.figures.erasures += done.returncode == 0
        return done.returncode == 0

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement in all shards, each after the number of its shard."""
        found: list[tuple[Any, ...]] = []
        for shard in self._shards:
            with psycopg.connect(shard.address) as connection:
                connection.execute(f"SET search_path = pg_catalog, {shard.schema}".encode())
                rows = connection.execute(statement.encode()).fetchall()
            found += [(shard.number, *row) for row in rows]
        return found

    def _wait_until_consolidated(self) -> None:
        wait_until(lambda: not self._rows(BEHIND))

    def _check(self) -> None:
        self._check_log()
        self._check_users()
        self._check_evaluations()
        self._check_facts()
        verified = self._desk.slumberd("--all-shards", "audit", "verify")
        assert verified.stdout.count("verified: ") == len(self._shards)
        self.figures.puts = sum(sum(putter.versions.values()) for putter in self._putters)
        self.figures.rolled_back = sum(putter.rolled_back for putter in self._putters)
        logs = [host.log.read_bytes() for host in self.hosts]
        self.figures.takeovers = sum(log.count(b'"event":"daemon.ready"') for log in logs)

    def _check_log(self) -> None:
        """Each committed version has one number in all shards; the numbers have no gap."""
        counted = self._rows("SELECT count(*), coalesce(max(seq), 0) FROM slumberd_episode_log")
        assert [last for *_, last in counted] == [rows for _, rows, _ in counted]
        logged = Counter(eid for _, eid in self._rows("SELECT eid FROM slumberd_episode_log"))
        for putter in self._putters:
            for id, versions in putter.versions.items():
                assert logged[id] == versions, (id, logged[id], versions)
        self.figures.log_rows = sum(last for *_, last in counted)

    def _check_users(self) -> None:
        """Each user lies in one shard, which the map names."""
        found = self._rows(
            "SELECT split_part(scope_key, '/', 3) FROM episodes UNION SELECT \"user\" FROM facts"
        )
        with closing(ShardMap(self._address)) as shards:
            places = [(shards.find(user).number, user) for _, user in found]
        assert found == places, (found, places)
        assert {user for _, user in found} >= {*USERS}

    def _check_evaluations(self) -> None:
        """Each version that a firing has read has one outcome; each rule has read the whole log."""
        firings = self._rows(
            "SELECT rule, counts FROM slumberd_firings WHERE rule IN ('all', 'many')"
        )
        for _, rule, counts in firings:
            for channel in orjson.loads(counts).values():
                read, _ = channel.pop("read"), channel.pop("restored")
                assert read == sum(channel.values()), (rule, read, channel)
        evaluated = Counter(self._rows(EVALUATED))
        repeated = [one for one, times in evaluated.items() if times > 1]
        assert not repeated, repeated[:3]
        newest = self._rows(NEWEST)
        missing = {(*one, rule) for one in newest for rule in ("all", "many")} - evaluated.keys()
        assert not missing, missing

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
        assert self._rows("SELECT 1 FROM episodes WHERE id = 'gone'") == []
        self.figures.facts = len(promoted)


@contextmanager
def cluster_on_pairs(folder: Path, seed: int, shards: int) -> Iterator[Cluster]:
    """Yield a cluster on two servers, each with a synchronous standby."""
    with running_pair(is_synchronous=True) as one, running_pair(is_synchronous=True) as other:
        address = one.create_database(DATABASE, shards=shards // 2)
        place = other.create_database(DATABASE, shards=0)
        for _ in range(shards // 2):
            add_shard(address, place)
        pairs = (one, other)
        yield Cluster(
            [pair.primary for pair in pairs],
            address,
            folder,
            seed,
            standbys=[pair.standby for pair in pairs],
        )
