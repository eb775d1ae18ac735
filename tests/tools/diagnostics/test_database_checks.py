"""`slumberd doctor` and `status` find each problem of a real database, and of its daemons."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slumberd.cli.commands import status as commands_status
from slumberd.clock import SystemClock
from slumberd.daemon.database_tenure import DatabaseTenure
from slumberd.daemon.rules import rules_of
from slumberd.daemon.stores import database_status_of
from slumberd.model.health import Finding
from slumberd.rules.settings import load_settings
from slumberd.storage.postgres.lease import HostTable, Leases
from slumberd.storage.postgres.shard_map import Shard
from slumberd.tools.diagnostics.database_checks import LIMITS, DatabaseLimits, check_database
from slumberd.tools.diagnostics.doctor import URGENT, run_checks
from slumberd.tools.diagnostics.store_checks import DoctorContext
from tests.support.builders import at, triple
from tests.support.installation import Installation
from tests.support.postgres_server import OwnServer, PostgresServer, programs, running_server
from tests.support.postgres_server import skip_without_server as skip_without_programs
from tests.support.waiting import wait_until
from tests.tools.diagnostics.test_doctor import QUIET

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TEA = triple("e1", "ada", "likes", "tea", timestamp=at(1))
HELD = "UPDATE slumberd_0.lease SET holder = 'a/1', held_until = clock_timestamp() + interval '1 h'"
NEVER = 10**9
UNLIMITED = DatabaseLimits(
    leases=NEVER,
    transaction_seconds=NEVER,
    xids=NEVER,
    inbox_seconds=NEVER,
    clock_seconds=NEVER,
    alive_seconds=NEVER,
    dead_rows=NEVER,
    frozen_xids=2**31,
)


def installation_on(folder: Path, address: str) -> Installation:
    """Return an installation whose stores are in a database."""
    folder.mkdir(exist_ok=True)
    site = Installation(folder)
    site.config.write_text(site.config.read_text() + f"store: {address}\n")
    return site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_address: str) -> Installation:
    """Return an installation on a database, in which a rule has fired."""
    monkeypatch.setattr(commands_status, "THIS_MACHINE", QUIET)
    site = installation_on(tmp_path, postgres_address)
    site.put(TEA)
    assert site.call("fire", "--all").returncode == 0
    return site


@pytest.fixture
def database(postgres_address: str) -> str:
    return postgres_address.rpartition("/")[2]


def find(site: Installation, limits: DatabaseLimits = LIMITS) -> dict[str, Finding]:
    """Return what `check_database` finds, by the kind of the finding."""
    settings = load_settings(site.config, overrides={}, environ={})
    found = list(check_database(settings, limits))
    assert all(finding.remedy and finding.problem for finding in found)
    return {finding.id: finding for finding in found}


def find_all(site: Installation) -> dict[str, Finding]:
    """Return what all checks of `doctor` find when no daemon runs, by kind."""
    settings = load_settings(site.config, overrides={}, environ={})
    now, rules = SystemClock().now(), rules_of(settings)
    report = run_checks(DoctorContext(settings, rules, site.config, None, now, QUIET))
    return {finding.id: finding for finding in report.findings}


@contextmanager
def installation_on_server(
    server: PostgresServer, folder: Path, *, shards: int = 1
) -> Iterator[Installation]:
    """Yield an installation on a new database of a server."""
    with server.database(shards=shards) as name:
        yield installation_on(folder, server.address_of(name))


@pytest.fixture
def durable_server() -> Iterator[OwnServer]:
    """Provide a server as operators run it, and from which replicas can be made."""
    if programs() is None:
        skip_without_programs()
    with running_server(fsync="on", wal_level="replica", max_wal_senders="4") as server:
        yield server


def test_doctor_finds_no_problem_of_a_database_with_a_running_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable_server: OwnServer
) -> None:
    monkeypatch.setattr(commands_status, "THIS_MACHINE", QUIET)
    with installation_on_server(durable_server, tmp_path) as site:
        site.put(TEA)
        with site.daemon():
            wait_until(lambda: site.lines("status")[0]["facts"] == 1)

            found = [json.loads(site.call(*words, "--json").stdout) for words in CHECKS]

    assert [each["findings"] for each in found] == [[], []]


CHECKS = (["doctor"], ["status", "--check"])


@pytest.mark.nightly
def test_doctor_leaves_no_trace_in_a_database(
    site: Installation, postgres: PostgresServer, database: str
) -> None:
    tables = [
        name
        for (name,) in postgres.rows(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname = 'slumberd'",
            database,
        )
    ]
    hashes = " UNION ALL ".join(
        f"SELECT '{name}', md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {name} t"
        for name in tables
    )
    before = postgres.rows(hashes, database)

    for words in (["doctor"], ["doctor", "--deep"], ["status"], ["status", "--check"], ["rules"]):
        site.call(*words)

    assert postgres.rows(hashes, database) == before


def test_unreachable_server_is_one_finding_and_an_exit_code(
    site: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = site.config.read_text()
    store = text[text.index("store: ") :].strip()
    site.config.write_text(text.replace(store, "store: postgresql://%2Fnowhere/memory"))

    assert [*find_all(site)] == ["database.unreachable"]
    found = json.loads(site.call("status", "--check", "--json").stdout)["findings"]
    assert {each["id"] for each in found} == {"daemon.down", "database.unreachable"}
    for words in (["status"], ["facts"], ["recent", "alice"], ["rules"], ["fire", "--all"]):
        done = site.call(*words)
        assert done.returncode == 69, done
        assert "postgresql://%2Fnowhere/memory" in done.stderr


def test_database_without_a_schema_is_a_finding(tmp_path: Path, postgres: PostgresServer) -> None:
    with postgres.empty_database() as name:
        site = installation_on(tmp_path, postgres.address_of(name))

        found = find_all(site)
        of_all = site.call("facts")
        of_user = site.call("recent", "alice")  # the map of shards is read first

    assert [*found] == ["database.schema"]
    assert "slumberd postgres init" in found["database.schema"].remedy
    assert of_all.returncode == 66
    assert of_user.returncode == 74
    assert "slumberd postgres init" in of_user.stderr


@pytest.mark.parametrize(
    ("statement", "problem", "remedy"),
    [
        pytest.param(
            "INSERT INTO {schema}.migrations VALUES (999, 'later', now(), 999)",
            "newer slumberd",
            "install that version",
            id="newer",
        ),
        pytest.param(
            "DELETE FROM {schema}.migrations WHERE number = 3",
            "older schema",
            "postgres upgrade",
            id="older",
        ),
        pytest.param(
            "UPDATE {schema}.migrations SET works_with = 2147483647",
            "being upgraded",
            "postgres upgrade",
            id="being upgraded",
        ),
    ],
)
def test_schema_of_another_version_is_a_finding(
    site: Installation,
    postgres: PostgresServer,
    database: str,
    statement: str,
    problem: str,
    remedy: str,
) -> None:
    for schema in ("slumberd", "slumberd_0"):
        postgres.run(statement.format(schema=schema), database=database)

    found = find_all(site)

    assert [*found] == ["database.schema"]
    assert problem in found["database.schema"].problem
    assert remedy in found["database.schema"].remedy
    assert site.call("facts").returncode == 74


def test_encoding_that_cannot_hold_every_text_is_a_finding(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    postgres.run("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    try:
        found = find_all(installation_on(tmp_path, postgres.address_of("bytes")))
    finally:
        postgres.run("DROP DATABASE bytes WITH (FORCE)")

    assert [*found] == ["database.schema"]
    assert "SQL_ASCII" in found["database.schema"].problem


@pytest.mark.parametrize(
    ("login", "roles"),
    [
        pytest.param("stranger", [], id="no role"),
        pytest.param("only_puts", ["slumberd_host"], id="a role that puts"),
        pytest.param("only_reads", ["slumberd_reader"], id="a role that reads"),
    ],
)
def test_login_without_the_rights_of_a_daemon_is_a_finding(
    site: Installation, postgres: PostgresServer, database: str, login: str, roles: list[str]
) -> None:
    postgres.login(login, *roles)
    limited = installation_on(
        site.state.with_name("limited"), postgres.address_of(database, login=login)
    )

    found = find_all(limited)

    assert [*found] == ["database.rights"]
    assert "slumberd_daemon" in found["database.rights"].remedy


def test_login_with_the_role_of_a_daemon_suffices(
    site: Installation, postgres: PostgresServer, database: str
) -> None:
    postgres.login("works", "slumberd_daemon")
    limited = installation_on(
        site.state.with_name("limited"), postgres.address_of(database, login="works")
    )

    assert "database.rights" not in find_all(limited)


async def test_shard_that_nobody_holds_is_a_finding_after_three_leases(
    site: Installation, postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    shard = Shard(0, postgres_address)
    leases = Leases(postgres_address, "a", seconds=10, is_daemon=True)
    await leases.claim(shard)
    held = find(site, replace(UNLIMITED, leases=0))
    await leases.release(shard)
    await leases.close()

    just_free = find(site)
    ended = "SELECT held_until > clock_timestamp() - interval '60 s' FROM slumberd_0.lease"
    assert postgres.rows(ended, database) == [(True,)]
    postgres.run(
        "UPDATE slumberd_0.lease SET held_until = clock_timestamp() - interval '31 s'",
        "UPDATE slumberd_0.lease SET held_until = held_until - interval '1 day'",
        database=database,
    )

    assert "database.unheld" not in held.keys() | just_free.keys()
    since_start = find(site, replace(UNLIMITED, leases=0))["database.unheld"].problem
    assert int(since_start.split()[-2]) < 86_400  # the server was not up for longer


def test_inbox_that_an_active_daemon_does_not_empty_is_a_finding(
    site: Installation, postgres: PostgresServer, database: str
) -> None:
    site.put(triple("e2", "ada", "likes", "rum", timestamp=at(2)))
    never = find(site, replace(UNLIMITED, inbox_seconds=0))
    postgres.run(HELD, database=database)

    found = find(site, replace(UNLIMITED, inbox_seconds=0))
    young = find(site)

    assert "database.inbox" not in never.keys() | young.keys()
    assert found["database.inbox"].problem.startswith("1 versions of episodes wait")
    assert site.lines("status")[0]["database"]["unnumbered"] == 1
    assert site.lines("rules")[0]["pending"] == 1


class ClockAhead(SystemClock):
    """The clock of a host that is 5 s ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=5)


