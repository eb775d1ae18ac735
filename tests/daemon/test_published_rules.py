"""Rules that are published in a database come into force on every host that uses it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.daemons import Daemon, Home
from tests.support.functions import FIND, MODULE, importable, write_module
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.acceptance

PUBLISHED = {"lease": "3s", "rules": "published"}


def host_on(folder: Path, address: str) -> Home:
    """Return a host that takes the published rules and has no rules of its own."""
    home = Home(folder, {"store": address, "postgres": PUBLISHED})
    home.rules.rmdir()
    return home


@pytest.fixture
def author(tmp_path: Path, postgres_address: str) -> Home:
    """Return the place from which a person publishes."""
    home = Home(tmp_path / "author", {"store": postgres_address})
    home.rule("all", cadence={"every": 1})
    return home


@pytest.fixture
def first(tmp_path: Path, postgres_address: str) -> Home:
    return host_on(tmp_path / "first", postgres_address)


@pytest.fixture
def second(tmp_path: Path, postgres_address: str) -> Home:
    return host_on(tmp_path / "second", postgres_address)


def lines(text: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in text.splitlines()]


def rule_ids(home: Home) -> list[str]:
    return [rule["id"] for rule in lines(home.call("rules", "--json").stdout)]


def add_comment(home: Home) -> None:
    """Change a file, and no rule."""
    file = home.rules / "all.yaml"
    file.write_bytes(file.read_bytes() + b"# all")


def versions_of_hosts(postgres: PostgresServer, address: str) -> list[Any]:
    sql = "SELECT state -> 'rules_version' FROM slumberd.hosts ORDER BY name"
    return [row[0] for row in postgres.rows(sql, address.rpartition("/")[2])]


def test_commands_use_the_newest_published_rules(author: Home, first: Home) -> None:
    unpublished = first.call("check", check=False)
    started = first.call("run", check=False)
    published = author.call("rules", "publish", "--by", "ann", "--reason", "first")
    author.rule("later", cadence={"every": 1})
    again = author.call("rules", "publish", "--expect", "1")

    assert unpublished.returncode == started.returncode == 78
    assert "no rules were published yet; `slumberd rules publish`" in unpublished.stdout
    assert published.stdout.startswith("published version 1: 1 file, rules ")
    assert again.stdout.startswith("published version 2: 2 files, rules ")
    assert rule_ids(first) == ["all", "later"]
    assert "valid: 2 rules in 2 files: all, later" in first.call("check").stdout
    assert "later" in first.call("next").stdout
    assert "all" in first.call("fire", "--all").stdout
    assert "published/2/later.yaml" in first.call("rules").stdout


def test_doctor_needs_no_directory_of_rules_and_reports_what_is_missing(
    author: Home, first: Home
) -> None:
    unpublished = first.call("doctor", check=False).stdout
    author.call("rules", "publish")
    published = first.call("doctor", check=False).stdout
    first.configure({**first.settings, "store": "postgresql://127.0.0.1:1/nowhere"})
    away = first.call("doctor", check=False).stdout
    started = first.slumberd("run", check=False)

    assert "config.invalid" in unpublished
    assert "no rules were published yet" in unpublished
    assert "config.invalid" not in published
    assert str(first.rules) not in published
    assert "database.unreachable" in away
    assert started.returncode == 69
    assert '"event":"daemon.failed"' in started.stderr


@pytest.mark.path
def test_versions_are_listed_and_written_to_be_published_again(
    author: Home, first: Home, tmp_path: Path
) -> None:
    assert "no rules were published" in author.call("rules", "published").stderr
    author.call("rules", "publish", "--by", "ann", "--reason", "first")
    author.rule("all", cadence={"every": 2})
    author.call("rules", "publish")
    older = tmp_path / "older"
    author.call("rules", "published", "1", "--to", older)
    same = author.call("rules", "publish", author.rules)
    undone = author.call("rules", "publish", older, "--json")
    newest, *_, oldest = lines(author.call("rules", "published", "--json").stdout)
    limited = lines(author.call("rules", "published", "--json", "--limit", "1").stdout)
    one = lines(author.call("rules", "published", "1", "--json").stdout)

    assert same.stdout == "version 2 has the same files already: nothing was published\n"
    assert [file.name for file in older.iterdir()] == ["all.yaml"]
    assert orjson.loads(undone.stdout)["version"] == newest["version"] == 3
    assert newest["by"].endswith(f"@{socket.gethostname()}")
    assert (oldest["by"], oldest["reason"], oldest["files"]) == ("ann", "first", ["all.yaml"])
    assert oldest["rules_hash"] == newest["rules_hash"]
    assert (limited, one) == ([newest], [oldest])
    (rule,) = lines(first.call("rules", "--json").stdout)
    assert rule["cadence"] == {"every": 1}


@pytest.mark.path
def test_mistakes_and_surprises_publish_nothing(author: Home, tmp_path: Path) -> None:
    author.call("rules", "publish")
    before = author.call("rules", "published").stdout
    surprised = author.call("rules", "publish", "--expect", "0", check=False)
    (author.rules / "wrong.yaml").write_text("rules: [{id: wrong}]")
    checked = author.call("check", check=False)
    wrong = author.call("rules", "publish", check=False)
    as_json = author.call("rules", "publish", "--json", check=False)
    unknown = author.call("rules", "published", "7", check=False)
    full = author.call("rules", "published", "--to", author.rules, check=False)
    files = Home(tmp_path / "files").call("rules", "publish", check=False)

    assert surprised.returncode == 75
    assert "the newest published rules are version 1, not 0" in surprised.stderr
    assert wrong.returncode == checked.returncode == 78
    assert wrong.stdout == checked.stdout
    assert orjson.loads(as_json.stdout)["mistakes"][0]["file"].endswith("wrong.yaml")
    assert (unknown.returncode, full.returncode, files.returncode) == (66, 73, 64)
    assert author.call("rules", "published").stdout == before


@pytest.mark.path
def test_database_is_needed_for_published_rules(tmp_path: Path) -> None:
    home = Home(tmp_path, {"postgres": PUBLISHED})

    refused = home.call("check", check=False)

    assert refused.returncode == 78
    assert "postgres.rules: is 'published', and 'store' names no database" in refused.stdout


@pytest.mark.nightly
def test_running_daemons_load_rules_that_another_host_publishes(
    author: Home, first: Home, second: Home, postgres: PostgresServer, postgres_address: str
) -> None:
    author.call("rules", "publish")
    with first.started() as active, second.started(until="daemon.standby") as standby:
        author.rule("later", cadence={"every": 1})
        author.call("rules", "publish")
        reloaded = [daemon.wait_for("config.reloaded") for daemon in (active, standby)]
        wait_until(lambda: versions_of_hosts(postgres, postgres_address) == [2, 2])
        status = first.call("status").stdout
        hosts = orjson.loads(first.call("status", "--json").stdout)["database"]["hosts"]

        add_comment(author)
        author.call("rules", "publish")
        wait_until(lambda: versions_of_hosts(postgres, postgres_address) == [3, 3])
        assert (active.stop(), standby.stop()) == (0, 0)

    assert [(event["by"], event["added"]) for event in reloaded] == [("a publication", 1)] * 2
    assert status.count("(version 2), clock") == 2
    assert [host["rules_version"] for host in hosts] == [2, 2]
    assert not [event for event in active.seen if event["event"] == "hosts.rules_differ"]


def test_standby_takes_over_with_the_newest_rules(author: Home, first: Home, second: Home) -> None:
    author.call("rules", "publish")
    with first.started() as active, second.started(until="daemon.standby") as standby:
        author.rule("later", cadence={"every": 1})
        author.call("rules", "publish")
        active.kill()
        ready = standby.wait_for("daemon.ready")

        assert ready["rules"] == 2
        assert standby.stop() == 0


@pytest.mark.nightly
def test_reload_loads_the_newest_rules(author: Home, first: Home) -> None:
    author.call("rules", "publish")
    with first.daemon():
        shutil.copytree(author.rules, author.folder / "older")
        author.rule("later", cadence={"every": 1})
        author.call("rules", "publish")
        first.call("reload")
        assert "daemon uses other rules" not in first.call("status").stdout
        author.call("rules", "publish", author.folder / "older")
        taken_back = first.call("reload").stdout

    assert "hash" in taken_back
    assert rule_ids(first) == ["all"]


def wait_for_renewal(postgres: PostgresServer, address: str) -> None:
    """Wait until the only daemon tells again that it is alive."""
    seen, database = "SELECT seen_at FROM slumberd.hosts", address.rpartition("/")[2]
    before = postgres.rows(seen, database)
    wait_until(lambda: postgres.rows(seen, database) != before)


def reload_failures(daemon: Daemon) -> int:
    return sum(event["event"] == "config.reload_failed" for event in daemon.seen)


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Path]:
    """Provide a directory with a Python module that this process can import."""
    folder = tmp_path / "modules"
    folder.mkdir()
    with importable(folder):
        write_module(folder, FIND)
        yield folder


@pytest.mark.nightly
def test_host_that_lacks_a_function_keeps_its_rules_until_it_has_it(
    author: Home, first: Home, module: Path, postgres: PostgresServer, postgres_address: str
) -> None:
    author.call("rules", "publish")
    with first.started() as daemon:
        extract = {"extract": {"with": f"python:{MODULE}:find"}}
        author.rule("all", cadence={"every": 1}, stages=[extract])
        author.call("rules", "publish")
        failed = daemon.wait_for("config.reload_failed")
        for _ in range(2):  # the daemon sees the version again, and does not load it again
            wait_for_renewal(postgres, postgres_address)
        kept = versions_of_hosts(postgres, postgres_address)

        author.rule("all", cadence={"every": 3})
        author.call("rules", "publish")
        reloaded = daemon.wait_for("config.reloaded")
        assert daemon.stop() == 0

    assert failed["by"] == "a publication"
    assert failed["errors"][0].startswith("published/2/all.yaml:1:")
    assert f"there is no module '{MODULE}'" in failed["errors"][0]
    assert kept == [1]
    assert (reloaded["changed"], reload_failures(daemon)) == (1, 1)


def test_daemon_changes_from_files_to_published_rules_at_a_reload(
    author: Home, first: Home
) -> None:
    first.rules.mkdir()
    first.rule("own", cadence={"every": 1})
    first.configure({**first.settings, "postgres": {"lease": "3s"}})
    author.call("rules", "publish")
    with first.started() as daemon:
        first.configure(first.settings)
        outdated = first.call("doctor", check=False).stdout
        first.call("reload")
        changed = daemon.wait_for("config.reloaded")
        author.rule("later", cadence={"every": 1})
        author.call("rules", "publish")
        published = daemon.wait_for("config.reloaded")
        assert daemon.stop() == 0

    assert "another value of postgres.rules than the file" in outdated
    assert (changed["added"], changed["removed"]) == (1, 1)
    assert (published["by"], published["added"]) == ("a publication", 1)
    assert not [event for event in daemon.seen if event["event"] == "config.restart_needed"]


def test_daemons_of_shards_load_published_rules(tmp_path: Path, postgres: PostgresServer) -> None:
    with postgres.database(shards=2) as name:
        address = postgres.address_of(name)
        author = Home(tmp_path / "author", {"store": address})
        author.rule("all", cadence={"every": 1})
        author.call("rules", "publish")
        host = host_on(tmp_path / "host", address)
        with host.started(until="shards.held") as daemon:
            daemon.wait_for("daemon.ready")
            daemon.wait_for("daemon.ready")
            author.rule("later", cadence={"every": 1})
            author.call("rules", "publish")
            reloaded = [daemon.wait_for("config.reloaded") for _ in range(2)]
            wait_until(lambda: versions_of_hosts(postgres, address) == [2])
            add_comment(author)
            author.call("rules", "publish")
            wait_until(lambda: versions_of_hosts(postgres, address) == [3])
            assert daemon.stop() == 0

    assert {event["shard"] for event in reloaded} == {0, 1}
    assert {(event["by"], event["added"]) for event in reloaded} == {("a publication", 1)}
