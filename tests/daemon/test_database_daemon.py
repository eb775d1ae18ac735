"""Daemons on one PostgreSQL database: one is active, others wait, and any host may ask."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from slumberd import Memory, Triple
from slumberd.model.errors import DatabaseHeldError, NotRunningError
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from tests.support.builders import at, triple
from tests.support.daemons import Home
from tests.support.postgres_server import OwnServer, PostgresServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.acceptance

LEASE = {"lease": "3s"}


def home_on(folder: Path, address: str) -> Home:
    """Return a host with a state directory of its own, and the rule of every other host."""
    home = Home(folder, {"store": address, "postgres": LEASE})
    home.rule("all", cadence={"every": 1})
    return home


@pytest.fixture
def first(tmp_path: Path, postgres_address: str) -> Home:
    return home_on(tmp_path / "first", postgres_address)


@pytest.fixture
def second(tmp_path: Path, postgres_address: str) -> Home:
    return home_on(tmp_path / "second", postgres_address)


@pytest.fixture
def database(postgres_address: str) -> str:
    return postgres_address.rpartition("/")[2]


def put(address: str, *ids: str) -> None:
    """Put episodes as another program does; each replaces the fact of the one before."""

    async def work() -> None:
        async with PostgresMemoryStore(address) as memory:
            await memory.put_many(
                [
                    triple(id, "alice", "drinks", id, timestamp=at(int(id.removeprefix("e"))))
                    for id in ids
                ]
            )

    asyncio.run(work())


def objects(home: Home) -> list[str]:
    return [fact["payload"]["object"] for fact in home.facts()]


def test_daemon_fires_for_episodes_of_other_hosts(first: Home, postgres_address: str) -> None:
    with first.daemon() as daemon:
        put(postgres_address, "e1", "e2")
        daemon.wait_until_read(2)

    assert objects(first) == ["e2"]
    assert "verified: 3 rows" in first.call("audit", "verify").stdout
    assert first.call("audit", "replay", str(first.folder / "again.db")).returncode == 0


def test_standby_takes_over_from_a_daemon_that_was_killed(
    first: Home, second: Home, postgres_address: str
) -> None:
    with first.started() as active, second.started(until="daemon.standby") as standby:
        put(postgres_address, "e1")
        active.wait_until_read(1)
        second.call("pause", "all")
        put(postgres_address, "e2")
        active.kill()

        standby.wait_for("daemon.ready")
        assert [rule["paused"] for rule in _rules(second)] == [True]
        second.call("resume", "all")
        standby.wait_until_read(2)

        assert objects(second) == ["e2"]
        assert "verified: 4 rows" in second.call("audit", "verify").stdout


def _rules(home: Home) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in home.call("rules", "--json").stdout.splitlines()]


def test_standby_takes_over_at_once_from_a_daemon_that_stops(first: Home, second: Home) -> None:
    with first.started() as active, second.started(until="daemon.standby") as standby:
        assert active.stop() == 0

        standby.wait_for("daemon.ready")
        assert standby.stop() == 0


def test_standby_tells_the_service_manager_that_it_waits(
    first: Home, second: Home, tmp_path: Path
) -> None:
    with first.daemon(), tempfile.TemporaryDirectory() as short:
        path = str(Path(short, "notify"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            notified.bind(path)
            notified.settimeout(PATIENCE_SECONDS)
            usual = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000"}
            with second.started(until="daemon.standby", **usual) as standby:
                seen = [notified.recv(4096).decode() for _ in range(5)]
                standby.stop()

    assert "READY=1" in seen
    assert any(line.startswith("STATUS=standby; ") for line in seen)
    assert seen.count("WATCHDOG=1") >= 2


def test_standby_writes_the_metrics_of_one(first: Home, second: Home) -> None:
    files = {}
    for home in (first, second):
        files[home.folder.name] = home.folder / "slumberd.prom"
        home.configure(
            home.settings | {"metrics": {"textfile": str(home.folder / "slumberd.prom")}}
        )
    with first.daemon(), second.started(until="daemon.standby"):
        wait_until(files["second"].exists)

    assert "\nslumberd_standby 1\n" in files["second"].read_text()


def test_standby_takes_over_with_the_rules_that_are_on_its_disk_then(
    first: Home, second: Home, postgres_address: str
) -> None:
    with first.started() as active, second.started(until="daemon.standby") as standby:
        second.rule("late", cadence={"every": 1}, then_emits=["notes"])
        active.stop()
        reloaded = standby.wait_for("config.reloaded")
        standby.wait_for("daemon.ready")
        put(postgres_address, "e1")
        standby.wait_for("firing.completed", lambda event: event["rule_id"] == "late")

    assert (reloaded["by"], reloaded["added"]) == ("a takeover", 1)


def test_standby_reads_its_rules_again_at_a_signal(
    first: Home, second: Home, postgres: PostgresServer, database: str
) -> None:
    hashes = "SELECT count(DISTINCT state ->> 'rules_hash') FROM slumberd.hosts"
    with first.started() as active, second.started(until="daemon.standby") as standby:
        second.rule("late", cadence={"every": 1}, then_emits=["notes"])
        standby.process.send_signal(signal.SIGHUP)
        reloaded = standby.wait_for("config.reloaded")
        differing = active.wait_for("hosts.rules_differ")
        wait_until(lambda: postgres.rows(hashes, database) == [(2,)])

    assert reloaded["by"] == "a signal"
    assert [text.split("/")[1] for text in differing["hosts"]] == [str(standby.process.pid)]


def test_standby_with_mistakes_in_its_rules_takes_over_with_the_old_ones(
    first: Home, second: Home, postgres_address: str
) -> None:
    with first.started() as active, second.started(until="daemon.standby") as standby:
        (second.rules / "wrong.yaml").write_text("rules: [{id: wrong}]")
        active.stop()
        standby.wait_for("config.reload_failed")
        standby.wait_for("daemon.ready")
        put(postgres_address, "e1")
        standby.wait_until_read(1)


def test_standby_that_is_stopped_ends_well(first: Home, second: Home) -> None:
    with first.daemon(), second.started(until="daemon.standby") as standby:
        assert standby.stop() == 0


@pytest.mark.nightly
def test_daemon_that_was_suspended_past_its_lease_commits_nothing(
    first: Home, second: Home, postgres_address: str
) -> None:
    with first.started() as active, second.started(until="daemon.standby") as standby:
        active.process.send_signal(signal.SIGSTOP)
        standby.wait_for("daemon.ready")
        put(postgres_address, "e1")
        standby.wait_until_read(1)

        active.process.send_signal(signal.SIGCONT)

        lost = active.wait_for("lease.lost")
        assert lost["holder"].split("/")[1] == str(standby.process.pid)
        assert active.process.wait(timeout=PATIENCE_SECONDS) == 75
        assert objects(second) == ["e1"]
        assert "verified: 2 rows" in second.call("audit", "verify").stdout


def test_commands_of_another_host_are_performed_by_the_daemon(
    first: Home, second: Home, postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    first.rule("nightly", cadence={"cron": "0 3 1 1 *"})
    second.rule("nightly", cadence={"cron": "0 3 1 1 *"})
    with first.daemon() as daemon:
        put(postgres_address, "e1", "e2")
        daemon.wait_until_read(2)
        fired = second.call("fire", "nightly").stdout
        second.call(
            "pin", "--user", "alice", "--agent", "rag", "--subject", "alice",
            "--predicate", "drinks", "--object", "water", "--reason", "she said so",
        )  # fmt: skip
        pinned = objects(second)
        undone = second.call("undo", "all@1").stdout
        unknown = second.call("fire", "nonsense", check=False)

    requests = "SELECT count(*) FROM slumberd_0.requests"
    assert postgres.rows(requests, database) == [(0,)]
    assert "nightly" in fired
    assert pinned == ["water"]
    assert "undone" in undone or "firing" in undone
    assert unknown.returncode == 64
    assert "nonsense" in unknown.stderr
    assert not (second.state / "control.sock").exists()


COMMANDS = {
    "fire --all": 0,
    "fire all --dry-run": 0,
    "backfill all": 0,
    "quarantine retry": 0,
    "quarantine future": 0,
    "clock accept --yes": 0,
    "quarantine drop --all": 0,
    "approve all@99": 64,
    "reject all@99": 64,
    "undo all@1 --dry-run": 0,
    "undo all@1": 0,
    "pin --user alice --agent rag --subject s --predicate p --object o --reason r": 0,
    "unpin e1 --reason r": 0,
    "pause all": 0,
    "resume all": 0,
    "reload": 0,
    "rules": 0,
    "next": 0,
    "status": 0,
    "extract all": 64,
    "forget --user alice --yes": 0,
    "forget --user nobody --yes": 66,
}
"""Commands that the daemon performs, and their exit codes."""


@pytest.mark.nightly
def test_commands_of_another_host_end_as_on_the_host_of_the_daemon(
    first: Home, second: Home, postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    taken = "SELECT holder FROM slumberd_0.lease"
    with first.daemon() as daemon:
        put(postgres_address, "e1", "e2")
        daemon.wait_until_read(2)
        [(holder,)] = postgres.rows(taken, database)
        ended = {line: second.call(*line.split(), check=False) for line in COMMANDS}

        assert {line: done.returncode for line, done in ended.items()} == COMMANDS
        assert postgres.rows(taken, database) == [(holder,)]
    assert postgres.rows("SELECT count(*) FROM slumberd_0.requests", database) == [(0,)]
    assert not (second.state / "control.sock").exists()
    assert "verified" in second.call("audit", "verify").stdout


def test_of_two_commands_without_a_daemon_one_is_refused_or_waits(
    first: Home, second: Home, postgres_address: str
) -> None:
    put(postgres_address, *(f"e{number}" for number in range(1, 200)))
    both = [home.forked("fire", "--all") for home in (first, second)]

    for process in both:
        process.join(PATIENCE_SECONDS)
    assert {process.exitcode for process in both} <= {0, 75}
    assert 0 in {process.exitcode for process in both}
    assert objects(first) == ["e199"]
    assert "verified" in first.call("audit", "verify").stdout


async def test_program_reaches_the_daemon_of_another_host(
    first: Home, second: Home, postgres_address: str
) -> None:
    with first.daemon():
        async with Memory.open(postgres_address, user="alice", agent="rag") as memory:
            await memory.remember("Tea, please.", triples=[Triple("alice", "drinks", "tea")])
            found = await memory.recall("Which tea?")
            assert "Tea, please." in {hit.text for hit in found}
        second.state.mkdir()
        shutil.copy(second.config, second.state)
        with pytest.raises(DatabaseHeldError):
            async with Memory.open(second.state, user="alice", agent="rag"):
                pass
    with pytest.raises(NotRunningError):
        async with Memory.open(postgres_address, user="alice", agent="rag") as memory:
            await memory.recall("tea")


def test_command_performs_its_operation_itself_without_a_daemon(
    first: Home, second: Home, postgres_address: str
) -> None:
    put(postgres_address, "e1")

    assert first.call("fire", "--all").returncode == 0
    assert objects(second) == ["e1"]


@pytest.mark.path
def test_command_is_refused_while_another_command_holds_the_database(
    first: Home, postgres: PostgresServer, database: str
) -> None:
    postgres.run(
        "UPDATE slumberd_0.lease SET holder = 'a-host/7', held_until = now() + interval '1 hour'",
        database=database,
    )

    refused = first.call("fire", "--all", check=False)

    assert refused.returncode == 75
    assert "is held by another slumberd (a-host/7)" in refused.stderr


@pytest.mark.nightly
def test_daemon_goes_on_after_the_server_was_restarted(
    tmp_path: Path, own_postgres: OwnServer
) -> None:
    with own_postgres.database() as name:
        address = own_postgres.address_of(name)
        home = home_on(tmp_path / "home", address)
        with home.daemon() as daemon:
            put(address, "e1")
            daemon.wait_until_read(1)
            own_postgres.stop(at_once=True)
            own_postgres.start()
            put(address, "e2")
            daemon.wait_until_read(2)

            assert objects(home) == ["e2"]
            wait_until(lambda: home.call("pause", "all", check=False).returncode == 0)


def test_daemon_goes_on_after_its_connections_were_cut(
    first: Home, postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    with first.daemon() as daemon:
        for number in range(1, 4):
            put(postgres_address, f"e{number}")
            daemon.wait_until_read(number)
            postgres.end_connections(database)

        assert objects(first) == ["e3"]


def test_status_and_doctor_show_the_hosts(
    first: Home, second: Home, postgres: PostgresServer, database: str
) -> None:
    second.rule("another", cadence={"every": 5})
    with first.daemon(), second.started(until="daemon.standby"):
        count = "SELECT count(*) FROM slumberd.hosts WHERE state ->> 'rules_hash' != ''"
        wait_until(lambda: postgres.rows(count, database) == [(2,)])
        shown = first.call("status").stdout
        checked = first.call("status", "--check", check=False)
        report = orjson.loads(first.call("status", "--json").stdout)

    assert "shard 0: held by" in shown
    assert sorted(host["role"] for host in report["database"]["hosts"]) == ["active", "standby"]
    assert checked.returncode == 1
    assert "hosts.differ" in checked.stdout


@pytest.mark.path
def test_backup_of_a_database_names_what_to_use_instead(first: Home) -> None:
    for command in ("backup", "restore"):
        refused = first.call(command, str(first.folder / "b"), check=False)

        assert refused.returncode == 64
        assert "use the backups of PostgreSQL" in refused.stderr


def test_trials_of_rules_read_a_copy_of_the_database(
    first: Home, postgres_address: str, tmp_path: Path
) -> None:
    put(postgres_address, "e1", "e2")
    first.call("fire", "--all")
    other = tmp_path / "others"
    other.mkdir()
    (other / "other.yaml").write_text(
        "rules: [{id: all, cadence: {every: 1}, when_filter: \"id = 'e1'\", then_emits: [facts]}]"
    )

    checked = first.call("check", "--against-data")
    differs = first.call("diff", str(other), check=False)

    assert checked.returncode == 0
    assert "e1" in differs.stdout + differs.stderr


def test_no_host_keeps_notes_of_a_user_that_another_host_erased(
    first: Home, second: Home, postgres_address: str
) -> None:
    for home in (first, second):
        home.rule("tidy", cadence={"every": 1}, then_emits=[], stages=[{"dedup": {}}])
    put(postgres_address, "e1")

    with first.started() as killed:
        wait_until(lambda: b"alice" in stage_notes_in(first))
        killed.kill()
    with second.daemon():
        with first.started(until="daemon.standby"):
            assert stage_notes_in(first) == b""
        put(postgres_address, "e2")
        wait_until(lambda: b"alice" in stage_notes_in(second))
    assert stage_notes_in(second) == b""


def stage_notes_in(home: Home) -> bytes:
    """Return all bytes of the notes of stages on a host."""
    found = b""
    for path in home.state.glob("stages*"):
        with suppress(FileNotFoundError):  # SQLite removes the log of a closed file
            found += path.read_bytes()
    return found


def test_certificate_names_the_files_of_other_hosts(first: Home, postgres_address: str) -> None:
    put(postgres_address, "e1")

    erased = orjson.loads(first.call("forget", "--user", "alice", "--yes", "--json").stdout)

    assert any("other hosts" in line for line in erased["out_of_reach"])