def find_when_there_is_a_host(site: Installation) -> dict[str, Finding]:
    settings = load_settings(site.config, overrides={}, environ={})
    wait_until(lambda: bool(getattr(database_status_of(settings), "hosts", ())))
    return find(site)


async def test_host_whose_clock_is_off_is_a_finding(
    site: Installation, postgres_address: str
) -> None:
    tenure = DatabaseTenure(
        Shard(0, postgres_address), postgres_address, ClockAhead(), seconds=60, is_daemon=True
    )
    async with tenure:
        found = await asyncio.to_thread(find_when_there_is_a_host, site)

    ahead = re.search(r"\+(\S+) s ", found["host.clock"].problem)
    assert ahead is not None
    assert 4 < float(ahead[1]) <= 5  # the answer of the database took the rest
    assert "host.clock" not in find(site)


async def test_hosts_with_other_versions_or_rules_are_a_finding(
    site: Installation, postgres_address: str
) -> None:
    state = {"version": "1.0", "rules_hash": "abc", "clock_offset_seconds": 0.0}
    first, second = [HostTable(postgres_address, name) for name in ("a/1", "b/1")]
    await first.tell_host(state)
    await second.tell_host(state)
    alike = find(site)
    problems = {}
    for field in ("version", "rules_hash"):
        await second.tell_host({**state, field: "other"})
        problems[field] = find(site)["hosts.differ"].problem
    silent = find(site, replace(LIMITS, alive_seconds=0))
    await first.close()
    await second.close()

    assert "hosts.differ" not in alike.keys() | silent.keys()
    assert "a/1 has 1.0, b/1 has other" in problems["version"]
    assert "a/1 has abc, b/1 has other" in problems["rules_hash"]


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(["CREATE TEMP TABLE t (n int)"], id="it has written and is idle"),
        pytest.param(
            ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT 1"],
            id="it holds a snapshot",
        ),
    ],
)
def test_old_transaction_is_a_finding(
    site: Installation, postgres: PostgresServer, database: str, statements: list[str]
) -> None:
    limits = replace(UNLIMITED, transaction_seconds=0)
    with psycopg.connect(postgres.address_of(database), application_name="report") as other:
        for statement in statements:
            other.execute(statement.encode())

        found, young = find(site, limits), find(site)

    assert "of report has kept old versions" in found["database.old_transaction"].problem
    assert "database.old_transaction" not in young
    assert "database.old_transaction" not in find(site, limits)


def test_transaction_of_another_database_is_none_of_the_findings(
    site: Installation, postgres: PostgresServer
) -> None:
    with psycopg.connect(postgres.address) as other:
        other.execute(b"CREATE TEMP TABLE t (n int)")

        found = find(site, replace(UNLIMITED, transaction_seconds=0))

    assert "database.old_transaction" not in found


def test_prepared_transaction_is_a_finding(
    site: Installation, postgres: PostgresServer, database: str
) -> None:
    with psycopg.connect(postgres.address_of(database)) as other:
        other.execute(b"CREATE TABLE t (n int)")
        other.execute(b"PREPARE TRANSACTION 'forgotten'")
    try:
        found = find(site, replace(UNLIMITED, transaction_seconds=0))
    finally:
        postgres.run("ROLLBACK PREPARED 'forgotten'", database=database)

    assert "prepared transaction 'forgotten'" in found["database.old_transaction"].problem


def test_transaction_that_the_login_may_not_see_counts_by_what_began_after_it(
    site: Installation, postgres: PostgresServer, database: str
) -> None:
    postgres.login("works", "slumberd_daemon")
    limited = installation_on(
        site.state.with_name("limited"), postgres.address_of(database, login="works")
    )
    with psycopg.connect(postgres.address_of(database)) as other:
        other.execute(b"CREATE TEMP TABLE t (n int)")
        for _ in range(3):
            postgres.run("SELECT pg_current_xact_id()", database=database)

        found = find(limited, replace(UNLIMITED, xids=2))
        few = find(limited)

    problem = found["database.old_transaction"].problem
    assert int(problem.split()[-2]) >= 3
    assert "database.old_transaction" not in few


def test_table_with_many_old_versions_of_rows_is_a_finding(
    site: Installation, postgres: PostgresServer, database: str
) -> None:
    postgres.run(
        "ALTER TABLE slumberd_0.inbox SET (autovacuum_enabled = off)",
        "INSERT INTO slumberd_0.inbox (eid) SELECT n FROM generate_series(1, 500) AS n",
        "DELETE FROM slumberd_0.inbox",
        database=database,
    )

    def found() -> dict[str, Finding]:
        return find(site, replace(UNLIMITED, dead_rows=400))

    wait_until(lambda: "database.dead_rows" in found())
    assert "VACUUM slumberd_0.inbox" in found()["database.dead_rows"].remedy
    assert "database.dead_rows" not in find(site, replace(UNLIMITED, dead_rows=600))


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        pytest.param("synchronous_commit = off", "database.not_durable", id="no waiting for disk"),
        pytest.param("default_transaction_read_only = on", "database.read_only", id="read only"),
    ],
)
def test_setting_that_breaks_a_promise_is_a_finding(
    tmp_path: Path, durable_server: OwnServer, setting: str, kind: str
) -> None:
    with installation_on_server(durable_server, tmp_path) as site:
        sound = find(site)
        name = durable_database(site)
        durable_server.run(f"ALTER DATABASE {name} SET {setting}")

        found = find(site)

    assert kind not in sound
    assert kind in found


def durable_database(site: Installation) -> str:
    return site.config.read_text().strip().rpartition("/")[2]


def test_server_without_fsync_is_a_finding(site: Installation) -> None:
    assert "database.not_durable" in find(site)


@pytest.mark.nightly
def test_replica_is_a_finding(tmp_path: Path, durable_server: OwnServer) -> None:
    with installation_on_server(durable_server, tmp_path) as site:
        site.put(TEA)
        with durable_server.replica() as replica:
            address = replica.address_of(durable_database(site))
            reading = installation_on(tmp_path / "reading", address)

            found = find(reading)
            shown = reading.call("recent", "alice").stdout
            exported = reading.call("export")
            fired = reading.call("fire", "--all")

    assert "database.read_only" in found
    assert "e1" in shown
    assert exported.returncode == 0
    assert fired.returncode == 77


@pytest.mark.nightly
def test_transactions_that_run_out_are_a_finding(tmp_path: Path) -> None:
    if programs() is None:
        skip_without_programs()
    with (
        running_server(autovacuum="off") as server,  # it would freeze the rows
        installation_on_server(server, tmp_path) as site,
    ):
        young = find(site)
        server.skip_transactions(1_600_000_000)

        found = find(site)

    assert "database.wraparound" not in young
    assert "VACUUM (FREEZE)" in found["database.wraparound"].remedy


def test_each_urgent_finding_of_a_database_is_reported_by_status_check(
    site: Installation, postgres: PostgresServer, database: str
) -> None:
    postgres.run(
        "UPDATE slumberd_0.lease SET held_until = '-infinity'",
        "INSERT INTO slumberd.hosts VALUES ('a/1', clock_timestamp(),"
        ' \'{"clock_offset_seconds": 9, "version": "1"}\'),'
        " ('b/1', clock_timestamp(), '{\"version\": \"2\"}')",
        database=database,
    )

    found: list[dict[str, Any]] = json.loads(site.call("status", "--check", "--json").stdout)[
        "findings"
    ]

    ids = {each["id"] for each in found}
    assert ids >= {"daemon.down", "database.not_durable", "host.clock", "hosts.differ"}
    assert ids - {"daemon.down"} <= URGENT


def test_status_shows_shards_hosts_and_what_waits(
    site: Installation, postgres: PostgresServer, postgres_address: str, database: str
) -> None:
    site.put(triple("e2", "ada", "likes", "rum", timestamp=at(2)))
    postgres.run(
        HELD,
        "UPDATE slumberd_0.inbox SET put_at = put_at - interval '90 s'",
        "INSERT INTO slumberd_0.requests (operation, request, host) VALUES ('fire', '', 'c')",
        "INSERT INTO slumberd.hosts VALUES ('a/1', clock_timestamp(),"
        ' \'{"role": "active", "version": "1.0", "rules_hash": "abc",'
        ' "clock_offset_seconds": 0.25}\')',
        database=database,
    )

    shown = site.call("status").stdout
    document = site.lines("status")[0]["database"]

    assert "shard 0: held by a/1, for 3" in shown
    host = r"a/1: active, slumberd 1\.0, rules abc, clock \+0\.250 s, seen \d+ s ago"
    assert re.search(host, shown)
    assert re.search(r"1 version without a number, the oldest for (9\d|\d{3,}) s", shown)
    assert "1 request without an answer" in shown
    assert document["shards"][0]["holder"] == "a/1"
    assert 90 <= document["unnumbered_seconds"] < 600
    assert document["bytes"] > 100_000
